"""The quick look at times and decimals says of no column that it is sound where a value is none of its type."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from bk_spark.rows import validity
from bk_spark.rows.validity import DAY_NS, is_sound

EDGES = (0, -1, 1, 2**63, -(2**63), 2**63 - 1, 2**64, -(2**64), 2**64 - 1, 2**127 - 1, -(2**127))


@pytest.mark.parametrize("precision", [1, 4, 18, 19, 20, 38])
def test_a_decimal_is_sound_where_it_has_at_most_its_digits(precision: int) -> None:
    chance, top, quick = random.Random(precision), 10**precision, 0
    for one in (*EDGES, top, -top, top - 1, 1 - top, top - 2, 2 - top, *(chance.randint(-2 * top, 2 * top) for _ in range(50))):
        if not -(2**127) <= one < 2**127:
            continue
        numbers = pa.array([number.to_bytes(16, "little", signed=True) for number in (2**127 - 1, 0, one)], pa.binary(16))
        column = numbers.view(pa.decimal128(precision, 0)).slice(1)
        assert is_sound(column) == (-top < one < top), one
        quick += validity._is_plainly_sound(column)
    assert quick > 10


@pytest.mark.parametrize(("unit", "each"), [("us", 1000), ("ns", 1)])
def test_a_time_is_sound_within_its_day(unit: str, each: int) -> None:
    day = DAY_NS // each
    for one, is_value in ((0, True), (day - 1, True), (day, False), (-1, False), (2**63 - 1, False), (-(2**63), False)):
        assert is_sound(pa.array([-1, 0, one]).view(pa.time64(unit)).slice(1)) == is_value


def test_a_wrong_number_of_nulls_or_too_small_a_buffer_is_no_sound_column() -> None:
    two = pa.array([1, 2]).buffers()[1]
    for column in (
        pa.Array.from_buffers(pa.time64("ns"), 2, [pa.py_buffer(b"\3"), two], null_count=1),
        pa.Array.from_buffers(pa.decimal128(38, 0), 1, [pa.py_buffer(b"\1"), two], null_count=1),
    ):
        with pytest.raises(pa.ArrowInvalid):
            column.validate(full=True)
        with pytest.raises(pa.ArrowInvalid):
            is_sound(column)
