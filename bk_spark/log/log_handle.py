"""Log: a named, ordered list of ledgers, for applications.

Ref: the BookKeeper protocol, "Ledgers to logs".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Protocol

import pyarrow as pa

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.config import MIB, DigestType, LedgerOptions
from bk_spark.errors import ConfigError, NoSuchLogError
from bk_spark.log.by_key.compact import KeyCompactor, SpanTarget, set_compaction
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup.compaction_plan import CompactionReport
from bk_spark.log.entry_range import LogPosition, LogRange, place_of
from bk_spark.log.leader.leadership import Leadership
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from bk_spark.log.leader.roll_log import RollLimits
from bk_spark.log.log_store import LogStore
from bk_spark.log.lookup.lookup import LookupQuery, Lookups
from bk_spark.log.rows.append_rows import RowTarget, RowWrite, append_rows
from bk_spark.log.rows.key_lanes import AskedLanes
from bk_spark.log.rows.latest.asked import ALL, AskedView
from bk_spark.log.rows.latest.reader import LatestReader
from bk_spark.log.rows.read_rows import RowQuery, RowReader, milliseconds_of, stored_schema
from bk_spark.log.rows.row_buffer import MAX_DELAY_S, RowLimits
from bk_spark.log.rows.row_entries import RowEntries, RowLeader, RowNumbers
from bk_spark.log.rows.row_form import RowForm
from bk_spark.log.rows.row_writer import RowWriteHandle
from bk_spark.log.rows.tail_pace import TailPace
from bk_spark.log.rows.tail_plan import LATEST, TailedLog, TailPlan
from bk_spark.log.rows.tail_rows import RowTail
from bk_spark.log.secure_log import SecuredLog, secure
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.log.stored.by_key.spans import end_of_unit, start_of_unit
from bk_spark.log.stored.schema import parse_schema, timestamps_of_dates
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Content, LogVersion, OpenLedger, Retention
from bk_spark.log.stream.order import FAIL, Describe
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.progress import Progress, no_progress
from bk_spark.rows.codec import RowEncoder
from bk_spark.rows.conversion import Conversion
from bk_spark.rows.payload_defaults import COMPRESSION, MAX_BYTES_PER_ENTRY, MAX_ROWS_PER_ENTRY
from bk_spark.rows.widening import wider_types

__all__ = ["DEFAULT_ROLL_BYTES", "LedgerAccess", "Log", "LogPosition", "create_with_rows"]

DEFAULT_ROLL_BYTES = 1024**3
"""Space is given back by whole ledgers, so a leader that stays for long must roll, or nothing that it wrote could be deleted.
At 10 MB/s this is a commit every two minutes, and 800 ledgers a day."""


class TierTables(Protocol):
    """What is done with the tables of tiers. Only there pyiceberg is needed."""

    def set_tier(self, opener: LogLedgerOpener, tier: Tier) -> None:
        """See ``Log.set_tier``."""

    def drop_table(self, opener: LogLedgerOpener) -> None:
        """Drop the table of a log's tier with all its files. May be called again after any error."""


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """How the client that opened a log opens and creates the log's ledgers, with the password given there."""

    open_ledger: Callable[[int], ReadHandle]
    """Without recovery: as far as it is confirmed."""
    create_ledger: Callable[[LedgerOptions, WriteJob], WriteHandle]
    password: bytes = field(default=b"", repr=False)
    window_bytes: int = 16 * MIB
    """``ClientConfig.add_window_bytes`` of the client."""
    batch_bytes: int = MIB
    """``ClientConfig.add_batch_bytes`` of the client."""
    append_wait_s: float = 120.0
    """``ClientConfig.append_wait_s`` of the client."""
    existing_ledgers: Describe = field(kw_only=True)
    tables: TierTables = field(kw_only=True)


class Log:
    """One log. After its deletion the methods raise NoSuchLogError, even if a new log has its name."""

    def __init__(self, logs: LogStore, name: str, uid: str, access: LedgerAccess) -> None:
        self.name: Final = name
        self.uid: Final = uid
        """The random id that tells this log from others that had or will have its name."""
        self._logs = logs
        self._access = access
        self._lookups = Lookups(opener_of(self))

    def __repr__(self) -> str:
        return f"<Log '{self.name}' at {self._logs.store.uri}>"

    @property
    def retention(self) -> Retention:
        """What ``bk-spark log vacuum`` removes of this log."""
        return self._logs.names.head(self.name, self.uid).retention

    def set_retention(self, retention: Retention) -> None:
        """Replace the log's retention as a whole. Takes effect at the next vacuum."""
        self._logs.set_retention(self.name, self.uid, retention)

    def set_tier(self, tier: Tier) -> None:
        """Give the log a tier: ``bk-spark tier run`` copies its rows to a table, and then deletes ledgers from bookies.

        Creates the table if it is missing. Called again, it changes all but where the tier lies. Raises ConfigError for a log
        whose columns Iceberg cannot hold, for a table that is not this log's, and for another place; StorageError where the
        catalog does not answer.
        """
        self._access.tables.set_tier(opener_of(self), tier)

    def secure(self) -> SecuredLog:
        """Give the ledgers that are written from now on keys: bookies then let nobody read them who reads no metadata.

        It cannot be taken back. Ledgers that the log lists already stay as they are, and a leader is displaced: what it
        confirmed stays. Writes that are under way fail at their commit, and are to be run again. Called again it finishes what
        was cut short. Raises ConfigError for a log with a password, and beside bookies of Apache's; as ``recover``.
        """
        return secure(self._logs, self.name, self.uid, self.recover)

    @property
    def is_secured(self) -> bool:
        """Whether the log's new ledgers have keys."""
        return self._logs.names.head(self.name, self.uid).is_secured

    @property
    def compaction(self) -> KeyCompaction | None:
        """How the log is compacted by key; None if it keeps every row."""
        return self._logs.names.head(self.name, self.uid).compaction

    def set_compaction(self, compaction: KeyCompaction | None) -> None:
        """Have ``compact_by_key`` and ``bk-spark log compact`` compact the log so from now on; None: keep every row.

        Raises ConfigError for a log without keys, without the column ``deleted_by``, or with a tier.
        """
        set_compaction(self._logs, self.name, self.uid, lambda _: compaction)

    def compact_by_key(self, compaction: KeyCompaction | None = None) -> CompactionReport:
        """Keep only the newest row of each key among the rows that are old enough, in one commit.

        ``compaction`` is by default what ``set_compaction`` has set, or else ``KeyCompaction()``. The rows that stay keep their
        order among those of their lane, and younger rows stay as they are. Older versions can be read until a vacuum. A stream
        goes on with the rows that are left behind its position, and reads none twice. Rows are read and written by this
        process, each lane once for its keys and once for its rows; ``bk_spark.compact_log`` does it with Spark's executors.

        Raises ConfigError as ``set_compaction``; UnauthorizedAccessError; NotEnoughBookiesError; StorageError where the keys
        do not fit into memory, and the disk does not take them; MetadataConflictError where the log was truncated or
        replaced meanwhile again and again. May be called again after any error.
        """
        return key_compactor(self).run(compaction)

    def snapshot(self, version: int | None = None) -> LogSnapshot:
        """The log at ``version``, by default the newest. Raises NoSuchLogError, ConfigError."""
        snapshot = self._logs.reader.snapshot(self.name, version)
        if snapshot.uid != self.uid:
            raise NoSuchLogError(self.name)
        return snapshot

    def ledgers(self) -> list[CommittedLedger | OpenLedger]:
        """The ledgers that the log lists now, in log order. The OpenLedgers at the end are those without a recorded end."""
        snapshot = self.snapshot()
        return [*snapshot.ledgers, *snapshot.open_ledgers]

    def versions(self) -> list[LogVersion]:
        """Every commit to the log that can still be read, oldest first."""
        if self._logs.names.uid(self.name) != self.uid:
            raise NoSuchLogError(self.name)
        return self._logs.reader.all_versions(self.name)

    def append_ledgers(
        self, ledgers: Sequence[int | CommittedLedger], application: tuple[str, int] | None = None
    ) -> LogVersion:
        """List ledgers of entries at the end of the log, all at once. They must be CLOSED, and become this log's for good.

        A leader that has the log open for writing is displaced: what it confirmed stays, before these ledgers.
        ``application`` is an id and a version. If the log has that version of the id or a later one, the call changes
        nothing, and ``duplicate_of`` of the result names the version that holds it.

        Raises SchemaMismatchError on a log of rows; NoSuchLedgerError, LedgerNotClosedError or ConfigError for a ledger
        that cannot be listed; NoSuchLogError; MetadataUnavailableError.
        """
        return self._commit(CommitRequest(CommitKind.APPEND, described(self._logs, ledgers), application=application))

    def replace_ledgers(self, remove: Sequence[int], add: Sequence[int | CommittedLedger]) -> LogVersion:
        """Put ``add`` in the place of ``remove``, all at once; ``add`` may be empty.

        ``remove`` is one stretch of the log in its order. All of it must still be listed, otherwise MetadataConflictError is
        raised. All else stays, also what others append meanwhile. A log of rows takes only ledgers whose number of rows is
        given (CommittedLedger). Older versions keep listing what was removed. Errors as ``append_ledgers``.
        """
        by_id = [one for one in add if not isinstance(one, CommittedLedger)]
        if by_id and self.snapshot().content is Content.ROWS:
            problem = f"log '{self.name}' holds rows: give a CommittedLedger, which says how many rows it holds"
            raise ConfigError("a ledger to add", by_id[0], problem)
        return self._commit(CommitRequest(CommitKind.REPLACE, described(self._logs, add), remove=tuple(remove)))

    def truncate(self, before: LogPosition) -> LogVersion:
        """Remove the ledgers whose entries are all before ``before``. Older versions list them until the next vacuum.

        The last ledger of the log always stays. Returns the newest version if there is nothing to remove. Raises
        ConfigError for a position in a ledger that the log does not list; MetadataConflictError if a leader left a ledger
        open that is to be removed (``recover`` closes it), or if the log was changed meanwhile.
        """
        return self._logs.truncate(self.name, self.uid, first_kept(self, before))

    def open_writer(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: DigestType | str = DigestType.CRC32C,
        *,
        roll_bytes: int = DEFAULT_ROLL_BYTES,
    ) -> LogWriteHandle:
        """Become the log's leader, which appends entries to it, and displace the one before.

        The ledgers that a former leader left open are fenced and closed. It confirms nothing more, and what it confirmed
        stays, before all that this leader appends. Nothing is appended before the log lists the new ledger.

        A ledger that holds ``roll_bytes`` (payloads, and 32 bytes for each entry) is followed by a new one, and takes
        appends until that one is listed: ``truncate`` and retention remove whole ledgers. The other options are those of
        ``BookKeeper.create_ledger``, stored with each ledger; the password is the one that the log was opened with.

        The application chooses who leads. Two processes that keep taking the log from each other stay correct, but make
        little progress. Raises ConfigError for an option; SchemaMismatchError on a log of rows; NotEnoughBookiesError;
        BookieUnavailableError if a former leader's ledgers cannot be recovered now; NoSuchLogError; MetadataUnavailableError.
        """
        options = self._options(ensemble_size, write_quorum, ack_quorum, digest_type)
        create = self._access.create_ledger
        limits = RollLimits(roll_bytes, self._access.window_bytes, self._access.append_wait_s)
        leadership = Leadership(self._logs, self.name, self.uid, lambda job: create(options, job))
        return LogWriteHandle(leadership, leadership.take_over(), limits)

    def recover(self) -> LogVersion | None:
        """Fence and close what a leader left open, and record the ends: readers then see all that it confirmed.

        A leader that still runs is displaced. Returns None, and does nothing, if no ledger is open. Raises
        BookieUnavailableError or NotEnoughBookiesError if a ledger cannot be recovered now.
        """
        head = self._logs.names.head(self.name, self.uid)
        if not head.writer.open_ledgers:
            return None
        schema_json = (
            None if head.schema_id is None else json.dumps(self._logs.reader.schema(self.name, self.uid, head.schema_id))
        )
        return self._commit(CommitRequest(CommitKind.APPEND, schema_json=schema_json))

    def read(self, start: LogPosition | None = None, end: LogPosition | None = None) -> Iterator[pa.RecordBatch]:
        """The log's entries as it lists them at the call, in log order, from ``start`` (included) to ``end`` (excluded).

        Open ledgers are read without disturbing their leader, as far as they are confirmed when the reading reaches them.
        Reading ends at the first ledger that is not CLOSED. A batch has the columns of a ledger's ``read`` and, before them,
        ``ledger_id``, so that each row has its LogPosition; no batch spans ledgers. Raises ConfigError for a position in a
        ledger that the log does not list; NoSuchLedgerError if a ledger was deleted meanwhile.
        """
        return LogRange.of(self.name, self.ledgers(), start, end).read(opener_of(self))

    @property
    def schema(self) -> pa.Schema:
        """The columns of a log of rows, as ``read_rows`` gives them. Raises ConfigError for a log of entries, or empty."""
        return stored_schema(self.name, self.snapshot())

    def read_rows(
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
    ) -> pa.RecordBatchReader:
        """The rows of the log, as Spark's batch read gives them, in log order.

        ``columns`` are names, in the order in which to give them. ``where`` is a condition as the option ``where`` of the Spark
        format takes it; ``time_zone`` is that of its times without an offset. ``start`` (included) and ``end`` (excluded)
        are places of entries. The log is read as it stands now, or as it stood at ``version``, or at ``timestamp``, a
        datetime with a time zone. ``lane`` is the number of a lane, or several: only their rows are read.

        With ``view="latest"`` only the newest row of each key is given, of a log with ``partition_key``: the last one of all
        that are read by the arguments above. ``where`` is then true of that row: it never brings back an older one. With
        ``deleted_by``, the name of a boolean column, a key is gone whose newest row has true there. Lanes are given one after
        the other, small ones together; among these rows are in log order. Entries are read twice.

        Rows are read as the reader is read, some ledgers side by side, with at most about 150 MiB in memory. Closing
        or dropping the reader ends that. Raises ConfigError for an argument, and for a log of entries; the reader raises
        CorruptionError, BookieUnavailableError, and NoSuchLedgerError if a ledger was deleted meanwhile.
        """
        asked = AskedView(view, deleted_by)
        reader = row_reader(self, RowQuery(columns, where, time_zone, lane), version, timestamp)
        return LatestReader(reader, asked).read(start, end) if asked.is_latest else reader.read(start, end)

    def get(
        self, key: Any, *, columns: Sequence[str] | None = None, deleted_by: str | None = None, version: int | None = None
    ) -> pa.RecordBatch:
        """The newest row of a key, in a log with keys: one row, or none.

        ``key`` is a value of the key column; a tuple, or a dict by name, where there are several. None is a key, too. No row is
        given where the log has none of the key, or where the column ``deleted_by``, of booleans, is true in its newest one.
        ``columns`` are as in ``read_rows``. The log is read with every commit that was done before the call, or as it stood at
        ``version``. The Log keeps up to 64 MiB of what entries say of their keys, and of entries: use it for further calls.

        Raises ConfigError for a log without keys, and for a value that is not of the key column's type; CorruptionError,
        BookieUnavailableError, and NoSuchLedgerError if a ledger was deleted meanwhile.
        """
        return self._lookups.get(key, LookupQuery(columns, deleted_by, version))

    def get_many(
        self, keys: Any, *, columns: Sequence[str] | None = None, deleted_by: str | None = None, version: int | None = None
    ) -> pa.Table:
        """The newest rows of up to 100,000 keys: of those that ``get`` finds a row of, in the order of the keys.

        ``keys`` are a list of what ``get`` takes; an Arrow array; or a table, or anything with ``__arrow_c_stream__``, that has
        the key columns. A key that is given twice is answered once, at its first place. All else is as in ``get``.
        """
        return self._lookups.get_many(keys, LookupQuery(columns, deleted_by, version))

    def append_rows(
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
        """Append rows in one atomic commit, as a Spark write does: readers see all of them or none.

        ``rows`` is a pyarrow Table, RecordBatch or RecordBatchReader, a pandas DataFrame (its index is left out), or anything
        with ``__arrow_c_stream__``, such as a Polars DataFrame or a DuckDB relation. It is read once, bit by bit. Columns
        match the log's by name; those that are missing are null. With ``merge_schema`` new columns are added to the log.
        Arrow types that Spark does not have are converted if nothing is lost (``bk_spark.rows.arrow_types``).

        With ``partition_key``, a column or several, the first rows of a log give it ``lanes`` lanes (8): rows of one key go to
        one lane, and their order is kept. Later appends take the lanes of the log by themselves.

        ``application`` is an id and a version. If the log has that version of the id or a later one, the call changes
        nothing, and ``duplicate_of`` of the result names the version that holds it: so a call may be repeated. A leader that
        has the log open for writing is displaced. The other options are stored with the ledger.

        Raises SchemaMismatchError where the rows do not fit the log; ConfigError for an option, and for a value that would be
        changed; EntryTooLargeError; NotEnoughBookiesError; NoSuchLogError; MetadataUnavailableError.
        """
        asked = AskedLanes.of(partition_key, lanes)
        options = self._options(ensemble_size, write_quorum, ack_quorum, digest_type)
        create = self._access.create_ledger
        write = RowWrite(rows, asked, merge_schema, lambda job: create(options, job))
        return append_rows(self._row_target(compression), write, application)

    def open_row_writer(
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
    ) -> RowWriteHandle:
        """Become the leader of a log of rows, which appends rows continuously, and displace the one before.

        ``schema`` has the columns of the rows, by default the log's; a log without content needs it. With ``merge_schema``
        columns that the log lacks are added. Rows are written together, once there are ``max_rows`` or ``max_bytes``
        (before compression), or once the first of them has waited for ``max_delay_s``. All else is as in ``open_writer``,
        and the errors are, too; SchemaMismatchError is raised where the rows would not fit the log.
        """
        options = self._options(ensemble_size, write_quorum, ack_quorum, digest_type)
        target = self._row_target(compression)
        limits = RowLimits(self.name, max_rows, max_bytes, max_delay_s, self._access.append_wait_s)
        conversion = Conversion(self.name, self.schema if schema is None else schema)
        numbers = RowNumbers(json.dumps(conversion.schema), merge_schema)
        given = parse_schema(self.name, numbers.schema_json)
        appended = target.check(given, merge=merge_schema)[1]
        timestamps = timestamps_of_dates(given, appended)
        cut = replace(target.cut, read_as=wider_types(conversion.stored, appended))
        create = self._access.create_ledger
        rolls = RollLimits(roll_bytes, self._access.window_bytes, self._access.append_wait_s)
        leadership = Leadership(self._logs, self.name, self.uid, lambda job: create(options, job), numbers)
        leader = LogWriteHandle(leadership, leadership.take_over(), rolls)
        entries = RowEntries(RowEncoder(self.name, conversion.stored, cut), numbers, limits)
        return RowWriteHandle(RowLeader(leader, RowForm(self.name, conversion.stored, timestamps), entries, limits))

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
    ) -> RowTail:
        """Follow the log: an iterator of record batches that waits until there is more. It never disturbs a writer.

        ``start`` is ``latest`` (behind all that is confirmed now), ``earliest``, or the ``position`` of a former tail. The
        iterator ends once nothing came for ``timeout_s``. ``columns``, ``where``, ``time_zone`` and ``lane`` are as in
        ``read_rows``.
        ``overwrites`` says what happens at a commit that replaces content: ``fail``, ``read`` or ``skip``. Raises ConfigError.
        """
        pace = TailPace(timeout_s)
        return RowTail(tail_plan(self, RowQuery(columns, where, time_zone, lane), start, overwrites), pace)

    def delete(self, *, drop_table: bool = False) -> None:
        """Delete the log and all its ledgers, those of old versions too. A second call finishes what was cut short.

        The table of its tier stays, unless ``drop_table`` is set: then its catalog drops it first, with all its files. Raises
        ConfigError for ``drop_table`` where the log has no tier, StorageError where the catalog does not answer.
        """
        if drop_table:
            self._access.tables.drop_table(opener_of(self))
        self._logs.deleter.delete(self.name, self.uid)

    def _row_target(self, compression: str) -> RowTarget:
        access = self._access
        return RowTarget(self._logs, self.name, self.uid, access.batch_bytes, access.window_bytes, compression)

    def _options(self, ensemble_size: int, write_quorum: int, ack_quorum: int, digest_type: DigestType | str) -> LedgerOptions:
        return LedgerOptions(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest_type=DigestType.of(digest_type),
            password=self._access.password,
        )

    def _commit(self, request: CommitRequest) -> LogVersion:
        return self._logs.commit_or_abort(self._logs.jobs.begin(self.name, self.uid), request)


def described(logs: LogStore, ledgers: Sequence[int | CommittedLedger]) -> tuple[CommittedLedger, ...]:
    """Ledgers of entries as a log lists them. Raises NoSuchLedgerError, LedgerNotClosedError."""
    ids = [one for one in ledgers if not isinstance(one, CommittedLedger)]
    entries = {one.ledger_id: CommittedLedger.of_entries(one) for one in logs.ledgers.describe(ids)}
    return tuple(one if isinstance(one, CommittedLedger) else entries[one] for one in ledgers)


def first_kept(log: Log, before: LogPosition) -> int:
    """The first ledger that stays where all before a position is removed. Raises as ``Log.truncate``."""
    listed = log.ledgers()
    place = place_of(log.name, listed, "before", before)
    if place is None:
        raise ConfigError("before", before, "it must be a LogPosition: all that is before it goes")
    first = listed[place[0]]
    is_over = isinstance(first, CommittedLedger) and before.entry_id > first.last_entry_id
    behind = end_of_unit(listed, place[0])
    if is_over and place[0] + 1 == behind < len(listed):
        return listed[behind].ledger_id
    return listed[start_of_unit(listed, place[0])].ledger_id


def opener_of(log: Log) -> LogLedgerOpener:
    """Opens the log's ledgers, wherever they are."""
    return LogLedgerOpener(log._logs, log.name, log.uid, log._access.open_ledger)


def change_compaction(log: Log, change: Callable[[KeyCompaction | None], KeyCompaction | None]) -> None:
    """As ``Log.set_compaction``, from what is set. ``change`` is called again where another change came between."""
    set_compaction(log._logs, log.name, log.uid, change)


def key_compactor(log: Log, check_wanted: Callable[[], None] = lambda: None, progress: Progress = no_progress) -> KeyCompactor:
    """Compacts the log by key in this process. What ``check_wanted`` raises now and then ends that before the commit."""
    access = log._access
    target = SpanTarget(access.create_ledger, access.existing_ledgers, access.password, access.batch_bytes, access.window_bytes)
    return KeyCompactor(opener_of(log), target, check_wanted, progress)


def lookups_of(log: Log) -> Lookups:
    """Looks up the log's rows by their keys."""
    return log._lookups


def row_reader(log: Log, query: RowQuery, version: int | None, timestamp: datetime | None) -> RowReader:
    """Reads the log as it stands now, or stood at ``version`` or ``timestamp``. Raises as ``Log.read_rows``."""
    if version is not None and timestamp is not None:
        raise ConfigError("timestamp", timestamp, f"version {version} is given, too: leave one of them out")
    if timestamp is not None:
        version = log._logs.reader.version_at(log.name, log.uid, milliseconds_of(timestamp))
    return RowReader(log.snapshot(version), query, opener_of(log))


def tail_plan(log: Log, query: RowQuery, start: str, overwrites: str) -> TailPlan:
    """Plans a tail of the log, which it asks where to begin. Raises as ``Log.tail_rows``."""
    access = log._access
    tailed = TailedLog(opener_of(log), access.existing_ledgers, overwrites)
    return TailPlan(tailed, query, start)


def create_with_rows(
    logs: LogStore,
    name: str,
    access: LedgerAccess,
    rows: Any,
    application: tuple[str, int] | None,
    *,
    merge_schema: bool,
    asked: AskedLanes,
) -> LogVersion:
    """Append rows to a log that does not exist: their commit creates it. A log that somebody else made meanwhile takes them.

    Arguments and errors as ``Log.append_rows``. After an error there is no log.
    """
    options = LedgerOptions(password=access.password)
    target = RowTarget(logs, name, None, access.batch_bytes, access.window_bytes)
    create = access.create_ledger
    write = RowWrite(rows, asked, merge_schema, lambda job: create(options, job))
    return append_rows(target, write, application)
