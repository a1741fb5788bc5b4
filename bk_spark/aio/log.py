"""A log for coroutines: its metadata, its entries, its rows, and the handles that lead it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa

from bk_spark.aio.calls import Calls
from bk_spark.aio.log_writer import AsyncLogWriteHandle
from bk_spark.aio.payloads import made_in_threads, made_of_payloads
from bk_spark.aio.reader import AsyncReadHandle
from bk_spark.aio.row_tail import AsyncRowTail
from bk_spark.aio.row_writer import AsyncRowWriteHandle
from bk_spark.aio.side_by_side import AsyncSideBySide
from bk_spark.client.ledger.stretches import Stretch
from bk_spark.config import DigestType
from bk_spark.errors import NoSuchLedgerError
from bk_spark.log.cleanup.compaction_plan import CompactionReport
from bk_spark.log.entry_range import LogPosition, LogRange, with_ledger_id
from bk_spark.log.log_handle import DEFAULT_ROLL_BYTES, Log, key_compactor, lookups_of, opener_of, row_reader, tail_plan
from bk_spark.log.lookup.lookup import LookupQuery, one_row
from bk_spark.log.rows.given_rows import checked_stream
from bk_spark.log.rows.latest.asked import ALL, AskedView
from bk_spark.log.rows.latest.chosen import ChosenRows
from bk_spark.log.rows.latest.reader import LatestReader, Share
from bk_spark.log.rows.read_rows import RowQuery, RowReader
from bk_spark.log.rows.row_buffer import MAX_DELAY_S
from bk_spark.log.rows.row_writer import leader_of
from bk_spark.log.rows.tail_pace import TailPace
from bk_spark.log.rows.tail_plan import LATEST
from bk_spark.log.secure_log import SecuredLog
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import CommittedLedger, LogVersion, OpenLedger, Retention
from bk_spark.log.stream.order import FAIL
from bk_spark.log.tier.tiered_handle import TieredHandle
from bk_spark.rows.payload_defaults import COMPRESSION, MAX_BYTES_PER_ENTRY, MAX_ROWS_PER_ENTRY


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

    def __repr__(self) -> str:
        return f"<Async{repr(self._log).removeprefix('<')}"

    async def retention(self) -> Retention:
        """What ``bk-spark log vacuum`` removes of this log."""
        return await self._calls.in_thread(lambda: self._log.retention)

    async def set_retention(self, retention: Retention) -> None:
        """Replace the log's retention as a whole. Takes effect at the next vacuum."""
        await self._calls.in_thread(lambda: self._log.set_retention(retention))

    async def set_tier(self, tier: Tier) -> None:
        """See ``Log.set_tier``."""
        await self._calls.in_thread(lambda: self._log.set_tier(tier))

    async def secure(self) -> SecuredLog:
        """See ``Log.secure``. If the call is cancelled, what it does is done to its end."""
        return await self._calls.in_thread(self._log.secure)

    async def is_secured(self) -> bool:
        """Whether the log's new ledgers have keys, as the property ``Log.is_secured``."""
        return await self._calls.in_thread(lambda: self._log.is_secured)

    async def compaction(self) -> KeyCompaction | None:
        """How the log is compacted by key, as the property ``Log.compaction``."""
        return await self._calls.in_thread(lambda: self._log.compaction)

    async def set_compaction(self, compaction: KeyCompaction | None) -> None:
        """See ``Log.set_compaction``."""
        await self._calls.in_thread(lambda: self._log.set_compaction(compaction))

    async def compact_by_key(self, compaction: KeyCompaction | None = None) -> CompactionReport:
        """See ``Log.compact_by_key``. A cancelled call that has not come to its commit changes nothing."""
        return await self._calls.in_long_thread(lambda check: key_compactor(self._log, check).run(compaction))

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

    async def delete(self, *, drop_table: bool = False) -> None:
        """Delete the log and all its ledgers, those of old versions too. A second call finishes what was cut short."""
        await self._calls.in_thread(lambda: self._log.delete(drop_table=drop_table))

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
            reader = await self._readable(ledger_id)
            last, goes_on = stretch.end(reader)
            if stretch.first <= last:
                async with aclosing(self._entries(reader, stretch.first, last)) as batches:
                    async for batch in batches:
                        yield with_ledger_id(ledger_id, batch)
            if not goes_on:
                return

    async def _readable(self, ledger_id: int) -> AsyncReadHandle | TieredHandle:
        try:
            return await self._open_ledger(ledger_id)
        except NoSuchLedgerError:
            return await self._calls.in_thread(lambda: opener_of(self._log).tiered(ledger_id))

    def _entries(self, reader: AsyncReadHandle | TieredHandle, first: int, last: int) -> AsyncGenerator[pa.RecordBatch, None]:
        if isinstance(reader, TieredHandle):
            return made_in_threads(self._calls, lambda: reader.read(first, last))
        return reader.read(first, last)

    async def schema(self) -> pa.Schema:
        """The columns of a log of rows, as the property ``Log.schema``."""
        return await self._calls.in_thread(lambda: self._log.schema)

    async def read_rows(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        start: LogPosition | None = None,
        end: LogPosition | None = None,
        version: int | None = None,
        timestamp: datetime | None = None,
        *,
        time_zone: str | None = None,
        lane: int | Sequence[int] | None = None,
        view: str = ALL,
        deleted_by: str | None = None,
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """The rows of the log in log order, as ``Log.read_rows``; the log is read as it stands at the first step.

        Some ledgers are read side by side, with at most about 150 MiB in memory, however slowly the batches are taken. The end
        of an ``async for`` ends the reads, as with ``AsyncReadHandle.read``. Errors in arguments are raised by the first step.
        """
        query, asked = RowQuery(columns, where, time_zone, lane), AskedView(view, deleted_by)
        reader = await self._calls.in_thread(lambda: row_reader(self._log, query, version, timestamp))
        if asked.is_latest:
            rows = self._latest_rows(reader, asked, start, end)
        else:
            stretches = await self._calls.in_thread(lambda: reader.stretches(start, end))
            rows = AsyncSideBySide(stretches, partial(self._rows_of, reader)).batches()
        async with aclosing(rows) as batches:
            async for batch in batches:
                yield batch

    async def _latest_rows(
        self, reader: RowReader, asked: AskedView, start: LogPosition | None, end: LogPosition | None
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        latest = await self._calls.in_thread(lambda: LatestReader(reader, asked))
        for share in await self._calls.in_thread(lambda: latest.shares(start, end)):
            chosen = await self._calls.in_long_thread(partial(latest.chosen, share))
            read = partial(self._newest_of, latest, share, chosen)
            async with aclosing(AsyncSideBySide(range(len(share)), read).batches()) as batches:
                async for batch in batches:
                    yield batch

    async def _newest_of(
        self, latest: LatestReader, share: Share, chosen: ChosenRows, number: int
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        if not chosen.has_some(number):
            return
        first = 0
        async with aclosing(self._rows_of(latest.rows, share[number])) as batches:
            async for batch in batches:
                picked = await self._calls.in_thread(partial(latest.pick, share, chosen, number, first, batch))
                first += batch.num_rows
                if picked.num_rows:
                    yield picked

    async def _rows_of(self, reader: RowReader, stretch: Stretch) -> AsyncGenerator[pa.RecordBatch, None]:
        ledger = await self._calls.in_thread(lambda: reader.handle(stretch.ledger_id))
        given = 0
        if not isinstance(ledger, TieredHandle):
            make = partial(reader.query.rows_of, stretch.ledger_id)
            rows = made_of_payloads(self._calls, ledger, stretch.first_entry_id, stretch.last_entry_id, make)
            try:
                async with aclosing(rows) as batches:
                    async for batch in batches:
                        yield batch
                        given += batch.num_rows
                return
            except NoSuchLedgerError:  # it left bookies meanwhile: its rows are the same in the tier
                pass
        async with aclosing(made_in_threads(self._calls, lambda: reader.rows_of_tiered(stretch))) as batches:
            async for batch in batches:
                left_out = min(given, batch.num_rows)
                given -= left_out
                if left_out < batch.num_rows:
                    yield batch.slice(left_out)

    async def get(
        self, key: Any, *, columns: Sequence[str] | None = None, deleted_by: str | None = None, version: int | None = None
    ) -> pa.RecordBatch:
        """The newest row of a key, as ``Log.get``. A cancelled call reads nothing more."""
        found = await self._looked_up(key, LookupQuery(columns, deleted_by, version), is_one=True)
        return one_row(found)

    async def get_many(
        self, keys: Any, *, columns: Sequence[str] | None = None, deleted_by: str | None = None, version: int | None = None
    ) -> pa.Table:
        """The newest rows of several keys, as ``Log.get_many``. A cancelled call reads nothing more."""
        return await self._looked_up(keys, LookupQuery(columns, deleted_by, version), is_one=False)

    async def _looked_up(self, keys: Any, query: LookupQuery, *, is_one: bool) -> pa.Table:
        lookup = lookups_of(self._log).started(keys, query, is_one=is_one)
        try:
            return await self._calls.in_thread(lookup.run)
        finally:
            lookup.give_up()

    def tail_rows(
        self,
        start: str = LATEST,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        timeout_s: float | None = None,
        overwrites: str = FAIL,
        time_zone: str | None = None,
        lane: int | Sequence[int] | None = None,
    ) -> AsyncRowTail:
        """Follow the log: an asynchronous iterator of record batches that waits until there is more, as ``Log.tail_rows``.

        It begins at its first step, and raises errors in ``start`` and the query there. A cancelled wait ends its requests.
        """
        query = RowQuery(columns, where, time_zone, lane)
        begin = partial(tail_plan, self._log, query, start, overwrites)
        return AsyncRowTail(begin, start, TailPace(timeout_s), self._calls)

    async def append_rows(
        self,
        rows: Any,
        application: tuple[str, int] | None = None,
        *,
        merge_schema: bool = False,
        partition_key: str | Sequence[str] | None = None,
        lanes: int | None = None,
        compression: str = COMPRESSION,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
    ) -> LogVersion:
        """Append rows in one atomic commit, as ``Log.append_rows``.

        ``rows`` are read in a thread that a client's long calls share. A cancelled call ends before it reads the next batch of
        them, and leaves nothing; one that has read them all may commit.
        """
        return await self._calls.in_long_thread(
            lambda check_wanted: self._log.append_rows(
                checked_stream(self.name, rows, check_wanted),
                application,
                merge_schema=merge_schema,
                partition_key=partition_key,
                lanes=lanes,
                compression=compression,
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest_type=digest_type,
            )
        )

    async def open_row_writer(
        self,
        schema: pa.Schema | None = None,
        *,
        merge_schema: bool = False,
        max_rows: int = MAX_ROWS_PER_ENTRY,
        max_bytes: int = MAX_BYTES_PER_ENTRY,
        max_delay_s: float = MAX_DELAY_S,
        compression: str = COMPRESSION,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
        roll_bytes: int = DEFAULT_ROLL_BYTES,
    ) -> AsyncRowWriteHandle:
        """Become the leader of a log of rows, which appends rows continuously, as ``Log.open_row_writer``.

        A cancelled call may have taken over all the same: then the log is left as by a leader that vanished.
        """
        writer = await self._calls.in_thread(
            lambda: self._log.open_row_writer(
                schema,
                merge_schema=merge_schema,
                max_rows=max_rows,
                max_bytes=max_bytes,
                max_delay_s=max_delay_s,
                compression=compression,
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest_type=digest_type,
                roll_bytes=roll_bytes,
            )
        )
        return AsyncRowWriteHandle(leader_of(writer), self._calls, self._window_bytes)
