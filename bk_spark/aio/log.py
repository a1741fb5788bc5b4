"""A log for coroutines: its metadata, its entries, and the handle that leads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import pyarrow as pa

from bk_spark.aio.append_line import AppendLine
from bk_spark.aio.calls import Calls
from bk_spark.aio.reader import AsyncReadHandle
from bk_spark.aio.writer import AsyncClosedAfterBlock
from bk_spark.client.driver.user_loop import LoopFuture
from bk_spark.client.ledger.write_handle import Payloads, checked_payload, checked_payloads
from bk_spark.client.log.entry_range import LogPosition, LogRange, with_ledger_id
from bk_spark.client.log.leader.log_write_handle import LogWriteHandle
from bk_spark.client.log.log import DEFAULT_ROLL_BYTES, Log
from bk_spark.client.log.stored.snapshot import LogSnapshot
from bk_spark.client.log.stored.values import CommittedLedger, LogVersion, OpenLedger, Retention
from bk_spark.config import DigestType
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES
from bk_spark.entries.digest import payload_sizes


class AsyncLog:
    """One log. The methods are those of ``Log``, as coroutines. A cancelled change may take effect all the same."""

    def __init__(
        self, log: Log, calls: Calls, open_ledger: Callable[[int], Awaitable[AsyncReadHandle]], window_bytes: int
    ) -> None:
        self.name: Final = log.name
        self.uid: Final = log.uid
        """The random id that tells this log from others that had or will have its name."""
        self._log = log
        self._calls = calls
        self._open_ledger = open_ledger
        self._window_bytes = window_bytes

    async def retention(self) -> Retention:
        """What ``bk-spark log vacuum`` removes of this log."""
        return await self._calls.in_thread(lambda: self._log.retention)

    async def set_retention(self, retention: Retention) -> None:
        """Replace the log's retention as a whole. Takes effect at the next vacuum."""
        await self._calls.in_thread(lambda: self._log.set_retention(retention))

    async def snapshot(self, version: int | None = None) -> LogSnapshot:
        """The log at ``version``, by default the newest. Raises NoSuchLogError, ConfigError."""
        return await self._calls.in_thread(lambda: self._log.snapshot(version))

    async def ledgers(self) -> list[CommittedLedger | OpenLedger]:
        """The ledgers that the log lists now, in log order. The OpenLedgers at the end are those without a recorded end."""
        return await self._calls.in_thread(self._log.ledgers)

    async def versions(self) -> list[LogVersion]:
        """Every commit to the log that can still be read, oldest first."""
        return await self._calls.in_thread(self._log.versions)

    async def append_ledgers(
        self, ledgers: Sequence[int | CommittedLedger], application: tuple[str, int] | None = None
    ) -> LogVersion:
        """List ledgers of entries at the end of the log, all at once, as ``Log.append_ledgers``."""
        return await self._calls.in_thread(lambda: self._log.append_ledgers(ledgers, application))

    async def replace_ledgers(self, remove: Sequence[int], add: Sequence[int | CommittedLedger]) -> LogVersion:
        """Put ``add`` in the place of ``remove``, all at once, as ``Log.replace_ledgers``."""
        return await self._calls.in_thread(lambda: self._log.replace_ledgers(remove, add))

    async def truncate(self, before: LogPosition) -> LogVersion:
        """Remove the ledgers whose entries are all before ``before``, as ``Log.truncate``."""
        return await self._calls.in_thread(lambda: self._log.truncate(before))

    async def recover(self) -> LogVersion | None:
        """Fence and close what a leader left open, and record the ends, as ``Log.recover``."""
        return await self._calls.in_thread(self._log.recover)

    async def delete(self) -> None:
        """Delete the log and all its ledgers, those of old versions too. A second call finishes what was cut short."""
        await self._calls.in_thread(self._log.delete)

    async def open_writer(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
        *,
        roll_bytes: int = DEFAULT_ROLL_BYTES,
    ) -> AsyncLogWriteHandle:
        """Become the log's leader, which appends entries to it, and displace the one before, as ``Log.open_writer``.

        A cancelled call may have taken over all the same: then the log is left as by a leader that vanished.
        """
        handle = await self._calls.in_thread(
            lambda: self._log.open_writer(ensemble_size, write_quorum, ack_quorum, digest_type, roll_bytes=roll_bytes)
        )
        return AsyncLogWriteHandle(handle, self._calls, self.name, self._window_bytes)

    async def read(
        self, start: LogPosition | None = None, end: LogPosition | None = None
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """The log's entries in log order, from ``start`` (included) to ``end`` (excluded), as ``Log.read``.

        The ledgers are those that the log lists at the first step. An ``async for`` that is left early ends the read, as with
        ``AsyncReadHandle.read``.
        """
        entries = LogRange.of(self.name, await self.ledgers(), start, end)
        for stretch in entries.stretches():
            if stretch.is_empty:
                continue
            ledger_id = stretch.ledger.ledger_id
            reader = await self._open_ledger(ledger_id)
            is_closed = reader.is_closed  # asked before its end: if it is closed in between, it is not read to its end
            last = stretch.last(reader)
            if stretch.first <= last:
                async with aclosing(reader.read(stretch.first, last)) as batches:
                    async for batch in batches:
                        yield with_ledger_id(ledger_id, batch)
            if not is_closed and isinstance(stretch.ledger, OpenLedger):
                return


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

    async def append(self, payload: bytes) -> LogPosition:
        """Append one entry. Returns its place once it is confirmed."""
        position: LogPosition = await self._line.outcome(self._begin(payload))
        return position

    async def append_async(self, payload: bytes) -> asyncio.Future[LogPosition]:
        """Append one entry. Returns once there is room for it; the future holds its place once it is confirmed."""
        return await self._line.entered(self._begin(payload))

    async def append_batch(self, payloads: Payloads) -> tuple[LogPosition, LogPosition]:
        """Append many entries, at least one, to one ledger, with nothing else between them.

        Returns the first and the last place, inclusive, once all are confirmed.
        """
        first_and_last: tuple[LogPosition, LogPosition] = await self._line.outcome(self._begin_many(payloads))
        return first_and_last

    async def append_batch_async(self, payloads: Payloads) -> asyncio.Future[tuple[LogPosition, LogPosition]]:
        """As ``append_batch``, but returns once there is room; the future holds the places once all entries are confirmed."""
        return await self._line.entered(self._begin_many(payloads))

    async def roll(self) -> None:
        """Go on in a new ledger, as ``LogWriteHandle.roll``. A cancelled roll may go on."""
        await self._calls.in_thread(self._handle.roll)

    async def close(self) -> None:
        """Wait until all that was appended is confirmed, close the ledgers, and record their ends in one commit.

        As ``LogWriteHandle.close``. Appends that stand in line fail: await them first. After a cancelled close call it again:
        it may not have begun.
        """
        await self._calls.in_thread(self._handle.close)

    def _begin(self, payload: bytes) -> LoopFuture[Any]:
        self._calls.check()
        checked = checked_payload(payload)
        return self._line.stand(len(checked) + ENTRY_OVERHEAD_BYTES, lambda: self._handle.append_async(checked))

    def _begin_many(self, payloads: Payloads) -> LoopFuture[Any]:
        self._calls.check()
        checked = checked_payloads(payloads)
        nbytes = int(payload_sizes(checked).sum()) + len(checked) * ENTRY_OVERHEAD_BYTES
        return self._line.stand(nbytes, lambda: self._handle.append_batch_async(checked))

    @property
    def _title(self) -> str:
        return f"the writer of log '{self._name}'"
