"""The writer of a ledger: entries out, acks in, confirmation in order, ensemble changes, close.

Rules, with their numbers in docs/rules.md, "Protocol":

* An entry gets the next id. The LAC that it carries is the highest confirmed entry when it is sent.
* An entry is confirmed once Qa bookies **of its own write set in the last ensemble** have acked it and every earlier entry
  is confirmed, and never while the ensemble changes (16). A batch is confirmed as a whole: when its last entry is.
* A bookie has *failed* if it refuses, breaks off or stays silent for the add timeout. It is sent nothing more, and another one
  takes its slot from the first unconfirmed entry on. The acks of the slot are taken back from **all** unconfirmed batches
  before any is confirmed (17, 18), and the new bookie is sent all these batches. If there is no other bookie the writer goes on
  while every write set keeps Qa bookies that have not failed, and tries again later; below Qa it fails.
* ``fenced`` ends the writer: no ensemble change, the outcome of unconfirmed entries is unknown (24). ``unauthorized`` fails
  only the bookie, for the password is that of the metadata: this bookie has a key that somebody else gave it.
* Close first rejects unconfirmed entries and waits for a metadata write under way. Then it writes CLOSED with the last
  confirmed entry by compare-and-set (25). If the ledger is in recovery, close fails: the recoverer decides the end (26).
* A bookie that a fragment names for confirmed entries that it did not take is a known gap: the ledger is marked for it (63). A
  close waits a moment for the answers that bookies owe for confirmed entries; who does not answer may lack them.
* With deferred sync acks do not move the LAC. ``force`` moves it, once the whole ensemble has answered; the ensemble cannot
  change (30).

A recovery writes back through the same state machine (``for_recovery``): fenced bookies accept its adds, its ensemble changes
stay local, and all its entries carry the LAC that recovery started from.

The writer's whole life is one table, ``writer/writer_states.py``: its states, and what may happen in each. The state alone says
whether it may append, confirm, change the ensemble, fail or close. The other parts of a writer are in ``writer/``, too.

Ref: the BookKeeper protocol, "Writing to ledgers", "Changing ensembles", "Closing a ledger as a writer".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from bk_spark.client.protocol import state_machine as sm
from bk_spark.client.protocol.force_adds import ForceAdds
from bk_spark.client.protocol.last_add_confirmed import ExplicitLac
from bk_spark.client.protocol.limits import AddLimits
from bk_spark.client.protocol.pending_adds import KnownGaps, PendingAdds, PendingBatch, has_ack_quorum
from bk_spark.client.protocol.writer.append_batches import AppendBatches
from bk_spark.client.protocol.writer.writer_close import WriterClose
from bk_spark.client.protocol.writer.writer_ensemble import WriterEnsemble
from bk_spark.client.protocol.writer.writer_states import (
    AWAIT_CHANGE,
    MAY_APPEND,
    MAY_CHANGE,
    MAY_CLOSE,
    MAY_CONFIRM,
    MAY_END,
    MAY_FAIL,
    Life,
    Step,
    state_after,
)
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import (
    AddQuorumTimeoutError,
    BookKeeperError,
    LedgerClosedError,
    LedgerFencedError,
)
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.wire.messages import Status


class AddEntries(sm.StateMachine):
    """The state machine of one writer. ``version`` is the metadata's in the store."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: int,
        limits: AddLimits,
        *,
        deferred_sync: bool = False,
        numbers: Iterator[int] | None = None,
    ) -> None:
        super().__init__()
        self.last_add_confirmed = NO_ENTRY
        self.length = 0
        """Confirmed payload bytes."""
        self.error: BookKeeperError | None = None
        """Why this writer accepts no more entries; None while it does."""
        self._state = Life.WRITING
        self._limits = limits
        self._frozen_lac: int | None = None
        """The LAC that all entries of a recovery carry."""
        self._length_acked = 0
        self._last_acked = NO_ENTRY
        self._numbers = itertools.count(1) if numbers is None else numbers
        self._explicit_lac = ExplicitLac(metadata, limits.explicit_lac_ms, self._numbers)
        self._ensemble = WriterEnsemble(metadata, version, limits, self._numbers)
        self._batches = AppendBatches(metadata)
        self._pending = PendingAdds()
        self._flushes: list[tuple[int, object]] = []
        """Forces without deferred sync: the entry that each waits for, and its token."""
        self._forces = ForceAdds(metadata, NO_ENTRY) if deferred_sync else None
        self._ensemble.may_change = not deferred_sync
        self._gaps = KnownGaps()
        self._closing = WriterClose(self._ensemble, self._gaps)

    @classmethod
    def for_recovery(
        cls, metadata: LedgerMetadata, limits: AddLimits, numbers: Iterator[int], *, last_add_confirmed: int, length: int
    ) -> AddEntries:
        """The writer of a recovery: it continues after ``last_add_confirmed``, where the ledger has ``length`` payload bytes.

        All its entries carry that LAC, so that no bookie shows an entry as confirmed that a later recoverer may still cut off.
        ``numbers`` gives the ids of its requests, so that a recovery that starts anew knows late answers.
        """
        writer = cls(metadata, version=-1, limits=limits, numbers=numbers)
        writer._frozen_lac = writer._last_acked = last_add_confirmed
        writer.last_add_confirmed = last_add_confirmed
        writer.length = writer._length_acked = length
        writer._batches = AppendBatches(metadata, last_add_confirmed, length)
        writer._ensemble.is_local = True
        return writer

    @property
    def metadata(self) -> LedgerMetadata:
        return self._ensemble.metadata

    @property
    def last_add_pushed(self) -> int:
        """The last entry that was given an id and sent."""
        return self._batches.last

    @property
    def lacking(self) -> frozenset[str]:
        """Bookies that are named for confirmed entries that they did not take, and for which the ledger is not marked."""
        return self._gaps.bookies

    def handle(self, event: sm.Event, now_ms: int) -> None:
        if isinstance(event, sm.Append):
            self._append(event, now_ms)
        elif isinstance(event, sm.AddAnswered):
            self._answered(event, now_ms)
        elif isinstance(event, sm.ReplacementsChosen):
            self._chosen(event, now_ms)
        elif isinstance(event, sm.MetadataEvent):
            self._metadata_answered(event, now_ms)
        elif isinstance(event, sm.MarkAnswered):
            self._gaps.answered(event, now_ms)
        elif isinstance(event, sm.ForceRequested):
            self._force(event.token, now_ms)
        elif isinstance(event, sm.ForceAnswered) and self._forces is not None:
            self._forced(self._forces.answered(event))
        elif isinstance(event, sm.StoreLastAddConfirmedAnswered):
            self._explicit_lac.answered(event)
        elif isinstance(event, sm.CloseRequested):
            self._close(now_ms)
        self._check_times(now_ms)
        self._settle()
        self._report_gaps(now_ms)

    def deadline_ms(self) -> int | None:
        if self._state not in MAY_APPEND:
            return self._ending_due_ms()
        limits, request = self._limits, self._pending.oldest_request()
        times = [self._ensemble.retry_ms, self._explicit_lac_due_ms()]
        times.append(self._ensemble.silence_due_ms(request.sent_ms + limits.add_timeout_ms) if request is not None else None)
        if self._pending.unconfirmed:
            times.append(self._pending.unconfirmed[0].appended_ms + limits.add_quorum_timeout_ms)
        times.append(None if self._is_recovery else self._gaps.deadline_ms())
        times.append(self._forces.deadline_ms(limits.add_timeout_ms) if self._forces is not None else None)
        return min((time for time in times if time is not None), default=None)

    def _step(self, step: Step) -> None:
        self._state = state_after(self._state, step)

    # --- adding

    @property
    def _is_recovery(self) -> bool:
        return self._frozen_lac is not None

    def _append(self, event: sm.Append, now_ms: int) -> None:
        """Send an append and those that waited for it. A duplicate is rejected, and the writer goes on."""
        refusal = self._batches.duplicate(event) if self._state in MAY_APPEND else self.error
        if refusal is not None:
            self._commands += [sm.Reject(event.token, refusal), sm.Release(event.token)]
            return
        appends = self._batches.take(event)
        while appends:
            self._push(appends, now_ms)
            appends = self._batches.followers()

    def _push(self, appends: list[sm.Append], now_ms: int) -> None:
        """Send consecutive appends as one batch."""
        lac = self.last_add_confirmed if self._frozen_lac is None else self._frozen_lac
        batch = self._batches.seal(appends, lac, now_ms)
        self._explicit_lac.carried(lac if self._forces is None else NO_ENTRY, now_ms)
        self._pending.add(batch)
        for slot in range(self.metadata.ensemble_size):
            if slot not in self._ensemble.failed:
                self._send(batch, slot, now_ms)

    def _send(self, batch: PendingBatch, slot: int, now_ms: int) -> None:
        encoded = batch.encoded[slot]
        if encoded is None:
            return
        request_id = next(self._numbers)
        self._pending.sent(request_id, batch, slot, now_ms)
        self._explicit_lac.sent_to(slot)
        bookie_id = self._ensemble.bookies[slot]
        deferred = self._forces is not None
        self._commands.append(sm.SendAdd(request_id, bookie_id, encoded, self._is_recovery, deferred))

    def _answered(self, event: sm.AddAnswered, now_ms: int) -> None:
        request = self._pending.answered(event.request_id)
        if request is None:
            self._closing.add_answered(event)
            return
        if event.status is Status.OK:
            assert request.slot not in self._ensemble.failed, "the adds of a slot that failed were cancelled"
            request.batch.acked.add(request.slot)
            self._gaps.acked(self._ensemble.bookies[request.slot], now_ms)
            if self._forces is not None:
                self._forces.acked(request.slot, event.boot)
            return
        if request.batch.first <= self.last_add_confirmed:
            self._note_gap(request.slot)
        if event.status is Status.FENCED:
            self._fail(LedgerFencedError(self.metadata.ledger_id))
        else:
            is_lasting = event.status in (Status.READ_ONLY, Status.UNAUTHORIZED, Status.UNSUPPORTED_VERSION)
            may_delay = self._limits.delay_ensemble_change and not is_lasting
            self._fail_slots([request.slot], event.problem, now_ms, may_delay=may_delay)

    def _settle(self) -> None:
        """Confirm what may be confirmed, then release the batches that no bookie owes an answer for."""
        self._confirm_in_order()
        assert self.last_add_confirmed <= self._last_acked <= self.last_add_pushed
        assert self.length <= self._length_acked <= self._batches.length
        for batch in self._pending.settled(is_over=self._state not in MAY_APPEND):
            self._commands += [sm.Release(token) for token, _ in batch.appends]

    def _confirm_in_order(self) -> None:
        unconfirmed = self._pending.unconfirmed
        while unconfirmed and self._state in MAY_CONFIRM and has_ack_quorum(unconfirmed[0], self.metadata):
            batch = unconfirmed.popleft()
            assert batch.first == self._last_acked + 1, "entries are confirmed in the order of their ids"
            batch.confirmed = True
            self._last_acked, self._length_acked = batch.last, batch.length
            if self._forces is None:
                for slot in self._ensemble.failed:
                    if batch.encoded[slot] is not None and slot not in batch.acked:
                        self._note_gap(slot)
                self.last_add_confirmed, self.length = batch.last, batch.length
            self._commands += [sm.Confirm(token, first) for token, first in batch.appends]
        while self._flushes and self._flushes[0][0] <= self.last_add_confirmed:
            self._commands.append(sm.Confirm(self._flushes.pop(0)[1], self.last_add_confirmed))

    # --- force and the explicit LAC

    def _force(self, token: object, now_ms: int) -> None:
        """Without deferred sync every confirmed entry is durable already: only wait for those under way.

        The LAC is told once more: whoever forces finds it missing, perhaps because bookies have lost it.
        """
        self._explicit_lac.repeat(now_ms)
        if self.error is not None:
            self._commands.append(sm.Reject(token, self.error))
        elif self._forces is None:
            self._flushes.append((self.last_add_pushed, token))
        else:
            requests = list(itertools.islice(self._numbers, self.metadata.ensemble_size))
            self._commands += self._forces.force(token, self._last_acked, self._length_acked, requests, now_ms)

    def _forced(self, commands: list[sm.Command]) -> None:
        assert self._forces is not None
        assert self.last_add_confirmed <= self._forces.last_forced <= self._last_acked
        self.last_add_confirmed, self.length = self._forces.last_forced, self._forces.length
        self._commands += commands

    def _explicit_lac_due_ms(self) -> int | None:
        if self._is_recovery or self._state not in MAY_APPEND:
            return None
        return self._explicit_lac.due_ms(self.last_add_confirmed)

    # --- failures

    def _fail_slots(self, slots: list[int], reason: str, now_ms: int, *, may_delay: bool, must_be_sound: bool = False) -> None:
        self._commands += [sm.ReportFailure(self._ensemble.bookies[slot]) for slot in slots]
        self._mark_failed(slots, reason)
        first = self._next_unconfirmed
        changes = self._ensemble.replace_failed(first, now_ms, may_delay=may_delay, must_be_sound=must_be_sound)
        self._ensemble_acted(changes, now_ms)

    def _mark_failed(self, slots: list[int], reason: str) -> None:
        for slot in slots:
            self._ensemble.failed.setdefault(slot, reason)
            if self._forces is not None:
                self._forces.lose(slot, reason)
            if self._pending.owes(slot, self.last_add_confirmed):
                self._note_gap(slot)
        self._commands += [sm.CancelAdd(request_id) for request_id in self._pending.cancel(slots)]

    def _fell_silent(self, slots: list[int], now_ms: int) -> None:
        """Bookies owe answers for too long. If there is no ack quorum without them they are given up for others alone.

        While every entry is confirmed no quorum timeout bounds the wait. So the bookies are given up at once then, and the
        writer fails if too few are left.
        """
        if self._ensemble.can_spare(slots) or not self._pending.unconfirmed:
            self._fail_slots(slots, self._silence, now_ms, may_delay=self._limits.delay_ensemble_change, must_be_sound=True)
        else:
            self._commands += [sm.ReportFailure(self._ensemble.bookies[slot]) for slot in slots]
            self._commands += self._ensemble.seek(slots, now_ms)

    def _chosen(self, event: sm.ReplacementsChosen, now_ms: int) -> None:
        ensemble = self._ensemble
        if not ensemble.found(event):
            self._ensemble_acted(ensemble.chosen(event, self._next_unconfirmed, now_ms), now_ms)
            return
        overdue = self._overdue(now_ms)
        free = [one for one in event.bookies if one[1] not in ensemble.bookies]  # a change may have come in between
        bookies = tuple((slot, bookie) for slot, bookie in free if slot in overdue)
        if bookies and self._state in MAY_CHANGE:
            self._mark_failed([slot for slot, _ in bookies], self._silence)
            found = replace(event, bookies=bookies)
            self._ensemble_acted(ensemble.replace_by(found, self._next_unconfirmed, now_ms), now_ms)

    @property
    def _silence(self) -> str:
        return f"no answer for {self._limits.add_timeout_ms / 1000:g} s"

    def _overdue(self, now_ms: int) -> list[int]:
        return self._pending.overdue(now_ms - self._limits.add_timeout_ms)

    @property
    def _next_unconfirmed(self) -> int:
        return self.last_add_confirmed + 1

    def _ensemble_acted(self, commands: list[sm.Command], now_ms: int) -> None:
        """Act on a step of the ensemble: all batches lose the replaced slots' acks before any batch is confirmed."""
        self._commands += commands
        replaced = self._ensemble.take_replaced()
        if replaced:
            self._gaps.fragment_ended(self._ensemble.bookies, now_ms)
            self._pending.forget_acks(replaced)
            self._explicit_lac.replaced(replaced)
            assert all(batch.acked.isdisjoint(replaced) for batch in self._pending.unconfirmed)
            for batch in self._pending.unconfirmed:
                for slot in replaced:
                    self._send(batch, slot, now_ms)
        if self._ensemble.error is not None:
            self._fail(self._ensemble.error)
        self._follow_ensemble()

    def _follow_ensemble(self) -> None:
        """The state follows the ensemble, whose change may have begun or ended. A close that it held up goes on."""
        if self._ensemble.is_changing:
            if self._state in MAY_CHANGE:
                self._step(Step.CHANGE)
        elif self._state in AWAIT_CHANGE:
            self._step(Step.CHANGED)
            if self._state is Life.CLOSING:
                self._begin_close()

    def _fail(self, error: BookKeeperError) -> None:
        """Accept nothing more. Who owes an answer for confirmed entries may lack them."""
        if self._state not in MAY_FAIL:
            return
        self._step(Step.FAIL)
        slots = range(self.metadata.ensemble_size)
        for slot in slots:
            if self._pending.owes(slot, self.last_add_confirmed):
                self._note_gap(slot)
        self._commands += [sm.CancelAdd(request_id) for request_id in self._pending.cancel(slots)]
        self._stop(error)
        self._follow_ensemble()

    def _stop(self, error: BookKeeperError) -> None:
        """Reject all unconfirmed entries: their outcome is unknown."""
        self.error = error
        rejected = [token for batch in self._pending.unconfirmed for token, _ in batch.appends]
        rejected += [token for _, token in self._flushes]
        self._pending.unconfirmed.clear()
        self._flushes.clear()
        self._commands += [sm.Reject(token, error) for token in rejected]
        for append in self._batches.take_held():
            self._commands += [sm.Reject(append.token, error), sm.Release(append.token)]
        if self._forces is not None:
            self._forced(self._forces.fail(error))
        self._ensemble.give_up(error)
        self._gaps.writer_failed()

    def _check_times(self, now_ms: int) -> None:
        limits = self._limits
        if self._state not in MAY_APPEND:
            return
        silence_due_ms = self._ensemble.silence_due_ms(now_ms)
        overdue = self._overdue(now_ms) if silence_due_ms is not None and silence_due_ms <= now_ms else []
        if overdue:
            self._fell_silent(overdue, now_ms)
        if self._forces is not None:
            self._forced(self._forces.check_timeout(limits.add_timeout_ms, now_ms))
        self._ensemble_acted(self._ensemble.retry(self._next_unconfirmed, now_ms), now_ms)
        due = self._explicit_lac_due_ms()
        if due is not None and now_ms >= due:
            ensemble = self._ensemble
            self._commands += self._explicit_lac.tell(self.last_add_confirmed, ensemble.bookies, ensemble.failed, now_ms)
        oldest = self._pending.unconfirmed[0] if self._pending.unconfirmed else None
        if oldest is not None and now_ms >= oldest.appended_ms + limits.add_quorum_timeout_ms:
            self._fail(AddQuorumTimeoutError(self.metadata.ledger_id, oldest.first, limits.add_quorum_timeout_ms / 1000))

    # --- closing

    def _close(self, now_ms: int) -> None:
        """Adds of confirmed entries still go to their whole write quorum. A second close waits for the first one."""
        if self._state not in MAY_CLOSE:
            return
        if self._state in MAY_APPEND:
            owed = self._pending.owed(self.last_add_confirmed)
            bookies = self._ensemble.bookies
            self._closing.await_answers({request_id: bookies[slot] for request_id, slot in owed.items()}, now_ms)
            self._pending.cancel(range(self.metadata.ensemble_size))
            self._stop(LedgerClosedError(self.metadata.ledger_id))
        self._step(Step.CLOSE)
        if self._state is Life.CLOSING:
            self._begin_close()
        else:
            self._follow_ensemble()

    def _begin_close(self) -> None:
        assert self.error is not None, "nothing more is accepted"
        assert not self._pending.unconfirmed
        self._commands += self._closing.write(self.last_add_confirmed, self.length)

    def _metadata_answered(self, event: sm.MetadataEvent, now_ms: int) -> None:
        if self._state is Life.CLOSING:
            self._commands += self._closing.metadata_answered(event)
        else:
            self._ensemble_acted(self._ensemble.metadata_answered(event, self._next_unconfirmed, now_ms), now_ms)

    def _go_on_closing(self, now_ms: int) -> None:
        closing = self._closing
        if self._state is Life.CLOSING and closing.is_answered:
            self._step(Step.ANSWERED)
        if self._state is Life.COLLECTING and closing.has_collected(now_ms):
            self._step(Step.COLLECTED)
            closing.mark_gaps()

    # --- gaps

    def _note_gap(self, slot: int) -> None:
        """An entry that the LAC covers is not on a slot's bookie, or may not be. What lies behind the LAC a close cuts off."""
        self._gaps.note(self._ensemble.bookies[slot])

    def _report_gaps(self, now_ms: int) -> None:
        """Mark the ledger; a writer that is closed ends after that. A recovery marks when it has closed the ledger."""
        if self._is_recovery:
            return
        if self._state not in MAY_APPEND:
            self._go_on_closing(now_ms)
        self._commands += self._gaps.go_on(now_ms)
        if self._state in MAY_END and self._gaps.is_reported:
            self._step(Step.MARKED)
            self._finish(error=self._closing.error)

    def _ending_due_ms(self) -> int | None:
        """The deadline of a writer that takes no more appends."""
        if self._is_recovery:
            return None
        return self._closing.owed_until_ms if self._state is Life.COLLECTING else self._gaps.deadline_ms()
