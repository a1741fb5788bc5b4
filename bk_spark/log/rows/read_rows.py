"""Reads the rows of a log as Arrow record batches, without Spark.

The log is read as it stands at one version. Its ledgers are cut into stretches of some megabytes, which are read side by side
(``side_by_side.py``) and given in log order. Open ledgers at its end are read as far as they are confirmed when reading
begins, and no ledger behind one that is not CLOSED (log rule 2).

Ref: docs/rules.md, log rules 2 and 3.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Final

import pyarrow as pa

from bk_spark.calls.resumed_iterator import ResumedIterator
from bk_spark.client.ledger.stretches import Stretch, confirmed_stretch, cut
from bk_spark.config import MIB
from bk_spark.errors import ConfigError, State
from bk_spark.log.entry_range import LogPosition, LogRange
from bk_spark.log.rows.key_lanes import LaneChoice
from bk_spark.log.rows.side_by_side import placed_batches
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.values import CommittedLedger, Content, OpenLedger
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.tier.opener import LogLedgerOpener, ReadableLedger
from bk_spark.rows.arrow_types import arrow_schema, has_collation
from bk_spark.rows.local_time import time_zone
from bk_spark.rows.reading import Converter, joined
from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.filter import RowFilter, bind

STRETCH_BYTES = 8 * MIB
"""Of payloads: large enough that a read's first answer does not count, small enough that stretches go round the threads."""

TIERED_STRETCH_BYTES = 32 * MIB
"""Of a ledger whose rows are in files: a row group there is decoded again for each stretch that has some of it."""

_HANDLES = 8
"""Handles that are kept, those used last: the readers of stretches read neighbours."""


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Which rows and columns of a log to read."""

    columns: Sequence[str] | None = None
    """By name, in the order in which to give them; None for all."""
    where: str | None = None
    """A condition as option ``where`` of the Spark format takes it."""
    zone: str | None = None
    """The time zone of times in ``where`` without an offset."""
    lane: int | Sequence[int] | None = None
    """Only rows of these lanes; None for all."""

    def __post_init__(self) -> None:
        if self.lane is not None and not self._lanes:
            raise ConfigError("lane", self.lane, "it must be the number of a lane, or a list of such")

    @property
    def _lanes(self) -> tuple[int, ...]:
        return (self.lane,) if isinstance(self.lane, int) else tuple(self.lane or ())

    def bound(self, log: str, stored: pa.Schema) -> BoundQuery:
        """Raises ConfigError for a column that the log does not have, and for a condition that is not understood."""
        zone = None if self.zone is None else _zone(self.zone)
        where = None if self.where is None else self._condition(self.where, log, stored, zone)
        for path in where.compared() if where is not None else ():
            if has_collation(stored, path):
                remedy = f"column '{'.'.join(path)}' has a collation of its own: filter the rows after reading"
                raise ConfigError("where", self.where, remedy)
        return BoundQuery(_chosen(log, stored, self.columns), where, LaneChoice(self._lanes, where, "lane"))

    @staticmethod
    def _condition(text: str, log: str, stored: pa.Schema, zone: tzinfo | None) -> RowFilter:
        if not isinstance(text, str):
            raise ConfigError("where", text, 'it must be a text, such as "id > 5 AND name IS NOT NULL"')
        try:
            return bind(parse_where("where", text), log, stored, zone)
        except ConfigError as problem:  # in the words of Spark's users
            remedy = problem.remedy.replace("option 'timeZone'", "time_zone").replace(
                "DataFrame.where()", "a filter after the read"
            )
            raise ConfigError("where", problem.value, remedy) from None


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query on the schema of one version of a log."""

    schema: pa.Schema
    where: RowFilter | None
    lanes: LaneChoice
    checks_values: bool = True

    @property
    def rows(self) -> AskedRows:
        return AskedRows(self.schema, self.where, checks_values=self.checks_values)

    def converter(self) -> Converter:
        """Gives the rows of batches of entries. It remembers the last schema that it met: one serves many batches."""
        return self.rows.of_entries()

    def rows_of(self, ledger_id: int, payloads: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of whole payloads of one ledger, in their order."""
        convert = self.converter()
        return joined(rows for batch in payloads for rows in convert(ledger_id, batch))


def stored_schema(name: str, snapshot: LogSnapshot) -> pa.Schema:
    """The Arrow schema of a version. Raises ConfigError for a log of entries, or one that nothing was written to."""
    if snapshot.content is Content.ENTRIES:
        raise ConfigError("the log", name, "it holds entries, not rows: read them with Log.read()")
    if snapshot.schema_json is None:
        what = f"version {snapshot.version} of log '{name}'"
        raise ConfigError(what, State("empty"), "it holds nothing and has no schema: write rows first, or read a later version")
    return arrow_schema(json.loads(snapshot.schema_json))


def milliseconds_of(moment: datetime) -> int:
    """A time for ``timestamp``, in milliseconds since 1970. Raises ConfigError for one without an offset from UTC."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ConfigError("timestamp", moment, "it must be a datetime with a time zone, such as datetime.now(timezone.utc)")
    return int(moment.timestamp() * 1000)


class RowReader:
    """Reads the rows of one version of a log. Threads may share it."""

    def __init__(
        self, snapshot: LogSnapshot, query: RowQuery, open_ledger: LogLedgerOpener, stored: pa.Schema | None = None
    ) -> None:
        """``stored``: columns of several logs together, in the place of the log's own."""
        self.snapshot: Final = snapshot
        self.query = query.bound(snapshot.name, stored or stored_schema(snapshot.name, snapshot))
        listed = {*(one.ledger_id for one in snapshot.ledgers), *(one.ledger_id for one in snapshot.open_ledgers)}
        self._open_ledger = open_ledger.knowing(snapshot.tier, listed)
        self._handles: OrderedDict[int, ReadableLedger] = OrderedDict()
        """Of the ledgers that are being read, the one used last at the end."""
        self._lock = threading.Lock()
        """Held for moments, around ``_handles``."""

    def read(self, start: LogPosition | None, end: LogPosition | None) -> pa.RecordBatchReader:
        """The rows from ``start`` (included) to ``end`` (excluded), lazily. Nothing is read before the first batch is taken."""
        return pa.RecordBatchReader.from_batches(self.query.schema, self._batches(self.stretches(start, end)))

    def stretches(self, start: LogPosition | None, end: LogPosition | None) -> list[Stretch]:
        """What is to be read from ``start`` (included) to ``end`` (excluded), in log order. Asks how far open ledgers go."""
        tiered = self._open_ledger.places
        return [
            short
            for stretch in self._wanted(start, end)
            for short in cut(stretch, TIERED_STRETCH_BYTES if stretch.ledger_id in tiered else STRETCH_BYTES)
        ]

    def asking(self, rows: AskedRows) -> RowReader:
        """The same reader, which gives other columns and rows. The two share what they open."""
        other = copy(self)
        other.query = BoundQuery(rows.schema, rows.where, self.query.lanes, rows.checks_values)
        return other

    def handle(self, ledger_id: int) -> ReadableLedger:
        """The ledger, opened; readers of its stretches share the handle, and at worst open two."""
        with self._lock:
            if ledger_id in self._handles:
                self._handles.move_to_end(ledger_id)
                return self._handles[ledger_id]
        handle = self._open_ledger(ledger_id)
        with self._lock:
            self._handles[ledger_id] = handle
            if len(self._handles) > _HANDLES:
                self._handles.popitem(last=False)
        return handle

    def _batches(self, stretches: list[Stretch]) -> Iterator[pa.RecordBatch]:
        """After an interrupt, or an error, it goes on behind the last batch that it gave."""
        return ResumedIterator(lambda place: self._from(stretches, place), (0, 0))

    def _from(
        self, stretches: list[Stretch], place: tuple[int, int]
    ) -> Generator[tuple[pa.RecordBatch | None, tuple[int, int]], None, None]:
        """Each batch with the place behind it: the number of a stretch, and of rows of it, which are the same each time."""
        return placed_batches(stretches, self.rows_of, place)

    def rows_of(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        ledger = self.handle(stretch.ledger_id)
        return joined(self._open_ledger.rows(ledger, stretch.first_entry_id, stretch.last_entry_id, self.query.rows))

    def rows_of_tiered(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        """As ``rows_of``, of a ledger that has left bookies. Raises NoSuchLedgerError."""
        ledger = self._open_ledger.tiered(stretch.ledger_id)
        return joined(self._open_ledger.rows(ledger, stretch.first_entry_id, stretch.last_entry_id, self.query.rows))

    def _wanted(self, start: LogPosition | None, end: LogPosition | None) -> Iterator[Stretch]:
        snapshot = self.snapshot
        listed: list[CommittedLedger | OpenLedger] = [*snapshot.ledgers, *snapshot.open_ledgers]
        lanes = self.query.lanes.of(snapshot.name, snapshot.version, snapshot.lanes)
        for wanted in LogRange.of(snapshot.name, listed, start, end).stretches():
            if lanes is not None and isinstance(wanted.ledger, CommittedLedger) and wanted.ledger.lane not in lanes:
                continue
            whole, is_closed = self._whole(wanted.ledger)
            last = wanted.until(whole.last_entry_id)
            if wanted.first <= last:
                yield whole.within(wanted.first, last)
            if not is_closed:
                return

    def _whole(self, ledger: CommittedLedger | OpenLedger) -> tuple[Stretch, bool]:
        """All confirmed entries of a ledger, and whether it is closed."""
        if isinstance(ledger, CommittedLedger):
            return Stretch(ledger.ledger_id, 0, ledger.last_entry_id, ledger.length), True
        handle = self.handle(ledger.ledger_id)
        is_closed = handle.is_closed  # asked before its end: if it is closed in between, it is not read to its end
        return confirmed_stretch(handle), is_closed


def _chosen(log: str, stored: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return stored
    try:
        names = [columns] if isinstance(columns, str) else list(columns)
    except TypeError:
        raise ConfigError("columns", columns, "it must be a list of names") from None
    for name in names:
        if name not in stored.names:
            raise ConfigError("columns", name, f"log '{log}' has the columns {', '.join(stored.names)}")
    if not names or len(set(names)) != len(names):
        raise ConfigError("columns", names, "it must name at least one column, and each once")
    return pa.schema([stored.field(name) for name in names])


def _zone(text: str) -> tzinfo:
    try:
        return time_zone(text)
    except (ValueError, AttributeError):
        raise ConfigError("time_zone", text, "it must be a zone such as Europe/Berlin, UTC or +01:00") from None
