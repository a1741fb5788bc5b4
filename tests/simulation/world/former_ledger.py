"""Another ledger of the same id: the metadata store went back to before that ledger's creation, and gave its id out again.

Its entries lie on some bookies, or come late, from a writer and a recoverer that were under way when the store went back. They
look at no answer. The present ledger's readers must never get any of it: I12 and all that counts entries say so. A bookie that
took the former ledger first has nothing of the present one, as if it had lost its copies (history.foreign).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from bk_spark.config import ClientConfig
from bk_spark.entries.batch import encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import DENSE
from bk_spark.wire.messages import AddRequest, ReadRequest
from tests.simulation.engines.choices import Choices
from tests.simulation.world.client_process import ClientProcess
from tests.simulation.world.messages import FORMER
from tests.simulation.world.world import World

FORMER_PERCENT = 12
"""Of all runs."""

FORMER_TOKEN = 2
LATEST_MS = 2_000


@dataclass(frozen=True, slots=True)
class FormerPlan:
    """``targets`` get the first ``entries`` of the former ledger, each at its time; some runs fence it, too."""

    targets: tuple[tuple[str, int], ...]
    entries: int
    fences: bool
    lead_ms: int
    """How long before the present ledger's writer begins."""


def draw_former(choices: Choices, bookies: tuple[str, ...], ack_quorum: int) -> FormerPlan | None:
    """Fewer than Qa bookies hold it, so that enough are left for the present ledger."""
    if ack_quorum == 1 or not choices.chance(FORMER_PERCENT, "metadata store goes back"):
        return None
    count = choices.between(1, ack_quorum - 1, "bookies of the former ledger")
    first = choices.choose(len(bookies), "first bookie of the former ledger")
    names = [bookies[(first + number) % len(bookies)] for number in range(count)]
    targets = tuple((name, choices.pick((0, 0, LATEST_MS), "former ledger comes")) for name in names)
    entries = choices.between(1, 6, "entries of the former ledger")
    return FormerPlan(targets, entries, choices.chance(25, "former ledger is fenced"), choices.pick((1_000, 20, 0), "lead"))


def former_adds(metadata: LedgerMetadata, bookie_id: str, entries: int) -> Iterator[AddRequest]:
    """One entry each. The former ledger had the same password."""
    digester = Digester(metadata.digest_type, metadata.password)
    key = master_key(metadata.password, FORMER_TOKEN)
    length = 0
    for entry_id in range(entries):
        payloads = pa.array([b"former %d" % entry_id], pa.binary())
        sealed = seal(digester, metadata.ledger_id, entry_id, payloads, length_before=length, last_add_confirmed=entry_id - 1)
        length = int(sealed.lengths[-1])
        batch = encode(sealed, metadata.digest_type, DENSE)
        assert batch is not None
        yield AddRequest(entry_id, bookie_id, key, batch, recovery=entry_id % 2 == 1)


class FormerClients(ClientProcess):
    """Sends what is left to send of the former ledger."""

    def __init__(self, world: World, plan: FormerPlan, present: LedgerMetadata) -> None:
        super().__init__(FORMER, world, ClientConfig())
        self._plan = plan
        self._present = present
        world.invariants.history.foreign.update(name for name, _ in plan.targets)

    def begin(self) -> None:
        self.world.count("metadata store goes back")
        for name, within_ms in self._plan.targets:
            at_ms = self.world.choices.choose(within_ms + 1, "former ledger at")
            self.later(at_ms, lambda name=name: self._send(name))  # type: ignore[misc]

    def _send(self, bookie_id: str) -> None:
        for request in former_adds(self._present, bookie_id, self._plan.entries):
            self.call(bookie_id, request, lambda _: None)
        if self._plan.fences:
            key = master_key(self._present.password, FORMER_TOKEN)
            read = ReadRequest(bookie_id, self._present.ledger_id, key, 0, 0, DENSE, 1_000, fence=True)
            self.call(bookie_id, read, lambda _: None)
