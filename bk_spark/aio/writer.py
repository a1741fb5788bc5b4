"""Handles that write a ledger, for coroutines.

Appends keep the order in which they were called, which is the order in which their tasks took their first step: that in which
they were created. A coroutine whose append finds the writer's window full suspends like any other until its entry is confirmed.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from bk_spark.aio.calls import Calls
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.user_loop import LoopFuture
from bk_spark.client.ledger.arrivals import Key
from bk_spark.client.ledger.payloads import (
    Payload,
    Payloads,
    taken_payload,
    taken_payloads,
)
from bk_spark.client.ledger.write_handle import LedgerWriter, check_entry_id
from bk_spark.client.ledger.write_queue import WriteQueue
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.limits import AddLimits
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import LedgerMetadata


class AsyncClosedAfterBlock(ABC):
    """A writer that the end of an ``async with`` block closes."""

    @property
    @abstractmethod
    def _title(self) -> str:
        """What a message calls this writer."""

    @property
    @abstractmethod
    def _standing(self) -> str:
        """How it stands, for whoever looks at it."""

    @abstractmethod
    async def close(self) -> None: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._title}, {self._standing}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. If the block raised an error, that error is raised, and an error of close becomes a note on it."""
        if error is None:
            await self.close()
            return
        try:
            await self.close()
        except BookKeeperError as problem:
            error.add_note(f"closing {self._title} failed as well: {problem}")


class _AsyncLedgerWriter(LedgerWriter, AsyncClosedAfterBlock):
    """What the writers of a ledger have in common."""

    def __init__(self, context: ClientContext, calls: Calls, metadata: LedgerMetadata, *, deferred_sync: bool) -> None:
        machine = AddEntries(metadata, 0, AddLimits.of(context.config), deferred_sync=deferred_sync)
        LedgerWriter.__init__(self, context, machine)
        self._calls = calls
        self._queue = WriteQueue(context, machine)

    async def force(self) -> int:
        """As that of the synchronous writer: make durable what was appended before. Returns the last add confirmed."""
        self._calls.check()
        return await self._calls.outcome(self._queue.force_async())

    async def close(self) -> None:
        """Close the ledger after its last confirmed entry. Unconfirmed appends fail with LedgerClosedError: await them first.

        As that of the synchronous writer. If the wait is cancelled the ledger is closed all the same.
        """
        self._calls.check()
        await self._calls.outcome(self._queue.close_async())

    def _begin_one(self, payload: bytes, entry_id: int | None) -> LoopFuture[int]:
        self._calls.check()
        if entry_id is not None:
            check_entry_id(entry_id, 1)
        return self._queue.append_one_of(self._calls.loop, self._checked(payload), entry_id)

    def _begin_many(self, payloads: Payloads, first_entry_id: int | None) -> Future[tuple[int, int]]:
        self._calls.check()
        checked = self._checked_many(payloads)
        if first_entry_id is not None:
            check_entry_id(first_entry_id, len(checked))
        return self._queue.append_many(checked, first_entry_id)

    async def _append_one(self, payload: bytes, entry_id: int | None) -> int:
        future = self._begin_one(payload, entry_id)
        try:
            return await future
        except asyncio.CancelledError:
            self._queue.withdraw(future)
            raise

    async def _append_one_async(self, payload: bytes, entry_id: int | None) -> LoopFuture[int]:
        future = self._begin_one(payload, entry_id)
        if self._queue.has_line or self._calls.is_turn_due():
            await self._entered(future, future)
        return future

    async def _append_many(self, payloads: Payloads, first_entry_id: int | None) -> tuple[int, int]:
        call = self._begin_many(payloads, first_entry_id)
        try:
            return await self._calls.outcome(call)
        except asyncio.CancelledError:
            self._queue.withdraw(call)
            raise

    async def _append_many_async(self, payloads: Payloads, first_entry_id: int | None) -> LoopFuture[tuple[int, int]]:
        call = self._begin_many(payloads, first_entry_id)
        future = self._calls.future_of(call)
        if self._queue.has_line or self._calls.is_turn_due():
            await self._entered(call, future)
        return future

    async def _entered(self, call: Key, future: LoopFuture[Any]) -> None:
        """Wait until the call has left the line; at least for one turn of the event loop."""
        try:
            if self._queue.has_line:
                await self._calls.wait(self._queue.entrance(self._calls.loop, call))
            else:
                await asyncio.sleep(0)
        except BaseException:
            future.cancel()
            self._queue.withdraw(call)
            raise


class AsyncWriteHandle(_AsyncLedgerWriter):
    """The one writer of a ledger; ``bk_spark.aio`` says what holds for all appends.

    A cancelled append that still waits for room is as if it had never been called. Any other one cannot be taken back: its
    entry may be confirmed all the same, and ``last_add_confirmed`` or a reader tells. Other appends notice nothing of it.
    After the first failure of the writer itself every further append fails with the same error.
    """

    def append(self, payload: Payload) -> Coroutine[Any, Any, int]:
        """Append one entry. Returns its id once it is confirmed. Entries appended at the same time travel together."""
        return self._append_one(taken_payload(payload), None)

    def append_async(self, payload: Payload) -> Coroutine[Any, Any, asyncio.Future[int]]:
        """Append one entry. Returns once there is room for it; the future holds its id once it is confirmed.

        So one task has many appends on their way, at a fraction of the price of a task for each.
        """
        return self._append_one_async(taken_payload(payload), None)

    def append_batch(self, payloads: Payloads) -> Coroutine[Any, Any, tuple[int, int]]:
        """Append many entries, at least one. Returns the first and the last id, inclusive, once all are confirmed."""
        return self._append_many(taken_payloads(payloads), None)

    def append_batch_async(self, payloads: Payloads) -> Coroutine[Any, Any, asyncio.Future[tuple[int, int]]]:
        """As ``append_batch``, but returns once there is room; the future holds the ids once all entries are confirmed."""
        return self._append_many_async(taken_payloads(payloads), None)


class AsyncAdvWriteHandle(_AsyncLedgerWriter):
    """The one writer of a ledger whose entry ids the application chooses: from 0 on, in the end without gaps.

    Append entries in tasks of their own where one may come before those below it: its append returns after theirs. Cancelled
    appends are as those of AsyncWriteHandle; one that leaves a gap has to be made again. All else is as with AdvWriteHandle.
    """

    def append(self, entry_id: int, payload: Payload) -> Coroutine[Any, Any, int]:
        """Append one entry. Returns its id once it and all entries below it are confirmed."""
        return self._append_one(taken_payload(payload), entry_id)

    def append_async(self, entry_id: int, payload: Payload) -> Coroutine[Any, Any, asyncio.Future[int]]:
        """Append one entry. Returns once there is room; the future holds its id once it and all below it are confirmed."""
        return self._append_one_async(taken_payload(payload), entry_id)

    def append_batch(self, first_entry_id: int, payloads: Payloads) -> Coroutine[Any, Any, tuple[int, int]]:
        """Append consecutive entries, at least one. Returns the first and the last id once all are confirmed.

        A large batch is cut: if it fails with DuplicateEntryError, entries below the error's id may have been appended.
        """
        return self._append_many(taken_payloads(payloads), first_entry_id)

    def append_batch_async(
        self, first_entry_id: int, payloads: Payloads
    ) -> Coroutine[Any, Any, asyncio.Future[tuple[int, int]]]:
        """As ``append_batch``, but returns once there is room; the future holds the ids once all entries are confirmed."""
        return self._append_many_async(taken_payloads(payloads), first_entry_id)
