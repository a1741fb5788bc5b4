"""Bugs of the writer and of its metadata writes.

Each takes one guard out of the shipped code for as long as its context lasts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from bk_spark.client.protocol import update_metadata
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.last_add_confirmed import ExplicitLac
from bk_spark.client.protocol.pending_adds import KnownGaps, PendingAdds, has_ack_quorum
from bk_spark.client.protocol.state_machine import AddAnswered, MetadataUnknown, MetadataWritten
from bk_spark.client.protocol.update_metadata import UpdateMetadata
from bk_spark.client.protocol.writer import append_batches, writer_ensemble
from bk_spark.client.protocol.writer.writer_ensemble import ChangeEnsemble, WriterEnsemble
from bk_spark.client.protocol.writer.writer_states import Life
from bk_spark.entries import batch as entry
from bk_spark.metadata.ledger_metadata import LedgerState
from bk_spark.wire.messages import Status
from tests.simulation.mutants.mutant import all_of
from tests.simulation.world.metadata_store import SimulatedMetadataStore


def replaced_bookies_keep_their_acks() -> Any:
    return patch.object(PendingAdds, "forget_acks", lambda self, slots: None)


def late_acks_of_replaced_bookies_count() -> Any:
    """An answer to a request that is void counts for the slot, whoever stands there now."""
    cancel, answered = PendingAdds.cancel, PendingAdds.answered

    def keep(self: Any, slots: Any) -> list[int]:
        late = vars(self).setdefault("late", {})
        late.update((number, request) for number, request in self._requests.items() if request.slot in slots)
        return cancel(self, slots)

    def answered_late(self: Any, request_id: int) -> Any:
        return answered(self, request_id) or vars(self).get("late", {}).get(request_id)

    return all_of(patch.object(PendingAdds, "cancel", keep), patch.object(PendingAdds, "answered", answered_late))


def new_fragment_starts_behind_what_was_pushed() -> Any:
    return patch.object(AddEntries, "_next_unconfirmed", property(lambda self: self.last_add_pushed + 1))


def close_at_what_was_pushed() -> Any:
    def begin(self: Any) -> None:
        confirmed, length = self.last_add_confirmed, self.length
        self.last_add_confirmed, self.length = self._batches.last, self._batches.length
        original(self)
        self.last_add_confirmed, self.length = confirmed, length

    original = AddEntries._begin_close
    return patch.object(AddEntries, "_begin_close", begin)


def compare_and_set_does_not_compare() -> Any:
    original = SimulatedMetadataStore.set

    def set_anyway(self: Any, source: str, request: Any) -> Any:
        return original(self, source, replace(request, expected_version=len(self._values) - 1))

    return patch.object(SimulatedMetadataStore, "set", set_anyway)


def confirms_out_of_order() -> Any:
    original = AddEntries._confirm_in_order

    def confirm(self: Any) -> None:
        complete = [one for one in self._pending.unconfirmed if has_ack_quorum(one, self.metadata)]
        for batch in complete if not self._ensemble.is_changing else ():
            self._pending.unconfirmed.remove(batch)
            self._pending.unconfirmed.appendleft(batch)
            original(self)

    return patch.object(AddEntries, "_confirm_in_order", confirm)


def confirms_while_the_ensemble_changes() -> Any:
    original = AddEntries._confirm_in_order

    def confirm(self: Any) -> None:
        state, self._state = self._state, Life.WRITING
        original(self)
        self._state = state

    return patch.object(AddEntries, "_confirm_in_order", confirm)


def confirms_between_taking_acks_back() -> Any:
    """Issue 3005: batch by batch, acks are taken back and what is complete is confirmed."""
    original = AddEntries._ensemble_acted

    def confirm(self: Any) -> None:
        state, self._state = self._state, Life.WRITING
        self._confirm_in_order()
        self._state = state

    def acted(self: Any, commands: Any, now_ms: int) -> None:
        def forget(pending: Any, slots: Any) -> None:
            for batch in list(pending.unconfirmed):
                batch.acked.difference_update(slots)
                if slots:
                    confirm(self)

        with patch.object(PendingAdds, "forget_acks", forget):
            original(self, commands, now_ms)

    return patch.object(AddEntries, "_ensemble_acted", acted)


def adds_carry_what_was_pushed_as_lac() -> Any:

    def seal(digester: Any, ledger_id: int, first: int, payloads: Any, **given: Any) -> Any:
        return entry.seal(digester, ledger_id, first, payloads, **{**given, "last_add_confirmed": first - 1})

    return patch.object(append_batches, "seal", seal)


def nothing_is_resent_to_new_bookies() -> Any:
    original = AddEntries._ensemble_acted

    def acted(self: Any, commands: Any, now_ms: int) -> None:
        with patch.object(AddEntries, "_send", lambda *args: None):
            original(self, commands, now_ms)

    return patch.object(AddEntries, "_ensemble_acted", acted)


def an_ack_that_comes_twice_counts_twice() -> Any:
    """The network doubles every answer to an add, and the writer counts answers instead of bookies."""
    original = AddEntries._answered

    def answered(self: Any, event: AddAnswered, now_ms: int) -> None:
        request = self._pending._requests.get(event.request_id)
        if request is not None and event.status is Status.OK and not isinstance(request.batch.acked, _Acks):
            request.batch.acked = _Acks()
        original(self, event, now_ms)

    return patch.object(AddEntries, "_answered", answered)


class _Acks(set[int]):
    """Each ack counts twice."""

    def intersection(self, *others: Any) -> Any:
        return 2 * sorted(super().intersection(*others))


def fenced_writer_goes_on() -> Any:
    """A bookie that says that the ledger is fenced is taken for one that fails."""
    original = AddEntries._answered

    def answered(self: Any, event: AddAnswered, now_ms: int) -> None:
        original(self, replace(event, status=Status.IO_ERROR) if event.status is Status.FENCED else event, now_ms)

    return patch.object(AddEntries, "_answered", answered)


def ensemble_change_whatever_the_state() -> Any:
    """A writer changes its ensemble in a ledger that is in recovery, too."""
    original = writer_ensemble._Tail.__call__

    def change(self: Any, current: Any) -> Any:
        if current.state is not LedgerState.IN_RECOVERY:
            return original(self, current)
        return replace(original(self, replace(current, state=LedgerState.OPEN)), state=LedgerState.IN_RECOVERY)

    return patch.object(writer_ensemble._Tail, "__call__", change)


def silent_bookies_are_given_up_whoever_is_left() -> Any:
    return patch.object(WriterEnsemble, "can_spare", lambda self, slots: True)


def an_explicit_lac_is_told_once() -> Any:
    """Whatever bookies answer."""
    original = ExplicitLac.tell

    def tell(self: Any, last_add_confirmed: int, *rest: Any) -> Any:
        self._known = last_add_confirmed
        return original(self, last_add_confirmed, *rest)

    return patch.object(ExplicitLac, "tell", tell)


def one_bookie_that_took_an_explicit_lac_is_enough() -> Any:
    original = ExplicitLac.answered

    def answered(self: Any, event: Any) -> None:
        if event.request_id in self._asked and event.status is Status.OK:
            self._known = max(self._known, self._telling)
        original(self, event)

    return patch.object(ExplicitLac, "answered", answered)


# --- metadata


def lost_reply_is_success() -> Any:
    original = UpdateMetadata.handle

    def handle(self: Any, event: Any) -> Any:
        return original(self, MetadataWritten(self.version + 1) if isinstance(event, MetadataUnknown) else event)

    return patch.object(UpdateMetadata, "handle", handle)


def lost_reply_is_failure() -> Any:
    """An ensemble change whose reply was lost is taken back: the writer goes on with the former ensemble."""
    original = ChangeEnsemble.handle

    def handle(self: Any, event: Any) -> Any:
        if not isinstance(event, MetadataUnknown):
            return original(self, event)
        self.replaced.clear()
        self.is_done = True
        return []

    return patch.object(ChangeEnsemble, "handle", handle)


def unreplaced_bookies_are_welcome_at_once() -> Any:
    """A change that came to nothing leaves the failed bookies in their places, and they are sent everything again."""
    original = WriterEnsemble._end

    def end(self: Any, change: Any, first: int, now_ms: int) -> Any:
        if change.is_done and change.error is None and not change.replaced:
            self._change, self._replaced = None, sorted(self.failed)
            self.failed.clear()
        return original(self, change, first, now_ms)

    return patch.object(WriterEnsemble, "_end", end)


def writer_close_ignores_recovery() -> Any:
    """The writer's close does not look at whether the ledger is in recovery."""
    original = update_metadata.CloseLedger.__call__

    def close(self: Any, current: Any) -> Any:
        is_marked = current.state is LedgerState.IN_RECOVERY
        return original(self, replace(current, state=LedgerState.OPEN) if is_marked else current)

    return patch.object(update_metadata.CloseLedger, "__call__", close)


# --- gaps


def gaps_are_not_noted() -> Any:
    return patch.object(KnownGaps, "note", lambda self, bookie_id: None)


def a_writer_that_closes_does_not_mark() -> Any:
    return patch.object(KnownGaps, "ledger_closed", lambda self: self._due_ms.clear())
