"""Follows the rows of a log: gives what is confirmed, then waits for more. It never disturbs a writer.

It follows commits, as a stream of Spark does (``stream/follow.py``), so compaction and other writers do not disturb it. While
a leader has a ledger open, the wait is a long poll at that ledger's bookies. Otherwise a watch of the log's head ends it.

Ref: docs/rules.md, log rules 2, 6 and 7.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.rows.read_rows import BoundQuery, RowQuery
from bk_spark.client.log.stored.values import Head, LogVersion
from bk_spark.client.log.stream.follow import LedgerEnd, LogFollower, Piece
from bk_spark.client.log.stream.order import FAIL, READ, SKIP
from bk_spark.client.log.stream.plan_again import planned
from bk_spark.client.log.stream.positions import StreamPosition, parse_position
from bk_spark.errors import BookKeeperError, ConfigError, LogReplacedError, SchemaMismatchError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.rows.arrow_types import arrow_schema
from bk_spark.rows.gathering import as_one
from bk_spark.rows.parts import whole_payloads
from bk_spark.rows.reading import Converter
from bk_spark.rows.widening import is_readable

EARLIEST, LATEST = "earliest", "latest"

POLL_S = 1.0
"""The longest wait at the bookies of an open ledger: they do not know of the log's next commit, which is looked for then."""

HEARTBEAT_S = 5.0
"""The longest wait for a change of the head, in case a watch was lost."""

RETRY_S = 0.5
"""Between tries while bookies or the metadata store do not answer."""

PATIENCE_S = 60.0
"""For how long they may not answer before the error is raised: longer than a bookie takes to be replaced."""


@dataclass(frozen=True, slots=True)
class TailedLog:
    """A log, and what it takes to follow it."""

    name: str
    uid: str
    logs: LogStore
    open_ledger: Callable[[int], ReadHandle]
    """Without recovery."""
    overwrites: str = FAIL
    """What happens at a commit that replaces content: fail, read (the new content), or skip (only what comes behind it)."""

    def __post_init__(self) -> None:
        if self.overwrites not in (FAIL, READ, SKIP):
            raise ConfigError("overwrites", self.overwrites, f"it must be {FAIL}, {READ} or {SKIP}")

    def follower(self) -> LogFollower:
        def describe(ids: Sequence[int]) -> list[LedgerMetadata]:
            return [metadata for metadata in self.logs.ledgers.find(ids) if metadata is not None]

        return LogFollower(self.logs.reader, self.name, self.uid, self.overwrites, describe)


class RowTail:
    """An iterator over the rows of a log that waits for more at its end. One thread uses it at a time.

    It keeps the columns that the log had at its first row. It ends once nothing came for ``timeout_s``; None waits for ever.
    Raises LogReplacedError where the log's content is replaced, DataLossError where rows that it had not read yet were
    removed, and what reading raises, after ``PATIENCE_S`` if a retry can help.
    """

    def __init__(self, log: TailedLog, query: RowQuery, start: str, timeout_s: float | None) -> None:
        if timeout_s is not None and (isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or timeout_s < 0):
            raise ConfigError("timeout_s", timeout_s, "it must be a number of seconds from 0 on, or None")
        self._log = log
        self._query = query
        self._timeout_s = timeout_s
        self._follower = log.follower()
        self._handles: dict[int, ReadHandle] = {}
        self._bound: BoundQuery | None = None
        self._convert: Converter | None = None
        self._schema_id: int | None = None
        """Of the last row: the columns that the tail gives hold its rows."""
        self._position = self._start(start)
        self._batches = self._follow()

    @property
    def position(self) -> str:
        """Behind the last row that was given: ``start`` of a later tail, or ``startingOffsets`` of a stream of Spark."""
        return self._position.to_json(self._log.uid)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Wait for nothing more."""
        self._batches.close()

    def __enter__(self) -> RowTail:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, start: str) -> StreamPosition:
        head = self._log.logs.names.fresh_head(self._log.name, self._log.uid)
        if start == EARLIEST:
            return self._follower.earliest(head)
        if start == LATEST:
            return self._follower.latest(head, self._ends(head))
        position = parse_position(start, self._log.name, self._log.uid, "start")
        self._follower.row_number(position, head)  # raises where nothing stands there
        return position

    def _follow(self) -> Generator[pa.RecordBatch, None, None]:
        changed = threading.Event()
        head_path = self._log.logs.names.paths(self._log.uid).head
        end_watch: Callable[[], None] | None = None
        news_s = heard_s = time.monotonic()
        try:
            while True:
                try:
                    changed.clear()
                    end_watch = end_watch or self._log.logs.store.watch(head_path, changed.set)
                    started_s = news_s
                    for batch in self._news():
                        yield batch
                        news_s = time.monotonic()
                    heard_s = time.monotonic()
                    if news_s != started_s:
                        continue  # what came while the consumer had the batch is looked for before any wait
                    left_s = None if self._timeout_s is None else news_s + self._timeout_s - time.monotonic()
                    if left_s is not None and left_s <= 0:
                        return
                    self._wait(changed, left_s)
                except BookKeeperError as problem:
                    if not problem.retryable or time.monotonic() > max(heard_s, news_s) + PATIENCE_S:
                        raise
                    changed.wait(RETRY_S)
        finally:
            if end_watch is not None:
                end_watch()

    def _news(self) -> Iterator[pa.RecordBatch]:
        """What can be read now. Raises LogReplacedError at a commit that replaces content."""
        names, log = self._log.logs.names, self._log
        head = names.head(log.name, log.uid)
        ends = self._ends(head)
        newest = planned(names, log.uid, head, lambda head: self._follower.newest(head, ends, self._position))
        if newest.position > self._position:
            start, end = self._position, newest.position
            pieces = planned(names, log.uid, head, lambda head: self._pieces(start, end, head))
            for piece in pieces:
                yield from self._of_piece(piece)
            self._position = end
        elif newest.replaced_by is not None:
            raise LogReplacedError(log.name, newest.replaced_by)

    def _pieces(self, start: StreamPosition, end: StreamPosition, head: Head) -> list[Piece]:
        return list(self._follower.pieces(start, end, head, fail_on_data_loss=True, lanes_of=self._lanes_of))

    def _lanes_of(self, version: LogVersion) -> Collection[int] | None:
        if version.schema_id is None:
            return None
        return self._bound_to(self._stored(version.schema_id)).lanes.of(self._log.name, version.version, version.lanes)

    def _of_piece(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        convert = self._converter_for(piece)
        handle = self._handle(piece.ledger_id)
        place = piece.ledger_id, piece.first_entry_id, piece.last_entry_id
        for entries in whole_payloads(handle.read_unconfirmed, *place):
            rows = list(convert(piece.ledger_id, entries))
            next_entry_id = entries.column("entry_id")[-1].as_py() + 1
            self._position = StreamPosition(piece.version, piece.index, piece.ledger_id, next_entry_id)
            if rows:
                yield as_one(rows)

    def _converter_for(self, piece: Piece) -> Converter:
        """To the columns that the log had at the first row. Raises SchemaMismatchError where they hold less."""
        if self._convert is not None and piece.schema_id == self._schema_id:
            return self._convert
        if piece.schema_id is None:
            problem = f"version {piece.version} holds entries, not rows: follow it with the ledgers' own readers"
            raise SchemaMismatchError(self._log.name, problem)
        stored = self._stored(piece.schema_id)
        query = self._bound_to(stored)
        for wanted in query.schema:
            index = stored.get_field_index(wanted.name)
            if index >= 0 and not is_readable(stored.field(index).type, wanted.type):
                problem = f"column '{wanted.name}' is {stored.field(index).type} in version {piece.version}"
                remedy = f"this tail gives it as {wanted.type}: begin another one at its position"
                raise SchemaMismatchError(self._log.name, f"{problem}, {remedy}")
        self._schema_id = piece.schema_id
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
                self._handles[ledger_id] = self._log.open_ledger(ledger_id)
        return {ledger_id: LedgerEnd.of(self._handles[ledger_id]) for ledger_id in opened}

    def _handle(self, ledger_id: int) -> ReadHandle:
        return self._handles.get(ledger_id) or self._log.open_ledger(ledger_id)

    def _wait(self, changed: threading.Event, left_s: float | None) -> None:
        waited = next((handle for handle in self._handles.values() if not handle.is_closed), None)
        most_s = HEARTBEAT_S if waited is None else POLL_S
        wait_s = most_s if left_s is None else min(most_s, left_s)
        if waited is None:
            changed.wait(wait_s)
        elif not changed.is_set():
            waited.wait_for_last_add_confirmed(waited.last_add_confirmed, wait_s)
