"""Stock engines read a log's table as the log reads itself, whatever became of the log. Ref: DESIGN.md, "Lake"."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bk_spark import LogPosition
from tests.cluster.log.test_rows import replace_all
from tests.interop.lake import WITH_SPARK, Engine, Lake, by_polars, by_pyiceberg, by_spark, known_to
from tests.interop.stock_spark import StockSpark, StockSparkError

pytestmark = pytest.mark.timeout(1200)

ENGINES = ["pyiceberg", "polars", pytest.param("Spark", marks=WITH_SPARK)]

INNER = pa.struct([("y", pa.float32()), ("list", pa.list_(pa.struct([("z", pa.int8())])))])
WIDER_INNER = pa.struct([("y", pa.float64()), ("list", pa.list_(pa.struct([("z", pa.int64()), ("w", pa.bool_())])))])


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "Spark":
        return by_spark(request.getfixturevalue("stock"))
    return {"pyiceberg": by_pyiceberg, "polars": by_polars}[request.param]


def _each(numbers: Sequence[int], kind: pa.DataType, value: Callable[[int], Any]) -> pa.Array:
    """A value of each number, with nulls in between."""
    return pa.array([None if number % 7 == 3 else value(number) for number in numbers], kind)


def rows(first: int, count: int) -> pa.Table:
    """Every type that a table can hold but times, which Spark does not read."""
    of = range(first, first + count)
    place = pa.struct([("x", pa.int32()), ("inner", INNER)])
    columns = {
        "id": pa.array(of, pa.int64()),
        "bool": _each(of, pa.bool_(), lambda n: n % 2 == 0),
        "byte": _each(of, pa.int8(), lambda n: n % 100),
        "short": _each(of, pa.int16(), lambda n: n),
        "whole": _each(of, pa.int32(), lambda n: -n),
        "single": _each(of, pa.float32(), lambda n: [math.nan, -0.0, 1 / 3, math.inf][n % 4]),
        "double": _each(of, pa.float64(), lambda n: [math.nan, -0.0, 1 / 3, -math.inf][n % 4]),
        "money": _each(of, pa.decimal128(5, 2), lambda n: Decimal(n) / 100),
        "big": _each(of, pa.decimal128(38, 4), lambda n: Decimal(f"{10**30 + n}.0001")),
        "text": _each(of, pa.string(), lambda n: "naïve \U0001f600" * n),
        "blob": _each(of, pa.binary(), lambda n: bytes([255, n]) * 20),
        "day": _each(of, pa.date32(), lambda n: date(1900 + n, 1, 2)),
        "at": _each(of, pa.timestamp("us", "UTC"), lambda n: datetime(1969, 12, 31, 23, 59, 59, n + 1)),
        "local": _each(of, pa.timestamp("us"), lambda n: datetime(1, 1, 1, 0, 0, 0, n)),
        "words": _each(of, pa.list_(pa.string()), lambda n: ["a", None] * (n % 3)),
        "counts": _each(of, pa.map_(pa.string(), pa.int32()), lambda n: [("k", n), ("ü", None)]),
        "place": _each(of, place, lambda n: {"x": n, "inner": {"y": 0.1 * n, "list": [{"z": n}, None]}}),
        "nothing": pa.nulls(count),
    }
    return pa.table(columns)


def wider_rows(first: int, count: int) -> pa.Table:
    of = range(first, first + count)
    place = pa.struct([("x", pa.int64()), ("more", pa.string()), ("inner", WIDER_INNER)])
    inner = {"y": 1 / 3, "list": [{"z": 2**40, "w": True}]}
    columns = {
        "id": pa.array(of, pa.int64()),
        "byte": _each(of, pa.int32(), lambda n: 1000 * n),
        "short": _each(of, pa.int64(), lambda n: 2**40 + n),
        "single": _each(of, pa.float64(), lambda n: n / 3),
        "money": _each(of, pa.decimal128(20, 2), lambda n: Decimal(10**10 + n) / 100),
        "counts": _each(of, pa.map_(pa.string(), pa.int64()), lambda n: [("k", 2**40)]),
        "place": _each(of, place, lambda n: {"x": 2**40, "more": "m", "inner": inner}),
        "nothing": pa.array(["x"] * count),
        "extra": pa.array([date(2026, 1, 1)] * count),
    }
    return pa.table(columns)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_the_table_has_the_rows_of_the_log_after_appends_wider_types_a_truncation_and_an_overwrite(
    lake: Lake, engine: Engine
) -> None:
    def check(count: int) -> None:
        lake.run()
        expected = lake.rows()
        assert len(expected) == count
        assert lake.as_read_by(engine) == expected

    lake.log.append_rows(rows(0, 40))
    lake.log.append_rows(rows(40, 10))
    lake.log.set_tier(lake.tier)
    check(50)
    lake.log.append_rows(rows(50, 5))
    check(55)
    lake.log.append_rows(wider_rows(55, 20), merge_schema=True)
    check(75)
    lake.log.truncate(LogPosition(lake.log.ledgers()[1].ledger_id, 0))
    check(35)
    replace_all(lake.log, lake.client, wider_rows(100, 7))
    check(7)
    lake.log.append_rows(rows(110, 3), merge_schema=True)
    check(10)


CONDITIONS = ("id", "whole", "short", "money", "big", "text", "day", "at", "local")


def test_statistics_of_the_files_make_polars_pass_over_no_row_that_a_condition_matches(lake: Lake) -> None:
    _two_files(lake)
    found = polars.scan_iceberg(lake.table(), reader_override="native")
    for name in CONDITIONS:
        value = found.filter(polars.col("id") == 30).collect()[name][0]
        assert found.filter(polars.col(name) == value).collect()["id"].to_list() == [30], name


@WITH_SPARK
def test_statistics_of_the_files_make_spark_pass_over_no_row_that_a_condition_matches(stock: StockSpark, lake: Lake) -> None:
    _two_files(lake)
    table = known_to(stock, lake)
    for name in CONDITIONS:
        value = stock.rows(f"SELECT {name} FROM {table} WHERE id = 30")[name][0]
        literal = pc.cast(value, pa.string()).as_py() if name != "text" else value.as_py()
        kind = {"at": "TIMESTAMP", "local": "TIMESTAMP_NTZ", "day": "DATE"}.get(name)
        text = f"{kind} '{literal.replace('Z', '+00:00')}'" if kind else f"'{literal}'" if name == "text" else f"{literal}BD"
        text = literal if name in ("id", "whole", "short") else text
        assert stock.rows(f"SELECT id FROM {table} WHERE {name} = {text}")["id"].to_pylist() == [30], name


def _two_files(lake: Lake) -> None:
    lake.log.append_rows(rows(0, 20))
    lake.log.set_tier(lake.tier)
    lake.run()
    lake.log.append_rows(rows(20, 20))
    lake.run()


@WITH_SPARK
def test_spark_reads_no_table_with_a_time_and_says_so(stock: StockSpark, lake: Lake) -> None:
    """What the guide says of such columns. Other engines do."""
    lake.log.append_rows(pa.table({"t": pa.array([1], pa.time64("us"))}))
    lake.log.set_tier(lake.tier)
    lake.run()
    assert lake.as_read_by(by_polars) == lake.as_read_by(by_pyiceberg) == lake.rows()
    with pytest.raises(StockSparkError, match="Spark does not support time fields"):
        by_spark(stock)(lake)


@WITH_SPARK
def test_names_with_odd_characters_are_read_by_spark(stock: StockSpark, lake: Lake) -> None:
    odd = pa.struct([("p q", pa.int64()), ("z-", pa.int64())])
    lake.log.append_rows(pa.table({"a b": [1, 2], "ü": ["x", "y"], "x.y": [1.0, 2.0], "st": pa.array([{"p q": 1}] * 2, odd)}))
    lake.log.set_tier(lake.tier)
    lake.run()
    assert lake.as_read_by(by_spark(stock)) == lake.rows()
