"""Avro's definitions as column types; and those that are refused, with the way out."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from bk_spark.errors import ConfigError
from bk_spark.pulsar.values.avro_types import MAX_NESTING, avro_type

UTC = pa.timestamp("us", tz="UTC")
LOCAL = pa.timestamp("us")


def arrow(definition: Any) -> pa.DataType:
    return avro_type(json.dumps(definition)).arrow


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    named = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named, **more}


def logical(base: str, name_of_it: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name_of_it, **more}


COLUMNS = [
    ("null", pa.null()),
    ("boolean", pa.bool_()),
    ("int", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("bytes", pa.binary()),
    ("string", pa.string()),
    ({"type": "string", "avro.java.string": "String"}, pa.string()),
    ({"type": {"type": "int"}}, pa.int32()),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string()),
    ({"type": "fixed", "name": "F", "size": 3}, pa.binary()),
    ({"type": "array", "items": "int"}, pa.list_(pa.field("element", pa.int32()))),
    ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64())),
    (record("int", "string"), pa.struct([("f0", pa.int32()), ("f1", pa.string())])),
    (record(), pa.struct([])),
    (logical("int", "date"), pa.date32()),
    (logical("int", "time-millis"), pa.int64()),
    (logical("long", "time-micros"), pa.int64()),
    (logical("long", "timestamp-millis"), UTC),
    (logical("long", "timestamp-micros"), UTC),
    (logical("long", "timestamp-nanos"), UTC),
    (logical("long", "local-timestamp-millis"), LOCAL),
    (logical("long", "local-timestamp-micros"), LOCAL),
    (logical("long", "local-timestamp-nanos"), LOCAL),
    (logical("string", "uuid"), pa.string()),
    (logical("fixed", "uuid", name="U", size=16), pa.string()),
    (logical("bytes", "decimal", precision=10, scale=2), pa.decimal128(10, 2)),
    (logical("bytes", "decimal", precision=38), pa.decimal128(38, 0)),
    (logical("fixed", "decimal", name="D", size=8, precision=18, scale=18), pa.decimal128(18, 18)),
    (["null", "int"], pa.int32()),
    (["int", "null"], pa.int32()),
    (["string"], pa.string()),
    (["null"], pa.null()),
    (["null", record("int")], pa.struct([("f0", pa.int32())])),
]


@pytest.mark.parametrize(("definition", "column"), COLUMNS, ids=[json.dumps(one) for one, _ in COLUMNS])
def test_each_type_of_avro_has_a_column_type_that_spark_has_too(definition: Any, column: pa.DataType) -> None:
    assert arrow(definition) == column
    from_arrow_type(column)


@pytest.mark.parametrize(
    ("definition", "column"),
    [
        (logical("int", "duration-of-mine"), pa.int32()),
        (logical("string", "date"), pa.string()),
        (logical("bytes", "decimal"), pa.binary()),
        (logical("bytes", "decimal", precision=2, scale=3), pa.binary()),
        (logical("bytes", "decimal", precision=0), pa.binary()),
        (logical("fixed", "uuid", name="U", size=15), pa.binary()),
        (logical("fixed", "duration", name="U", size=12), pa.binary()),
    ],
)
def test_a_logical_type_that_avro_does_not_know_or_that_is_malformed_is_ignored(definition: Any, column: pa.DataType) -> None:
    assert arrow(definition) == column
    assert avro_type(json.dumps(definition)).logical is None


@pytest.mark.parametrize("reference", ["a.b.Inner", "Inner", {"type": "Inner"}, ["null", "Inner"]])
def test_a_named_type_is_found_again_by_its_name_in_its_namespace(reference: Any) -> None:
    inner = record("int", name="Inner")
    whole = record(inner, reference, namespace="a.b")
    assert arrow(whole) == pa.struct([("f0", pa.struct([("f0", pa.int32())])), ("f1", pa.struct([("f0", pa.int32())]))])


def test_a_name_with_a_namespace_of_its_own_gives_it_to_what_is_inside() -> None:
    definition = record(record({"type": "enum", "name": "E", "symbols": ["A"]}, "E", name="x.y.Inner"), "x.y.E", namespace="a")
    assert arrow(definition).field("f1").type == pa.string()


@pytest.mark.parametrize(
    ("definition", "what", "problem"),
    [
        (record(["int", "string"]), "field 'f0' of", "a union of several types"),
        (record("int", record(["null", "int", "long"], name="In")), "field 'f1.f0' of", "a union of several types"),
        (record(["null", "R"]), "field 'f0' of", "contains itself"),
        (record({"type": "array", "items": record("R", name="In")}), "field 'f0.f0' of", "contains itself"),
        (logical("bytes", "decimal", precision=39), "the topic's schema", "more than 38 digits"),
    ],
)
def test_what_has_no_column_type_is_refused_with_its_place_and_the_way_to_read_it(
    definition: Any, what: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=f"{problem}.*schema=raw") as caught:
        arrow(definition)
    assert caught.value.what.startswith(what)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "1", "null", "{}", '"Nowhere"', "[" * 100_000),
        '{"type": "object", "properties": {}}',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": [1]}',
        '{"type": "fixed", "name": "F", "size": "x"}',
    ],
)
def test_text_that_is_no_definition_is_refused_and_never_an_error_of_another_kind(text: str) -> None:
    with pytest.raises(ConfigError, match="schema=raw"):
        avro_type(text)


def test_a_definition_that_nests_deeper_than_any_column_is_refused() -> None:
    definition: Any = "int"
    for _ in range(MAX_NESTING):
        definition = {"type": "array", "items": definition}
    with pytest.raises(ConfigError, match="inside of each other"):
        arrow(definition)
