"""The handle with which coroutines lead a log of entries."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from bk_spark.aio.append_line import AppendLine
from bk_spark.aio.calls import Calls
from bk_spark.aio.writer import AsyncClosedAfterBlock
from bk_spark.client.driver.user_loop import LoopFuture
from bk_spark.client.ledger.payloads import (
    Payload,
    Payloads,
    checked_payload,
    checked_payloads,
    taken_payload,
    taken_payloads,
)
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.leader.log_write_handle import LogWriteHandle


class AsyncLogWriteHandle(AsyncClosedAfterBlock):
    """The leader of a log, as LogWriteHandle: the one writer of its last ledger, until somebody displaces it.

    Appends are confirmed in the order in which they were called, across ledgers too. While ``ClientConfig.add_window_bytes``
    are on their way, further ones stand in line. A cancelled append that stands in line is as if it had never been called;
    any other one may be confirmed all the same.
    """

    def __init__(self, handle: LogWriteHandle, calls: Calls, name: str, window_bytes: int) -> None:
        self._handle = handle
        self._calls = calls
        self._name = name
        self._line = AppendLine(calls, window_bytes)

    @property
    def ledger_id(self) -> int:
        """The ledger that appends go to; a roll changes it."""
        return self._handle.ledger_id

    @property
    def epoch(self) -> int:
        """The number of this leadership: it grows with each change of the leader."""
        return self._handle.epoch

    def append(self, payload: Payload) -> Coroutine[Any, Any, LogPosition]:
        """Append one entry. Returns its place once it is confirmed."""
        return self._append(taken_payload(payload))

    def append_async(self, payload: Payload) -> Coroutine[Any, Any, asyncio.Future[LogPosition]]:
        """Append one entry. Returns once there is room for it; the future holds its place once it is confirmed."""
        return self._append_async(taken_payload(payload))

    def append_batch(self, payloads: Payloads) -> Coroutine[Any, Any, tuple[LogPosition, LogPosition]]:
        """Append many entries, at least one, to one ledger, with nothing else between them.

        Returns the first and the last place, inclusive, once all are confirmed.
        """
        return self._append_batch(taken_payloads(payloads))

    def append_batch_async(self, payloads: Payloads) -> Coroutine[Any, Any, asyncio.Future[tuple[LogPosition, LogPosition]]]:
        """As ``append_batch``, but returns once there is room; the future holds the places once all entries are confirmed."""
        return self._append_batch_async(taken_payloads(payloads))

    async def roll(self) -> None:
        """Go on in a new ledger, as ``LogWriteHandle.roll``. A cancelled roll may go on."""
        await self._calls.in_thread(self._handle.roll)

    async def close(self) -> None:
        """Wait until all that was appended is confirmed, close the ledgers, and record their ends in one commit.

        As ``LogWriteHandle.close``. Appends that stand in line fail: await them first. After a cancelled close call it again:
        it may not have begun.
        """
        await self._calls.in_thread(self._handle.close)

    async def _append(self, payload: bytes) -> LogPosition:
        position: LogPosition = await self._line.outcome(self._begin(payload))
        return position

    async def _append_async(self, payload: bytes) -> LoopFuture[LogPosition]:
        return await self._line.entered(self._begin(payload))

    async def _append_batch(self, payloads: Payloads) -> tuple[LogPosition, LogPosition]:
        first_and_last: tuple[LogPosition, LogPosition] = await self._line.outcome(self._begin_many(payloads))
        return first_and_last

    async def _append_batch_async(self, payloads: Payloads) -> LoopFuture[tuple[LogPosition, LogPosition]]:
        return await self._line.entered(self._begin_many(payloads))

    def _begin(self, payload: bytes) -> LoopFuture[Any]:
        self._calls.check()
        checked = checked_payload(payload)
        return self._line.stand(len(checked) + ENTRY_OVERHEAD_BYTES, lambda: self._handle.append_async(checked))

    def _begin_many(self, payloads: Payloads) -> LoopFuture[Any]:
        self._calls.check()
        checked = checked_payloads(payloads)  # its memory was copied when the call was made
        return self._line.stand(checked.nbytes, lambda: self._handle.append_batch_async(checked))

    @property
    def _title(self) -> str:
        return f"the writer of log '{self._name}'"

    @property
    def _standing(self) -> str:
        return self._handle._standing
