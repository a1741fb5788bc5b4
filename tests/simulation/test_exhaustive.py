"""Every schedule of small scopes, and that the engine which says so would notice if one did harm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.bookie.bookie import Bookie
from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    Event,
    LastAddConfirmedAnswered,
    ReadArrived,
    ReadEnded,
    SendAdd,
    SendRead,
    SendReadLastAddConfirmed,
)
from bk_spark.config import DigestType
from bk_spark.entries.batch import EncodedBatch, decode, encode, seal
from bk_spark.entries.digest import Digester
from bk_spark.quorum import DENSE
from bk_spark.wire.messages import AddReply, AddRequest, FenceRequest, LastAddConfirmedRequest, ReadBatch, ReadRequest
from tests.budget import examples
from tests.simulation.engines.exhaustive import KEY, Scope, search
from tests.simulation.engines.schedule import LEDGER_ID, tiny_config
from tests.simulation.mutants.recovery_mutants import one_negative_is_enough
from tests.simulation.mutants.writer_mutants import close_at_what_was_pushed
from tests.simulation.world.model_bookie import ModelBookie, Request
from tests.simulation.world.simulated_disk import SimulatedDisk
from tests.simulation.world.simulated_index import open_simulated_index

SMALL = (
    (Scope((2, 2, 1), closes=True), 10_000),
    (Scope((2, 2, 2), closes=True), 25_000),
    (Scope((1, 1, 1), entries=2, closes=True, recoverers=2), 1_000),
)
"""Scopes that are exhausted in a few seconds, and how many states there are at least: a search may also be too narrow."""


@pytest.mark.parametrize(("scope", "minimum"), SMALL, ids=str)
def test_no_schedule_of_a_small_scope_does_harm(scope: Scope, minimum: int) -> None:
    found = search(scope, 100_000)
    assert found.violation is None, "\n".join(found.trace)
    assert found.is_exhausted
    assert found.states >= minimum


def test_an_ensemble_change_beside_a_recovery_does_no_harm_as_far_as_is_seen() -> None:
    found = search(Scope((2, 2, 2), spares=1, timeouts=1), 10_000)
    assert found.violation is None, "\n".join(found.trace)


def test_a_violation_comes_with_a_shortest_way_to_it() -> None:
    with close_at_what_was_pushed():
        found = search(Scope((2, 2, 2), closes=True), 1_000)
    assert found.violation is not None
    assert found.violation.invariant == "I8"
    assert [line.split(" ")[0] for line in found.trace] == ["append", "close", "client", "I8:"]


def test_a_search_says_when_its_bound_ended_it() -> None:
    found = search(Scope((2, 2, 2)), 100)
    assert (found.is_exhausted, found.violation) == (False, None)


def test_the_same_search_finds_the_same_again() -> None:
    with one_negative_is_enough():
        first, second = (search(Scope((2, 2, 1)), 10_000) for _ in range(2))
    assert (first.states, first.trace) == (second.states, second.trace)
    assert first.violation is not None


# --- the model bookie against the shipped one


class _RealBookie:
    """Answers what a client's driver would give to its state machine."""

    def __init__(self) -> None:
        disk = SimulatedDisk(1)
        config = tiny_config(300, 1)
        self._bookie = Bookie.open(Path("/b1"), "b1", config, disk, open_index=open_simulated_index, durable_wait_s=0)

    def receive(self, request: Request) -> tuple[Event, ...]:
        number, bookie = request.request_id, self._bookie
        if isinstance(request, SendAdd):
            bookie.stage(AddRequest(number, "b1", KEY, request.batch, request.recovery), None)
            ((_, reply),) = bookie.sync()
            assert isinstance(reply, AddReply)
            return (AddAnswered(number, reply.status),)
        if request.fence:
            bookie.stage(FenceRequest("b1", LEDGER_ID, KEY), None)
            bookie.sync()
        if isinstance(request, SendReadLastAddConfirmed):
            lac = bookie.read_last_add_confirmed(LastAddConfirmedRequest("b1", LEDGER_ID, KEY, request.fence))
            return (LastAddConfirmedAnswered(number, lac.status, lac.last_add_confirmed, "", lac.is_fenced),)
        read = ReadRequest("b1", LEDGER_ID, KEY, request.first, request.last, DENSE, 100_000, request.fence)
        return tuple(
            ReadArrived(number, one.batch)
            if isinstance(one, ReadBatch)
            else ReadEnded(number, one.status, "", one.next_entry_id)
            for one in bookie.read(read)
        )


def _batch(entry_id: int, last_add_confirmed: int) -> EncodedBatch:
    payloads = pa.array([b"%d" % entry_id], pa.binary())
    digester = Digester(DigestType.CRC32C, b"")
    one = encode(
        seal(digester, LEDGER_ID, entry_id, payloads, length_before=entry_id, last_add_confirmed=last_add_confirmed),
        DigestType.CRC32C,
    )
    assert one is not None
    return one


def _content(answer: Sequence[Event]) -> list[object]:
    """Entry by entry: a bookie that has checkpointed small batches answers with joined ones."""
    content: list[object] = []
    for event in answer:
        if isinstance(event, ReadArrived):
            entries = decode(event.batch)
            columns = (entries.entry_ids, entries.last_add_confirmed, entries.lengths)
            rest = (entries.digests.to_pylist(), entries.payloads.to_pylist())
            content += zip(*(one.tolist() for one in columns), *rest, strict=True)
        else:
            content.append(event)
    return content


_adds = st.builds(
    lambda entry_id, below, recovery: SendAdd(1, "b1", _batch(entry_id, max(-1, entry_id - below)), recovery),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
)
_reads = st.builds(
    lambda first, count, fence: SendRead(1, "b1", first, first + count, DENSE, 100_000, fence),
    st.integers(0, 3),
    st.integers(0, 2),
    st.booleans(),
)
_lacs = st.builds(lambda fence: SendReadLastAddConfirmed(1, "b1", fence), st.booleans())


@examples(60)
@given(st.lists(_adds | _reads | _lacs, max_size=12))
def test_the_model_bookie_answers_what_the_shipped_one_answers(requests: list[Request]) -> None:
    real, model = _RealBookie(), ModelBookie()
    for request in requests:
        model, answer = model.receive(request)
        assert _content(answer) == _content(real.receive(request))
