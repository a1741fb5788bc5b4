"""Keys among rows: exact, in several columns, nulls among them, beside Python's dictionaries."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from bk_spark.rows.keys.key_search import ABSENT, first_places, last_rows

TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int64(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.string(),
    pa.binary(),
    pa.float64(),
    pa.decimal128(9, 2),
]


def drawn(chance: random.Random, of: pa.DataType, count: int, span: int) -> pa.Array:
    values = [None if chance.random() < 0.15 else chance.randrange(span) for _ in range(count)]
    if of == pa.bool_():
        return pa.array([None if one is None else one % 2 == 1 for one in values], of)
    if pa.types.is_string(of) or pa.types.is_binary(of):
        return pa.array([None if one is None else str(one) * 3 for one in values], of)
    return pa.array(values, of)


@pytest.mark.parametrize("seed", range(40))
def test_the_last_row_of_each_key_is_that_of_a_dictionary(seed: int) -> None:
    chance = random.Random(seed)
    types = [chance.choice(TYPES) for _ in range(chance.randint(1, 4))]
    span, count = chance.choice([2, 5, 40]), chance.choice([0, 1, 30, 300])
    rows = [drawn(chance, of, count + 3, span).slice(3) for of in types]
    asked = [drawn(chance, of, 60, span) for of in types]
    places = pa.array(first_places(asked))
    keys = [column.take(places) for column in asked]
    assert len(set(zip(*(column.to_pylist() for column in keys), strict=True))) == len(places)
    newest = {key: place for place, key in enumerate(zip(*(column.to_pylist() for column in rows), strict=True))}
    expected = [newest.get(key, ABSENT) for key in zip(*(column.to_pylist() for column in keys), strict=True)]
    assert last_rows(rows, keys).tolist() == expected


def test_not_a_number_is_one_key_and_both_zeros_are_another() -> None:
    rows = pa.array([0.0, float("nan"), -0.0, None, 1.5])
    keys = pa.array([float("nan"), 0.0, None, 2.5])
    assert last_rows([rows], [keys]).tolist() == [1, 2, 3, ABSENT]
    assert first_places([pa.array([-0.0, float("nan"), 0.0, float("nan")])]).tolist() == [0, 1]


def test_the_first_of_equal_keys_stays_in_the_order_given() -> None:
    assert first_places([pa.array([5, 3, 5, None, 3, None, 1])]).tolist() == [0, 1, 3, 6]
