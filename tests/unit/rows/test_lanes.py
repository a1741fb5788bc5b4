"""In which lane a row is: the same for one key whoever computes it, a batch at a time or one key, and as documented."""

from __future__ import annotations

import datetime
import math
import random
import re
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from bk_spark.entries.crc import crc32c
from bk_spark.rows.lanes import KINDS, KeyValue, canonical_floats, in_lanes, kind_of_key, lane_of, lanes_of, split
from tests.checkout import ROOT

MANY = 500
"""Rows enough to be hashed with tables; below 128 each row is a call of its own."""

NAN = math.nan
DECIMALS = [Decimal("0.00"), Decimal("-0.01"), Decimal("1.50"), Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36)]

KEYS: dict[str, tuple[pa.DataType, list[object], list[KeyValue]]] = {
    "boolean": (pa.bool_(), [None, True, False], [None, 1, 0]),
    "integer": (pa.int64(), [None, 0, -1, 2**63 - 1, -(2**63)], [None, 0, -1, 2**63 - 1, -(2**63)]),
    "date": (pa.date32(), [None, datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)], [None, 0, -1]),
    "timestamp": (pa.timestamp("us", "UTC"), [None, 0, -1, 1_700_000_000_000_001], [None, 0, -1, 1_700_000_000_000_001]),
    "timestamp_ntz": (pa.timestamp("us"), [None, 0, -1, 1_700_000_000_000_001], [None, 0, -1, 1_700_000_000_000_001]),
    "string": (pa.string(), [None, "", "a", "äöü", "long " * 99], [None, b"", b"a", "äöü".encode(), b"long " * 99]),
    "binary": (pa.binary(), [None, b"", b"\xff\x00"], [None, b"", b"\xff\x00"]),
    "float": (pa.float64(), [None, 0.0, -0.0, NAN, -NAN, -1.5, 1e300], [None, 0.0, 0.0, NAN, NAN, -1.5, 1e300]),
    "decimal": (pa.decimal128(38, 2), [None, *DECIMALS], [None, *DECIMALS]),
}
"""Kind → its type, some values, and these values as a condition compares them."""


def drawn(kind: str, count: int, seed: int) -> tuple[pa.Array, list[KeyValue]]:
    of, values, compared = KEYS[kind]
    places = [random.Random(seed * 7 + place).randrange(len(values)) for place in range(count)]
    array = pa.array([None, *(values[place] for place in places)], of)
    return array.slice(1), [compared[place] for place in places]  # sliced: arrays need not begin at their buffers' start


def test_each_kind_has_a_case() -> None:
    assert tuple(KEYS) == KINDS
    assert [kind_of_key(of) for of, _, _ in KEYS.values()] == list(KINDS)


@pytest.mark.parametrize("count", [1, 5, MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_has_the_lanes_of_its_keys_one_by_one(kind: str, count: int) -> None:
    array, keys = drawn(kind, count, 1)
    assert lanes_of([array], count, 7).tolist() == [lane_of([key], 7) for key in keys]


@pytest.mark.parametrize("seed", range(10))
def test_keys_of_several_columns_are_one_key(seed: int) -> None:
    count, chance = (MANY if seed % 2 else 20), random.Random(seed)
    columns = [drawn(chance.choice(KINDS), count, seed * 100 + place) for place in range(chance.randint(2, 5))]
    expected = [lane_of(key, 256) for key in zip(*(keys for _, keys in columns), strict=True)]
    assert lanes_of([array for array, _ in columns], count, 256).tolist() == expected


@pytest.mark.parametrize("narrow", [pa.int8(), pa.int16(), pa.int32()])
def test_a_whole_number_stays_in_its_lane_as_a_wider_type(narrow: pa.DataType) -> None:
    numbers = pa.array([None, *range(-128, 128)], narrow)
    assert lanes_of([numbers], 257, 8).tolist() == lanes_of([numbers.cast(pa.int64())], 257, 8).tolist()


def test_a_floating_point_number_stays_in_its_lane_as_a_double() -> None:
    numbers = pa.array([None, NAN, 0.1, -0.0, *range(200)], pa.float32())
    assert lanes_of([numbers], 204, 8).tolist() == lanes_of([numbers.cast(pa.float64())], 204, 8).tolist()


@pytest.mark.parametrize("wider", [pa.decimal128(12, 2), pa.decimal128(38, 28), pa.decimal128(12, 4)])
def test_a_decimal_stays_in_its_lane_whatever_its_scale(wider: pa.DataType) -> None:
    numbers = pa.array([None, *(Decimal(one).scaleb(-2) for one in range(-200, 200))], pa.decimal128(10, 2))
    assert lanes_of([numbers], 401, 8).tolist() == lanes_of([numbers.cast(wider)], 401, 8).tolist()
    assert lane_of([Decimal("1.50")], 256) == lane_of([Decimal("1.5")], 256)


def test_there_is_one_nan_and_one_zero() -> None:
    bits = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001, 1 << 63], np.uint64)
    found = canonical_floats(pa.array([*bits.view(np.float64)])).to_numpy().view(np.uint64).tolist()
    assert found == [0x7FF8000000000000] * 3 + [0]
    assert lanes_of([pa.array([*bits.view(np.float64)])], 4, 256).tolist() == [lane_of([NAN], 256)] * 3 + [lane_of([0.0], 256)]


def test_equal_numbers_of_several_kinds_are_several_keys() -> None:
    assert len({lane_of([one], 256) for one in (1, 1.0, Decimal(1))}) == 3


def test_text_with_large_offsets_is_in_the_lane_of_the_same_text() -> None:
    array, _ = drawn("string", MANY, 3)
    assert lanes_of([array.cast(pa.large_string())], MANY, 8).tolist() == lanes_of([array], MANY, 8).tolist()


def test_null_empty_and_zero_are_three_keys() -> None:
    assert len({lane_of([key], 256) for key in (None, b"", 0)}) == 3
    assert lane_of([b"ab", b"c"], 256) != lane_of([b"a", b"bc"], 256)


@pytest.mark.parametrize(
    "of",
    [pa.float16(), pa.decimal256(50, 2), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.null(), pa.time64("ns")],
)
def test_other_types_are_no_keys(of: pa.DataType) -> None:
    assert kind_of_key(of) is None


def test_lanes_are_about_equally_full() -> None:
    for keys in (pa.array(range(10_000)), pa.array([f"customer {one}" for one in range(10_000)])):
        lanes = lanes_of([keys], 10_000, 8).tolist()
        assert all(1000 <= lanes.count(lane) <= 1500 for lane in range(8))


def documented() -> Iterator[tuple[bytes, int, int]]:
    """Bytes, checksum and lane of each example of docs/formats.md."""
    section = (ROOT / "docs/formats.md").read_text().split("### Lanes")[1].split("### ")[0]
    for covered, checksum, lane in re.findall(r"\| `([0-9a-f ]{20,})` \| `([0-9A-F]{8})` \| (\d) \|", section):
        yield bytes.fromhex(covered), int(checksum, 16), int(lane)


def test_the_examples_of_the_documentation_are_right() -> None:
    keys = [(b"ab", 8), (b"abc", None), (-0.0,), (NAN,), (Decimal("1.50"),)]
    found = list(documented())
    assert [crc32c(covered) for covered, _, _ in found] == [checksum for _, checksum, _ in found]
    assert [lane_of(key, 8) for key in keys] == [lane for _, _, lane in found] == [checksum % 8 for _, checksum, _ in found]


# --- splitting


def rows(*keys: object) -> pa.RecordBatch:
    return pa.record_batch({"key": pa.array(keys, pa.string()), "place": pa.array(range(len(keys)))})


@pytest.mark.parametrize("count", [0, 1, 300, 3000])
def test_a_batch_is_split_into_the_rows_of_each_lane_in_their_order(count: int) -> None:
    chance = random.Random(count)
    batch = rows(*(chance.choice([None, "", "a", "b", f"{chance.random()}"]) for _ in range(count)))
    parts = list(split(batch, ["key"], 8))
    assert [lane for lane, _ in parts] == sorted({lane for lane, _ in parts})
    assert sorted(place for _, part in parts for place in part.column("place").to_pylist()) == list(range(batch.num_rows))
    for lane, part in parts:
        assert set(lanes_of([part.column("key")], part.num_rows, 8).tolist()) == {lane}
        assert part.column("place").to_pylist() == sorted(part.column("place").to_pylist())
        assert part.schema == batch.schema


def test_the_rows_of_a_rare_lane_do_not_keep_the_batch_in_memory() -> None:
    before = pa.total_allocated_bytes()
    batch = pa.record_batch({"key": pa.array(["rare"] + ["often"] * 10_000), "filling": pa.array([b"x" * 1000] * 10_001)})
    [rare] = [part for _, part in split(batch, ["key"], 256) if part.num_rows == 1]
    del batch
    assert pa.total_allocated_bytes() - before < 10_000
    assert rare.num_rows == 1


def test_small_batches_are_joined_before_they_are_split() -> None:
    batches = [rows("a", "b", "c") for _ in range(100)]
    parts = list(in_lanes(batches, ["key"], 8))
    assert len(parts) <= 3
    assert sum(part.num_rows for _, part in parts) == 300


def test_with_one_lane_batches_pass_as_they_are() -> None:
    batches = [rows("a"), rows("b")]
    assert [(lane, part is batch) for (lane, part), batch in zip(in_lanes(batches, [], 1), batches, strict=True)] == [
        (0, True)
    ] * 2
