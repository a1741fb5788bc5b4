"""Columns of payloads in a wider type: the same values and nulls, at every edge; what does not fit is refused."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.rows import widening
from bk_spark.rows.arrow_types import spark_schema
from bk_spark.rows.codec import without_large
from bk_spark.rows.statistics import ColumnStatistics, decode_statistics, encode_statistics, kind_of
from bk_spark.rows.widening import (
    TooLargeToWiden,
    check_widened,
    differs_in_nulls,
    is_readable,
    read_as,
    statistics_as,
    wider_types,
)

NAN = float("nan")
NTZ = pa.timestamp("us")
MIDNIGHT = datetime.datetime(1, 1, 1)


def variant() -> pa.DataType:
    fields = [pa.field("value", pa.binary(), nullable=False)]
    return pa.struct([*fields, pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})])


def decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


WIDENED: list[tuple[pa.DataType, pa.DataType, list[Any], list[Any]]] = [
    (pa.int8(), pa.int16(), [-128, None, 127], [-128, None, 127]),
    (pa.int16(), pa.int32(), [-(2**15), None, 2**15 - 1], [-(2**15), None, 2**15 - 1]),
    (pa.int32(), pa.int64(), [-(2**31), None, 2**31 - 1], [-(2**31), None, 2**31 - 1]),
    (pa.int32(), pa.float64(), [-(2**31), None, 2**31 - 1], [-(2.0**31), None, 2.0**31 - 1]),
    (pa.int8(), decimal(3, 0), [-128, None, 127], [Decimal(-128), None, Decimal(127)]),
    (pa.int16(), decimal(6, 1), [-(2**15), None, 1], [Decimal("-32768.0"), None, Decimal("1.0")]),
    (pa.int32(), decimal(12, 2), [-(2**31), None, 0], [Decimal("-2147483648.00"), None, Decimal("0.00")]),
    (pa.int64(), decimal(19, 0), [-(2**63), None, 2**63 - 1], [Decimal(-(2**63)), None, Decimal(2**63 - 1)]),
    (pa.float32(), pa.float64(), [0.5, None, float("-inf"), -0.0], [0.5, None, float("-inf"), -0.0]),
    (decimal(4, 2), decimal(38, 36), [Decimal("-99.99"), None], [Decimal("-99.99"), None]),
    (pa.null(), pa.string(), [None], [None]),
    (pa.null(), variant(), [None], [None]),
    (pa.null(), pa.map_(pa.string(), pa.field("value", pa.int64())), [None, None], [None, None]),
    (
        pa.date32(),
        NTZ,
        [datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)],
        [MIDNIGHT, None, datetime.datetime(9999, 12, 31)],
    ),
]
"""Stored type, wanted type, values, and what they are read as."""


@pytest.mark.parametrize(("stored", "wanted", "values", "expected"), WIDENED)
def test_values_at_the_edges_of_a_type_stay_the_same(stored, wanted, values, expected) -> None:
    assert is_readable(stored, wanted)
    assert not is_readable(wanted, stored)
    found = read_as(pa.array(values, stored), wanted)
    found.validate(full=True)
    assert found.type == wanted
    assert found.to_pylist() == expected


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.int64(), pa.float64()),
        (pa.int8(), pa.float32()),
        (pa.int32(), pa.float32()),
        (pa.int8(), decimal(2, 0)),
        (pa.int16(), decimal(5, 1)),
        (pa.int32(), decimal(9, 0)),
        (pa.int64(), decimal(20, 2)),
        (decimal(10, 2), decimal(12, 1)),
        (decimal(10, 2), decimal(10, 3)),
        (decimal(10, 2), pa.float64()),
        (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.int64()),
        (pa.bool_(), pa.int8()),
        (pa.string(), pa.binary()),
        (pa.duration("us"), pa.int64()),
        (pa.map_(pa.int32(), pa.int32()), pa.map_(pa.int64(), pa.int32())),
        (pa.list_(pa.field("element", pa.int64())), pa.list_(pa.field("element", pa.string()))),
        (pa.struct([("a", pa.int64())]), pa.struct([])),
        (pa.struct([("a", pa.int64())]), pa.int64()),
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), pa.struct([("a", pa.int16())])),
    ],
)
def test_what_would_lose_or_change_a_value_is_refused(stored, wanted) -> None:
    assert not is_readable(stored, wanted)


def test_a_variant_is_only_read_as_itself() -> None:
    plain = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    assert is_readable(variant(), variant())
    assert not is_readable(variant(), plain)
    assert not is_readable(plain, variant())


INNER = pa.struct([("x", pa.int32()), ("gone", pa.string())])
WIDE_INNER = pa.struct([("new", pa.list_(pa.field("element", pa.int8()))), ("x", pa.int64()), ("v", variant())])


def listed(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


NESTED: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (INNER, WIDE_INNER, [{"x": 1, "gone": "a"}, None, {"x": None, "gone": None}, {"x": 2**31 - 1}, {}]),
    (listed(INNER), listed(WIDE_INNER), [[{"x": 1}, None], None, [], [{"x": None}, {"x": 5, "gone": "g"}], [None]]),
    (listed(listed(pa.int8())), listed(listed(decimal(5, 2))), [[[1, None]], None, [None, []], [[5]], []]),
    (listed(pa.null()), listed(WIDE_INNER), [[None, None], None, [], [None]]),
    (pa.struct([("x", pa.null()), ("l", listed(pa.null()))]), WIDE_INNER, [{"x": None}, None, {}]),
    (pa.map_(pa.string(), pa.null()), pa.map_(pa.string(), listed(pa.int8())), [[("k", None)], None, []]),
    (
        pa.map_(pa.string(), INNER),
        pa.map_(pa.string(), WIDE_INNER),
        [[("k", {"x": 1})], None, [], [("l", None), ("m", {"x": 7})], [("n", {})]],
    ),
    (
        pa.struct([("s", INNER)]),
        pa.struct([("s", WIDE_INNER), ("t", INNER)]),
        [{"s": {"x": 1}}, None, {"s": None}, {}, {"s": {}}],
    ),
]


def expected(value: Any, wanted: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(wanted):
        return {field.name: expected(value.get(field.name), field.type) for field in wanted}
    if pa.types.is_map(wanted):
        return [(key, expected(one, wanted.item_type)) for key, one in value]
    if pa.types.is_list(wanted):
        return [expected(one, wanted.value_type) for one in value]
    return Decimal(value) if pa.types.is_decimal128(wanted) else value


@pytest.mark.parametrize(("stored", "wanted", "values"), NESTED)
def test_nested_types_are_read_by_name_new_fields_null_and_unknown_ones_left_out(stored, wanted, values) -> None:
    """Whole, and in every slice."""
    assert is_readable(stored, wanted)
    column = pa.array(values, stored)
    for start in range(len(values)):
        for length in range(len(values) - start + 1):
            found = read_as(column.slice(start, length), wanted)
            found.validate(full=True)
            assert found.type == wanted
            assert found.to_pylist() == [expected(value, wanted) for value in values[start : start + length]]


@pytest.mark.parametrize("kind", [pa.int64(), WIDE_INNER, listed(pa.int8()), pa.map_(pa.string(), listed(pa.date32()))])
def test_types_that_differ_in_nulls_alone_are_told_from_others(kind) -> None:
    for made in (
        lambda inner: inner,
        listed,
        lambda inner: pa.struct([("a", inner)]),
        lambda inner: pa.map_(pa.string(), inner),
    ):
        assert differs_in_nulls(made(pa.null()), made(kind))
        assert differs_in_nulls(pa.list_(made(pa.null())), listed(made(kind)))
        assert not differs_in_nulls(made(kind), made(pa.null()))
        assert not differs_in_nulls(made(pa.int8()), made(kind))
    assert not differs_in_nulls(pa.struct([("b", kind)]), pa.struct([("a", kind)]))
    assert not differs_in_nulls(pa.struct([("a", pa.null())]), pa.struct([("a", kind), ("b", kind)]))


def test_a_type_that_stays_is_not_copied() -> None:
    column = pa.array([[1, 2], [3]], listed(pa.int32()))
    assert read_as(column, column.type) is column
    outer = pa.StructArray.from_arrays([column, pa.array([1, 2], pa.int8())], names=["same", "n"])
    wider = pa.struct([pa.field("same", column.type), pa.field("n", pa.int16())])
    assert read_as(outer, wider).field(0).values.buffers()[1].address == column.values.buffers()[1].address


def test_nulls_may_hide_any_bytes() -> None:
    """Spark leaves in the place of a null what was there."""
    hidden = pa.Array.from_buffers(pa.date32(), 2, [pa.py_buffer(b"\x01"), pa.array([1, 2**31 - 1], pa.int32()).buffers()[1]])
    assert read_as(hidden, NTZ).to_pylist() == [datetime.datetime(1970, 1, 2), None]


def test_a_date_that_no_timestamp_holds_is_an_error_not_another_date() -> None:
    far = pa.array([106_751_992], pa.int32()).cast(pa.date32())
    with pytest.raises(pa.ArrowInvalid, match="out of bounds"):
        read_as(far, NTZ)


def test_fields_of_structs_that_take_no_byte_do_not_make_a_reader_allocate_without_bound() -> None:
    many = 2**31 - 1
    empty = pa.StructArray.from_arrays([pa.nulls(many)], names=["x"])
    column = pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), empty)
    with pytest.raises(TooLargeToWiden, match="the maximum is 1073741824"):
        read_as(column, listed(pa.struct([("x", pa.null()), ("new", pa.int64())])))


@pytest.mark.parametrize(("stored", "wanted", "values", "expected"), WIDENED)
def test_statistics_of_the_stored_type_become_those_of_the_wanted_one(stored, wanted, values, expected) -> None:
    def statistics(of: list[Any], kind: pa.DataType) -> ColumnStatistics:
        batch = pa.record_batch([pa.array(of * 64, kind)], names=["c"])
        return decode_statistics(encode_statistics(batch, 1000), batch.schema, ["c"], "it")["c"]

    if kind_of(stored) is not None:
        assert statistics_as(statistics(values, stored), stored, wanted) == statistics(expected, wanted)


def test_statistics_without_bounds_and_with_a_nan_stay_so() -> None:
    assert statistics_as(ColumnStatistics(7), pa.int8(), pa.int64()) == ColumnStatistics(7)
    known = ColumnStatistics(1, 0.5, 2.0, has_nan=True)
    assert statistics_as(known, pa.float32(), pa.float64()) == known


def test_the_types_of_payloads_are_normalised_before_they_are_compared() -> None:
    assert is_readable(without_large(pa.large_list(pa.int8())), listed(pa.int64()))


def voids(*lengths: int) -> pa.ListArray:
    """Lists of nulls, which take no byte."""
    offsets = [sum(lengths[:place]) for place in range(len(lengths) + 1)]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.nulls(offsets[-1]))


@pytest.mark.parametrize(
    ("around", "inside"),
    [
        (lambda column: column, lambda kind: kind),
        (lambda column: pa.StructArray.from_arrays([column], names=["a"]), lambda kind: pa.struct([("a", kind)])),
        (
            lambda column: pa.MapArray.from_arrays(list(range(len(column) + 1)), pa.array(["k"] * len(column)), column),
            lambda kind: pa.map_(pa.string(), kind),
        ),
        (lambda column: pa.ListArray.from_arrays(list(range(len(column) + 1)), column), listed),
    ],
    ids=["column", "struct", "map", "list"],
)
def test_what_a_reader_would_refuse_is_known_without_building_it(around, inside, monkeypatch) -> None:
    wanted = inside(listed(pa.int64()))
    assert is_readable(around(voids(1)).type, wanted)
    monkeypatch.setattr(widening, "MAX_WIDENED_BYTES", 64 * 1024)
    for lengths in ((8_000,), (20_000,), (8_000, 8_000), (0, 3)):
        column = around(voids(*lengths))
        refusals = []
        for look in (read_as, check_widened):
            try:
                look(column, wanted)
                refusals.append(None)
            except TooLargeToWiden as problem:
                refusals.append(str(problem))
        assert refusals[0] == refusals[1]
        assert (refusals[0] is None) == (sum(lengths) <= 8_000)


@pytest.mark.parametrize("seed", range(60))
def test_of_random_columns_exactly_those_that_a_reader_would_refuse_are_known(seed: int, monkeypatch) -> None:
    """The reader is given what was written: of a slice, its own rows."""
    chance = random.Random(seed)
    kind, wanted = _pair(chance, 3)
    monkeypatch.setattr(widening, "MAX_WIDENED_BYTES", chance.choice((64, 512, 4_096)))
    whole = pa.array([_value(chance, kind) for _ in range(60)], kind)
    first = chance.randrange(50)
    column = whole.slice(first, chance.randint(1, 60 - first))
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([column], names=["a"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    written = pa.ipc.open_stream(sink.getvalue()).read_next_batch().column(0)
    assert _is_refused(check_widened, column, wanted) == _is_refused(read_as, written, wanted), (kind, wanted)


def _pair(chance: random.Random, levels: int) -> tuple[pa.DataType, pa.DataType]:
    """A type, and one as which it is read."""
    shape = chance.choice(("plain", "list", "map", "struct")) if levels else "plain"
    if shape == "plain":
        plain = [(pa.null(), pa.int64()), (pa.int8(), pa.int32()), (pa.int32(), pa.int64()), (pa.float32(), pa.float64())]
        return chance.choice([*plain, (pa.string(), pa.string())])
    if shape == "struct":
        fields = [(name, *_pair(chance, levels - 1)) for name in "abc"[: chance.randint(1, 3)]]
        more = [("new", pa.int64())] if chance.random() < 0.5 else []
        given = pa.struct([(name, kind) for name, kind, _ in fields])
        return given, pa.struct([*((name, wanted) for name, _, wanted in fields), *more])
    kind, wanted = _pair(chance, levels - 1)
    if shape == "list":
        return listed(kind), listed(wanted)
    return pa.map_(pa.string(), kind), pa.map_(pa.string(), wanted)


def _value(chance: random.Random, kind: pa.DataType) -> Any:
    if pa.types.is_null(kind) or chance.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(chance, field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(f"k{place}", _value(chance, kind.item_type)) for place in range(chance.randrange(6))]
    if pa.types.is_list(kind):
        return [_value(chance, kind.value_type) for _ in range(chance.randrange(6))]
    return "x" if pa.types.is_string(kind) else chance.randrange(100)


def _is_refused(look: Callable[[pa.Array, pa.DataType], object], column: pa.Array, wanted: pa.DataType) -> bool:
    try:
        look(column, wanted)
    except TooLargeToWiden:
        return True
    return False


def test_of_a_slice_only_what_is_written_of_it_counts(monkeypatch) -> None:
    monkeypatch.setattr(widening, "MAX_WIDENED_BYTES", 64 * 1024)
    column = voids(100_000, 5, 100_000)
    check_widened(column.slice(1, 1), listed(pa.int64()))
    with pytest.raises(TooLargeToWiden):
        check_widened(column.slice(1, 2), listed(pa.int64()))


def test_a_struct_that_lacks_a_field_of_the_log_counts_with_it(monkeypatch) -> None:
    monkeypatch.setattr(widening, "MAX_WIDENED_BYTES", 64 * 1024)
    column = pa.StructArray.from_arrays([pa.array([1] * 10_000, pa.int8())], names=["a"])
    with pytest.raises(TooLargeToWiden, match="10000 values as int64 take"):
        check_widened(column, pa.struct([("a", pa.int8()), ("new", pa.int64())]))


def test_the_columns_that_a_log_reads_as_wider_ones_are_found_and_no_others() -> None:
    given = pa.schema([("a", pa.int64()), ("b", listed(pa.null())), ("new", pa.null())])
    log = pa.schema([("old", pa.string()), ("b", listed(pa.int64())), ("a", pa.int64())])
    assert wider_types(given, spark_schema(log)) == (("b", listed(pa.int64())),)
