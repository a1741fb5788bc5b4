"""A streaming read of one log: tells Spark how far it can be read, plans micro-batches from offsets alone, reads them in tasks.

Spark keeps one instance for the life of a query, in a process of its own on the driver. The tasks get pickled copies, which
only read. Nothing depends on ``stop``, which Spark rarely calls.

Ref: docs/rules.md, log rules 2, 6, 7 and 10; Spark's Python Data Source API.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bk_spark.datasource.background.stream_thread import StreamThread
from bk_spark.datasource.plain_errors import plain_errors
from bk_spark.datasource.read.batch_limits import Limits, default_limit
from bk_spark.datasource.read.log_stream import LogStream, cursor_name_of
from bk_spark.datasource.read.micro_batch import read_portion
from bk_spark.datasource.read.read_task import Reading
from bk_spark.datasource.read.tail import StreamThreads
from bk_spark.errors import BookKeeperError
from bk_spark.log.stream.positions import Offset, StreamOffset, StreamPosition, stream_offset


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one log from Spark's driver. ``uid`` is the uid of the log that ``load()`` saw."""

    def __init__(self, reading: Reading, name: str, uid: str) -> None:
        self._reading = reading
        self._name = name
        self._uid = uid
        self._made: LogStream | None = None
        self._initial: StreamPosition | None = None
        self._newest: StreamPosition | None = None

    @plain_errors()
    def initialOffset(self) -> Offset:
        """Where a query with an empty checkpoint starts: options ``startingOffsets`` and ``startingTimestamp``."""
        if self._initial is None:
            self._initial = self._stream.log.initial_position(self._reading.options)
        return StreamOffset(self._initial, self._initial).to_offset(self._uid)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark takes one limit; ``latestOffset`` applies the other one too."""
        return default_limit(self._reading.options)

    @plain_errors()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch: ``start`` if nothing is new, never before it. Answered from memory while idle."""
        given = self._given(start)
        self._newest = end = self._stream.newest(given.position)
        limits = Limits.of(limit, self._reading.options)
        if end > given.position and not limits.is_unlimited:
            end = self._stream.admitted(given.position, end, limits).end
        return given.end_of_batch(end).to_offset(self._uid)

    def reportLatestOffset(self) -> Offset | None:
        """The newest position, without regard to limits: Spark shows it in the query's progress."""
        return None if self._newest is None else self._newest.to_offset(self._uid)

    @plain_errors()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The portions of a micro-batch, the same for the same offsets, also after a restart.

        When Spark repeats the first batch, ``start`` is what ``initialOffset`` says now; where it began stands in ``end``.
        Raises DataLossError, LogReplacedError, SchemaMismatchError, ConfigError.
        """
        began, ended = self._given(start), self._given(end)
        portions = self._stream.portions(ended.start_of_batch(began), ended.position)
        return [InputPartition(portion) for portion in portions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one portion, in stream order, in exactly the declared schema."""
        with plain_errors():
            yield from read_portion(partition.value, self._reading, self._name, self._uid)

    @plain_errors()
    def commit(self, end: Offset) -> None:
        """Have the cursor show that everything before ``end`` was processed."""
        self._stream.move_cursor(self._given(end).position)

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run of the query: all that a quorum of bookies has confirmed now."""
        self._stream.freeze()

    def stop(self) -> None:
        """End the background threads. If Spark kills the process instead, nothing is lost."""
        if self._made is not None:
            self._made.stop()
            self._threads.looks.stop()

    @property
    def _stream(self) -> LogStream:
        """Made at the first use: the copies of the tasks have none."""
        if self._made is None:
            self._threads = StreamThreads(StreamThread(f"bk-spark-tail-{self._name}"))
            self._made = LogStream.of(self._reading, self._name, self._uid, cursor_name_of(self._reading), self._threads)
        return self._made

    def _given(self, offset: Offset) -> StreamOffset:
        return stream_offset(offset, self._name, self._uid)


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
