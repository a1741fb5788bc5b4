"""The fencing phase of a recovery: no ack quorum of the last fragment may be able to take an old writer's add.

Every bookie of the ensemble is told to fence the ledger and asked for its last add confirmed (LAC). A slot is *known* once
it answered OK, from a fenced ledger, or explicitly that it holds nothing, which it says only after fencing too. Anything
else is unknown, and the slot is asked again. The phase is over once every write set has fewer than Qa unknown slots: then
no entry can collect its ack quorum any more without a fenced bookie's ack.

The answers also give the *floor*, up to which all entries are confirmed: the highest LAC, and at least the entry before the
last fragment, which only started after everything below it was confirmed. A LAC answer carries no digest, so a bookie that
errs could name any floor; whoever uses it must read the entry at the floor, which has one.

Ref: the BookKeeper protocol, "Closing a ledger as a reader"; docs/rules.md, protocol rules 2, 3, 6 and 15.
"""

from __future__ import annotations

from bk_spark.client.asking import Asking
from bk_spark.client.operation import Command, LastAddConfirmedAnswered, SendReadLastAddConfirmed
from bk_spark.errors import BookieUnavailableError, BookKeeperError, UnauthorizedAccessError
from bk_spark.ledger_metadata import LedgerMetadata
from bk_spark.quorum import is_covered
from bk_spark.wire import Status, Verdict


class RecoveryFencing:
    """Fences the last fragment of ``metadata``. Over when ``is_done``, or there is an ``error``."""

    def __init__(self, metadata: LedgerMetadata, asking: Asking) -> None:
        self.floor = metadata.last_fragment.first_entry_id - 1
        """All entries up to it are confirmed, as far as is known; -1: none."""
        self.error: BookKeeperError | None = None
        self._metadata = metadata
        self._asking = asking
        self._known: set[int] = set()

    @property
    def is_done(self) -> bool:
        metadata = self._metadata
        return is_covered(frozenset(self._known), metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)

    def answered(self, event: LastAddConfirmedAnswered, now_ms: int) -> None:
        slot = self._asking.slot_of(event.request_id)
        if slot is None:
            return
        if event.status is Status.UNAUTHORIZED:
            self.error = UnauthorizedAccessError(self._metadata.ledger_id)
        elif event.status.verdict is Verdict.UNKNOWN:
            self._asking.failed(slot, f"{event.status.name} {event.detail}".rstrip(), now_ms)
        elif event.status is Status.OK and not event.is_fenced:
            self._asking.failed(slot, "it answered without having fenced the ledger", now_ms)
        else:
            self._learn(slot, event, now_ms)

    def go_on(self, now_ms: int) -> list[Command]:
        """Ask whom there is to ask."""
        self._asking.time_out(now_ms)
        if self.error is None and not self.is_done and self._asking.is_hopeless(now_ms):
            self.error = self._unavailable()
        if self.error is not None or self.is_done:
            return []
        ensemble = self._metadata.last_fragment.ensemble
        slots = [slot for slot in range(len(ensemble)) if slot not in self._known and self._asking.may_ask(slot, now_ms)]
        return [SendReadLastAddConfirmed(self._asking.ask(slot, now_ms), ensemble[slot], fence=True) for slot in slots]

    def deadline_ms(self) -> int:
        return self._asking.deadline_ms()

    def _learn(self, slot: int, event: LastAddConfirmedAnswered, now_ms: int) -> None:
        self._asking.answered(slot)
        self._asking.learnt(now_ms)
        self._known.add(slot)
        if event.status is Status.OK:
            self.floor = max(self.floor, event.last_add_confirmed)

    def _unavailable(self) -> BookieUnavailableError:
        ensemble = self._metadata.last_fragment.ensemble
        unknown = [slot for slot in range(len(ensemble)) if slot not in self._known]
        reasons = tuple(f"{ensemble[slot]}: {self._asking.reason(slot)}" for slot in unknown)
        return BookieUnavailableError(self._metadata.ledger_id, self.floor + 1, reasons)
