"""Random values of Python, numpy and pandas in columns of every type: each comes back with its meaning, or is refused."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.types as of

from bk_spark.errors import ConfigError
from bk_spark.log.rows.python_rows import batch_of_dicts

START_OF_1970 = dt.datetime(1970, 1, 1)
UNITS = {"D": 86_400 * 10**9, "h": 3600 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
LEAVES: tuple[pa.DataType, ...] = (
    *(pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(38, 0), pa.bool_()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.time64("ns"), pa.duration("us")),
)
NUMBERS = (0, 1, -1, 1.5, 1e300, 1e-300, 127, 128, 2**24 + 1, 2**53 + 1, 2**63 - 1, float("nan"), float("inf"))
DTYPES = ("i1", "i8", "u8", ">i4", "f2", "f4", "f8", "g", "?", *(f"M8[{unit}]" for unit in UNITS), "m8[s]", "m8[ns]")


def moment_of(nanoseconds: int, *, has_zone: bool) -> tuple[str, int]:
    return ("instant" if has_zone else "local time", nanoseconds)


def nanoseconds_of(delta: dt.timedelta) -> int:
    return delta // dt.timedelta(microseconds=1) * 1000


def meaning(value: Any) -> Any:
    """What a value says, as something that compares equal only to the same."""
    if value is None or value is pd.NaT or value is pd.NA or value is np.ma.masked:
        return None
    if isinstance(value, (bool, np.bool_)):
        return ("bool", bool(value))
    if isinstance(value, (np.datetime64, np.timedelta64)):
        unit, count = np.datetime_data(value.dtype)
        if np.isnat(value):
            return None
        number = int(value.astype(np.int64)) * count * UNITS[unit]
        return moment_of(number, has_zone=False) if isinstance(value, np.datetime64) else ("length", number)
    if isinstance(value, pd.Timestamp):
        return moment_of(value.value, has_zone=value.tzinfo is not None)
    if isinstance(value, pd.Timedelta):
        return ("length", value.value)
    if isinstance(value, dt.datetime):
        offset = value.utcoffset()
        since = value.replace(tzinfo=None) - START_OF_1970 - (offset or dt.timedelta())
        return moment_of(nanoseconds_of(since), has_zone=offset is not None)
    if isinstance(value, dt.date):
        return moment_of((value - START_OF_1970.date()).days * UNITS["D"], has_zone=False)
    if isinstance(value, dt.time):
        parts = dt.timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
        return ("time", nanoseconds_of(parts), value.tzinfo)
    if isinstance(value, dt.timedelta):
        return ("length", nanoseconds_of(value))
    if isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    if isinstance(value, (int, float, Decimal, np.number)):
        if isinstance(value, (int, np.integer)):
            return Fraction(int(value))
        is_special = value != value or abs(value) == float("inf")
        return str(float(value)) if is_special else Fraction(*value.as_integer_ratio())
    if isinstance(value, dict):
        return {name: meaning(one) for name, one in value.items()}
    return [meaning(one) for one in value]


def stored_meaning(kind: pa.DataType, array: pa.Array, given: Any) -> Any:
    """That of the only value of an array. A number that was given for a date or a time counts in the column's unit."""
    if array[0].as_py() is None if not of.is_temporal(kind) else array.null_count:
        return None
    if of.is_temporal(kind):
        raw = array.view(pa.int32() if of.is_date(kind) else pa.int64())[0].as_py()
        if isinstance(given, (int, float, Decimal, np.number)) and not isinstance(given, np.timedelta64):
            return Fraction(raw)
        if of.is_time(kind):
            return ("time", raw, None)
        scaled = raw * (UNITS["D"] if of.is_date(kind) else 1000)
        return (
            ("length", scaled) if of.is_duration(kind) else moment_of(scaled, has_zone=of.is_timestamp(kind) and bool(kind.tz))
        )
    return meaning(array[0].as_py())


def drawn(draw: random.Random) -> Any:
    zones = (None, dt.UTC, dt.timezone(dt.timedelta(hours=5, microseconds=draw.choice((0, 1)))))
    micros = draw.choice((0, 1, 999_999, 43_200_000_000))
    moment = (START_OF_1970 + dt.timedelta(days=draw.randrange(-9000, 20_000), microseconds=micros)).replace(
        tzinfo=draw.choice(zones)
    )
    pick = draw.randrange(9)
    if pick == 0:
        return draw.choice((*NUMBERS, True, None, pd.NaT, pd.NA, "", "ü", "\ud800", b"x", b"\xff", 10**30, 10**400))
    if pick == 1:
        return draw.choice((moment, moment.date(), moment.timetz(), dt.timedelta(microseconds=micros), dt.timedelta.max))
    if pick == 2:
        return pd.Timestamp(moment.replace(tzinfo=None)) + pd.Timedelta(draw.choice((0, 1, 1000)), "ns")
    if pick == 3:
        return draw.choice((pd.Timestamp(moment.replace(tzinfo=None), tz="UTC"), pd.Timedelta(micros, "ns")))
    if pick == 4:
        return Decimal(draw.choice(("1", "-0.00", "1.5", "0.001", "999.99", "1000", "1E+2", "NaN", "Infinity", "1E+99999")))
    return draw.choice(list(drawn_array(draw)))


def drawn_array(draw: random.Random) -> Any:
    dtype = np.dtype(draw.choice(DTYPES))
    with np.errstate(all="ignore"):
        numbers = np.array([draw.choice((0, 1, 5, 100, 86_400, 1_000_000)) for _ in range(2)])
        array = (numbers / 2 if dtype.kind == "f" else numbers).astype(dtype)
    return draw.choice((array, np.ma.array(array, mask=[True, False])))


def is_same(kind: pa.DataType, value: Any, array: pa.Array) -> bool:
    if of.is_list(kind):
        elements = list(value)
        inner = array.flatten()
        return len(elements) == len(inner) and all(
            is_same(kind.value_type, one, inner.slice(at, 1)) for at, one in enumerate(elements)
        )
    if of.is_struct(kind):
        given = value if isinstance(value, dict) else {"x": value[0]} if isinstance(value, tuple) else dict(value)
        return given.keys() <= {"x"} and is_same(kind.field(0).type, given.get("x"), array.flatten()[0])
    if of.is_map(kind):
        [(key, one)] = value.items() if isinstance(value, dict) else value
        return is_same(kind.key_type, key, array.keys) and is_same(kind.item_type, one, array.items)
    expected = meaning(value)
    found = stored_meaning(kind, array, value)
    if of.is_float32(kind) and isinstance(value, float) and isinstance(expected, Fraction) and isinstance(found, Fraction):
        return abs(found - expected) <= abs(expected) / 2**23
    return bool(expected == found)


def test_a_value_comes_back_with_its_meaning_or_is_refused() -> None:
    draw = random.Random(7)
    taken = 0
    for _ in range(2500):
        leaf, value = draw.choice(LEAVES), drawn(draw)
        kind = leaf
        shape = draw.randrange(6)
        if shape == 1:
            kind, value = pa.list_(leaf), draw.choice(([value], (value,), drawn_array(draw)))
        elif shape == 2:
            kind = pa.struct([("x", leaf)])
            value = draw.choice(({"x": value}, (value,), [("x", value)], [("q", value)], [("x", 1), ("x", value)]))
        elif shape == 3:
            kind, value = pa.map_(pa.string(), leaf), draw.choice(({"k": value}, [("k", value)]))
        try:
            [column] = batch_of_dicts("orders", pa.schema([("v", kind)]), [{"v": value}]).columns
        except ConfigError:
            continue
        taken += 1
        assert is_same(kind, value, column), (kind, value, column)
        assert not of.is_time64(leaf) or kind is not leaf or column.null_count or column.view(pa.int64())[0].as_py() % 1000 == 0
    assert taken > 400
