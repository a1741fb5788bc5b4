"""Statistics in a payload's header: bounds that hold for every value, within the header's size, and damage that is found."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.errors import CorruptionError
from bk_spark.rows.statistics import BOUND_BYTES, MIN_ROWS, ColumnStatistics, decode_statistics, encode_statistics
from bk_spark.rows.widening import statistics_as

ROOM = 65_000
NAN = float("nan")


def of_batch(batch: pa.RecordBatch, max_bytes: int = ROOM) -> dict[str, ColumnStatistics]:
    block = encode_statistics(batch, max_bytes)
    assert len(block) <= max_bytes
    return dict(decode_statistics(block, batch.schema, batch.schema.names, "it"))


def of(values: list[object], kind: pa.DataType) -> ColumnStatistics | None:
    """Of these values, over and over."""
    repeated = values * (MIN_ROWS // len(values) + 1)
    return of_batch(pa.record_batch({"c": pa.array(repeated, kind)})).get("c")


@pytest.mark.parametrize(
    ("values", "kind", "low", "high"),
    [
        ([3, -5, None], pa.int8(), -5, 3),
        ([2**63 - 1, -(2**63)], pa.int64(), -(2**63), 2**63 - 1),
        ([True, False], pa.bool_(), 0, 1),
        ([1.5, -2.5], pa.float32(), -2.5, 1.5),
        ([NAN, 1.0, None], pa.float64(), 1.0, 1.0),
        ([Decimal("9" * 38), Decimal("-" + "9" * 38)], pa.decimal128(38, 0), 1 - 10**38, 10**38 - 1),
        ([Decimal("1.50"), Decimal("-0.01")], pa.decimal128(5, 2), -1, 150),
        ([datetime.date(1970, 1, 2), datetime.date(1, 1, 1)], pa.date32(), -719162, 1),
        ([5, -7], pa.timestamp("us", "UTC"), -7, 5),
        ([5, -7], pa.timestamp("us"), -7, 5),
        ([5, 7], pa.time64("ns"), 5, 7),
        (["b", "ž", ""], pa.string(), b"", "ž".encode()),
        ([b"\xff", b"\x00"], pa.binary(), b"\x00", b"\xff"),
    ],
)
def test_bounds_are_the_smallest_and_largest_value(values, kind, low, high) -> None:
    found = of(values, kind)
    assert found is not None
    assert (found.low, found.high) == (low, high)


def test_nulls_are_counted_and_a_column_of_nulls_has_no_bounds() -> None:
    batch = pa.record_batch(
        {"a": pa.nulls(70, pa.int64()), "b": pa.array([1] * 60 + [None] * 10), "f": pa.nulls(70, pa.float64())}
    )
    assert of_batch(batch) == {"a": ColumnStatistics(70), "b": ColumnStatistics(10, 1, 1), "f": ColumnStatistics(70)}


def test_nan_is_noted_and_bounds_leave_it_out() -> None:
    assert of([NAN, 1.0, -1.0], pa.float64()) == ColumnStatistics(0, -1.0, 1.0, has_nan=True)
    assert of([NAN], pa.float32()) == ColumnStatistics(0, None, None, has_nan=True)


def test_types_without_an_order_are_not_described() -> None:
    for values, kind in (
        ([[1]], pa.list_(pa.int64())),
        ([{"x": 1}], pa.struct([("x", pa.int64())])),
        ([5], pa.duration("us")),
        ([None], pa.null()),
    ):
        assert of(values, kind) is None


def test_a_long_string_is_cut_and_the_upper_bound_rounded_up() -> None:
    found = of(["b" * 100, "a" * 100], pa.string())
    assert found == ColumnStatistics(0, b"a" * BOUND_BYTES, b"b" * (BOUND_BYTES - 1) + b"c")
    assert of([b"\xff" * 100, b"a"], pa.binary()) == ColumnStatistics(0, None, None)
    assert of([b"a" + b"\xff" * 100], pa.binary()) == ColumnStatistics(0, b"a" + b"\xff" * (BOUND_BYTES - 1), b"b")


@given(st.lists(st.none() | st.binary(max_size=BOUND_BYTES * 2), min_size=1, max_size=20))
def test_bounds_hold_for_every_value_however_long(values: list[bytes | None]) -> None:
    found = of(values, pa.binary())
    assert found is not None
    if isinstance(found.low, bytes) and isinstance(found.high, bytes):
        assert all(found.low <= value <= found.high for value in values if value is not None)
        assert max(len(found.low), len(found.high)) <= BOUND_BYTES


def test_columns_that_do_not_fit_are_left_out_and_shorter_ones_behind_them_are_not() -> None:
    batch = pa.record_batch({"long": ["x" * 50] * 100, "a": range(100), "b": range(100)})
    assert list(of_batch(batch, 60)) == ["a", "b"]
    wide = pa.record_batch({f"c{i}": ["x" * 50] * 100 for i in range(1000)})
    assert 500 < len(of_batch(wide)) < 1000


def test_a_payload_of_few_rows_has_no_statistics() -> None:
    assert encode_statistics(pa.record_batch({"a": range(MIN_ROWS - 1)}), ROOM) == b""
    assert encode_statistics(pa.record_batch({"a": range(MIN_ROWS)}), ROOM) != b""


def test_only_wanted_columns_are_given() -> None:
    batch = pa.record_batch({"a": range(100), "b": range(100)})
    assert list(decode_statistics(encode_statistics(batch, ROOM), batch.schema, ["b"], "it")) == ["b"]


def test_bounds_of_a_column_without_an_order_are_left_out_also_where_it_is_read_as_a_wider_one() -> None:
    stored, wanted = pa.list_(pa.int32()), pa.list_(pa.int64())
    block = struct.pack("<HBI", 0, 1, 5) + b"\x02ab" + b"\x02cd"
    found = decode_statistics(block, pa.schema([("n", stored)]), ["n"], "it")["n"]
    assert found == ColumnStatistics(5)
    assert statistics_as(found, stored, wanted) == found


def test_a_torn_block_and_a_column_that_is_not_there_are_damage() -> None:
    batch = pa.record_batch({"a": range(100), "f": [1.0] * 100})
    block = encode_statistics(batch, ROOM)
    for bad in (block[:-1], block[:5], block + b"\x00", struct.pack("<HBI", 9, 0, 0)):
        with pytest.raises(CorruptionError, match="entry 3"):
            decode_statistics(bad, batch.schema, ["a", "f"], "entry 3")
