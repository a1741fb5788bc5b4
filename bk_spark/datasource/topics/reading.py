"""What reads of topics share, in batches and streams: which topics, which columns, and the work of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bk_spark.client.ledger.stretches import cut_at_fragments
from bk_spark.datasource.connection import connect
from bk_spark.datasource.option_values import pattern_of
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.read.partitions import plan
from bk_spark.datasource.read.read_task import as_declared
from bk_spark.datasource.spark_schema import as_stored, to_arrow
from bk_spark.errors import NoSuchTopicError
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.positions import Offsets
from bk_spark.rows.reading import joined
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.columns import TopicColumns
from bk_spark.topic.plan import ReadStart
from bk_spark.topic.reading import MessageChoice, TopicPortion, TopicReading
from bk_spark.topic.store import TopicStore


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """A read of the topics that the options name. Pickled to every task."""

    options: SourceOptions
    columns: TopicColumns
    """Without the access, which each process makes for itself."""
    schema: StructType
    """The columns to give."""

    @property
    def access(self) -> TopicAccess:
        return access_of(self.options)

    @property
    def choice(self) -> MessageChoice:
        options = self.options
        return MessageChoice(options.tombstones, options.unreadable == "skip", options.fail_on_data_loss)

    def start(self, default: str) -> ReadStart:
        """Where it begins; ``default`` where no option says so."""
        options = self.options
        if options.starting_timestamp is not None or options.starting_subscription is not None:
            return ReadStart(time_ms=options.starting_timestamp, subscription=options.starting_subscription)
        text = options.starting_offsets or default
        return ReadStart(Offsets.parse("option 'startingOffsets'", text), what="option 'startingOffsets'")

    def partitions(self, portion: TopicPortion, topics: int) -> Iterator[TopicPortion]:
        """A portion as Spark's partitions: large ledgers are cut, at their fragments first, and small ones packed together.

        So many ``topics`` share ``minPartitions``.
        """
        options = self.options
        if any(stretch.length > options.max_bytes_per_partition for stretch in portion.stretches):
            bookkeeper = connect(options.metadata, options.client)
            ids = [stretch.ledger_id for stretch in portion.stretches]
            found = {one.ledger_id: one for one in bookkeeper.existing_ledgers(ids)}
            cut = [
                stretch
                for one in portion.stretches
                for stretch in (cut_at_fragments(one, found[one.ledger_id]) if one.ledger_id in found else [one])
            ]
            portion = replace(portion, stretches=tuple(cut))
        least = -(-options.min_partitions // topics)
        for index, stretches in enumerate(plan(portion.stretches, options.max_bytes_per_partition, least)):
            yield replace(portion, stretches=stretches, from_batch_index=0 if index else portion.from_batch_index)

    def batches(self, portion: TopicPortion) -> Iterator[pa.RecordBatch]:
        """The messages of a portion, in order, in exactly the declared schema."""
        return joined(self._batches(portion))

    def _batches(self, portion: TopicPortion) -> Iterator[pa.RecordBatch]:
        access, schema, stored = self.access, to_arrow(self.schema), as_stored(self.schema)
        columns = replace(self.columns, access=access, looked_up={})
        reading = TopicReading(access, portion, self.choice)
        for ledger_id, rows in reading.rows():
            messages = columns.messages(portion.topic, ledger_id, rows, reading)
            chosen = [_as(messages.column(field.name), field.type) for field in stored]
            found = pa.RecordBatch.from_arrays(chosen, schema=stored)
            yield as_declared(found, schema, str(portion.topic), ledger_id, conditions=False)


def access_of(options: SourceOptions) -> TopicAccess:
    """What this process may do with the topics."""
    bookkeeper = connect(options.metadata, options.client)
    return bookkeeper.topic_access(options.pulsar_metadata, options.password, options.offload_endpoint)


def named_topics(options: SourceOptions, store: TopicStore) -> list[TopicName]:
    """The topics that the options name now, each partition by itself. Raises NoSuchTopicError."""
    if options.topics_pattern is not None:
        found = store.matching(*pattern_of(options.topics_pattern))
        if not found:
            raise NoSuchTopicError(options.topics_pattern, store.where)
        return found
    names = [options.topic] if options.topic else options.topics
    return list(dict.fromkeys(leaf for name in names for leaf in store.partitions(TopicName.parse(name))))


def topics_left(options: SourceOptions, store: TopicStore) -> list[TopicName]:
    """As ``named_topics``, without those that do not exist (any more)."""
    found: dict[TopicName, None] = {}
    for names in [()] if options.topics_pattern else [(one,) for one in (options.topic, *options.topics) if one]:
        with suppress(NoSuchTopicError):
            one = replace(options, topic=None, topics=names) if names else options
            found |= dict.fromkeys(named_topics(one, store))
    return list(found)


def spark_schema(columns: TopicColumns) -> StructType:
    """The columns that a read gives by default."""
    return from_arrow_schema(columns.arrow)


def columns_of(options: SourceOptions, topics: Sequence[TopicName]) -> TopicColumns:
    """Raises ConfigError where the topics have no schema in common that can be read."""
    return TopicColumns.of(access_of(options), topics, options.schema)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values in a type that differs at most in which nested fields may be null."""
    return column if column.type == kind else column.cast(kind)
