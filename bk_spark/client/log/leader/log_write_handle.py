"""LogWriteHandle: the handle that leads a log, for applications. Several threads may use it.

RollLog decides which ledger an append goes to; this module runs the threads around it. An append is counted under the
lock, and sent without the lock, because sending waits while the ledger's window is full. A roll runs in the thread that
called ``roll``; for a full ledger, in its own. Callbacks of futures run on the client's event loop: they never wait.

Every wait ends. An append is confirmed, or fails its ledger's writer after ``ClientConfig.add_quorum_timeout_s``. A step of
a roll takes a few calls to the metadata store.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bk_spark.calls.exit_notice import Unconfirmed, tell_at_exit
from bk_spark.client.driver.event_loop import EventLoop, check_may_wait
from bk_spark.client.ledger.payloads import CheckedPayloads, Payload, Payloads, checked_payload, checked_payloads
from bk_spark.client.ledger.write_handle import InOrderWriter, WriteHandle, standing_after
from bk_spark.client.ledger.write_items import new_future
from bk_spark.client.log.entry_range import LogPosition
from bk_spark.client.log.leader.leadership import CreatedLedger, Leadership
from bk_spark.client.log.leader.roll_log import RollLimits, RollLog, RollState
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.errors import BookKeeperError, InternalError, LedgerClosedError, LedgerFencedError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class LogAppend:
    """One call of the application. Its arguments are checked before, so a later failure is one of the writer."""

    payload: bytes | CheckedPayloads
    """One entry; or several, which go to one ledger with nothing else between them."""
    nbytes: int
    """As windows and rolls count it: payloads, with ENTRY_OVERHEAD_BYTES for each entry."""
    future: Future[Any] = field(default_factory=new_future)

    @property
    def count(self) -> int:
        """Entries."""
        return 1 if isinstance(self.payload, bytes) else len(self.payload)

    def send(self, ledger: WriteHandle) -> Future[Any]:
        """Waits while the ledger's window is full."""
        if isinstance(self.payload, bytes):
            return ledger.append_async(self.payload)
        return ledger.append_batch_async(self.payload)

    def owned(self) -> LogAppend:
        """The same call, for a ledger that takes it once the call is over: in memory of our own."""
        return self if isinstance(self.payload, bytes) else replace(self, payload=self.payload.owned())

    def confirm(self, ledger_id: int, result: Any) -> None:
        """``result`` is what the future of ``send`` held."""
        if isinstance(self.payload, bytes):
            self.future.set_result(LogPosition(ledger_id, result))
        else:
            first, last = result
            self.future.set_result((LogPosition(ledger_id, first), LogPosition(ledger_id, last)))


def submit(leader: LogWriteHandle, append: LogAppend) -> Future[Any]:
    """Append what was checked before, for writers of other things than bytes. Waits while too much is unconfirmed."""
    return leader._append(append)


class LogWriteHandle(InOrderWriter[LogPosition]):
    """The leader of a log: the one writer of its last ledger, until somebody displaces it.

    Appends are confirmed in the order in which they were made, across ledgers too; the futures hold their places. They wait
    while the window of the ledger is full, and while a roll has queued as much (``ClientConfig.add_window_bytes`` each).

    Another ``open_writer``, an append of Spark, ``Log.append_ledgers`` or ``Log.recover`` displaces this leader: its appends,
    ``roll`` and ``close`` then raise LedgerFencedError. Confirmed entries stay in the log, in their place and order, before
    all that others append. The outcome of unconfirmed appends is unknown; read the log to learn it. After this or any other
    failure every call fails with the first error, and ``Log.open_writer()`` leads the log anew.
    """

    def __init__(self, leadership: Leadership, ledger: WriteHandle, limits: RollLimits) -> None:
        self._leadership = leadership
        self._name = leadership.name
        self._rolls: RollLog[WriteHandle, LogAppend] = RollLog(ledger, limits)
        self._changed = threading.Condition()
        self._closed: Future[None] | None = None
        self._former: WriteHandle | None = None
        """The ledger before the last: closed, but no version records its end yet."""
        ledger._write_for(self._name)
        tell_at_exit(self)

    @property
    def ledger_id(self) -> int:
        """The ledger that appends go to; a roll changes it."""
        return self._rolls.ledger.ledger_id

    @property
    def epoch(self) -> int:
        """The number of this leadership: it grows with each change of the leader."""
        return self._leadership.epoch

    def append_async(self, payload: Payload) -> Future[LogPosition]:
        checked = checked_payload(payload)
        return self._append(LogAppend(checked, len(checked) + ENTRY_OVERHEAD_BYTES))

    def append_batch_async(self, payloads: Payloads) -> Future[tuple[LogPosition, LogPosition]]:
        checked = checked_payloads(payloads)
        return self._append(LogAppend(checked, checked.nbytes))

    def roll(self) -> None:
        """Go on in a new ledger. On return all that was appended before the call is confirmed, in ledgers that are CLOSED.

        Does nothing if the ledger is empty. Others may append meanwhile. Raises NotEnoughBookiesError or
        MetadataUnavailableError if no ledger could be created: the leader goes on in the old one. Other errors end it.
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

        A second close gives the result of the first. Raises what failed this leader; LedgerFencedError if it was displaced.
        Then its ledgers are left to whoever recovers them: ``Log.recover``, the next leader, or the next append.
        """
        check_may_wait(EventLoop.get())
        with self._changed:
            is_first = self._closed is None
            self._closed = closed = self._closed or new_future()
            if is_first:
                self._rolls.refuse(LedgerClosedError(self.ledger_id, self._name))
        if is_first:
            try:
                self._finish()
            except BaseException as problem:
                closed.set_exception(problem)
            else:
                closed.set_result(None)
        closed.result()

    def _unconfirmed(self) -> Unconfirmed:
        """What a roll has queued; its ledgers tell the rest."""
        entries = 0 if self._is_client_closed else sum(append.count for append in self._rolls.queued)
        return Unconfirmed(entries, "entry", f"log '{self._name}'")

    @property
    def _is_client_closed(self) -> bool:
        return self._rolls.ledger._is_client_closed

    @property
    def _title(self) -> str:
        return f"the writer of log '{self._name}'"

    @property
    def _standing(self) -> str:
        return f"ledger {self.ledger_id}, {standing_after(self._rolls.refusal)}"

    def _append(self, append: LogAppend) -> Future[Any]:
        with self._changed:
            if not self._rolls.admits(append.nbytes):
                check_may_wait(EventLoop.get())
                self._changed.wait_for(lambda: self._rolls.admits(append.nbytes))
            refusal = self._rolls.refusal
            append = append.owned() if self._rolls.is_queueing else append
            ledger = None if refusal is not None else self._rolls.append(append, append.nbytes)
            is_roll_due = self._rolls.is_roll_due
            if is_roll_due:
                self._rolls.begin_roll()
        if is_roll_due:
            self._start_roll()
        if refusal is not None:
            append.future.set_exception(refusal)
        if ledger is not None:
            self._send(append, ledger)
        return append.future

    def _send(self, append: LogAppend, ledger: WriteHandle) -> None:
        try:
            sent = append.send(ledger)
        except BaseException:
            self._tell(self._rolls.confirmed)
            raise
        sent.add_done_callback(lambda done: self._answered(append, ledger, done))

    def _answered(self, append: LogAppend, ledger: WriteHandle, sent: Future[Any]) -> None:
        problem = sent.exception()
        if problem is None:
            append.confirm(ledger.ledger_id, sent.result())  # first: when roll and close return, futures are done
            self._tell(self._rolls.confirmed)
        else:
            reason = self._reason(problem, ledger)
            self._fail(reason)
            append.future.set_exception(reason)

    def _fail(self, reason: BookKeeperError) -> None:
        with self._changed:
            queued = self._rolls.fail(reason)
            self._changed.notify_all()
        for append in queued:
            append.future.set_exception(reason)

    def _raise_refusal(self) -> None:
        if self._rolls.refusal is not None:
            raise self._rolls.refusal

    # Rolling

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
            old, ends = self._rolls.ledger, () if self._former is None else (self._leadership.end_of(self._former),)
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

    def _move_to(self, ledger: WriteHandle) -> None:
        """Wait until appends to the old ledger are confirmed, then send what was queued meanwhile to the new one."""
        with self._changed:
            ledger._write_for(self._name)
            self._rolls.opened(ledger)
            self._changed.wait_for(lambda: self._rolls.is_drained or self._rolls.has_failed)
        while (append := self._next_queued()) is not None:
            try:
                self._send(append, ledger)
            except BaseException as problem:
                append.future.set_exception(self._reason(problem, ledger))
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

    def _finish(self) -> None:
        rolls = self._rolls
        with self._changed:
            self._changed.wait_for(lambda: rolls.has_failed or (rolls.state is RollState.STEADY and rolls.is_drained))
            if rolls.has_failed:
                self._raise_refusal()
        with self._failing():
            rolls.ledger.close()
            own = [rolls.ledger] if self._former is None else [self._former, rolls.ledger]
            self._leadership.record(tuple(self._leadership.end_of(one) for one in own))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Any error here ends this leader. The next leader finds out what its ledgers hold."""
        try:
            yield
        except BaseException as problem:
            reason = self._reason(problem, self._rolls.ledger)
            self._fail(reason)
            if isinstance(problem, BookKeeperError) and reason is not problem:
                raise reason from problem
            raise

    def _reason(self, problem: BaseException, ledger: WriteHandle) -> BookKeeperError:
        """The error that appends fail with. A ledger that somebody else closed was recovered: its leader is displaced."""
        if isinstance(problem, (LedgerClosedError, LedgerFencedError)):
            return LedgerFencedError(ledger.ledger_id, self._name)
        if isinstance(problem, BookKeeperError):
            return problem
        return InternalError(ledger.ledger_id, repr(problem))
