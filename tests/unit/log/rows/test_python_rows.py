"""Rows as dicts: what is stored is what was given, or the value is refused with its place."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.log.rows.python_rows import batch_of_dicts

NOW = datetime.datetime(2026, 3, 1, 12, 30)
PLACE = pa.struct([("x", pa.int8()), ("day", pa.date32())])
KINDS = {
    "n": pa.int8(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "moment": pa.timestamp("us", "UTC"),
    "price": pa.decimal128(4, 2),
    "text": pa.string(),
    "place": PLACE,
    "places": pa.list_(PLACE),
    "counts": pa.map_(pa.string(), pa.int8()),
}
SCHEMA = pa.schema(list(KINDS.items()))


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("n", 1.5, "n"),
        ("n", Decimal("1.5"), "n"),
        ("n", 300, "n"),
        ("n", True, "n"),
        ("n", "7", "n"),
        ("n", float("nan"), "n"),
        ("day", NOW, "day"),
        ("at", NOW.replace(tzinfo=datetime.UTC), "at"),
        ("price", Decimal("1.234"), "price"),
        ("price", Decimal("123.45"), "price"),
        ("text", 7, "text"),
        ("place", {"x": 1, "y": 2}, "place.y"),
        ("place", {"x": 1.5}, "place.x"),
        ("place", 7, "place"),
        ("places", [{"x": 1}, {"day": NOW}], "places.element.day"),
        ("places", 7, "places"),
        ("counts", {"a": 1.5}, "counts.value"),
        ("counts", [("a", 1.5)], "counts.value"),
        ("counts", 7, "counts"),
    ],
)
def test_a_value_that_would_be_changed_is_refused_with_its_place(name: str, value: Any, place: str) -> None:
    with pytest.raises(ConfigError, match=f"a value of column '{place}' for log 'orders' is "):
        batch_of_dicts("orders", SCHEMA, [{}, {name: None}, {name: value}])


def test_values_that_fit_are_what_they_were() -> None:
    rows = [
        {"n": -128, "day": NOW.date(), "at": NOW, "moment": NOW.replace(tzinfo=datetime.UTC), "price": Decimal("99.99")},
        {"text": "", "place": {"x": 1}, "places": [None, {"day": NOW.date()}], "counts": {"a": None}},
        {},
    ]
    found = batch_of_dicts("orders", SCHEMA, rows).to_pylist()
    assert {name: found[0][name] for name in rows[0]} == rows[0]
    assert found[1]["places"] == [None, {"x": None, "day": NOW.date()}]
    assert (found[1]["text"], found[1]["place"], found[1]["counts"]) == ("", {"x": 1, "day": None}, [("a", None)])
    assert found[2] == dict.fromkeys(KINDS)
    assert batch_of_dicts("orders", SCHEMA, [{"n": 2.0, "day": datetime.datetime(2026, 3, 1)}]).column("n").to_pylist() == [2]


@pytest.mark.parametrize("row", [7, None, "ab", [1], {1: 2}, {1: 2, "n": 3}], ids=repr)
def test_what_is_no_row_is_refused(row: Any) -> None:
    with pytest.raises(ConfigError, match=r"a row for log 'orders' is .*it must be a dict"):
        batch_of_dicts("orders", SCHEMA, [{"n": 1}, row])


def test_a_column_that_the_writer_does_not_have_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match=r"the writer has no column 'price2'.*merge_schema=True"):
        batch_of_dicts("orders", SCHEMA, [{"price2": 5}])


UTC = datetime.UTC
AT = pa.timestamp("us")
MOMENT = pa.timestamp("us", "UTC")
INT = pa.int64()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (INT, np.float32(1.5)),
        (INT, np.float16(1.5)),
        (INT, Decimal("1E+999999")),
        (pa.list_(INT), np.array([1.5], "f4")),
        (pa.struct([("x", INT)]), {"x": np.float32(1.5)}),
        (pa.list_(AT), np.array(["2026-01-01T00:00:00.000000001"], "M8[ns]")),
        (pa.list_(MOMENT), np.array(["2026-01-01"], "M8[us]")),
        (AT, pd.Timestamp("2026-01-01T00:00:00.000000999")),
        (MOMENT, pd.Timestamp("2026-01-01T00:00:00.000000999Z")),
        (MOMENT, NOW),
        (MOMENT, 5.9),
        (MOMENT, True),
        (pa.date32(), 5.9),
        (pa.date32(), pd.Timestamp("2026-01-01T00:00:00.000000001")),
        (pa.duration("us"), pd.Timedelta(1999, "ns")),
        (pa.duration("us"), datetime.timedelta.max),
        (pa.time64("ns"), 5),
        (pa.time64("ns"), 86_400 * 10**9),
        (pa.time64("ns"), 5.9),
        (pa.time64("ns"), datetime.time(1, tzinfo=UTC)),
        (pa.float32(), 1e300),
        (pa.float32(), 1e-300),
        (pa.list_(pa.float32()), np.array([1e300])),
        (pa.struct([("x", INT), ("y", INT)]), (1.5, 2)),
        (pa.struct([("x", INT), ("y", INT)]), (1,)),
        (pa.struct([("x", INT)]), [("q", 1)]),
        (pa.struct([("x", INT)]), [("x", 1), ("x", 2)]),
        (pa.struct([("x", AT)]), (NOW.replace(tzinfo=UTC),)),
        (pa.map_(pa.string(), INT), {None: 1}),
        (pa.list_(INT), b"ab"),
        (pa.string(), "\ud800"),
        (INT, 10**5000),
    ],
    ids=lambda one: repr(one) if not isinstance(one, int) else "int",
)
def test_a_value_that_would_not_come_back_equal_is_refused(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(ConfigError, match="a value of column 'v"):
        batch_of_dicts("orders", pa.schema([("v", kind)]), [{"v": None}, {"v": value}])


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (pa.list_(AT), np.array(["2026-01-01"], "M8[s]"), [datetime.datetime(2026, 1, 1)]),
        (pa.list_(AT), np.array(["2026-01-01", "NaT"], "M8[ns]"), [datetime.datetime(2026, 1, 1), None]),
        (pa.list_(AT), pd.Series(pd.to_datetime(["2026-01-01"])), [datetime.datetime(2026, 1, 1)]),
        (pa.list_(pa.duration("us")), np.array([1], "m8[s]"), [datetime.timedelta(seconds=1)]),
        (pa.list_(pa.date32()), np.array(["2026-01"], "M8[M]"), [datetime.date(2026, 1, 1)]),
        (pa.list_(INT), np.ma.array([1, 2], mask=[False, True]), [1, None]),
        (pa.list_(pa.list_(INT)), np.eye(2), [[1, 0], [0, 1]]),
        (pa.list_(INT), range(2), [0, 1]),
        (pa.date32(), pd.NaT, None),
        (pa.list_(pa.date32()), [pd.NaT], [None]),
        (INT, pd.NA, None),
        (pa.decimal128(5, 2), np.int64(3), Decimal("3.00")),
        (pa.float32(), 0.1, float(np.float32(0.1))),
        (pa.struct([("x", INT), ("y", INT)]), (1, 2), {"x": 1, "y": 2}),
        (pa.map_(pa.string(), INT), [("a", 1.0)], [("a", 1)]),
        (MOMENT, pd.Timestamp("2026-01-01T05:00", tz="Asia/Karachi"), datetime.datetime(2026, 1, 1, tzinfo=UTC)),
    ],
    ids=repr,
)
def test_numpy_pandas_and_pairs_keep_their_meaning(kind: pa.DataType, value: Any, found: Any) -> None:
    assert batch_of_dicts("orders", pa.schema([("v", kind)]), [{"v": value}]).column(0).to_pylist() == [found]


def test_a_decimal_that_does_not_fit_is_told_the_digits_of_its_column() -> None:
    for value, says in ((Decimal(1000), "3 digits before the point"), (Decimal("0.001"), "2 digits behind the point")):
        with pytest.raises(ConfigError, match=says):
            batch_of_dicts("orders", pa.schema([("v", pa.decimal128(5, 2))]), [{"v": value}])
