"""JSON documents as columns: the forms of Java's clients, what does not fit, and that Arrow's reader reads the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.pulsar.values import json_values
from bk_spark.pulsar.values.converted import Converted
from bk_spark.pulsar.values.json_values import JsonValues

ALL_READ_BY_ARROW = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "b", "type": ["null", "boolean"]},
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "s", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "a", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "r", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}},
    ],
}

DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "b": st.none() | st.booleans(),
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "l": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-100, 100),
        "d": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-100, 100),
        "s": st.none() | st.text(),
        "a": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
        "r": st.none() | st.fixed_dictionaries({}, optional={"x": st.none() | st.integers(0, 9), "other": st.text()}),
        "not there": st.none() | st.lists(st.integers()) | st.text(),
    },
)

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from("bildfsarx"), inside, max_size=4),
)


def convert(kind: Any, values: Sequence[bytes | None]) -> Converted:
    reader = JsonValues(json.dumps(kind))
    converted = reader.convert(pa.array(values, pa.binary()))
    converted.values.validate(full=True)
    assert converted.values.type == reader.type.arrow
    assert len(converted.values) == len(values)
    return converted


def field(kind: Any, *given_values: Any) -> list[Any]:
    """Documents with one field of this type."""
    definition = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    converted = convert(definition, [json.dumps({"f": one}).encode() for one in given_values])
    assert converted.problems == ()
    return [row["f"] for row in converted.values.to_pylist()]


def problem(kind: Any, value: Any) -> str:
    definition = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    converted = convert(definition, [json.dumps({"f": value}).encode()])
    [found] = converted.problems
    assert converted.values.to_pylist() == [None]
    return found.problem


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


def test_missing_fields_are_null_and_fields_that_the_definition_does_not_have_are_left_out() -> None:
    kind = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]}
    converted = convert(kind, [b'{"a": 1, "c": [2]}', None, b'{"b": "x"}', b"{}", b"null"])
    rows = [{"a": 1, "b": None}, None, {"a": None, "b": "x"}, {"a": None, "b": None}, None]
    assert converted.values.to_pylist() == rows
    assert converted.problems == ()


@pytest.mark.parametrize(
    ("kind", "given_value", "wanted"),
    [
        ("boolean", True, True),
        ("int", 7.0, 7),
        ("long", 2**63 - 1, 2**63 - 1),
        ("float", 1, 1.0),
        ("double", "Infinity", float("inf")),
        ("double", "-Infinity", float("-inf")),
        ("string", "grün", "grün"),
        ("bytes", "AP8=", b"\0\xff"),
        ("null", None, None),
        ({"type": "fixed", "name": "F", "size": 2}, "AP8=", b"\0\xff"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "map", "values": ["null", "int"]}, {"a": 1, "b": None}, [("a", 1), ("b", None)]),
        ({"type": "array", "items": ["null", "int"]}, [1, None, 2.0], [1, None, 2]),
        (logical("bytes", "decimal", precision=20, scale=2), "123456789012345678.9", Decimal("123456789012345678.90")),
        (logical("int", "date"), -1, date(1969, 12, 31)),
        (logical("int", "date"), [2024, 2, 29], date(2024, 2, 29)),
        (logical("int", "date"), "2024-02-29", date(2024, 2, 29)),
        (logical("int", "time-millis"), 1_000, 1_000_000_000),
        (logical("long", "time-micros"), 1_000, 1_000_000),
        (logical("long", "time-micros"), [1, 2], 3_720_000_000_000),
        (logical("long", "time-micros"), [0, 0, 1, 5], 1_000_000_005),
        (logical("long", "time-micros"), "00:00:01.000005", 1_000_005_000),
        (logical("long", "timestamp-millis"), 1_001, datetime(1970, 1, 1, 0, 0, 1, 1_000, UTC)),
        (logical("long", "timestamp-millis"), 1700000000.123456, datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)),
        (logical("long", "timestamp-millis"), "1970-01-01T01:00:00+01:00", datetime(1970, 1, 1, tzinfo=UTC)),
        (logical("long", "timestamp-millis"), "1970-01-01T00:00:01", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (logical("long", "timestamp-micros"), 1, datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (logical("long", "timestamp-nanos"), 1_999, datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (logical("long", "local-timestamp-millis"), 1, datetime(1970, 1, 1, 0, 0, 0, 1_000)),
        (logical("long", "local-timestamp-micros"), [2024, 2, 29, 1, 2], datetime(2024, 2, 29, 1, 2)),
        (logical("long", "local-timestamp-micros"), [2024, 2, 29, 1, 2, 3, 4_999], datetime(2024, 2, 29, 1, 2, 3, 4)),
        (logical("long", "local-timestamp-nanos"), "2024-02-29T01:02:03", datetime(2024, 2, 29, 1, 2, 3)),
    ],
)
def test_a_field_is_read_in_the_forms_that_clients_write(kind: Any, given_value: Any, wanted: Any) -> None:
    assert field(kind, given_value, None) == [wanted, None]


def test_a_decimal_keeps_digits_that_a_float_would_lose() -> None:
    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "f", "type": logical("bytes", "decimal", precision=30, scale=10)}],
    }
    converted = convert(definition, [b'{"f": 12345678901234567890.0123456789}'])
    assert converted.values.to_pylist() == [{"f": Decimal("12345678901234567890.0123456789")}]


@pytest.mark.parametrize(
    ("kind", "given_value"),
    [
        ("boolean", 1),
        ("int", True),
        ("int", 1.5),
        ("int", "1"),
        ("int", 2**31),
        ("long", 2**63),
        ("float", "1"),
        ("double", True),
        ("string", 1),
        ("string", "\ud800"),
        ("bytes", "?"),
        ("bytes", 1),
        ("null", 1),
        ({"type": "fixed", "name": "F", "size": 3}, "AP8="),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, 0),
        ({"type": "map", "values": "int"}, [1]),
        ({"type": "map", "values": "int"}, {"a": "x"}),
        ({"type": "array", "items": "int"}, {"a": 1}),
        ({"type": "array", "items": "string"}, "ab"),
        ({"type": "record", "name": "I", "fields": []}, []),
        (logical("bytes", "decimal", precision=3, scale=1), 1.25),
        (logical("bytes", "decimal", precision=3, scale=1), 1000),
        (logical("bytes", "decimal", precision=3, scale=1), True),
        (logical("bytes", "decimal", precision=3, scale=1), "x"),
        (logical("bytes", "decimal", precision=3, scale=1), "NaN"),
        (logical("int", "date"), [2024, 2]),
        (logical("int", "date"), [2024, 2, 30]),
        (logical("int", "date"), 2**31),
        (logical("int", "date"), {}),
        (logical("int", "date"), True),
        (logical("int", "time-millis"), [25, 0]),
        (logical("int", "time-millis"), "later"),
        (logical("long", "timestamp-millis"), 2**62),
        (logical("long", "timestamp-millis"), float("inf")),
        (logical("long", "timestamp-millis"), []),
        (logical("long", "timestamp-millis"), True),
        (logical("long", "local-timestamp-millis"), "1970-01-01T00:00:00Z"),
        (logical("long", "local-timestamp-millis"), [2024]),
    ],
)
def test_a_field_of_another_form_is_a_problem_and_its_row_is_null(kind: Any, given_value: Any) -> None:
    assert problem(kind, given_value).startswith(("it does not fit its JSON schema", "its column cannot hold it"))


def test_a_problem_names_the_field() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    assert "field 'f': field 'x': 'a' is no whole number" in problem(inner, {"x": "a"})


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"f": 1', b'{"f": 1}{"f": 2}', b'{"f": 1} x', b"[]", b"1", b'{"f": "\xff"}', b"[" * 100_000]
)
@pytest.mark.parametrize("kind", ["int", logical("int", "date")])
def test_a_value_that_is_not_one_document_is_a_problem_and_its_neighbours_are_read(kind: Any, text: bytes) -> None:
    definition = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}, {"name": "s", "type": "string"}]}
    converted = convert(definition, [b'{"s": "a"}', text, None, b'{"s": "b"}'])
    assert [one.row for one in converted.problems] == [1]
    assert [row and row["s"] for row in converted.values.to_pylist()] == ["a", None, None, "b"]


def test_text_that_is_no_utf_8_is_a_problem() -> None:
    definition = {"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}
    converted = convert(definition, [b'{"s": "a"}', b'{"s": "\xff"}'])
    assert converted.values.to_pylist() == [{"s": "a"}, None]
    assert [one.row for one in converted.problems] == [1]


def test_two_documents_in_one_value_never_stand_in_for_a_missing_one() -> None:
    definition = {"type": "record", "name": "R", "fields": [{"name": "f", "type": "int"}]}
    converted = convert(definition, [b'{"f": 1}{"f": 2}', b" "])
    assert converted.values.to_pylist() == [None, None]
    assert len(converted.problems) == 2


def test_a_document_that_nests_deeper_than_python_can_follow_is_a_problem() -> None:
    deep = b'{"x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    definition = {"type": "record", "name": "R", "fields": [{"name": "f", "type": "bytes"}]}
    assert len(convert(definition, [deep]).problems) == 1


def test_documents_need_not_be_records() -> None:
    assert convert("string", [b'"a"', None, b"null"]).values.to_pylist() == ["a", None, None]
    assert convert({"type": "array", "items": "int"}, [b"[1]"]).values.to_pylist() == [[1]]


@given(
    documents=st.lists(st.none() | DOCUMENTS, min_size=1, max_size=8), indent=st.none() | st.just(1), ascii_only=st.booleans()
)
def test_arrows_reader_reads_the_same_as_one_by_one(
    documents: list[dict[str, Any] | None], indent: int | None, ascii_only: bool
) -> None:
    texts = [None if one is None else json.dumps(one, indent=indent, ensure_ascii=ascii_only).encode() for one in documents]
    reader = JsonValues(json.dumps(ALL_READ_BY_ARROW))
    values = pa.array(texts, pa.binary())
    fast = json_values._read_by_arrow(values, reader.type.arrow)
    slow = reader._one_by_one(values)
    assert slow.problems == ()
    assert values.null_count == len(values) or slow.values.equals(fast)


@given(texts=st.lists(st.none() | ANYTHING.map(lambda one: json.dumps(one).encode()) | st.binary(max_size=9), max_size=6))
def test_whatever_arrows_reader_accepts_is_what_one_by_one_gives(texts: list[bytes | None]) -> None:
    reader = JsonValues(json.dumps(ALL_READ_BY_ARROW))
    values = pa.array(texts, pa.binary())
    fast = json_values._read_by_arrow(values, reader.type.arrow)
    slow = reader._one_by_one(values)
    slow.values.validate(full=True)
    if fast is not None:
        assert slow.problems == ()
        assert str(fast.to_pylist()) == str(slow.values.to_pylist())
