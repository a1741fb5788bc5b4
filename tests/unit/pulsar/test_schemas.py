"""Schemas as values: what is kept of a definition, and the two schemas of a KEY_VALUE."""

from __future__ import annotations

import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import CorruptionError
from bk_spark.pulsar.schemas import TopicSchema, topic_schema


def both(key: bytes, value: bytes) -> bytes:
    return struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value


def test_only_json_and_avro_have_a_definition_that_is_text() -> None:
    assert topic_schema("JSON", '"grün"'.encode(), {}).definition == '"grün"'
    assert topic_schema("AVRO", b"{}", {}).definition == "{}"
    assert topic_schema("PROTOBUF_NATIVE", b"\xff", {}) == TopicSchema("PROTOBUF_NATIVE")


def test_schemas_with_the_same_content_are_the_same() -> None:
    first = topic_schema("STRING", b"", {"a": "1", "b": "2"})
    assert first == topic_schema("STRING", b"", {"b": "2", "a": "1"})
    assert {first: 1}[pickle.loads(pickle.dumps(first))] == 1
    assert first.property_of("b") == "2"
    assert first.property_of("c") is None


@given(key=st.binary(), value=st.binary())
def test_a_key_value_has_both_definitions(key: bytes, value: bytes) -> None:
    schema = topic_schema("KEY_VALUE", both(key, value), {"key.schema.type": "JSON", "value.schema.type": "AVRO"})
    assert schema.key == TopicSchema("JSON", key.decode("utf-8", "replace"))
    assert schema.value == TopicSchema("AVRO", value.decode("utf-8", "replace"))
    assert schema.definition is None


def test_a_key_or_value_without_a_type_is_bytes() -> None:
    schema = topic_schema("KEY_VALUE", both(b"", b""), {})
    assert schema.key == schema.value == TopicSchema("BYTES")


@pytest.mark.parametrize(("encoding", "is_separated"), [(None, False), ("", False), ("INLINE", False), ("SEPARATED", True)])
def test_a_key_value_is_inline_unless_it_says_that_it_is_separated(encoding: str | None, is_separated: bool) -> None:
    properties = {} if encoding is None else {"kv.encoding.type": encoding}
    assert topic_schema("KEY_VALUE", both(b"", b""), properties).is_separated is is_separated


@pytest.mark.parametrize("text", ["[1]", "{", "1", '"x"'])
def test_properties_of_a_part_that_are_no_object_are_damage(text: str) -> None:
    with pytest.raises(CorruptionError, match="the schema of the values"):
        topic_schema("KEY_VALUE", both(b"", b""), {"value.schema.properties": text})


@given(definition=st.binary(max_size=20))
def test_any_bytes_are_the_definitions_of_a_key_value_or_damage(definition: bytes) -> None:
    try:
        schema = topic_schema("KEY_VALUE", definition, {})
    except CorruptionError:
        return
    assert schema.key is not None
    assert schema.value is not None
