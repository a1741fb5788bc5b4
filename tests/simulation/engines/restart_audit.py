"""What a bookie that was started again must know: every entry and the fence that it once acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from bk_spark.bookie.bookie import Bookie
from bk_spark.quorum import DENSE
from bk_spark.wire.messages import LastAddConfirmedRequest, ReadEnd, ReadRequest
from tests.simulation.world.world import World


def audit(name: str, bookie: Bookie, world: World) -> None:
    """After a start: what this bookie acknowledged is there, and fences are in force; limbo may only not know."""
    invariants = world.invariants
    is_lossy = name in invariants.history.lossy
    for first, last in _stretches(sorted(invariants.history.acknowledged.get(name, ()))):
        request = ReadRequest(name, world.ledger_id, world.master_key, first, last, DENSE, 1 << 20)
        *_, end = bookie.read(request)
        assert isinstance(end, ReadEnd)
        invariants.read_answered(name, request, end)
        lost = f"{name} lost entry {end.next_entry_id}, which it had acknowledged, over a restart: {end.describe()}"
        invariants.require(is_lossy or end.next_entry_id == last + 1, "I3", lost)
    if name in invariants.history.fenced - invariants.history.forgotten and not is_lossy:
        reply = bookie.read_last_add_confirmed(LastAddConfirmedRequest(name, world.ledger_id, world.master_key))
        forgotten = f"{name} forgot over a restart that it had fenced the ledger: {reply.describe()}"
        invariants.require(reply.is_fenced, "I10", forgotten)


def _stretches(ids: list[int]) -> Iterator[tuple[int, int]]:
    """Ascending ids as intervals without gaps."""
    start = 0
    for place in range(1, len(ids) + 1):
        if place == len(ids) or ids[place] != ids[place - 1] + 1:
            yield ids[start], ids[place - 1]
            start = place
