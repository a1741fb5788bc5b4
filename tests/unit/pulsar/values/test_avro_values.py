"""Values of Avro: read with the writer's definition into the newest one, with defaults, logical types and damage."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import ConfigError
from bk_spark.pulsar.schemas import TopicSchema
from bk_spark.pulsar.values.avro_values import AvroValues
from bk_spark.pulsar.values.converted import Converted
from bk_spark.pulsar.values.typed_values import ValueReader


def record(fields: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """Fields by name and type; those with a default by name."""
    given_fields = [
        {"name": name, "type": kind, **({"default": defaults[name]} if name in defaults else {})}
        for name, kind in fields.items()
    ]
    return {"type": "record", "name": "R", "namespace": "org.shop.Orders$", "fields": given_fields}


def logical(base: str, name_of_it: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name_of_it, **more}


def written(definition: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(definition), value)
    return stream.getvalue()


def convert(newest: Any, values: Sequence[bytes | None], writer: Any = None) -> Converted:
    reader = AvroValues(json.dumps(newest))
    converted = reader.convert(pa.array(values, pa.binary()), json.dumps(newest if writer is None else writer))
    converted.values.validate(full=True)
    assert converted.values.type == reader.type.arrow
    assert len(converted.values) == len(values)
    return converted


def rows(newest: Any, values: Sequence[bytes | None], writer: Any = None) -> list[Any]:
    converted = convert(newest, values, writer)
    assert converted.problems == ()
    found: list[Any] = converted.values.to_pylist()
    return found


TYPES: list[tuple[Any, Any, Any]] = [
    ("null", None, None),
    ("boolean", True, True),
    ("int", -(2**31), -(2**31)),
    ("long", 2**63 - 1, 2**63 - 1),
    ("float", 0.5, 0.5),
    ("double", 1e300, 1e300),
    ("bytes", b"\0\xff", b"\0\xff"),
    ("string", "grün", "grün"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "fixed", "name": "F", "size": 2}, b"\0\xff", b"\0\xff"),
    ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
    ({"type": "map", "values": ["null", "int"]}, {"a": 1, "b": None}, [("a", 1), ("b", None)]),
    (logical("int", "date"), date(1969, 12, 31), date(1969, 12, 31)),
    (logical("int", "time-millis"), 1, 1_000_000),
    (logical("long", "time-micros"), 1, 1_000),
    (logical("long", "timestamp-millis"), -1, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    (logical("long", "timestamp-micros"), 1, datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
    (logical("long", "timestamp-nanos"), -1, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    (logical("long", "local-timestamp-millis"), 1, datetime(1970, 1, 1, 0, 0, 0, 1_000)),
    (logical("long", "local-timestamp-micros"), 1, datetime(1970, 1, 1, 0, 0, 0, 1)),
    (logical("bytes", "decimal", precision=38, scale=10), Decimal("-1234567890123456789012345678.0123456789"), None),
    (logical("fixed", "decimal", name="D", size=4, precision=9, scale=2), Decimal("-12.34"), Decimal("-12.34")),
    (logical("string", "uuid"), UUID(int=7), str(UUID(int=7))),
    (logical("fixed", "uuid", name="U", size=16), UUID(int=7).bytes, str(UUID(int=7))),
]


@pytest.mark.parametrize(("kind", "value", "wanted"), TYPES, ids=[json.dumps(one[0]) for one in TYPES])
def test_each_type_is_read_alone_in_a_record_in_an_array_and_in_a_map(kind: Any, value: Any, wanted: Any) -> None:
    wanted = value if wanted is None else wanted
    assert rows(kind, [written(kind, value), None]) == [wanted, None]
    assert rows(record({"f": kind}), [written(record({"f": kind}), {"f": value})]) == [{"f": wanted}]
    several = {"type": "array", "items": kind}
    assert rows(several, [written(several, [value, value])]) == [[wanted, wanted]]
    named = {"type": "map", "values": kind}
    assert rows(named, [written(named, {"a": value})]) == [[("a", wanted)]]


@pytest.mark.parametrize(("kind", "value", "wanted"), TYPES[1:], ids=[json.dumps(one[0]) for one in TYPES[1:]])
def test_each_type_may_be_null_in_a_union(kind: Any, value: Any, wanted: Any) -> None:
    newest = record({"f": ["null", kind]})
    values = [written(newest, {"f": None}), written(newest, {"f": value})]
    assert rows(newest, values) == [{"f": None}, {"f": value if wanted is None else wanted}]


@pytest.mark.parametrize(
    ("kind", "default", "wanted"),
    [
        ("bytes", "\u00ff\u0000", b"\xff\0"),
        ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", b"\xff"),
        (["null", "bytes"], None, None),
        (["bytes", "null"], "\u00ff", b"\xff"),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, [("a", b"\xff")]),
        (record({"x": "bytes", "y": "int"}) | {"name": "I"}, {"x": "\u00ff", "y": 1}, {"x": b"\xff", "y": 1}),
        (logical("int", "date"), 1, date(1970, 1, 2)),
        (logical("long", "timestamp-millis"), 1, datetime(1970, 1, 1, 0, 0, 0, 1_000, UTC)),
        (logical("bytes", "decimal", precision=4, scale=2), "\u0001\u0000", Decimal("2.56")),
        (["null", logical("int", "time-millis")], None, None),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ],
)
def test_a_field_that_the_writer_did_not_have_has_its_default(kind: Any, default: Any, wanted: Any) -> None:
    writer, newest = record({"id": "int"}), record({"id": "int", "f": kind}, f=default)
    values = [written(writer, {"id": 1}), written(writer, {"id": 2})]
    assert rows(newest, values, writer) == [{"id": 1, "f": wanted}, {"id": 2, "f": wanted}]


def test_a_value_of_an_older_version_is_given_the_form_of_the_newest() -> None:
    writer = record({"gone": "string", "n": "int", "d": logical("long", "timestamp-millis"), "u": ["int", "string"]})
    newest = record({"d": logical("long", "timestamp-micros"), "n": ["null", "double"]})
    value = written(writer, {"gone": "x", "n": 3, "d": 1_000, "u": "other"})
    # as Pulsar's clients: the newest definition says what the stored number means
    assert rows(newest, [value], writer) == [{"d": datetime(1970, 1, 1, 0, 0, 0, 1_000, UTC), "n": 3.0}]


def test_a_value_that_cannot_be_given_the_newest_form_is_a_problem() -> None:
    writer, newest = record({"a": "string"}), record({"a": "int", "b": "int"})
    [problem] = convert(newest, [written(writer, {"a": "x"})], writer).problems
    assert "does not fit its Avro schema" in problem.problem


def test_each_message_is_read_with_the_definition_of_its_version() -> None:
    versions = {
        b"1": record({"a": "int"}),
        b"2": record({"a": "int", "b": "string"}, b="new"),
    }
    schemas = {version: TopicSchema("AVRO", json.dumps(one)) for version, one in versions.items()}
    values = [written(versions[b"2"], {"a": 1, "b": "x"}), written(versions[b"1"], {"a": 2}), None]
    converted = ValueReader(schemas[b"2"]).convert(
        pa.array(values), pa.array([b"2", b"1", None], pa.binary()), schemas.__getitem__
    )
    assert converted.values.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "new"}, None]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("int", b""),
        ("int", b"\x80"),
        ("int", b"\0\0"),
        ("int", b"\x80\x80\x80\x80\x80\x80\1"),
        ("boolean", b""),
        ("double", b"\0" * 7),
        ("string", b"\x04a"),
        ("string", b"\x03"),
        ("string", b"\xfe\xff\xff\xff\xff\x0f"),
        ("bytes", b"\x04a"),
        (["null", "int"], b"\x04\0"),
        (["null", "int"], b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        ({"type": "array", "items": "int"}, b"\x02"),
        ({"type": "map", "values": "int"}, b"\xfe\xff\xff\xff\x0f"),
        (logical("bytes", "decimal", precision=2, scale=0), b"\x04\x7f\xff"),
        (logical("long", "timestamp-millis"), b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ],
)
def test_a_damaged_value_is_a_problem_and_its_neighbours_are_read(kind: Any, data: bytes) -> None:
    whole = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}, {"name": "g", "type": "null"}]}
    converted = convert(whole, [None, data, None])
    assert [one.row for one in converted.problems] == [1]


@given(data=st.binary(max_size=30))
def test_any_bytes_are_a_value_or_a_problem(data: bytes) -> None:
    kinds = {f"f{number}": kind for number, (kind, _, _) in enumerate(TYPES)}
    convert(record(kinds), [data, None, data])
    convert(record({"a": {"type": "array", "items": "string"}, "b": {"type": "map", "values": "bytes"}}), [data])


def test_text_with_bytes_that_are_no_utf_8_has_replacement_characters() -> None:
    assert rows("string", [b"\x06a\xffb"]) == ["a\ufffdb"]


def test_without_fastavro_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"pip install 'bk-spark\[pulsar\]'"):
        ValueReader(TopicSchema("AVRO", '"int"'))


@pytest.mark.parametrize("definition", ["", "{", '{"type": "nothing"}', '{"type": "record", "name": "R", "fields": [3]}'])
def test_an_older_definition_that_is_none_is_refused(definition: str) -> None:
    with pytest.raises(ConfigError, match="schema=raw"):
        AvroValues('"int"').convert(pa.array([b"\2"]), definition)
