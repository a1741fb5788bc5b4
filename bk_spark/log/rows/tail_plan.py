"""Plans what a tail of rows gives next, and keeps where it stands. How it waits is up to who uses it.

It follows commits, as a stream of Spark does (``stream/follow.py``), so compaction and other writers do not disturb it.

Ref: docs/rules.md, log rules 2, 6 and 7.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.errors import ConfigError, LogReplacedError, SchemaMismatchError
from bk_spark.log.log_store import LogStore
from bk_spark.log.rows.read_rows import BoundQuery, RowQuery
from bk_spark.log.spans.span_handle import Readable, SpanHandle, opened
from bk_spark.log.stored.values import Head, LogVersion
from bk_spark.log.stream.follow import LedgerEnd, LogFollower, PlacedStretch
from bk_spark.log.stream.order import FAIL, READ, SKIP, Describe
from bk_spark.log.stream.plan_again import planned
from bk_spark.log.stream.positions import StreamPosition, parse_position
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.rows.arrow_types import arrow_schema
from bk_spark.rows.gathering import as_one
from bk_spark.rows.reading import Converter
from bk_spark.rows.widening import is_readable

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class TailedLog:
    """A log, and what it takes to follow it."""

    opener: LogLedgerOpener
    """Without recovery."""
    describe: Describe
    overwrites: str = FAIL
    """What happens at a commit that replaces content: fail, read (the new content), or skip (only what comes behind it)."""

    def __post_init__(self) -> None:
        if self.overwrites not in (FAIL, READ, SKIP):
            raise ConfigError("overwrites", self.overwrites, f"it must be {FAIL}, {READ} or {SKIP}")

    @property
    def name(self) -> str:
        return self.opener.name

    @property
    def uid(self) -> str:
        assert self.opener.uid is not None, "ledgers of no log are not tailed"
        return self.opener.uid

    @property
    def logs(self) -> LogStore:
        return self.opener.logs

    def follower(self) -> LogFollower:
        return LogFollower(self.logs.reader, self.name, self.uid, self.overwrites, self.describe)


@dataclass(frozen=True, slots=True)
class Look:
    """What a tail can read now, and where it stands behind that."""

    stretches: list[PlacedStretch]
    end: StreamPosition


@dataclass(frozen=True, slots=True)
class Tailed:
    """The rows of one payload, if any are wanted, and where a tail stands once it has given them."""

    rows: pa.RecordBatch | None
    position: StreamPosition


class TailPlan:
    """A tail that begins at ``start``. Its methods wait for metadata and bookies, and are called by one thread at a time.

    ``position`` is moved by whoever gives the rows, when they are given.
    """

    def __init__(self, log: TailedLog, query: RowQuery, start: str) -> None:
        self._log = log
        self._query = query
        self._follower = log.follower()
        self._handles: dict[int, ReadHandle] = {}
        """Of the open ledgers."""
        self._bound: BoundQuery | None = None
        self._convert: Converter | None = None
        self._schema_id: int | None = None
        """Of the last row: the columns that the tail gives hold its rows."""
        self._watching = threading.Lock()
        self._end_watch: Callable[[], None] | None = None
        self._is_over = False
        self.position = self._start(start)

    @property
    def position_json(self) -> str:
        return self.json_of(self.position)

    def json_of(self, position: StreamPosition) -> str:
        return position.to_json(self._log.uid)

    def bind(self, stored: pa.Schema) -> pa.Schema:
        """Before the first look: give the columns that a log of these columns has, also of rows that were written before them.

        Returns what is given. Raises ConfigError where the query does not fit them.
        """
        return self._bound_to(stored).schema

    def begin_at(self, position: StreamPosition) -> None:
        """Plan from there on, also after ``close``."""
        self.position = position
        with self._watching:
            self._is_over, self._end_watch = False, None

    def watch(self, on_change: Callable[[], None]) -> None:
        """From the first call until ``close``, call ``on_change`` (from any thread, briefly) when the log's head changes."""
        if self._end_watch is not None:
            return
        end = self._log.logs.store.watch(self._log.logs.names.paths(self._log.uid).head, on_change)
        with self._watching:
            self._end_watch = end
            is_over = self._is_over
        if is_over:
            end()

    def close(self) -> None:
        """Ends the watch, also one that another thread is about to begin."""
        with self._watching:
            self._is_over = True
            end = self._end_watch
        if end is not None:
            end()

    def look(self) -> Look:
        """What can be read now. Raises LogReplacedError at a commit that replaces content."""
        names, log = self._log.logs.names, self._log
        head = names.head(log.name, log.uid)
        ends = self._ends(head)
        start = self.position
        newest = planned(names, log.uid, head, lambda head: self._follower.newest(head, ends, start))
        if newest.position > start:
            stretches = planned(names, log.uid, head, lambda head: self._stretches(start, newest.position, head))
            return Look(stretches, newest.position)
        if newest.replaced_by is not None:
            raise LogReplacedError(log.name, newest.replaced_by)
        return Look([], start)

    def handle(self, stretch: PlacedStretch) -> Readable:
        """What a stretch lies in, opened."""
        return self._handles.get(stretch.ledger_id) or opened(self._log.opener, stretch)

    def rows_of(self, stretch: PlacedStretch, payloads: Iterable[pa.RecordBatch]) -> Iterator[Tailed]:
        """The rows of payloads of a stretch, in their order."""
        convert = self._converter_for(stretch)
        for entries in payloads:
            rows = list(convert(stretch.ledger_id, entries))
            next_entry_id = entries.column("entry_id")[-1].as_py() + 1
            position = StreamPosition(stretch.version, stretch.index, stretch.ledger_id, next_entry_id)
            yield Tailed(as_one(rows) if rows else None, position)

    def rows_without_payloads(self, stretch: PlacedStretch) -> Iterator[Tailed]:
        """The rows of a stretch of a span, or of a ledger that has left bookies, from the tail's position on.

        Raises NoSuchLedgerError.
        """
        place = self.position
        is_inside = (place.version, place.index) == (stretch.version, stretch.index)
        first = max(stretch.first_entry_id, place.entry_id) if is_inside else stretch.first_entry_id
        self._converter_for(stretch)  # raises where the tail's columns do not hold its rows
        assert self._bound is not None, "the converter binds the query"
        opener = self._log.opener
        ledger = opener.tiered(stretch.ledger_id) if stretch.span is None else SpanHandle(stretch.span, opener.on_bookies)
        for rows, behind in ledger.rows_of_entries(first, stretch.last_entry_id, self._bound.rows):
            yield Tailed(rows, StreamPosition(stretch.version, stretch.index, stretch.ledger_id, behind))

    @property
    def open_ledger(self) -> ReadHandle | None:
        """The first ledger that a leader has open, as the last look saw it: more comes from there first."""
        return next((handle for handle in self._handles.values() if not handle.is_closed), None)

    def _start(self, start: str) -> StreamPosition:
        head = self._log.logs.names.fresh_head(self._log.name, self._log.uid)
        if start == EARLIEST:
            return self._follower.earliest(head)
        if start == LATEST:
            return self._follower.latest(head, self._ends(head))
        position = parse_position(start, self._log.name, self._log.uid, "start")
        self._follower.row_number(position, head)  # raises where nothing stands there
        return position

    def _stretches(self, start: StreamPosition, end: StreamPosition, head: Head) -> list[PlacedStretch]:
        return list(self._follower.stretches(start, end, head, fail_on_data_loss=True, lanes_of=self._lanes_of))

    def _lanes_of(self, version: LogVersion) -> Collection[int] | None:
        if version.schema_id is None:
            return None
        # Called for each version of a look: only the first one's schema is read.
        query = self._bound or self._bound_to(self._stored(version.schema_id))
        return query.lanes.of(self._log.name, version.version, version.lanes)

    def _converter_for(self, stretch: PlacedStretch) -> Converter:
        """To the columns that the log had at the first row. Raises SchemaMismatchError where they hold less."""
        if self._convert is not None and stretch.schema_id == self._schema_id:
            return self._convert
        if stretch.schema_id is None:
            problem = f"version {stretch.version} holds entries, not rows: follow it with the ledgers' own readers"
            raise SchemaMismatchError(self._log.name, problem)
        stored = self._stored(stretch.schema_id)
        query = self._bound_to(stored)
        for wanted in query.schema:
            index = stored.get_field_index(wanted.name)
            if index >= 0 and not is_readable(stored.field(index).type, wanted.type):
                problem = f"column '{wanted.name}' is {stored.field(index).type} in version {stretch.version}"
                remedy = f"this tail gives it as {wanted.type}: begin another one at its position"
                raise SchemaMismatchError(self._log.name, f"{problem}, {remedy}")
        self._schema_id = stretch.schema_id
        self._convert = query.converter()
        return self._convert

    def _stored(self, schema_id: int) -> pa.Schema:
        return arrow_schema(self._log.logs.reader.schema(self._log.name, self._log.uid, schema_id))

    def _bound_to(self, stored: pa.Schema) -> BoundQuery:
        """The query on the columns that the log had first."""
        self._bound = self._bound or self._query.bound(self._log.name, stored)
        return self._bound

    def _ends(self, head: Head) -> dict[int, LedgerEnd]:
        """How far a quorum of its bookies has confirmed each open ledger."""
        opened = [ledger.ledger_id for ledger in head.writer.open_ledgers]
        for ledger_id in self._handles.keys() - set(opened):
            del self._handles[ledger_id]
        for ledger_id in opened:
            if ledger_id in self._handles:
                self._handles[ledger_id].read_last_add_confirmed()
            else:
                self._handles[ledger_id] = self._log.opener.on_bookies(ledger_id)
        return {ledger_id: LedgerEnd.of(self._handles[ledger_id]) for ledger_id in opened}
