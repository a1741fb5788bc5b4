"""RowWriteHandle: the leader of a log of rows, for programs that have a few rows at a time.

Rows wait until they fill an entry, or until the first of them has waited for ``max_delay_s`` (``row_buffer.py``). They go to
the leader's ledger (``leader/log_write_handle.py``), in the order in which they were appended.

Locks: ``_lock`` is held while rows are buffered; ``_sending`` is held from taking the buffer until its payloads are
submitted, so that two flushes do not overtake each other. ``_sending`` is taken first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from bk_spark.client.driver.event_loop import EventLoop, check_may_wait
from bk_spark.client.ledger.write_handle import ClosedAfterBlock
from bk_spark.client.ledger.write_items import new_future
from bk_spark.client.log.entry_range import LogPosition
from bk_spark.client.log.leader.log_write_handle import submit
from bk_spark.client.log.rows.row_buffer import RowBuffer, RowCall
from bk_spark.client.log.rows.row_entries import RowGroup, RowLeader
from bk_spark.errors import LedgerClosedError


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
        self._buffer: RowBuffer[Future[LogPosition]] = RowBuffer(leader.limits)
        self._lock = threading.Condition()
        self._sending = threading.Lock()
        self._last: Future[Any] | None = None
        self._untold: BaseException | None = None
        """Why rows could not be submitted, until a call has raised it: nobody has to look at the futures."""
        self._is_closed = False
        self._timer: threading.Thread | None = None
        """Started with the first rows."""

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
        self._send()
        try:
            return appended.result()
        except BaseException as problem:
            with self._lock:
                if self._untold is problem:
                    self._untold = None
            raise

    def append_async(self, rows: Any) -> Future[LogPosition]:
        """Append rows: Arrow data, a pandas DataFrame, a dict (one row), or a list of dicts. At least one row.

        Columns match by name; missing ones are null. The future holds the entry of the last row, once all are confirmed.
        Waits while too much is unconfirmed. Raises SchemaMismatchError for other columns, ConfigError for a value that would
        be changed, or that is not of its column's type.
        """
        call: RowCall[Future[LogPosition]] = RowCall(self._leader.form.of(rows), new_future())
        with self._lock:
            if self._is_closed:
                raise LedgerClosedError(self.ledger_id)
            if self._timer is None:
                self._timer = threading.Thread(target=self._flush_when_due, name="bk_spark-row-writer", daemon=True)
                self._timer.start()
            if self._buffer.is_empty:
                self._lock.notify_all()
            self._buffer.add(call, time.monotonic())
            is_full = self._buffer.is_full
        if is_full:
            self._send()
        return call.future

    def flush(self) -> None:
        """Wait until all rows that were appended before the call are confirmed.

        Raises what failed the writer, and what kept rows from being written where no call has raised it yet.
        """
        check_may_wait(EventLoop.get())
        self._send()
        last = self._last
        if last is not None:
            last.result()
        self._raise_untold()

    def close(self) -> None:
        """Write what waits, wait until it is confirmed, close the ledgers and record their ends. Raises as ``flush``."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        try:
            self._send()
        finally:
            self._leader.handle.close()
        self._raise_untold()

    @property
    def _title(self) -> str:
        return f"the row writer of log '{self._leader.limits.log}'"

    @property
    def _standing(self) -> str:
        return "closed" if self._is_closed else self._leader.handle._standing

    def _flush_when_due(self) -> None:
        """The thread: it ends with the writer."""
        while True:
            with self._lock:
                self._lock.wait_for(lambda: not self._buffer.is_empty or self._is_closed)
                if self._is_closed:
                    return
                left_s = self._buffer.due_s - time.monotonic()
                if left_s > 0:
                    self._lock.wait(left_s)
                    continue
            self._send()

    # --- sending

    def _send(self) -> None:
        """Submit what waits, in the order in which it was appended. Waits while too much is unconfirmed."""
        with self._sending:
            with self._lock:
                taken = self._buffer.take()
            if taken:
                self._submit(taken)

    def _submit(self, calls: list[RowCall[Future[LogPosition]]]) -> None:
        left = [call.future for call in calls]
        try:
            for group in self._leader.entries.of(calls):
                self._submit_group(group)
                del left[: len(group.futures)]
        except BaseException as problem:
            self._fail(left, problem)
            if not isinstance(problem, Exception):
                raise  # an interrupt is its thread's; other errors are told, and the writer goes on

    def _submit_group(self, group: RowGroup[Future[LogPosition]]) -> None:
        if group.problem is not None:
            self._fail(group.futures, group.problem)
            return
        for entry in group.entries:
            self._last = submit(self._leader.handle, entry)
        assert self._last is not None
        # Entries are confirmed in order: with the last one, all are.
        self._last.add_done_callback(lambda done: _tell(group.futures, done))

    def _fail(self, futures: Sequence[Future[LogPosition]], problem: BaseException) -> None:
        with self._lock:
            self._untold = problem
        for future in futures:
            future.set_exception(problem)

    def _raise_untold(self) -> None:
        with self._lock:
            untold, self._untold = self._untold, None
        if untold is not None:
            raise untold


def _tell(futures: Sequence[Future[LogPosition]], done: Future[LogPosition]) -> None:
    problem = done.exception()
    for future in futures:
        if problem is None:
            future.set_result(done.result())
        else:
            future.set_exception(problem)
