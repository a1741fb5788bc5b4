"""The handle with which coroutines lead a log of rows.

    append ─► line ─► buffer ─► entries, encoded in a thread ─► window of the leader ─► confirmed

One task of the application's loop moves rows from the buffer on, and ends when none wait. So an append that is cancelled
behind its entrance harms no other. While the window is full the task waits, the buffer fills, and appends stand in line: what a
writer holds is one buffer, one more that is being encoded, and the window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from bk_spark.aio.append_line import AppendLine
from bk_spark.aio.calls import Calls
from bk_spark.aio.writer import AsyncClosedAfterBlock
from bk_spark.calls.exit_notice import Unconfirmed, dropped, tell_at_exit
from bk_spark.client.driver.user_loop import LoopFuture, give_outcome, wake
from bk_spark.errors import LedgerClosedError
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.leader.log_write_handle import submit
from bk_spark.log.rows.row_buffer import RowBuffer, RowCall
from bk_spark.log.rows.row_entries import RowAppend, RowGroup, RowLeader
from bk_spark.rows.own_memory import taken_rows

FEW_ROWS = 100
"""Rows of Python objects that are converted at once: about as long as it takes to hand them to a thread."""


class AsyncRowWriteHandle(AsyncClosedAfterBlock):
    """Leads a log of rows, as RowWriteHandle: appends rows, each confirmed, until somebody displaces it.

    Rows stay in the order of the calls. While too much is unconfirmed further calls stand in line. A cancelled one that stands
    in line is as if it had never been made; the rows of any other one may be confirmed all the same.
    """

    def __init__(self, leader: RowLeader, calls: Calls, window_bytes: int) -> None:
        self._leader = leader
        self._calls = calls
        self._buffer: RowBuffer[LoopFuture[Any]] = RowBuffer(leader.limits)
        self._entrance = asyncio.Lock()
        """The line: first in, first out."""
        self._window = AppendLine(calls, window_bytes)
        self._sender: asyncio.Task[None] | None = None
        self._is_asked = False
        """Whether what waits is to be sent at once."""
        self._rows_due: LoopFuture[None] | None = None
        """The sender waits for it."""
        self._room: LoopFuture[None] | None = None
        """The first in line waits for it."""
        self._last: LoopFuture[Any] | None = None
        """The last entry that was submitted."""
        self._untold: BaseException | None = None
        """Why rows could not be submitted, until a call has raised it: nobody has to look at the futures."""
        self._is_closed = False
        self._sending: list[RowCall[LoopFuture[Any]]] = []
        """Taken from the buffer, and not submitted yet."""
        tell_at_exit(self)

    @property
    def schema(self) -> pa.Schema:
        """The columns that rows are stored with."""
        return self._leader.form.schema

    @property
    def ledger_id(self) -> int:
        """The ledger that rows go to; a roll changes it."""
        return self._leader.handle.ledger_id

    def append(self, rows: Any) -> Coroutine[Any, Any, LogPosition]:
        """Append rows. Returns the entry that holds the last of them, once all are confirmed.

        As with all appends here, Arrow data and a few Python objects are taken when the call is made. Other rows, such as a
        pandas DataFrame or more than FEW_ROWS dicts, are read while it is awaited: do not change them meanwhile.
        """
        return self._append(self._taken(rows))

    def append_async(self, rows: Any) -> Coroutine[Any, Any, asyncio.Future[LogPosition]]:
        """Append rows, as ``RowWriteHandle.append_async``. Returns once there is room for them.

        The future holds the entry of the last row, once all are confirmed.
        """
        return self._enter(self._taken(rows), at_once=False)

    async def _append(self, rows: Any) -> LogPosition:
        future = await self._enter(rows, at_once=True)
        try:
            position: LogPosition = await self._calls.wait(future)
        except Exception as problem:
            if self._untold is problem:
                self._untold = None
            raise
        return position

    async def flush(self) -> None:
        """Wait until all rows that were appended before the call are confirmed. Raises as ``RowWriteHandle.flush``."""
        self._calls.check()
        async with self._entrance:
            self._calls.check()
            future = self._put([], at_once=True)
        await self._calls.wait(future)
        self._raise_untold()

    async def close(self) -> None:
        """Write what waits, wait until it is confirmed, close the ledgers and record their ends. Raises as ``flush``.

        Appends that stand in line fail with LedgerClosedError: await them first. After a cancelled close call it again.
        """
        self._calls.check()
        self._is_closed = True
        self._ask()
        if self._room is not None:
            wake(self._room)
        if self._sender is not None:
            await asyncio.wait([self._sender])
        await self._calls.in_thread(self._leader.handle.close)
        self._raise_untold()

    def _unconfirmed(self) -> Unconfirmed:
        """As that of ``RowWriteHandle``."""
        rows = sum(call.rows for call in list(self._sending)) + self._buffer.rows
        return Unconfirmed(0 if self._leader.handle._is_client_closed else rows, "row", f"log '{self._leader.limits.log}'")

    @property
    def _title(self) -> str:
        return f"the row writer of log '{self._leader.limits.log}'"

    @property
    def _standing(self) -> str:
        return "closed" if self._is_closed else self._leader.handle._standing

    # --- the line and the buffer

    async def _enter(self, rows: Any, *, at_once: bool) -> LoopFuture[Any]:
        """Stand in line until there is room. The future holds the entry of the last row, once all are confirmed."""
        self._calls.check()
        async with self._entrance:
            batches = await self._conformed(rows)
            if self._calls.is_turn_due():
                await asyncio.sleep(0)
            while self._buffer.is_full and not self._is_closed:
                self._room = self._calls.loop.new_future()
                await self._calls.wait(self._room)
            self._calls.check()  # the client may have been closed while this stood in line
            if self._is_closed:
                raise LedgerClosedError(self.ledger_id)
            return self._put(batches, at_once=at_once)

    def _taken(self, rows: Any) -> Any:
        """Rows in memory that nobody else changes, as far as that takes no long; an error, for the coroutine to raise."""
        try:
            taken = None if _are_few(rows) else taken_rows(rows)
            return self._leader.form.of(rows) if taken is None else taken
        except Exception as problem:
            return problem

    async def _conformed(self, rows: Any) -> list[pa.RecordBatch]:
        """Of what was taken."""
        if isinstance(rows, Exception):
            raise rows
        if isinstance(rows, list) and all(isinstance(row, pa.RecordBatch) for row in rows):
            return rows
        return await self._calls.in_thread(lambda: self._leader.form.of(rows))

    def _put(self, batches: list[pa.RecordBatch], *, at_once: bool) -> LoopFuture[Any]:
        future: LoopFuture[Any] = self._calls.loop.new_future()
        self._buffer.add(RowCall(batches, future), asyncio.get_running_loop().time())
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())
        if at_once or self._buffer.is_full:
            self._ask()
        return future

    def _ask(self) -> None:
        self._is_asked = True
        if self._rows_due is not None:
            wake(self._rows_due)

    # --- the task that sends

    async def _send(self) -> None:
        """Submit what waits, in order, until nothing does."""
        try:
            while not self._buffer.is_empty:
                await self._until_due()
                calls, self._is_asked = self._buffer.take(), False
                self._sending = list(calls)
                if self._room is not None:
                    wake(self._room)
                for group in await self._calls.in_thread(partial(self._leader.entries.of, calls)):
                    await self._submit(group)
                    del self._sending[: len(group.futures)]
        except BaseException as problem:
            if not isinstance(problem, Exception):  # the event loop ends
                dropped(self._unconfirmed())
            self._fail([call.future for call in (*self._sending, *self._buffer.take())], problem)
            self._sending = []
            if not isinstance(problem, Exception):
                raise
        finally:
            self._sender = None

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_asked and (left_s := self._buffer.due_s - loop.time()) > 0:
            self._rows_due = self._calls.loop.new_future()
            await self._calls.wait_up_to(self._rows_due, left_s)

    async def _submit(self, group: RowGroup[LoopFuture[Any]]) -> None:
        if group.problem is not None:
            self._fail(group.futures, group.problem)
            return
        for entry in group.entries:
            self._last = await self._entered(entry)
        if self._last is None:  # a flush before the first row
            for future in group.futures:
                wake(future)
        else:
            # Entries are confirmed in order: with the last one, all are.
            self._last.add_done_callback(lambda done: _tell(group.futures, done))

    async def _entered(self, entry: RowAppend) -> LoopFuture[Any]:
        """The entry's future, once it has room in the window."""
        standing = self._window.stand(entry.nbytes, lambda: submit(self._leader.handle, entry))
        standing.add_done_callback(_look)
        return await self._window.entered(standing)

    def _fail(self, futures: Sequence[LoopFuture[Any]], problem: BaseException) -> None:
        failed: LoopFuture[Any] = self._calls.loop.new_future()
        if isinstance(problem, Exception):
            self._untold = problem
            failed.set_exception(problem)
            _look(failed)
        else:
            failed.cancel()
        _tell(futures, failed)

    def _raise_untold(self) -> None:
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold


def _are_few(rows: Any) -> bool:
    return isinstance(rows, dict) or (isinstance(rows, list) and len(rows) <= FEW_ROWS)


def _tell(futures: Sequence[LoopFuture[Any]], done: LoopFuture[Any]) -> None:
    """Give an outcome to those that nobody cancelled."""
    for future in futures:
        give_outcome(future, done)
        _look(future)


def _look(done: LoopFuture[Any]) -> None:
    """Nobody has to look at the futures of rows: flush and close raise their errors, too. So asyncio is not to log them."""
    if not done.cancelled():
        done.exception()
