"""The handle that leads a log, as the application sees it. It may be used from several threads.

What goes where is decided by RollLog; here are the threads around it. An append is counted under the lock and sent without
it, because sending waits where the ledger's window is full. A roll runs in a thread: that of the caller of ``roll``, or one
of its own for a ledger that is full. Callbacks of ledgers' futures run on the client's event loop: they count, and never wait.
All waits end: with an append that is confirmed or fails its ledger's writer after ``ClientConfig.add_quorum_timeout_s``, and
with a step of a roll, which is a few calls to the metadata store.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from bk_spark.client.driver.event_loop import EventLoop, check_may_wait
from bk_spark.client.ledger.write_handle import Payloads, checked_payload, checked_payloads
from bk_spark.client.ledger.write_items import new_future
from bk_spark.client.log.entry_range import LogPosition
from bk_spark.client.log.leader.leadership import CreatedLedger, Leadership, LedgerWriter, end_of
from bk_spark.client.log.leader.roll_log import RollLimits, RollLog, RollState
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.entries.digest import payload_sizes
from bk_spark.errors import BookKeeperError, InternalError, LedgerClosedError, LedgerFencedError

# --- Appends to a log: what is sent to whichever ledger it is that takes them, and what their callers are told


class LogAppend(Protocol):
    """One call of the application. Checked when it is made: a later failure is one of the writer."""

    nbytes: int
    """As windows and rolls count it: payloads, with ENTRY_OVERHEAD_BYTES for each entry."""

    def send(self, ledger: LedgerWriter) -> Future[Any]:
        """Waits while the ledger's window is full."""

    def confirm(self, ledger_id: int, result: Any) -> None:
        """``result`` is what the future of ``send`` held."""

    def fail(self, error: BookKeeperError) -> None: ...


class EntryAppend:
    """Of one entry."""

    def __init__(self, payload: bytes) -> None:
        self._payload = checked_payload(payload)
        self.nbytes = len(self._payload) + ENTRY_OVERHEAD_BYTES
        self.future: Future[LogPosition] = new_future()

    def send(self, ledger: LedgerWriter) -> Future[Any]:
        return ledger.append_async(self._payload)

    def confirm(self, ledger_id: int, result: Any) -> None:
        self.future.set_result(LogPosition(ledger_id, result))

    def fail(self, error: BookKeeperError) -> None:
        self.future.set_exception(error)


class BatchAppend:
    """Of several entries, which stand together."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = checked_payloads(payloads)
        self.nbytes = int(payload_sizes(self._payloads).sum()) + len(self._payloads) * ENTRY_OVERHEAD_BYTES
        self.future: Future[tuple[LogPosition, LogPosition]] = new_future()

    def send(self, ledger: LedgerWriter) -> Future[Any]:
        return ledger.append_batch_async(self._payloads)

    def confirm(self, ledger_id: int, result: Any) -> None:
        first, last = result
        self.future.set_result((LogPosition(ledger_id, first), LogPosition(ledger_id, last)))

    def fail(self, error: BookKeeperError) -> None:
        self.future.set_exception(error)


logger = logging.getLogger(__name__)


class LogWriteHandle:
    """The leader of a log: the one writer of its last ledger, until somebody displaces it.

    Appends are confirmed in the order in which they were made, across ledgers too; the futures hold their places. They wait
    while the window of the ledger is full, and while a roll has queued as much (``ClientConfig.add_window_bytes`` each).

    Another ``open_writer``, an append of Spark, ``Log.append_ledgers`` or ``Log.recover`` displaces this leader: its appends,
    ``roll`` and ``close`` then raise LedgerFencedError. What was confirmed stays in the log, in its place and order, before
    all that others append; the outcome of what was not is unknown, read the log to learn it. After this or any other
    failure every call fails with the first error, and ``Log.open_writer()`` leads the log anew.
    """

    def __init__(self, leadership: Leadership, ledger: LedgerWriter, limits: RollLimits) -> None:
        self._leadership = leadership
        self._rolls: RollLog[LedgerWriter, LogAppend] = RollLog(ledger, limits)
        self._changed = threading.Condition()
        self._closed: Future[None] | None = None
        self._former: LedgerWriter | None = None
        """The ledger before the last, closed, whose end no version records yet."""

    @property
    def ledger_id(self) -> int:
        """The ledger that appends go to; a roll changes it."""
        return self._rolls.ledger.ledger_id

    @property
    def epoch(self) -> int:
        """The number of this leadership: it grows with each change of the leader."""
        return self._leadership.epoch

    def append(self, payload: bytes) -> LogPosition:
        """Append one entry; gives back its place once it is confirmed."""
        check_may_wait(EventLoop.get())
        return self.append_async(payload).result()

    def append_async(self, payload: bytes) -> Future[LogPosition]:
        """Append one entry; the future holds its place once it is confirmed. Entries made close together travel together."""
        one = EntryAppend(payload)
        self._append(one)
        return one.future

    def append_batch(self, payloads: Payloads) -> tuple[LogPosition, LogPosition]:
        """Append many entries, at least one; gives back the first and the last place, inclusive, once all are confirmed.

        All stand in one ledger, and nothing else between them.
        """
        check_may_wait(EventLoop.get())
        return self.append_batch_async(payloads).result()

    def append_batch_async(self, payloads: Payloads) -> Future[tuple[LogPosition, LogPosition]]:
        """As ``append_batch``; the future holds the places once all are confirmed."""
        batch = BatchAppend(payloads)
        self._append(batch)
        return batch.future

    def roll(self) -> None:
        """Go on in a new ledger. On return all that was appended before the call is confirmed, in ledgers that are CLOSED.

        Does nothing where the ledger is empty. Others may append meanwhile. Raises NotEnoughBookiesError or
        MetadataUnavailableError where no ledger could be created: the leader goes on in the old one; after any other
        error it does not.
        """
        check_may_wait(EventLoop.get())
        with self._changed:
            self._changed.wait_for(lambda: self._rolls.has_failed or self._rolls.state is RollState.STEADY)
            self._raise_refusal()
            if self._rolls.is_empty:
                return
            self._rolls.begin_roll()
        self._roll()

    def close(self) -> None:
        """Wait until all that was appended is confirmed, close the ledgers, and record their ends in one commit.

        A second close gives the result of the first. Raises what failed this leader, LedgerFencedError where it was
        displaced; then its ledgers are left to whoever recovers them: ``Log.recover``, or the next leader or append.
        """
        check_may_wait(EventLoop.get())
        with self._changed:
            is_first = self._closed is None
            self._closed = closed = self._closed or new_future()
            if is_first:
                self._rolls.refuse(LedgerClosedError(self.ledger_id, self._name))
        if is_first:
            self._close(closed)
        closed.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close. Where the block ended with an error, that error is the one that is raised, not what close makes of it."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except BookKeeperError as problem:
            error.add_note(f"closing the writer of log '{self._name}' failed as well: {problem}")

    # --- appends

    def _append(self, append: LogAppend) -> None:
        with self._changed:
            if not self._rolls.admits(append.nbytes):
                check_may_wait(EventLoop.get())
                self._changed.wait_for(lambda: self._rolls.admits(append.nbytes))
            refusal = self._rolls.refusal
            ledger = None if refusal is not None else self._rolls.append(append, append.nbytes)
            is_roll_due = self._rolls.is_roll_due
            if is_roll_due:
                self._rolls.begin_roll()
        if is_roll_due:
            self._start_roll()
        if refusal is not None:
            append.fail(refusal)
        if ledger is not None:
            self._send(append, ledger)

    def _send(self, append: LogAppend, ledger: LedgerWriter) -> None:
        try:
            sent = append.send(ledger)
        except BaseException:
            self._count_confirmed()
            raise
        sent.add_done_callback(lambda done: self._answered(append, ledger, done))

    def _answered(self, append: LogAppend, ledger: LedgerWriter, sent: Future[Any]) -> None:
        problem = sent.exception()
        if problem is None:
            append.confirm(ledger.ledger_id, sent.result())
            self._count_confirmed()  # after the future: what roll and close have waited for is done when they return
        else:
            reason = self._reason(problem, ledger)
            self._fail(reason)
            append.fail(reason)

    def _count_confirmed(self) -> None:
        with self._changed:
            self._rolls.confirmed()
            self._changed.notify_all()

    def _fail(self, reason: BookKeeperError) -> None:
        with self._changed:
            queued = self._rolls.fail(reason)
            self._changed.notify_all()
        for append in queued:
            append.fail(reason)

    def _raise_refusal(self) -> None:
        if self._rolls.refusal is not None:
            raise self._rolls.refusal

    # --- rolling

    def _start_roll(self) -> None:
        try:
            threading.Thread(target=self._roll_alone, name="bk_spark-roll", daemon=True).start()
        except RuntimeError as problem:  # the process has as many threads as it may have
            self._tell(self._rolls.call_off)
            self._warn(problem)

    def _roll_alone(self) -> None:
        try:
            self._roll()
        except BookKeeperError as problem:
            self._warn(problem)

    def _warn(self, problem: Exception) -> None:
        then = "writes no more" if self._rolls.has_failed else "goes on in it, and tries again later"
        what = "the writer of log '%s' could not roll ledger %d and %s: %s"
        logger.warning(what, self._name, self.ledger_id, then, problem)

    def _roll(self) -> None:
        """From OPENING to STEADY."""
        created = self._create()
        with self._failing():
            old, ends = self._rolls.ledger, () if self._former is None else (end_of(self._former),)
            self._leadership.list_next(created, ends)
            self._move_to(created.ledger)
            old.close()
            self._former = old
            self._tell(self._rolls.closed)

    def _create(self) -> CreatedLedger:
        try:
            return self._leadership.create()
        except BaseException:
            self._tell(self._rolls.call_off)
            raise

    def _move_to(self, ledger: LedgerWriter) -> None:
        """Wait for what is on its way to the old ledger, then send what was queued meanwhile to the new one."""
        with self._changed:
            self._rolls.opened(ledger)
            self._changed.wait_for(lambda: self._rolls.is_drained or self._rolls.has_failed)
        while (append := self._next_queued()) is not None:
            try:
                self._send(append, ledger)
            except BaseException as problem:
                append.fail(self._reason(problem, ledger))
                raise

    def _next_queued(self) -> LogAppend | None:
        with self._changed:
            if self._rolls.has_failed:
                self._raise_refusal()
            append = self._rolls.release()
            self._changed.notify_all()
            return append

    def _tell(self, step: Callable[[], None]) -> None:
        with self._changed:
            step()
            self._changed.notify_all()

    # --- the end

    def _close(self, closed: Future[None]) -> None:
        try:
            self._finish()
        except BaseException as problem:
            closed.set_exception(problem)
        else:
            closed.set_result(None)

    def _finish(self) -> None:
        rolls = self._rolls
        with self._changed:
            self._changed.wait_for(lambda: rolls.has_failed or (rolls.state is RollState.STEADY and rolls.is_drained))
            if rolls.has_failed:
                self._raise_refusal()
        with self._failing():
            rolls.ledger.close()
            own = [rolls.ledger] if self._former is None else [self._former, rolls.ledger]
            self._leadership.record(tuple(end_of(one) for one in own))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever goes wrong here ends this leader: what its ledgers will hold is for the next one to find out."""
        try:
            yield
        except BaseException as problem:
            reason = self._reason(problem, self._rolls.ledger)
            self._fail(reason)
            if isinstance(problem, BookKeeperError) and reason is not problem:
                raise reason from problem
            raise

    def _reason(self, problem: BaseException, ledger: LedgerWriter) -> BookKeeperError:
        """Whoever closed a ledger under its leader recovered it: the leader is displaced, as by a fence."""
        if isinstance(problem, (LedgerClosedError, LedgerFencedError)):
            return LedgerFencedError(ledger.ledger_id, self._name)
        if isinstance(problem, BookKeeperError):
            return problem
        return InternalError(ledger.ledger_id, repr(problem))

    @property
    def _name(self) -> str:
        return self._leadership.name
