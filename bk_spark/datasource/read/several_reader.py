"""A streaming read of several logs: a LogStream for each, and one offset, one batch and one limit for all of them.

As in ``stream_reader.py``, Spark keeps one instance for the life of a query, and the tasks get pickled copies.

Ref: docs/rules.md, log rules 6 and 7; Spark's Python Data Source API.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bk_spark.datasource.plain_errors import plain_errors
from bk_spark.datasource.read.batch_limits import Admitted, Limits, default_limit
from bk_spark.datasource.read.loaded_log import Stored
from bk_spark.datasource.read.log_streams import DELETED, LogStreams
from bk_spark.datasource.read.micro_batch import MicroBatchPortion, read_portion
from bk_spark.datasource.read.read_task import Reading
from bk_spark.datasource.read.several_offset import BatchRange, InLog, SeveralOffset, several_offset
from bk_spark.datasource.read.shares import in_turn, share_out
from bk_spark.errors import LogGoneError, NoSuchLogError
from bk_spark.log.stream.positions import Offset, StreamOffset, StreamPosition
from bk_spark.log.stream.whole_transactions import whole_ends

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PortionWithLog:
    """What one task reads of a micro-batch, and the uid of its log, one of several."""

    uid: str
    portion: MicroBatchPortion


class SeveralReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs that the options name, from Spark's driver. ``stored`` is what ``load()`` found in them."""

    def __init__(self, reading: Reading, stored: Stored) -> None:
        self._reading = reading
        self._stored = stored
        self._made: LogStreams | None = None
        self._initial: SeveralOffset | None = None
        self._newest: SeveralOffset | None = None
        self._last_first: str | None = None
        self._parsed: tuple[Offset, SeveralOffset] | None = None

    @plain_errors()
    def initialOffset(self) -> Offset:
        """Where a query with an empty checkpoint starts in each log that is there now."""
        if self._initial is None:
            self._initial = self._logs.initial()
        return self._initial.to_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark takes one limit; ``latestOffset`` applies the other one too."""
        return default_limit(self._reading.options)

    @plain_errors()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch: ``start`` if nothing is new in any log. Answered from memory while idle."""
        given = self._given(start)
        standing = self._logs.standing(given)
        newest = self._newest_of(standing, given)
        self._newest = SeveralOffset({uid: InLog(standing[uid].name, StreamOffset(end)) for uid, end in newest.items()})
        ends = self._ends(standing, newest, Limits.of(limit, self._reading.options))
        batch = {
            uid: InLog(standing[uid].name, standing[uid].offset.end_of_batch(end))
            for uid, end in ends.items()
            if uid in given.logs or end > standing[uid].offset.position
        }
        return start if batch == given.logs else SeveralOffset(batch).to_offset()

    def reportLatestOffset(self) -> Offset | None:
        """The newest position in each log, without regard to limits: Spark shows it in the query's progress."""
        return None if self._newest is None else self._newest.to_offset()

    @plain_errors()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The portions of a micro-batch, log after log by name; the same for the same offsets, also after a restart.

        Raises LogGoneError, DataLossError, LogReplacedError, SchemaMismatchError, ConfigError.
        """
        ranges = list(self._given(end).ranges_from(self._given(start)))
        return [
            InputPartition(PortionWithLog(one.uid, portion)) for one in ranges for portion in self._portions(one, len(ranges))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one portion, in stream order, in exactly the declared schema."""
        with plain_errors():
            yield from self._rows(partition.value)

    @plain_errors()
    def commit(self, end: Offset) -> None:
        """Have the cursor in each log show that everything before ``end`` was processed."""
        for uid, one in self._given(end).logs.items():
            self._logs.move_cursor(uid, one.offset.position)

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run of the query: the logs that are there now, as far as they are confirmed now."""
        self._logs.freeze()

    def stop(self) -> None:
        """End the background threads. If Spark kills the process instead, nothing is lost."""
        if self._made is not None:
            self._made.stop()

    @property
    def _logs(self) -> LogStreams:
        """Made at the first use: the copies of the tasks have none."""
        if self._made is None:
            self._made = LogStreams(self._reading, self._stored)
        return self._made

    def _given(self, offset: Offset) -> SeveralOffset:
        """An idle query asks again and again with the same offset, which is parsed once."""
        if self._parsed is None or self._parsed[0] != offset:
            self._parsed = offset, several_offset(offset)
        return self._parsed[1]

    def _newest_of(self, standing: Mapping[str, InLog], given: SeveralOffset) -> dict[str, StreamPosition]:
        """How far each log can be read. Without logs that were deleted meanwhile."""
        newest = {}
        for uid, one in standing.items():
            is_known, start = uid in given.logs, one.offset.position
            try:
                end = self._logs.stream(uid, one.name).newest(start)
                if not is_known and end > start:
                    self._logs.check_late(uid, one.name)
                newest[uid] = end
            except NoSuchLogError:
                if not self._logs.is_gone(uid, one.name, is_known=is_known):
                    newest[uid] = start
        return newest

    def _ends(
        self, standing: Mapping[str, InLog], newest: Mapping[str, StreamPosition], limits: Limits
    ) -> Mapping[str, StreamPosition]:
        """Where the batch ends in each log. With another log in front each time, one of the tries takes something."""
        if limits.is_unlimited:
            return self._whole(standing, newest, newest)
        ends: Mapping[str, StreamPosition] = {}
        for _ in standing:
            ends = self._whole(standing, self._admitted(standing, newest, limits), newest)
            if any(end > standing[uid].offset.position for uid, end in ends.items()):
                break
            if all(newest[uid] == standing[uid].offset.position for uid in newest):
                break
        return ends

    def _whole(
        self, standing: Mapping[str, InLog], ends: Mapping[str, StreamPosition], newest: Mapping[str, StreamPosition]
    ) -> Mapping[str, StreamPosition]:
        """The ends with whole transactions alone. Where a log was deleted meanwhile: none; the next batch says so."""
        starts = {uid: one.offset.position for uid, one in standing.items()}
        try:
            return whole_ends(self._logs, starts, ends, newest)
        except NoSuchLogError:
            return {uid: starts[uid] for uid in ends}

    def _admitted(
        self, standing: Mapping[str, InLog], newest: Mapping[str, StreamPosition], limits: Limits
    ) -> dict[str, StreamPosition]:
        """As far towards ``newest`` as the limits allow for all logs together."""
        ends = {uid: standing[uid].offset.position for uid in newest}

        def admit(uid: str, share: Limits, least: int) -> Admitted[StreamPosition]:
            name = standing[uid].name
            try:
                found = self._logs.stream(uid, name).admitted(ends[uid], newest[uid], share, least=least)
            except NoSuchLogError:
                self._logs.is_gone(uid, name)  # either way, this batch takes nothing more of it
                return Admitted(ends[uid], share, is_cut=False, is_nothing=True)
            ends[uid] = found.end
            return found

        order = in_turn([uid for uid, end in newest.items() if end > ends[uid]], self._last_first)
        share_out(order, limits, admit)
        self._last_first = order[0] if order else self._last_first
        return ends

    def _portions(self, one: BatchRange, logs: int) -> list[MicroBatchPortion]:
        """None of a log that is gone, with a warning. Raises LogGoneError."""
        try:
            return self._logs.stream(one.uid, one.name).portions(one.first, one.last, logs)
        except NoSuchLogError:
            if self._logs.is_gone(one.uid, one.name):
                return []
        return self._logs.stream(one.uid, one.name).portions(one.first, one.last, logs)

    def _rows(self, given: PortionWithLog) -> Iterator[pa.RecordBatch]:
        name = given.portion.sources.log
        try:
            yield from read_portion(given.portion, self._reading, name, given.uid)
        except NoSuchLogError:
            gone = LogGoneError(name, DELETED)
            if self._reading.options.fail_on_data_loss:
                raise gone from None
            logger.warning("%s", gone.warning)
