"""A batch read of topics: the driver plans which entries each task reads, the tasks read them.

Each topic, and each partition of one, is read up to what is confirmed when partitions are planned. No partition of Spark has
rows of two topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bk_spark.datasource.option_values import EARLIEST
from bk_spark.datasource.plain_errors import plain_errors
from bk_spark.datasource.topics.reading import TopicsRead, named_topics
from bk_spark.pulsar.positions import Offsets
from bk_spark.topic.ledgers import TopicLedgers
from bk_spark.topic.plan import TopicStarts, offset_in
from bk_spark.topic.topic import portions_between

_END = "option 'endingOffsets'"


class TopicsReader(DataSourceReader):
    """Reads topics as Spark partitions of Arrow record batches. Pickled to every task."""

    def __init__(self, read: TopicsRead) -> None:
        self._read = read

    @plain_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """Raises NoSuchTopicError, MessagesGoneError, UnreadableMessagesError, ConfigError."""
        read, access = self._read, self._read.access
        ledgers = TopicLedgers(access)
        starts, start = TopicStarts(access, ledgers), read.start(EARLIEST)
        end = Offsets.parse_end(_END, read.options.ending_offsets)
        topics = named_topics(read.options, ledgers.store)
        start.check_names(topics)
        end.check_names(_END, [str(topic) for topic in topics])
        return [
            InputPartition(partition)
            for topic, view in zip(topics, ledgers.views(topics), strict=True)
            for portion in portions_between(
                topic, view, starts.position(start, topic, view), offset_in(_END, end.of(str(topic)), view), read.choice
            )
            for partition in read.partitions(portion, len(topics))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one partition, in order, in exactly the declared schema."""
        with plain_errors():
            if partition is not None:
                yield from self._read.batches(partition.value)
