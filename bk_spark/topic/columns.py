"""The columns that a read of topics gives: the messages as they are, or with values typed by the topics' schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from bk_spark.errors import ConfigError
from bk_spark.pulsar.columns import MESSAGE_SCHEMA
from bk_spark.pulsar.names import TopicName
from bk_spark.pulsar.schemas import RAW, TopicSchema
from bk_spark.pulsar.selection import to_messages, without
from bk_spark.pulsar.values.typed_values import ValueReader
from bk_spark.topic.access import TopicAccess
from bk_spark.topic.reading import TopicReading
from bk_spark.topic.schemas import TopicSchemas

SCHEMAS = ("raw", "topic")


@dataclass(frozen=True, slots=True)
class TopicColumns:
    """The columns of a read. ``arrow`` has those that exist, in MESSAGE_SCHEMA's order."""

    access: TopicAccess | None
    """None where only the columns' types matter."""
    values: ValueReader | None = None
    """None: values are bytes."""
    looked_up: dict[TopicName, TopicSchemas] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(access: TopicAccess, topics: Sequence[TopicName], schema: str) -> TopicColumns:
        """``raw``, or ``topic`` for the newest schema that the topics have in common. Raises ConfigError."""
        if schema not in SCHEMAS:
            raise ConfigError("schema", schema, f"it must be {' or '.join(SCHEMAS)}")
        if schema == "raw":
            return TopicColumns(access)
        looked_up = {topic: TopicSchemas(access, topic) for topic in dict.fromkeys(one.base for one in topics)}
        newest = {topic: schemas.newest() for topic, schemas in looked_up.items()}
        return TopicColumns(access, _common(newest), looked_up)

    @property
    def detached(self) -> TopicColumns:
        """The same columns for another process, which makes its own access."""
        return TopicColumns(None, self.values)

    @property
    def arrow(self) -> pa.Schema:
        if self.values is None:
            return MESSAGE_SCHEMA
        index = MESSAGE_SCHEMA.get_field_index("value")
        return MESSAGE_SCHEMA.set(index, pa.field("value", self.values.arrow_type))

    def messages(self, topic: TopicName, ledger_id: int, rows: pa.RecordBatch, reading: TopicReading) -> pa.RecordBatch:
        """Decoded rows of one ledger of ``topic`` in the schema ``arrow``; ``reading`` hears of values that do not fit."""
        messages = to_messages(str(topic), ledger_id, rows)
        if self.values is None:
            return messages
        assert self.access is not None
        schemas = self.looked_up.setdefault(topic.base, TopicSchemas(self.access, topic.base))
        converted = self.values.convert(rows.column("value"), rows.column("schema_version"), schemas.of)
        columns = [converted.values if name == "value" else messages.column(name) for name in messages.schema.names]
        messages = pa.RecordBatch.from_arrays(columns, schema=self.arrow)
        if not converted.problems:
            return messages
        bad = {one.row for one in converted.problems}
        for one in converted.problems:
            reading.unreadable(ledger_id, rows.column("entry_id")[one.row].as_py(), one.problem)
        return without(messages, bad)


def _common(newest: Mapping[TopicName, TopicSchema | None]) -> ValueReader | None:
    """A reader for the one schema of all topics; None if they have none."""
    kinds = {topic: None if schema is None else ValueReader(schema) for topic, schema in newest.items()}
    first, *others = kinds
    for other in others:
        if _type(kinds[other]) != _type(kinds[first]):
            problem = f"topics '{first}' and '{other}' have values of different types: read them one by one, or {RAW}"
            raise ConfigError("schema", "topic", problem)
    return kinds[first]


def _type(reader: ValueReader | None) -> pa.DataType:
    return pa.binary() if reader is None else reader.arrow_type
