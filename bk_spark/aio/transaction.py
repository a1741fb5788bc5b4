"""A transaction for coroutines: changes to several logs that become visible in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from bk_spark.aio.calls import Calls
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_transaction import LogTransaction, RowOptions
from bk_spark.log.rows.given_rows import checked_stream
from bk_spark.log.stored.values import CommittedLedger


class AsyncLogTransaction:
    """Changes to several logs, in an ``async with`` block, whose end commits all of them at once.

    The methods are those of ``LogTransaction``, as coroutines. A change that is cancelled lets the transaction fail, or is a
    part of it all the same. A cancelled end of the block may take effect all the same.
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
        await self._calls.in_long_thread(
            lambda check: self._transaction.append_rows(log, checked_stream(log, rows, check), create=create, **options)
        )

    async def overwrite(self, log: str, rows: Any, *, create: bool = False, **options: Unpack[RowOptions]) -> None:
        """Replace all rows of a log by these."""
        await self._calls.in_long_thread(
            lambda check: self._transaction.overwrite(log, checked_stream(log, rows, check), create=create, **options)
        )

    async def append_ledgers(self, log: str, ledgers: Sequence[int | CommittedLedger]) -> None:
        """List ledgers of entries at the end of a log."""
        await self._calls.in_thread(lambda: self._transaction.append_ledgers(log, ledgers))

    async def truncate(self, log: str, before: LogPosition) -> None:
        """Remove the ledgers of a log whose entries are all before ``before``."""
        await self._calls.in_thread(lambda: self._transaction.truncate(log, before))

    async def __aenter__(self) -> Self:
        await self._calls.in_thread(self._transaction.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._calls.in_thread(lambda: self._transaction.__exit__(kind, error, trace))
