"""The handle with which coroutines read a ledger.

A read is an asynchronous generator. The bookies are asked at its first step, and its end ends what it asked for: also when an
``async for`` is left early, or its task is cancelled.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncGenerator
from types import TracebackType

import pyarrow as pa

from bk_spark.aio.calls import Calls
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_state_machine
from bk_spark.client.driver.user_loop import LoopFuture, wake
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.ledger.ledger_view import LedgerView, ReadCut
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.read_stretches import AT_ONCE
from bk_spark.client.ledger.running_read import RunningRead
from bk_spark.client.protocol.limits import ReadLimits
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.state_machine import Deliver, Finish
from bk_spark.entries.batch import EntryBatch
from bk_spark.metadata.ledger_metadata import LedgerMetadata


class _AwaitedRead(RunningRead):
    """The batches of one read, in order, for one coroutine."""

    def __init__(self, context: ClientContext, calls: Calls, metadata: LedgerMetadata, machine: ReadEntries) -> None:
        self._calls = calls
        self._arrived: deque[Deliver | Finish] = deque()
        self._waiter: LoopFuture[None] | None = None
        super().__init__(context, metadata, machine, lambda item: calls.loop.tell(self._take, item))

    async def next(self) -> EntryBatch | None:
        """The next batch; None at the end."""
        if not self._arrived:
            self._waiter = self._calls.loop.new_future()
            await self._calls.wait(self._waiter)
        item = self._arrived.popleft()
        if isinstance(item, Deliver):
            return item.batch
        if item.error is not None:
            raise item.error
        return None

    def _take(self, item: Deliver | Finish) -> None:
        self._arrived.append(item)
        if self._waiter is not None:
            wake(self._waiter)


class AsyncReadHandle(LedgerView):
    """A ledger opened for reading, as ReadHandle. The tasks of one event loop may share it."""

    def __init__(self, context: ClientContext, calls: Calls, ledgers: LedgerStore, metadata: LedgerMetadata) -> None:
        super().__init__(context, ledgers, metadata)
        self._calls = calls

    async def begin(self) -> None:
        """Ask the bookies how far the ledger is confirmed. Opening a ledger does this just after it read the metadata."""
        await self._ask_bookies(quorum=True)

    async def read_last_add_confirmed(self) -> int:
        """As ``ReadHandle.read_last_add_confirmed``: asks a quorum of bookies how far the ledger is confirmed."""
        return await self._ask_last_add_confirmed(quorum=True)

    async def try_read_last_add_confirmed(self) -> int:
        """As ``read_last_add_confirmed``, but the first answers suffice: works while any bookie answers, may be older."""
        return await self._ask_last_add_confirmed(quorum=False)

    async def wait_for_last_add_confirmed(self, beyond: int, timeout_s: float) -> int:
        """Wait until the last add confirmed is above ``beyond``, the ledger is closed, or ``timeout_s`` have passed.

        As ``ReadHandle.wait_for_last_add_confirmed``. A cancelled wait ends its requests to bookies.
        """
        self._calls.check()
        machine = self._awaiting(beyond, timeout_s)
        if machine is not None:
            work = run_state_machine(self._context, self._metadata, machine)
            self._learn(*await self._calls.on_client(self._context, work))
        return self._last_add_confirmed

    def read(self, first: int, last: int) -> AsyncGenerator[pa.RecordBatch, None]:
        """Entries from ``first`` to ``last``, both inclusive, as record batches in ``bk_spark.entries.batch.READ_SCHEMA``.

        Every entry is verified; if a replica is down, slow or damaged the next one is read. Raises NoSuchEntryError
        beyond ``last_add_confirmed``, BookieUnavailableError, DigestMismatchError.

        An ``async for`` that is left early ends the read, at the latest in the next turn of the event loop. Where you keep the
        generator, call its ``aclose``, or use ``contextlib.aclosing``.
        """
        self._check_confirmed(first, last)
        return self._read(first, last)

    def read_unconfirmed(self, first: int, last: int) -> AsyncGenerator[pa.RecordBatch, None]:
        """As ``read``, without the bound of ``last_add_confirmed``: see ``ReadHandle.read_unconfirmed``."""
        self._check_not_behind_end(first, last)
        return self._read(first, last)

    async def close(self) -> None:
        """Release the handle. It holds nothing; this exists for symmetry and ``async with``."""

    async def __aenter__(self) -> AsyncReadHandle:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _read(self, first: int, last: int) -> AsyncGenerator[pa.RecordBatch, None]:
        self._calls.check()
        cut = await self._cut(first, last)
        reads = (self._begin(start, end, cut.limits) for start, end in cut.ranges(last))
        under_way = deque(itertools.islice(reads, AT_ONCE))
        try:
            while under_way:
                while (batch := await under_way[0].next()) is not None:
                    yield batch.to_arrow()
                    under_way[0].consumed(batch)
                self._end(under_way.popleft())
                under_way.extend(itertools.islice(reads, 1))
        finally:
            for read in under_way:
                self._end(read)

    async def _cut(self, first: int, last: int) -> ReadCut:
        cut = self._in_stretches(first, last)
        if len(cut.starts) > 1:
            of_apache = self._context.bookies.are_of_apache(self._bookies_of(first, last))
            if await self._calls.on_client(self._context, of_apache):
                return cut
        return self._whole(first, last)

    def _begin(self, first: int, last: int, limits: ReadLimits) -> _AwaitedRead:
        machine = ReadEntries(self._metadata, first, last, limits, avoid=self._context.avoided())
        return _AwaitedRead(self._context, self._calls, self._metadata, machine)

    async def _ask_last_add_confirmed(self, *, quorum: bool) -> int:
        self._calls.check()
        if not self.is_closed:
            await self._calls.in_thread(self._read_metadata)
        await self._ask_bookies(quorum=quorum)
        return self._last_add_confirmed

    async def _ask_bookies(self, *, quorum: bool) -> None:
        machine = self._asking(quorum=quorum)
        if machine is not None:
            work = run_state_machine(self._context, self._metadata, machine)
            self._learn(self._metadata, await self._calls.on_client(self._context, work))


def for_coroutines(handle: ReadHandle, calls: Calls) -> AsyncReadHandle:
    """Another handle of the ledger, as far as this one knows its metadata."""
    return AsyncReadHandle(handle._context, calls, handle._ledgers, handle.metadata)
