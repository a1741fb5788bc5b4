"""Arrow data in every encoding is stored with the same values; what a read would refuse, or cannot be kept, is named."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError
from bk_spark.rows.conversion import Conversion, check_dates

LOSSLESS = [
    (pa.uint8(), 255, pa.int16(), 255),
    (pa.uint16(), 65_535, pa.int32(), 65_535),
    (pa.uint32(), 2**32 - 1, pa.int64(), 2**32 - 1),
    (pa.uint64(), 2**64 - 1, pa.decimal128(20, 0), Decimal(2**64 - 1)),
    (pa.float16(), 1.5, pa.float32(), 1.5),
    (pa.decimal256(38, 2), Decimal("1.25"), pa.decimal128(38, 2), Decimal("1.25")),
    (pa.large_string(), "a", pa.string(), "a"),
    (pa.string_view(), "a", pa.string(), "a"),
    (pa.large_binary(), b"a", pa.binary(), b"a"),
    (pa.binary(2), b"ab", pa.binary(), b"ab"),
    (pa.dictionary(pa.int8(), pa.string()), "a", pa.string(), "a"),
    (pa.date64(), datetime.date(2026, 1, 31), pa.date32(), datetime.date(2026, 1, 31)),
    (pa.timestamp("s"), datetime.datetime(2026, 1, 31), pa.timestamp("us"), datetime.datetime(2026, 1, 31)),
    (pa.timestamp("ns"), datetime.datetime(2026, 1, 31), pa.timestamp("us"), datetime.datetime(2026, 1, 31)),
    (pa.time32("s"), datetime.time(1, 2, 3), pa.time64("ns"), datetime.time(1, 2, 3)),
    (pa.time64("ns"), datetime.time(1, 2, 3, 4), pa.time64("ns"), datetime.time(1, 2, 3, 4)),
    (pa.duration("ms"), datetime.timedelta(milliseconds=5), pa.duration("us"), datetime.timedelta(milliseconds=5)),
    (pa.large_list(pa.uint8()), [1, None], pa.list_(pa.field("element", pa.int16())), [1, None]),
    (pa.list_(pa.int8(), 2), [1, 2], pa.list_(pa.field("element", pa.int8())), [1, 2]),
    (pa.struct([("a", pa.uint8())]), {"a": 7}, pa.struct([("a", pa.int16())]), {"a": 7}),
    (pa.map_(pa.large_string(), pa.uint8()), [("k", 7)], pa.map_(pa.string(), pa.int16()), [("k", 7)]),
]


@pytest.mark.parametrize(("kind", "value", "becomes", "kept"), LOSSLESS, ids=[str(one[0]) for one in LOSSLESS])
def test_other_types_of_arrow_become_the_next_one_of_spark_and_keep_their_values(kind, value, becomes, kept):
    batch = pa.record_batch([pa.array([value, None], kind)], names=["c"])
    conversion = Conversion("orders", batch.schema)
    converted = conversion.of(batch)
    assert converted.schema.field("c").type == becomes
    assert converted.column("c").to_pylist() == [kept, None]
    assert conversion.stored.equals(converted.schema)


def test_a_zone_of_times_becomes_utc_and_the_moment_stays():
    moment = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)
    batch = pa.record_batch([pa.array([moment], pa.timestamp("ms", "Europe/Berlin"))], names=["c"])
    converted = Conversion("orders", batch.schema).of(batch)
    assert converted.schema.field("c").type == pa.timestamp("us", "UTC")
    assert converted.column("c")[0].as_py() == moment


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.timestamp("ns"), 1001), (pa.time64("ns"), 1001), (pa.duration("ns"), 1001), (pa.timestamp("s"), 2**62)],
    ids=str,
)
def test_a_value_that_would_be_changed_is_refused(kind, value):
    batch = pa.record_batch([pa.array([value], pa.int64()).cast(kind)], names=["c"])
    with pytest.raises(ConfigError, match=r"a value of column 'c' for log 'orders' is .*(without loss|not nanoseconds)"):
        Conversion("orders", batch.schema).of(batch)


def test_a_batch_that_has_the_stored_form_is_not_copied():
    batch = pa.record_batch([pa.array([1, 2])], names=["c"])
    assert Conversion("orders", batch.schema).of(batch) is batch


def stored(column: pa.Array) -> pa.Array:
    batch = pa.record_batch([column], names=["c"])
    conversion = Conversion("orders", batch.schema)
    found = conversion.of(batch)
    found.validate()
    assert found.schema.equals(conversion.stored)
    return found.column("c")


def wrong_decimals(*values: str | None) -> pa.Array:
    """Of decimal(4, 2), with more digits than that."""
    return pa.array([None if one is None else Decimal(one) for one in values]).cast(pa.decimal128(4, 2), safe=False)


def midnight_of_the_next_day(kind: pa.DataType) -> pa.Array:
    units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    of = pa.int32() if pa.types.is_time32(kind) else pa.int64()
    return pa.array([0, None, 86_400 * units], of).view(kind)


VIEW = pa.array(["x", "yy", None], pa.string_view())
INDICES = pa.array([0, None, 1, 2, 0], pa.int8())
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 6], pa.int16()), pa.array(["a", None, "b"], pa.string_view()))
UUID = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16)), None], pa.binary(16)))
JSON = pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(['{"a": 1}', None]))
ENCODED: list[tuple[pa.Array, pa.DataType, list[Any]]] = [
    (pa.DictionaryArray.from_arrays(INDICES, VIEW), pa.string(), ["x", None, "yy", None, "x"]),
    (pa.DictionaryArray.from_arrays(INDICES, VIEW.view(pa.binary_view())), pa.binary(), [b"x", None, b"yy", None, b"x"]),
    (pa.DictionaryArray.from_arrays(INDICES, pa.array([1.5, None, 2.5])), pa.float64(), [1.5, None, None, 2.5, 1.5]),
    (
        pa.DictionaryArray.from_arrays(INDICES, pa.array([[1], None, [2, 3]], pa.large_list(pa.uint8()))),
        pa.list_(pa.int16()),
        [[1], None, None, [2, 3], [1]],
    ),
    (RUNS, pa.string(), ["a", "a", None, "b", "b", "b"]),
    (pa.array([[1], None, [], [2, None]], pa.list_view(pa.int8())), pa.list_(pa.int8()), [[1], None, [], [2, None]]),
    (pa.array([["a"], None, []], pa.large_list_view(pa.string_view())), pa.list_(pa.string()), [["a"], None, []]),
    (pa.array([[1, None], None, [3, 4]], pa.list_(pa.int8(), 2)), pa.list_(pa.int8()), [[1, None], None, [3, 4]]),
    (UUID, pa.binary(), [bytes(range(16)), None]),
    (JSON, pa.string(), ['{"a": 1}', None]),
    (
        pa.array([[("k", [1])], None, []], pa.map_(pa.string_view(), pa.large_list(pa.uint32()))),
        pa.map_(pa.string(), pa.list_(pa.int64())),
        [[("k", [1])], None, []],
    ),
]
"""A column, the type that it is stored with, and its values."""


def nested(column: pa.Array) -> pa.Array:
    """A list of structs of the values, and of a list view of them."""
    views = pa.LargeListViewArray.from_arrays(
        pa.array(range(len(column)), pa.int64()), pa.array([1] * len(column), pa.int64()), column
    )
    structs = pa.StructArray.from_arrays([column, views], names=["one", "more"])
    return pa.ListArray.from_arrays(pa.array(range(len(column) + 1), pa.int32()), structs)


@pytest.mark.parametrize(("column", "kind", "values"), ENCODED, ids=[str(one[0].type)[:40] for one in ENCODED])
def test_every_encoding_is_stored_as_its_values_in_every_slice_and_inside_of_others(column, kind, values) -> None:
    for start in range(len(values)):
        for length in range(len(values) - start + 1):
            expected = values[start : start + length]
            found = stored(column.slice(start, length))
            found.validate(full=True)
            assert (found.type, found.to_pylist()) == (kind, expected)
            within = stored(nested(column).slice(start, length)).to_pylist()
            assert within == [[{"one": one, "more": [one]}] for one in expected]


def test_halffloats_in_dictionaries_inside_of_lists_keep_their_values() -> None:
    """Arrow joins their dictionaries wrong."""
    half = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array([1.5, -2.25], pa.float16()))
    for column in (
        pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), half, mask=pa.array([False, False])),
        pa.ListViewArray.from_arrays(pa.array([1, 0], pa.int32()), pa.array([2, 1], pa.int32()), half),
    ):
        assert [value for row in stored(column).to_pylist() for value in row].count(1.5) == 1
        assert sorted(str(value) for row in stored(column).to_pylist() for value in row) == ["-2.25", "1.5", "None"]


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["x", "y"])], ids=["Categorical", "Enum"])
def test_the_categories_of_polars_are_text(kind) -> None:
    table = pa.table(pl.DataFrame({"c": pl.Series(["x", None, "y"], dtype=kind)}))
    assert stored(table.column("c").combine_chunks()).equals(pa.array(["x", None, "y"]))


def test_the_categories_of_pandas_are_text() -> None:
    table = pa.Table.from_pandas(pd.DataFrame({"c": pd.Categorical(["x", None, "y"])}))
    assert stored(table.column("c").combine_chunks()).to_pylist() == ["x", None, "y"]


WRONG = [
    (wrong_decimals("1.50", None, "123.45"), "123.45", "decimal128(4, 2)"),
    (wrong_decimals("-123.45"), "-123.45", "decimal128(4, 2)"),
    *((midnight_of_the_next_day(kind), "24:00:00", "time64[ns]") for kind in (pa.time32("s"), pa.time32("ms"))),
    *((midnight_of_the_next_day(kind), "24:00:00", "time64[ns]") for kind in (pa.time64("us"), pa.time64("ns"))),
    (pa.array([-1], pa.int64()).view(pa.time64("us")), "-00:00:00.000001", "time64[ns]"),
]


@pytest.mark.parametrize(("column", "value", "kind"), WRONG, ids=[f"{one[0].type} {one[1]}" for one in WRONG])
def test_a_value_that_no_reader_takes_is_refused_with_its_place_at_every_depth(column, value, kind) -> None:
    lists = pa.ListArray.from_arrays(pa.array(range(len(column) + 1), pa.int32()), column)
    keys = pa.array([str(one) for one in range(len(column))])
    maps = pa.MapArray.from_arrays(pa.array([0, len(column)], pa.int32()), keys, column)
    places = {
        "c": column,
        "c.element": lists,
        "c.s": pa.StructArray.from_arrays([column], names=["s"]),
        "c.value": maps,
        "c.element.s.element": nested_lists(lists),
    }
    for place, one in places.items():
        with pytest.raises(ConfigError) as refused:
            stored(one)
        assert (refused.value.what, refused.value.value) == (f"a value of column '{place}' for log 'orders'", value)
        assert kind in refused.value.remedy


def nested_lists(lists: pa.Array) -> pa.Array:
    structs = pa.StructArray.from_arrays([lists], names=["s"])
    return pa.ListArray.from_arrays(pa.array([0, len(lists)], pa.int32()), structs)


def test_what_lies_behind_a_null_does_not_count() -> None:
    wrong = wrong_decimals("123.45", "1.50")
    structs = pa.StructArray.from_arrays([wrong], names=["s"], mask=pa.array([True, False]))
    assert stored(structs).field("s").to_pylist()[1] == Decimal("1.50")
    assert stored(pa.ListArray.from_arrays(pa.array([1, 2], pa.int32()), wrong)).to_pylist() == [[Decimal("1.50")]]
    hidden = pa.Array.from_buffers(wrong.type, 2, [pa.py_buffer(b"\x02"), wrong.buffers()[1]])
    assert stored(hidden).to_pylist() == [None, Decimal("1.50")]
    texts = pa.array(["a", "b"], pa.string_view())
    for narrow in (pa.decimal32(4, 2), pa.decimal256(4, 2)):
        nobody = pa.StructArray.from_arrays(
            [wrong.view(pa.decimal128(38, 2)).cast(narrow, safe=False), texts], names=["n", "t"]
        )
        codes = pa.DictionaryArray.from_arrays(pa.array([1, None], pa.int8()), nobody)
        assert stored(codes).to_pylist() == [{"n": Decimal("1.50"), "t": "b"}, None]


def test_the_lowest_number_of_128_bits_has_39_digits_at_every_depth() -> None:
    """As DuckDB hands over the lowest HUGEINT. Arrow's own check takes it for a decimal of any precision."""
    lowest = pa.array([(-(2**127)).to_bytes(16, "little", signed=True), bytes(16)], pa.binary(16)).view(pa.decimal128(38, 0))
    inside = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), lowest)
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), lowest)
    for column, place in ((lowest, "c"), (inside, "c.element"), (codes, "c")):
        with pytest.raises(ConfigError, match=f"column '{place}' .*'-170141183460469231731687303715884105728'"):
            stored(column)
    assert stored(lowest.slice(1)).to_pylist() == [Decimal(0)]


def test_what_lies_behind_a_null_does_not_count_beside_runs_in_a_slice() -> None:
    times = pa.array([0, 2**62, 1000], pa.int64()).view(pa.time64("ns"))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", "b"]))
    both = pa.StructArray.from_arrays([times, runs], ["t", "r"], mask=pa.array([False, True, False]))
    around = pa.StructArray.from_arrays([both], ["s"])
    last = {"t": datetime.time(0, 0, 0, 1), "r": "b"}
    assert stored(both.slice(1)).to_pylist() == [None, last]
    assert stored(around.slice(1)).to_pylist() == [{"s": None}, {"s": last}]
    with pytest.raises(ConfigError, match=r"a value of column 'c\.s\.t'"):
        stored(pa.StructArray.from_arrays([pa.StructArray.from_arrays([times, runs], ["t", "r"])], ["s"]).slice(1))


@pytest.mark.parametrize("width", [pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256])
def test_decimals_of_every_width_keep_their_values_in_every_slice_and_one_with_too_many_digits_is_named(width) -> None:
    fits = [Decimal("-99.99"), None, Decimal("99.99"), Decimal("0.00")]
    column = pa.array(fits, width(4, 2))
    assert [stored(column.slice(start)).to_pylist() for start in range(4)] == [fits[start:] for start in range(4)]
    wrong = wrong_decimals("123.45", "1.50").view(pa.decimal128(38, 2)).cast(width(4, 2), safe=False)
    with pytest.raises(ConfigError, match=r"a value of column 'c' for log 'orders' is '123.45': no decimal128\(4, 2\)"):
        stored(wrong)


def test_nanoseconds_of_times_are_refused_at_every_depth() -> None:
    times = pa.array([1000, 1001], pa.int64()).view(pa.time64("ns"))
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), times)
    for column, place in ((times, "c"), (lists, "c.element"), (pa.StructArray.from_arrays([lists], ["s"]), "c.s.element")):
        with pytest.raises(ConfigError, match=f"a value of column '{place}' .*'00:00:00.000001001': .*not nanoseconds"):
            stored(column)
    moments = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([1001], pa.timestamp("ns")))
    with pytest.raises(ConfigError, match=r"a value of column 'c' for log 'orders' is .*without loss"):
        stored(moments)


MALFORMED = [
    pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), pa.array(["a"]), safe=False),
    pa.Array.from_buffers(pa.string(), 2, [None, pa.array([0, 9, 3], pa.int32()).buffers()[1], pa.py_buffer(b"abc")]),
    pa.Array.from_buffers(
        pa.list_(pa.int8()), 2, [None, pa.array([0, 3, 1], pa.int32()).buffers()[1]], children=[pa.array([1, 2, 3], pa.int8())]
    ),
    pa.Array.from_buffers(pa.string_view(), 1, [None, pa.array([20, 0, 3, 0], pa.int32()).buffers()[1], pa.py_buffer(b"abc")]),
    pa.Array.from_buffers(pa.binary_view(), 1, [None, pa.array([20, 0, 0, 9], pa.int32()).buffers()[1], pa.py_buffer(b"abc")]),
    pa.Array.from_buffers(pa.int64(), 1, [pa.py_buffer(b"\1"), pa.array([7]).buffers()[1]], null_count=1),
]


@pytest.mark.parametrize("column", MALFORMED, ids=lambda column: str(column.type)[:40])
def test_buffers_that_do_not_fit_together_are_refused_with_the_column(column) -> None:
    with pytest.raises(ConfigError, match=r"column 'c' for log 'orders' is .*its buffers do not fit together"):
        Conversion("orders", pa.schema([("c", column.type)])).of(
            pa.RecordBatch.from_arrays([column], schema=pa.schema([("c", column.type)]))
        )


def test_text_may_be_any_bytes_in_every_encoding() -> None:
    raw = pa.array([b"\xff", None])
    for column in (raw.view(pa.string()), raw.cast(pa.large_binary()).view(pa.large_string())):
        assert stored(column).view(pa.binary()).to_pylist() == [b"\xff", None]
        assert stored(column.dictionary_encode()).view(pa.binary()).to_pylist() == [b"\xff", None]


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A")])
def test_names_that_spark_cannot_tell_apart_are_refused_at_every_depth(names: tuple[str, str]) -> None:
    struct = pa.struct([(name, pa.int8()) for name in names])
    inside = {
        "the schema": None,
        "the struct of column 'c'": struct,
        "the struct of column 'c.element.value'": pa.list_(pa.map_(pa.string(), struct)),
    }
    for what, kind in inside.items():
        schema = pa.schema([(name, pa.int8()) for name in names]) if kind is None else pa.schema([("c", kind)])
        with pytest.raises(ConfigError, match=f"{what} for log 'orders' is .*Spark cannot tell such names apart: rename one"):
            Conversion("orders", schema)


def test_a_type_that_a_log_does_not_have_is_refused_with_its_place_and_the_log() -> None:
    union = pa.dense_union([pa.field("i", pa.int8())])
    kind = pa.list_(pa.struct([("u", pa.map_(pa.string(), union))]))
    with pytest.raises(ConfigError, match=r"type of column 'c.element.u.value' for log 'orders' is .*cast the column before"):
        Conversion("orders", pa.schema([("c", kind)]))


def test_a_date_beyond_the_timestamps_of_its_log_is_named_with_its_place() -> None:
    far = pa.array([0, 106_751_992], pa.int32()).cast(pa.date32())
    inside = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pa.StructArray.from_arrays([far], names=["day"]))
    batch = pa.record_batch({"a": inside, "b": inside})
    assert check_dates("orders", batch, frozenset()) is batch
    with pytest.raises(ConfigError, match=r"a value of column 'b.element.day' for log 'orders' is '294247-01-11'"):
        check_dates("orders", batch, frozenset({"b.element.day"}))


def test_a_date_with_a_time_of_day_is_refused_as_such() -> None:
    dates = pa.array([432_000_001], pa.int64()).view(pa.date64())
    with pytest.raises(ConfigError, match=r"a value of column 'd' .*a date has no time of day .*cast the column to timestamp"):
        Conversion("orders", pa.schema([("d", pa.date64())])).of(pa.record_batch({"d": dates}))
