"""A streaming read: tells Spark how far a log can be read, plans micro-batches from offsets alone, reads them in the tasks.

Spark keeps one instance for the life of a query, in a process of its own on the driver. The tasks get pickled copies, which
only read. Nothing depends on ``stop``, which Spark rarely calls.

Ref: docs/rules.md, log rules 2, 6, 7 and 10; Spark's Python Data Source API.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from bk_spark.client.log.stored.values import Head
from bk_spark.client.log.stream.follow import LedgerEnd, Newest
from bk_spark.client.log.stream.positions import Offset, StreamOffset, StreamPosition, stream_offset
from bk_spark.datasource.plain_errors import plain_errors
from bk_spark.datasource.read.batch_limits import Limits, StoredSizes, admitted_end
from bk_spark.datasource.read.followed_log import CursorPublisher, FollowedLog
from bk_spark.datasource.read.micro_batch import BatchPlanner, read_part
from bk_spark.datasource.read.read_task import Reading
from bk_spark.datasource.read.tail import LogTail
from bk_spark.errors import BookKeeperError, ConfigError, LogReplacedError


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one log from Spark's driver. ``uid`` is the uid of the log that ``load()`` saw."""

    def __init__(self, reading: Reading, name: str, uid: str) -> None:
        self._reading = reading
        self._name = name
        self._uid = uid
        self._followed: FollowedLog | None = None
        self._cursor: CursorPublisher | None = None
        self._tail: LogTail | None = None
        self._planner: BatchPlanner | None = None
        self._frozen: tuple[Head, dict[int, LedgerEnd]] | None = None
        self._initial: StreamPosition | None = None
        self._newest: StreamPosition | None = None

    @plain_errors()
    def initialOffset(self) -> Offset:
        """Where a query with an empty checkpoint starts: options ``startingOffsets`` and ``startingTimestamp``."""
        if self._initial is None:
            self._initial = self._log.initial_position(self._reading.options)
        return StreamOffset(self._initial, self._initial).to_offset(self._uid)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark takes one limit; ``latestOffset`` applies the other one too."""
        options = self._reading.options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @plain_errors()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch: ``start`` if nothing is new, never before it. Answered from memory while idle."""
        given = self._given(start)
        position = given.position
        self._move_cursor(position)
        head, newest = self._look(position)
        self._newest = end = max(position, newest.position)
        if end == position and newest.replaced_by is not None:
            raise LogReplacedError(self._name, newest.replaced_by)
        limits = self._limits(limit)
        if end > position and not limits.is_unlimited:
            end = self._admitted(position, end, head, limits)
        return given.end_of_batch(end).to_offset(self._uid)

    def reportLatestOffset(self) -> Offset | None:
        """The newest position, without regard to limits: Spark shows it in the query's progress."""
        return None if self._newest is None else self._newest.to_offset(self._uid)

    @plain_errors()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The parts of a micro-batch, the same for the same offsets, also after a restart.

        When Spark repeats the first batch, ``start`` is what ``initialOffset`` says now; where it began stands in ``end``.
        Raises DataLossError, LogReplacedError, SchemaMismatchError, ConfigError.
        """
        began, ended = self._given(start), self._given(end)
        first = began.position if ended.start is None or start == end else ended.start
        last = ended.position
        if first > last:
            raise _misplaced(first.to_json(self._uid), last.to_json(self._uid))
        self._planner = self._planner or BatchPlanner(self._log, self._reading)
        return [InputPartition(part) for part in self._planner.parts(first, last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in stream order, in exactly the declared schema."""
        with plain_errors():
            yield from read_part(partition.value, self._reading, self._name, self._uid)

    @plain_errors()
    def commit(self, end: Offset) -> None:
        """Have the cursor show that everything before ``end`` was processed."""
        self._move_cursor(self._given(end).position)

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run of the query: all that a quorum of bookies has confirmed now."""
        self._freeze(self._log.logs.names.fresh_head(self._name, self._uid))

    def stop(self) -> None:
        """End the background threads. If Spark kills the process instead, nothing is lost."""
        if self._tail is not None:
            self._tail.stop()

    @property
    def _log(self) -> FollowedLog:
        if self._followed is None:
            self._followed = FollowedLog.of(self._reading.options, self._name, self._uid)
            given = self._reading.options.cursor_name
            self._cursor = CursorPublisher(self._followed, given or uuid.uuid4().hex, is_named=given is not None)
        return self._followed

    def _look(self, start: StreamPosition) -> tuple[Head, Newest]:
        if self._frozen is not None:
            head, ends = self._still_readable(*self._frozen)
            return head, self._log.planned(head, lambda head: self._log.follower.newest(head, ends, start))
        if self._tail is None:
            assert self._cursor is not None
            self._tail = LogTail(self._log, start, self._cursor)
        self._tail.start = start
        return self._tail.newest()

    def _freeze(self, head: Head) -> tuple[Head, dict[int, LedgerEnd]]:
        self._frozen = head, self._log.open_ends(head)
        return self._frozen

    def _still_readable(self, head: Head, ends: dict[int, LedgerEnd]) -> tuple[Head, dict[int, LedgerEnd]]:
        """The fixed end, without versions that a vacuum removed since: no batch may end in one. A run may take days.

        If a vacuum removed the fixed version itself, this run ends at the log's current end.
        """
        now = self._log.logs.names.head(self._name, self._uid)
        if now.oldest_version == head.oldest_version:
            return head, ends
        if now.oldest_version > head.version:
            return self._freeze(now)
        self._frozen = replace(head, oldest_version=now.oldest_version, oldest_record=now.oldest_record), ends
        return self._frozen

    def _limits(self, limit: ReadLimit) -> Limits:
        options = self._reading.options
        if isinstance(limit, ReadAllAvailable):
            return Limits(None, None)
        if isinstance(limit, ReadMaxRows):
            return Limits(limit.max_rows, options.max_bytes_per_trigger)
        if isinstance(limit, ReadMaxBytes):
            return Limits(options.max_rows_per_trigger, limit.max_bytes)
        raise ConfigError("the read limit of a trigger", limit, "the format 'bookkeeper' knows limits of rows and of bytes")

    def _admitted(self, start: StreamPosition, end: StreamPosition, head: Head, limits: Limits) -> StreamPosition:
        """As far towards ``end`` as the limits allow."""
        fail, sizes = self._reading.options.fail_on_data_loss, StoredSizes(self._log.open_ledger)
        lanes_of = self._reading.lanes_of(self._name)

        def admit(head: Head) -> StreamPosition:
            pieces = self._log.follower.pieces(start, end, head, fail_on_data_loss=fail, lanes_of=lanes_of)
            return admitted_end(pieces, start, limits, sizes)

        admitted = self._log.planned(head, admit)
        return end if admitted == start else admitted

    def _move_cursor(self, position: StreamPosition) -> None:
        cursor = self._cursor
        if cursor is None or not cursor.want(position):
            return
        if self._tail is not None:
            self._tail.wake()
        elif self._frozen is not None:
            cursor.publish()

    def _given(self, offset: Offset) -> StreamOffset:
        return stream_offset(offset, self._log.name, self._log.uid)


def _misplaced(start: str, end: str) -> ConfigError:
    problem = f"it lies behind the batch's end, {end}, so the checkpoint does not say which rows the batch has"
    remedy = "go on with a new checkpoint and the end as option 'startingOffsets', or with an earlier offset that you trust"
    return ConfigError("the start of a batch", start, f"{problem}: {remedy}")


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that cannot be read: raises ``problem`` at Spark's first call, which depends on the trigger and the checkpoint.

    If ``streamReader()`` itself raises, Spark 4.3 fails once more while it handles that, and the last error that its user
    reads is about a missing local variable 'reader'. An error of a reader's method ends the query with that error alone.
    """

    def __init__(self, problem: BookKeeperError) -> None:
        self._problem = problem

    @plain_errors()
    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._problem

    getDefaultReadLimit = prepareForTriggerAvailableNow = initialOffset = partitions = read = _refuse

    @plain_errors()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> NoReturn:
        """Has its own signature because Spark inspects it."""
        raise self._problem
