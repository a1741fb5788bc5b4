"""What ``log read`` writes as CSV, TSV or JSON lines ``log append`` reads as the same rows, for all types that a log stores."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bk_spark.commands.output import ProgressBar
from bk_spark.commands.row_files.append_files import AppendedFiles, read_files
from bk_spark.commands.row_files.named_file import named_files
from bk_spark.commands.row_files.written import write_csv, write_json, write_tsv
from bk_spark.rows.arrow_types import arrow_schema
from tests.budget import examples

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from(["", "NA", "null", '"', "a\nb", "a\r\nb", ",\t", "\\N", "é\u2028", "00501", "\0"])
)
FLOATS = st.floats(allow_nan=True)


def _decimal(precision: int, scale: int) -> tuple[str, st.SearchStrategy[Any]]:
    top = 10**precision - 1
    return f"decimal({precision},{scale})", st.integers(-top, top)


SIMPLE: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    *(
        (name, st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        for name, bits in (("byte", 8), ("short", 16), ("integer", 32))
    ),
    ("long", INT64),
    ("float", st.floats(width=32)),
    ("double", FLOATS),
    _decimal(38, 0),
    _decimal(38, 38),
    _decimal(10, 2),
    ("string", TEXTS),
    ("binary", st.binary(max_size=8)),
    ("date", st.integers(-(2**31), 2**31 - 1)),
    ("time(6)", st.integers(0, 86_400_000_000 - 1).map(lambda us: us * 1000)),
    ("timestamp", INT64),
    ("timestamp_ntz", INT64),
    ("interval day to second", INT64),
    ("void", st.none()),
    ("variant", st.fixed_dictionaries({"value": st.binary(max_size=8), "metadata": st.binary(max_size=8)})),
]
"""Spark's names of types, and the numbers, texts or bytes that Arrow's arrays of them are made of."""


def typed() -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """A type of Spark with values of it: nested ones are lists, pairs and dictionaries."""

    def nested(inner: st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]) -> st.SearchStrategy[Any]:
        array = inner.map(
            lambda one: ({"type": "array", "elementType": one[0], "containsNull": True}, st.lists(_or_null(one), max_size=3))
        )
        keys = st.sampled_from([one for one in SIMPLE if one[0] in ("string", "long", "date")])
        maps = st.tuples(keys, inner).map(
            lambda both: (
                {"type": "map", "keyType": both[0][0], "valueType": both[1][0], "valueContainsNull": True},
                st.lists(st.tuples(both[0][1], _or_null(both[1])), max_size=3),
            )
        )
        structs = st.lists(inner, min_size=1, max_size=3).map(
            lambda many: (
                {"type": "struct", "fields": [_field(f"f {at}", one[0]) for at, one in enumerate(many)]},
                st.fixed_dictionaries({f"f {at}": _or_null(one) for at, one in enumerate(many)}),
            )
        )
        return st.one_of(array, maps, structs)

    return st.recursive(st.sampled_from(SIMPLE), nested, max_leaves=3)


def _or_null(one: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    return st.none() | one[1]


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


@st.composite
def rows(draw: st.DrawFn) -> tuple[dict[str, Any], pa.RecordBatch]:
    names = draw(st.lists(TEXTS.filter(lambda name: "\0" not in name), min_size=1, max_size=3, unique_by=str.lower))
    columns = [draw(typed()) for _ in names]
    schema = {"type": "struct", "fields": [_field(name, kind) for name, (kind, _) in zip(names, columns, strict=True)]}
    count = draw(st.integers(1, 5))
    stored = arrow_schema(schema)
    values = [draw(st.lists(_or_null(one), min_size=count, max_size=count)) for one in columns]
    arrays = [_array(value, field.type) for value, field in zip(values, stored, strict=True)]
    return schema, pa.RecordBatch.from_arrays(arrays, schema=stored)


def _field_of(one: dict[str, Any] | None, field: pa.Field) -> Any:
    if one is None:
        return None if field.nullable else b""
    return one[field.name]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        children = [_array([_field_of(one, field) for one in values], field.type) for field in kind]
        return pa.StructArray.from_arrays(
            children, fields=list(kind), mask=pa.array([one is None for one in values], pa.bool_())
        )
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        joined = [element for one in values for element in one or ()]
        if pa.types.is_list(kind):
            inner = _array(joined, kind.value_type)
        else:
            parts = [_array([pair[at] for pair in joined], part) for at, part in enumerate((kind.key_type, kind.item_type))]
            inner = pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])
        lists = pa.array([None if one is None else [0] * len(one) for one in values], pa.list_(pa.int8()))
        return pa.Array.from_buffers(kind, len(values), lists.buffers()[:2], children=[inner])
    if pa.types.is_decimal(kind):
        data = b"".join(int(one or 0).to_bytes(16, "little", signed=True) for one in values)
        valid = pa.array([one is not None for one in values], pa.bool_()).buffers()[1]
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(data)])
    whole = {4: pa.int32(), 8: pa.int64()}
    if pa.types.is_temporal(kind):
        return pa.array(values, whole[kind.bit_width // 8]).view(kind)
    return pa.array(values, kind)


def _same(one: Any, other: Any) -> bool:
    """Bit by bit, but for the bits of NaN."""
    if one.type != other.type or len(one) != len(other) or one.null_count != other.null_count:
        return False
    if not one.is_valid().equals(other.is_valid()):
        return False
    one, other = one.drop_null(), other.drop_null()
    kind = one.type
    if pa.types.is_struct(kind):
        return all(_same(*both) for both in zip(one.flatten(), other.flatten(), strict=True))
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        if not one.value_lengths().equals(other.value_lengths()) if pa.types.is_list(kind) else _sizes(one) != _sizes(other):
            return False
        if pa.types.is_list(kind):
            return _same(one.flatten(), other.flatten())
        return all(_same(pa.concat_arrays(a), pa.concat_arrays(b)) for a, b in zip(_sides(one), _sides(other), strict=True))
    if pa.types.is_floating(kind):
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return all(struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b)) for a, b in pairs)
    return bool(one.equals(other))


def _sizes(maps: pa.MapArray) -> list[int]:
    return [len(one) for one in maps]


def _sides(maps: pa.MapArray) -> tuple[list[pa.Array], list[pa.Array]]:
    entries = [one.values for one in maps if len(one)]
    kind = maps.type
    return (
        [pa.nulls(0, kind.key_type), *(one.field(0) for one in entries)],
        [pa.nulls(0, kind.item_type), *(one.field(1) for one in entries)],
    )


def check_round_trip(schema: dict[str, Any], batch: pa.RecordBatch, form: str, write: Any, folder: Path) -> None:
    path = folder / f"rows.{form}"
    with path.open("wb") as out:
        write([batch.slice(0, 1), batch.slice(1)] if batch.num_rows > 1 else [batch], batch.schema, out)
    read = read_files(AppendedFiles("log", schema, named_files([str(path)], None)), ProgressBar()).read_all().combine_chunks()
    assert read.schema.names == batch.schema.names
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        found = read.column(name).combine_chunks()
        found.validate(full=True)
        assert _same(found, column), (name, found, column)


FORMS = pytest.mark.parametrize(("form", "write"), [("csv", write_csv), ("tsv", write_tsv), ("json", write_json)])


@FORMS
@examples(25, HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
@given(drawn=rows())
def test_what_is_written_is_read_as_the_same_rows(drawn, form, write, tmp_path: Path) -> None:
    check_round_trip(*drawn, form, write, tmp_path)


_YEAR_0 = -719_528
_DAYS = [day for first in (-4_371_953, _YEAR_0 - 36_525, _YEAR_0, 2_932_897) for day in (first - 366, first - 1, first)]
"""Around the first days of the years -10000, -100, 0 and 10000."""


@FORMS
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("date", [*_DAYS, -(2**31), 2**31 - 1]),
        ("timestamp", [*(day * 86_400_000_000 + us for day in _DAYS for us in (0, -1)), -(2**63), 2**63 - 1]),
        ("timestamp_ntz", [*(day * 86_400_000_000 + us for day in _DAYS for us in (0, -1)), -(2**63), 2**63 - 1]),
    ],
)
def test_all_years_are_read_as_they_are_written_at_every_place(kind, values, form, write, tmp_path: Path) -> None:
    types = [
        kind,
        {"type": "array", "elementType": kind, "containsNull": True},
        {"type": "map", "keyType": kind, "valueType": kind, "valueContainsNull": True},
        {"type": "struct", "fields": [_field("at", kind)]},
    ]
    schema = {"type": "struct", "fields": [_field(f"c{place}", one) for place, one in enumerate(types)]}
    stored = arrow_schema(schema)
    columns = [values, [[one, None] for one in values], [[(one, one)] for one in values], [{"at": one} for one in values]]
    arrays = [_array(column, field.type) for column, field in zip(columns, stored, strict=True)]
    check_round_trip(schema, pa.RecordBatch.from_arrays(arrays, schema=stored), form, write, tmp_path)
