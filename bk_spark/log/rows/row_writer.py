"""RowWriteHandle: the leader of a log of rows, for programs that have a few rows at a time.

Rows wait until they fill an entry, or until the first of them has waited for ``max_delay_s`` (``row_buffer.py``). They go to
the leader's ledger (``leader/log_write_handle.py``), in the order in which they were appended.

A call puts its rows into a queue by one step, and a thread of the writer does all the rest. So an interrupt, which comes in the
main thread, ends the call that it comes in, and reaches nobody else's rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Final

import pyarrow as pa

from bk_spark.calls.call_future import CallFuture
from bk_spark.calls.exit_notice import Unconfirmed, tell_at_exit
from bk_spark.calls.forks import check_process
from bk_spark.calls.gate import Gate
from bk_spark.calls.off_main_thread import in_thread
from bk_spark.client.driver.event_loop import EventLoop, check_may_wait
from bk_spark.client.ledger.arrivals import Arrival, ArrivingCalls
from bk_spark.client.ledger.write_handle import ClosedAfterBlock
from bk_spark.errors import AppendTimeoutError, InternalError, LedgerClosedError
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.leader.log_write_handle import submit
from bk_spark.log.rows.row_buffer import RowBuffer, RowCall
from bk_spark.log.rows.row_entries import RowGroup, RowLeader

_CALL: Final = "a call was made"
_NOW: Final = "what waits is due now"
_CLOSE: Final = "no more rows come"


def leader_of(writer: RowWriteHandle) -> RowLeader:
    """What the writer is made of, for those that wait in another way than threads do."""
    return writer._leader


class RowWriteHandle(ClosedAfterBlock):
    """Leads a log of rows: appends rows, each confirmed, until somebody displaces it. Several threads may use it.

    Rows become visible to readers with the entry that they are in, and stay in the order of the calls. Errors are those of
    ``LogWriteHandle``: once displaced, every call raises LedgerFencedError; the outcome of unconfirmed rows is unknown. Rows
    that cannot be written, such as one above the maximum entry, fail the call that brought them, and no other.
    """

    def __init__(self, leader: RowLeader) -> None:
        self._leader = leader
        self._calls = ArrivingCalls(leader.limits.window_bytes, lambda: None)
        """Those that were made, and what they fill of an entry (``RowLimits.share``)."""
        self._asked: SimpleQueue[str] = SimpleQueue()
        """Wakes the thread, with _CALL, _NOW or _CLOSE."""
        self._untold: BaseException | None = None
        """Why rows could not be submitted, until a call has raised it: nobody has to look at the futures."""
        self._is_closed = False
        self._closings: dict[str, CallFuture] = {}
        self._is_started = False
        """Whether the thread runs. Set on the event loop, which starts it with the first call."""
        self._is_attended = False
        """Whether the thread looks by itself soon, unless an entry fills before. It alone sets this."""
        self._buffer: RowBuffer[Future[LogPosition]] = RowBuffer(leader.limits)
        """From here on, of the thread."""
        self._sending: list[RowCall[Future[LogPosition]]] = []
        """Taken from the buffer, and not submitted yet."""
        self._last: Future[Any] | None = None
        self._waiting: deque[Gate] = deque()
        """Of calls that wait until what is buffered goes on."""
        tell_at_exit(self)

    @property
    def schema(self) -> pa.Schema:
        """The columns that rows are stored with."""
        return self._leader.form.schema

    @property
    def ledger_id(self) -> int:
        """The ledger that rows go to; a roll changes it."""
        return self._leader.handle.ledger_id

    def append(self, rows: Any) -> LogPosition:
        """Append rows, and wait until all are confirmed. Returns the entry that holds the last of them."""
        check_may_wait(EventLoop.get())
        appended = self.append_async(rows)
        self._ask(_NOW)
        try:
            return appended.result()
        except Exception as problem:
            if self._untold is problem:
                self._untold = None
            raise

    def append_async(self, rows: Any) -> Future[LogPosition]:
        """Append rows: Arrow data, a pandas DataFrame, a dict (one row), or a list of dicts. At least one row.

        Columns match by name; missing ones are null. The future holds the entry of the last row, once all are confirmed.
        Waits while too much is unconfirmed, for ``ClientConfig.append_wait_s`` at most: then AppendTimeoutError is raised, and
        the append did not happen. Raises SchemaMismatchError for other columns, ConfigError for a value that would be changed,
        or that is not of its column's type.
        """
        check_process()
        call: RowCall[Future[LogPosition]] = RowCall(self._leader.form.of(rows), CallFuture())
        share = self._leader.limits.share(call)
        if not self._calls.has_room(share):
            self._wait_for_room(share)
        if self._is_closed:
            raise LedgerClosedError(self.ledger_id)
        self._make(call, share)
        return call.future

    def flush(self) -> None:
        """Wait until all rows that were appended before the call are confirmed.

        Raises what failed the writer, and what kept rows from being written where no call has raised it yet.
        """
        check_may_wait(EventLoop.get())
        if not self._is_closed:
            flushed: RowCall[Future[LogPosition]] = RowCall([], CallFuture())
            self._make(flushed, 0)
            flushed.future.result()
        self._raise_untold()

    def close(self) -> None:
        """Write what waits, wait until it is confirmed, close the ledgers and record their ends. Raises as ``flush``.

        A second close gives the result of the first. One that is interrupted goes on.
        """
        check_may_wait(EventLoop.get())
        closed = self._closings.setdefault("close", CallFuture())
        self._is_closed = True
        self._ask(_CLOSE)
        closed.result()
        self._raise_untold()

    def _unconfirmed(self) -> Unconfirmed:
        """Rows that are in no entry yet; the leader tells of entries."""
        calls = [arrival.what for arrival in self._calls] + list(self._sending)
        rows = sum(call.rows for call in calls) + self._buffer.rows
        return Unconfirmed(0 if self._leader.handle._is_client_closed else rows, "row", f"log '{self._leader.limits.log}'")

    @property
    def _title(self) -> str:
        return f"the row writer of log '{self._leader.limits.log}'"

    @property
    def _standing(self) -> str:
        return "closed" if self._is_closed else self._leader.handle._standing

    def _wait_for_room(self, share: int) -> None:
        loop, limits = EventLoop.get(), self._leader.limits
        until_s = time.monotonic() + limits.append_wait_s
        while not self._calls.has_room(share) and not self._is_closed:
            check_may_wait(loop)
            gate = Gate()
            self._waiting.append(gate)
            self._ask(_CALL)
            if not self._calls.has_room(share) and not gate.wait(until_s - time.monotonic()):
                raise AppendTimeoutError(self.ledger_id, limits.append_wait_s, limits.window_bytes, "twice max_bytes")

    def _make(self, call: RowCall[Future[LogPosition]], share: int) -> None:
        self._calls.put(Arrival(share, call.future, call))  # the one step by which a call is made
        is_urgent = not call.batches or self._calls.held_bytes >= self._leader.limits.max_bytes
        if (is_urgent or not self._is_attended) and self._asked.empty():  # whatever is asked there makes the thread look
            self._ask(_CALL)

    def _ask(self, asked: str) -> None:
        self._asked.put(asked)
        if not self._is_started:
            EventLoop.get().call_soon_threadsafe(self._start)

    def _raise_untold(self) -> None:
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    # --- on the event loop

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            in_thread(self._run)

    # --- the thread

    def _run(self) -> None:
        """It ends with the writer."""
        asked = _CALL
        while asked is not _CLOSE:
            asked = self._next()
            self._take_calls()
            if asked is not _CALL or self._is_due:
                self._send()
        closed = self._closings["close"]
        try:
            self._leader.handle.close()
        except BaseException as problem:
            closed.set_exception(problem)
        else:
            closed.set_result(None)
        while (arrival := self._calls.take()) is not None:  # made while the writer was closed
            arrival.what.future.set_exception(LedgerClosedError(self.ledger_id))
        self._let_in(0)

    @property
    def _is_due(self) -> bool:
        """Whether what is buffered goes on now: it has waited long enough, or a call that waits for room waits for it alone."""
        return not self._buffer.is_empty and (bool(self._waiting) or self._buffer.due_s <= time.monotonic())

    def _next(self) -> str:
        """What is asked next; _NOW, once what waits is due."""
        left_s = None if self._buffer.is_empty else max(0.0, self._buffer.due_s - time.monotonic())
        self._is_attended = left_s is not None
        try:
            return self._asked.get(timeout=left_s)
        except Empty:
            return _NOW
        finally:
            self._is_attended = False

    def _take_calls(self) -> None:
        while (arrival := self._calls.take()) is not None:
            self._buffer.add(arrival.what, time.monotonic())
            if self._buffer.is_full or not arrival.what.batches:
                self._send()

    def _send(self) -> None:
        """Submit what waits, in the order in which it was appended. Waits while too much is unconfirmed."""
        calls = self._buffer.take()
        self._sending = list(calls)
        left = [call.future for call in calls]
        try:
            for group in self._leader.entries.of(calls) if calls else []:
                self._submit_group(group)
                del left[: len(group.futures)], self._sending[: len(group.futures)]
        except Exception as problem:
            self._fail(left, problem)
        except BaseException as problem:
            # Somebody raised it in this thread, to end a call: it is that of the last call, and nobody is told of it again.
            for future in left[:-1]:
                future.set_exception(InternalError(self.ledger_id, repr(problem)))
            for future in left[-1:]:
                future.set_exception(problem)
        self._sending = []
        self._let_in(sum(map(self._leader.limits.share, calls)))

    def _let_in(self, share: int) -> None:
        """So much of what was buffered has gone on."""
        self._calls.settled(share)
        for _ in range(len(self._waiting)):
            self._waiting.popleft().open()

    def _submit_group(self, group: RowGroup[Future[LogPosition]]) -> None:
        if group.problem is not None:
            self._fail(group.futures, group.problem)
            return
        for entry in group.entries:
            self._last = submit(self._leader.handle, entry)
        if self._last is None:  # a flush before the first row
            for future in group.futures:
                future.set_result(None)  # type: ignore[arg-type]
        else:
            # Entries are confirmed in order: with the last one, all are.
            self._last.add_done_callback(lambda done: _tell(group.futures, done))

    def _fail(self, futures: Sequence[Future[LogPosition]], problem: BaseException) -> None:
        self._untold = problem
        for future in futures:
            future.set_exception(problem)


def _tell(futures: Sequence[Future[LogPosition]], done: Future[LogPosition]) -> None:
    problem = done.exception()
    for future in futures:
        if problem is None:
            future.set_result(done.result())
        else:
            future.set_exception(problem)
