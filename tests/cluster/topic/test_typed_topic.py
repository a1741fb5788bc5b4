"""Topics whose values are typed by their schema, each message read with the version that it was written with."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, UnreadableMessagesError
from tests.cluster.topic.written_topics import WrittenTopic
from tests.unit.pulsar.entries import Message, batch, single


def typed(bookkeeper: BookKeeper, topic: WrittenTopic, **options: Any) -> list[Any]:
    batches = bookkeeper.open_topic(str(topic)).read(schema="topic", **options)
    return [row for one in batches for row in one.column("value").to_pylist()]


def record(*fields: dict[str, Any]) -> bytes:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)}).encode()


def avro(definition: bytes, value: dict[str, Any]) -> bytes:

    written = io.BytesIO()
    fastavro.schemaless_writer(written, json.loads(definition), value)
    return written.getvalue()


def test_values_of_primitive_types_are_numbers_and_texts(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    version = topic.register("INT32")
    entries = [
        Message((7).to_bytes(4, "big")),
        Message((-2).to_bytes(4, "big", signed=True)),
        Message(fields={"null_value": True}),
    ]
    topic.write([[batch(entries, schema_version=version)]])
    assert typed(bookkeeper, topic) == [7, -2, None]


def test_avro_of_an_older_version_is_read_as_the_newest(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    old = record({"name": "id", "type": "int"})
    new = record({"name": "id", "type": "long"}, {"name": "shop", "type": "string", "default": "none"})
    first, second = topic.register("AVRO", old), topic.register("AVRO", new)
    entries = [
        single(avro(old, {"id": 1}), schema_version=first),
        single(avro(new, {"id": 2, "shop": "b"}), schema_version=second),
        single(avro(old, {"id": 3}), schema_version=first),
    ]
    topic.write([entries])
    assert typed(bookkeeper, topic) == [{"id": 1, "shop": "none"}, {"id": 2, "shop": "b"}, {"id": 3, "shop": "none"}]


def test_json_documents_are_structs(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    version = topic.register("JSON", record({"name": "id", "type": "int"}, {"name": "tag", "type": ["null", "string"]}))
    documents = [b'{"id": 1}', b'{"id": 2, "tag": "x", "other": true}']
    topic.write([[single(one, schema_version=version) for one in documents]])
    assert typed(bookkeeper, topic) == [{"id": 1, "tag": None}, {"id": 2, "tag": "x"}]


def test_a_value_that_does_not_fit_is_named_or_left_out(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    version = topic.register("INT32")
    places = topic.write([[single(b"\0\0\0\1", schema_version=version), single(b"no", schema_version=version)]])
    with pytest.raises(UnreadableMessagesError, match=f"message {places[1]} of topic"):
        typed(bookkeeper, topic)
    assert typed(bookkeeper, topic, unreadable="skip") == [1]


def test_a_topic_without_a_schema_has_bytes(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    topic.write([[single(b"a")]])
    assert typed(bookkeeper, topic) == [b"a"]


def test_a_schema_that_is_not_understood_says_how_to_read_the_topic(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    topic.register("PROTOBUF", b"{}")
    topic.write([[single(b"a")]])
    with pytest.raises(ConfigError, match=r"'PROTOBUF'.*read the values as bytes with schema=raw"):
        typed(bookkeeper, topic)


def test_a_version_that_the_topic_does_not_have_is_named(bookkeeper: BookKeeper, topic: WrittenTopic) -> None:
    topic.register("STRING")
    topic.write([[single(b"a", schema_version=(5).to_bytes(8, "big"))]])
    with pytest.raises(ConfigError, match=r"0000000000000005.*does not have it"):
        typed(bookkeeper, topic)
