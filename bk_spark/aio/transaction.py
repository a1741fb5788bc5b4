"""A transaction for coroutines: changes to several logs that become visible in one step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, Unpack

from bk_spark.aio.calls import Calls, in_own_thread
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_transaction import LogTransaction, RowOptions
from bk_spark.log.rows.given_rows import checked_stream
from bk_spark.log.stored.values import CommittedLedger


class AsyncLogTransaction:
    """Changes to several logs, in an ``async with`` block, whose end commits all of them at once.

    The methods are those of ``LogTransaction``, as coroutines. A change that is cancelled lets the transaction fail. An end of
    the block that is cancelled may take effect all the same.
    """

    def __init__(self, transaction: LogTransaction, calls: Calls) -> None:
        self._transaction = transaction
        self._calls = calls

    def __repr__(self) -> str:
        return f"<Async{repr(self._transaction).removeprefix('<')}"

    @property
    def versions(self) -> Mapping[str, int]:
        """After the block, by the name of each log that was changed: the version that the transaction made."""
        return self._transaction.versions

    @property
    def is_duplicate(self) -> bool:
        """After the block: whether nothing was changed, because the application had committed this version or a later one."""
        return self._transaction.is_duplicate

    @property
    def transaction_id(self) -> str:
        """After the block: what the versions of all logs name."""
        return self._transaction.transaction_id

    async def append_rows(self, log: str, rows: Any, *, create: bool = False, **options: Unpack[RowOptions]) -> None:
        """Append rows. With ``create`` the transaction makes a missing log."""
        with self._or_given_up():
            await self._calls.in_long_thread(
                lambda check: self._transaction.append_rows(log, checked_stream(log, rows, check), create=create, **options)
            )

    async def overwrite(self, log: str, rows: Any, *, create: bool = False, **options: Unpack[RowOptions]) -> None:
        """Replace all rows of a log by these."""
        with self._or_given_up():
            await self._calls.in_long_thread(
                lambda check: self._transaction.overwrite(log, checked_stream(log, rows, check), create=create, **options)
            )

    async def append_ledgers(self, log: str, ledgers: Sequence[int | CommittedLedger]) -> None:
        """List ledgers of entries at the end of a log."""
        with self._or_given_up():
            await self._calls.in_thread(lambda: self._transaction.append_ledgers(log, ledgers))

    async def truncate(self, log: str, before: LogPosition) -> None:
        """Remove the ledgers of a log whose entries are all before ``before``."""
        with self._or_given_up():
            await self._calls.in_thread(lambda: self._transaction.truncate(log, before))

    async def __aenter__(self) -> Self:
        await self._calls.in_thread(self._transaction.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # In a thread of its own: while no other one is free, a second cancellation would leave the write jobs alive for ever.
        await self._calls.outcome(in_own_thread(lambda: self._transaction.__exit__(kind, error, trace)))

    @contextmanager
    def _or_given_up(self) -> Iterator[None]:
        """A change that nobody waits for any more may be a part of the transaction, or not: so there is none."""
        try:
            yield
        except asyncio.CancelledError:
            self._transaction.give_up()
            raise
