"""The fencing of a recovery: afterwards no ack quorum of the last fragment can accept an old writer's add.

Every bookie of the ensemble is told to fence the ledger and asked for its last add confirmed (LAC). A slot is *known* once
it answered OK, from a fenced ledger, or explicitly that it holds nothing, which it says only after fencing too. Anything
else is unknown, and the slot is asked again. The phase is over once every write set has fewer than Qa unknown slots: then
no entry can collect its ack quorum any more without a fenced bookie's ack.

The answers also give the ``floor``, up to which all entries are confirmed: the highest LAC, and at least the entry before
the last fragment, which only started after everything below it was confirmed. A LAC answer carries no digest, so a faulty
bookie could name any floor: before the floor is used, the entry there must be read, which has a digest.

Ref: docs/rules.md, protocol rules 2, 3, 6 and 15.
"""

from __future__ import annotations

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.asking import Asking
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.quorum import is_covered
from bk_spark.wire.messages import Status, Verdict


class RecoveryFencing:
    """Fences one ensemble. It has ended when ``is_done``, or when there is an ``error``."""

    def __init__(self, metadata: LedgerMetadata, asking: Asking) -> None:
        self.floor = metadata.last_fragment.first_entry_id - 1
        """All entries up to it are known to be confirmed; -1: none."""
        self.error: BookKeeperError | None = None
        self._metadata = metadata
        self._asking = asking
        self._known: set[int] = set()

    @property
    def is_done(self) -> bool:
        metadata = self._metadata
        return is_covered(frozenset(self._known), metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)

    def answered(self, event: sm.LastAddConfirmedAnswered, now_ms: int) -> None:
        slot = self._asking.slot_of(event.request_id)
        if slot is None:
            return
        if event.status.verdict is Verdict.UNKNOWN:
            self._asking.failed(slot, event.problem, now_ms)
        elif event.status is Status.OK and not event.is_fenced:
            self._asking.failed(slot, "it answered without having fenced the ledger", now_ms)
        else:
            self._learn(slot, event, now_ms)

    def go_on(self, now_ms: int) -> list[sm.Command]:
        """Ask the slots that are not known and may be asked now."""
        self._asking.time_out(now_ms)
        if self.error is None and not self.is_done and self._asking.is_hopeless(now_ms):
            self.error = self._asking.unavailable(self.floor + 1, self._unknown())
        if self.error is not None or self.is_done:
            return []
        ensemble = self._metadata.last_fragment.ensemble
        slots = [slot for slot in self._unknown() if self._asking.may_ask(slot, now_ms)]
        return [sm.SendReadLastAddConfirmed(self._asking.ask(slot, now_ms), ensemble[slot], fence=True) for slot in slots]

    def deadline_ms(self) -> int:
        return self._asking.deadline_ms()

    def _learn(self, slot: int, event: sm.LastAddConfirmedAnswered, now_ms: int) -> None:
        assert slot not in self._known
        self._asking.answered(slot)
        self._asking.learnt(now_ms)
        self._known.add(slot)
        if event.status is Status.OK:
            self.floor = max(self.floor, event.last_add_confirmed)

    def _unknown(self) -> list[int]:
        return [slot for slot in range(self._metadata.ensemble_size) if slot not in self._known]
