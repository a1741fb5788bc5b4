"""Option ``where`` beside Spark's own filter: conditions by a seed, values and literals at the edges of their types."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from bk_spark.datasource.spark_schema import to_arrow
from bk_spark.errors import ConfigError
from bk_spark.rows.local_time import time_zone
from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.filter import bind

pytestmark = pytest.mark.timeout(300)

ROWS, CONDITIONS = 40, 150
ZONE = "Europe/Berlin"
DECIMALS = {f"d{p}_{s}": DecimalType(p, s) for p, s in ((5, 2), (20, 10), (38, 0), (38, 18), (38, 37))}
TYPES: dict[str, DataType] = {
    "i8": ByteType(),
    "i32": IntegerType(),
    "i64": LongType(),
    "f": FloatType(),
    "d": DoubleType(),
    "s": StringType(),
    "day": DateType(),
    "ts": TimestampType(),
    "ntz": TimestampNTZType(),
    **DECIMALS,
}
SCHEMA = StructType([StructField(name, kind) for name, kind in TYPES.items()])
BITS = {"i8": 8, "i32": 32, "i64": 64}
NUMBERS = ["0", "1", "-1", "1.50", "0.1", "-0.0", "5.", "1e3", "1.5e0", "9007199254740993", "2147483648", "369.5"]
NUMBERS += ["1.0000000000000000000000000000001"]
TAILS = ["", ".0", ".5", ".49999", ".0000000000000000000001"]
STRINGS = ["", "a", "A", "a'b", 'q"x', "b\\c", "é", "\U0001f600", "\uffff", "a ", "1", "01", "ä\0z"]
FLOATS = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, -1.5, 1e30, 16777216.0]
CHANGES = [datetime(2026, 3, 29, 1, 59, 59), datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30), datetime(1893, 4, 1)]
"""Where Berlin's clocks change: forward, back, and to a zone of whole minutes."""


class Case:
    """Values and conditions that one seed makes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.columns = {name: [self._value(name) for _ in range(ROWS)] for name in TYPES}

    def condition(self) -> str:
        name, pick = self._random.choice([*TYPES]), self._random.random()
        if pick < 0.75:
            return f"{name} {self._random.choice(['=', '!=', '<', '<=', '>', '>='])} {self._literal(name)}"
        if pick < 0.9:
            return f"{name} IN ({', '.join(self._literal(name) for _ in range(self._random.randint(1, 3)))})"
        return f"{name} BETWEEN {self._literal(name)} AND {self._literal(name)}"

    def _value(self, name: str) -> Any:
        draw = self._random
        if draw.random() < 0.1:
            return None
        if name in BITS:
            most = 2 ** (BITS[name] - 1)
            return draw.choice([draw.randrange(-most, most), draw.randrange(-5, 6), most - 1, -most, min(most - 1, 2**53 + 1)])
        if name in DECIMALS:
            precision, scale = DECIMALS[name].precision, DECIMALS[name].scale
            units = draw.choice([draw.randrange(10**precision), draw.randrange(1000), 10**precision - 1, 0, 10**scale])
            return Decimal(draw.choice([1, -1]) * (units % 10**precision)).scaleb(-scale, Context(prec=80))
        if name in ("f", "d"):
            return draw.choice(FLOATS)
        if name == "s":
            return draw.choice(STRINGS)
        if name == "day":
            return date(2026, 1, 1) + timedelta(days=draw.randrange(-3, 3))
        return draw.choice(CHANGES) + timedelta(minutes=draw.choice([0, 0, 30, -30, 60, -60]))

    def _literal(self, name: str) -> str:
        draw, value = self._random, self._random.choice(self.columns[name])
        if name == "s":
            text = (value or "").replace("\\", "\\\\")
            return draw.choice(["'" + text.replace("'", "''") + "'", '"' + text.replace('"', '\\"') + '"'])
        if name == "day":
            return draw.choice([f"'{value or '2026-01-01'}'", f"DATE '{value or '2026-01-01'}'"])
        if name in ("ts", "ntz"):
            text = (value or CHANGES[0]).isoformat(" ")
            prefix = draw.choice(["", "", "TIMESTAMP" if name == "ts" else "TIMESTAMP_NTZ"])
            offset = draw.choice(["", "", "Z", "+05:30"]) if name == "ts" else ""
            return draw.choice([f"{prefix} '{text}{offset}'", f"DATE '{text[:10]}'", f"'{text[:10]}'"])
        if isinstance(value, int | Decimal) and draw.random() < 0.5:
            digits = format(value, "f")
            return digits + (draw.choice(TAILS) if "." not in digits else draw.choice(["", "0", "5", "000000000001"]))
        return draw.choice([*NUMBERS, "'7'"] + (["'NaN'", "'-Infinity'"] if name in ("f", "d") else []))


@pytest.fixture
def in_berlin(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark
    spark.conf.unset("spark.sql.session.timeZone")


@pytest.mark.parametrize("seed", range(2))
def test_random_conditions_give_spark_s_answers_or_are_refused(in_berlin: SparkSession, tmp_path: Path, seed: int) -> None:
    case, arrow = Case(seed), to_arrow(SCHEMA)
    batch = pa.record_batch([pa.array(case.columns[field.name], field.type) for field in arrow], schema=arrow)
    parquet.write_table(pa.Table.from_batches([batch]), tmp_path / "rows.parquet")
    ours = {}
    refused = 0
    for _ in range(CONDITIONS):
        condition = case.condition()
        try:
            bound = bind(parse_where("where", condition), "orders", arrow, time_zone(ZONE))
        except ConfigError:
            refused += 1
            continue
        ours[condition] = [bound.matching(batch.slice(row, 1)).num_rows > 0 for row in range(ROWS)]
    stored = in_berlin.read.schema(SCHEMA).parquet(str(tmp_path / "rows.parquet")).coalesce(1)
    answers = stored.select(*[F.expr(condition).alias(f"c{place}") for place, condition in enumerate(ours)]).collect()
    for place, (condition, found) in enumerate(ours.items()):
        assert found == [answer[place] is True for answer in answers], condition
    assert refused < CONDITIONS // 3


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("ts < '2026-03-29 02:30:00'", ZONE, [1]),
        ("ts <= '2026-03-29 02:30:00'", ZONE, [1, 2]),
        ("ts > '2026-03-29'", "Asia/Tokyo", [1, 2]),
        ("ts >= '2026-03-29T01:30:00Z'", None, [2]),
    ],
)
def test_times_without_an_offset_follow_the_option_as_spark_s_follow_its_session(
    logs: Any, log: str, in_berlin: SparkSession, text: str, zone: str | None, expected: list[int]
) -> None:
    values = "VALUES (1, TIMESTAMP '2026-03-29T00:30:00Z'), (2, TIMESTAMP '2026-03-29T01:30:00Z') AS t(id, ts)"
    logs.write(in_berlin.sql(f"SELECT * FROM {values}"), log)
    options = {} if zone is None else {"timeZone": zone}
    assert sorted(row.id for row in logs.read(log, where=text, **options).collect()) == expected
    in_berlin.conf.set("spark.sql.session.timeZone", zone or ZONE)
    assert sorted(row.id for row in logs.read(log).where(text).collect()) == expected


def test_a_time_without_an_offset_and_without_the_option_is_refused_with_the_right_form(
    logs: Any, log: str, in_berlin: SparkSession
) -> None:
    logs.write(in_berlin.sql("SELECT 1 AS id, current_timestamp() AS ts"), log)
    for options in ({"where": "ts > '2026-01-01'"}, {"startingTimestamp": "2026-01-01"}, {"timestampAsOf": "2030-01-01 12:00"}):
        with pytest.raises(Exception, match=r"names no offset from UTC, .* write it like 2026-01-31T23:59:59Z or"):
            logs.read(log, **options).collect()
        assert logs.read(log, **options, timeZone=ZONE).count() == 1
