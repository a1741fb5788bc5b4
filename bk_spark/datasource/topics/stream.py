"""A streaming read of topics: one offset, one micro-batch and one limit for all topics and partitions together.

Spark's checkpoint holds the position in each topic; nothing is created in Pulsar. Spark keeps one instance for the life of a
query, in a process of its own on the driver. The tasks get pickled copies, which only read.

Ref: Spark's Python Data Source API.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bk_spark.datasource.option_values import LATEST
from bk_spark.datasource.plain_errors import plain_errors
from bk_spark.datasource.read.batch_limits import Limits, default_limit
from bk_spark.datasource.topics.limits import BatchLimits
from bk_spark.datasource.topics.reading import TopicsRead
from bk_spark.datasource.topics.tail import TopicsTail
from bk_spark.errors import MessagesGoneError
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.positions import Position, TopicOffset
from bk_spark.topic.ledgers import TopicLedgers
from bk_spark.topic.reading import TopicPortion
from bk_spark.topic.topic import portions_between
from bk_spark.topic.view import BEGINNING, TopicView

Offset = dict[str, Any]
logger = logging.getLogger(__name__)


class TopicsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the topics that the options name, from Spark's driver."""

    def __init__(self, read: TopicsRead) -> None:
        self._read = read
        self._made: TopicsTail | None = None
        self._initial: TopicOffset | None = None
        self._newest: TopicOffset | None = None
        self._limits: BatchLimits | None = None

    @plain_errors()
    def initialOffset(self) -> Offset:
        """Where a query with an empty checkpoint starts in each topic that is there now: ``latest`` by default."""
        if self._initial is None:
            self._initial = TopicOffset(self._tail.starts(self._read.start(LATEST)))
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark takes one limit; ``latestOffset`` applies the other one too."""
        return default_limit(self._read.options)

    @plain_errors()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch: ``start`` if nothing is new. Answered from memory while idle.

        A topic that came later is read from its beginning.
        """
        given = TopicOffset.from_json(start).positions
        newest = self._tail.ends(given)
        gone = given.keys() - newest.keys()
        for topic in sorted(gone):
            self._lost(topic, "it was deleted, or the options do not name it now")
        begins = {topic: given.get(topic, BEGINNING) for topic in newest}
        ends = {topic: max(begins[topic], end) for topic, end in newest.items()}
        self._newest = TopicOffset(ends)
        limits = Limits.of(limit, self._read.options)
        if not limits.is_unlimited:
            self._limits = self._limits or BatchLimits(self._read)
            ends = self._limits.ends(begins, ends, limits)
        end = TopicOffset({topic: end for topic, end in ends.items() if topic in given or end > BEGINNING})
        return start if end.positions == given else end.to_json()

    def reportLatestOffset(self) -> Offset | None:
        """The newest position in each topic, without regard to limits: Spark shows it in the query's progress."""
        return None if self._newest is None else self._newest.to_json()

    @plain_errors()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The portions of a micro-batch, topic after topic by name: the same messages for the same offsets, also after a
        restart.

        Raises MessagesGoneError, UnreadableMessagesError.
        """
        begins, ends = TopicOffset.from_json(start).positions, TopicOffset.from_json(end).positions
        moved = [TopicName.parse(name) for name in sorted(ends) if ends[name] != begins.get(name, BEGINNING)]
        ledgers = TopicLedgers(self._read.access)
        ledgers.store.sync()
        return [
            InputPartition(partition)
            for topic, view in zip(moved, ledgers.views(moved), strict=True)
            for portion in self._portions(topic, view, begins.get(str(topic), BEGINNING), ends[str(topic)])
            for partition in self._read.partitions(portion, len(moved))
        ]

    def _portions(self, topic: TopicName, view: TopicView, begin: Position, end: Position) -> Iterator[TopicPortion]:
        """All up to ``end``, which was confirmed when the batch was cut. Raises MessagesGoneError."""
        if end.ledger_id not in [ledger.ledger_id for ledger in view.ledgers]:
            self._lost(str(topic), f"Pulsar does not list ledger {end.ledger_id}, where the batch ends")
        for portion in portions_between(topic, view.reaching(end), begin, end, self._read.choice):
            yield replace(portion, is_settled=True)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one portion, in order, in exactly the declared schema."""
        with plain_errors():
            yield from self._read.batches(partition.value)

    def commit(self, end: Offset) -> None:
        """Nothing is kept in Pulsar."""

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run of the query: the topics that are there now, as far as they are confirmed now."""
        self._tail.freeze()

    def stop(self) -> None:
        """End the background thread. If Spark kills the process instead, nothing is lost."""
        if self._made is not None:
            self._made.stop()

    @property
    def _tail(self) -> TopicsTail:
        """Made at the first use: the copies of the tasks have none."""
        if self._made is None:
            self._made = TopicsTail(self._read)
        return self._made

    def _lost(self, topic: str, problem: str) -> None:
        gone = MessagesGoneError(topic, problem)
        if self._read.options.fail_on_data_loss:
            raise gone
        logger.warning("%s", gone.warning)
