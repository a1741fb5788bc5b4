"""Option ``where`` beside Spark's own filter: conditions and rows by a seed (where_cases.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bk_spark.datasource.spark_schema import to_arrow
from bk_spark.errors import ConfigError
from bk_spark.rows.codec import RowDecoder
from bk_spark.rows.local_time import time_zone
from bk_spark.rows.where.condition import parse_where
from bk_spark.rows.where.filter import RowFilter, bind
from tests.budget import IS_SOAK
from tests.spark.where_cases import PAYLOADS, SCHEMA, ZONE, Case
from tests.unit.rows.where.test_filter import payload_of

pytestmark = pytest.mark.timeout(300)

CONDITIONS = 200
"""One job evaluates them all."""


@pytest.fixture
def in_berlin(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark
    spark.conf.unset("spark.sql.session.timeZone")


@pytest.fixture
def interpreting(in_berlin: SparkSession) -> Iterator[SparkSession]:
    """Spark evaluates expressions as they are: to compile hundreds of them takes a minute, and a row of each no time."""
    modes = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in modes.items():
        in_berlin.conf.set(name, value)
    yield in_berlin
    for name in modes:
        in_berlin.conf.unset(name)


@pytest.mark.parametrize("seed", range(30 if IS_SOAK else 2))
def test_random_conditions_give_spark_s_rows_or_are_refused_and_no_entry_is_skipped_that_has_one(
    interpreting: SparkSession, tmp_path: Path, seed: int
) -> None:
    case, arrow, zone = Case(seed), to_arrow(SCHEMA), time_zone(ZONE)
    bound: dict[str, RowFilter] = {}
    refused = 0
    while len(bound) < CONDITIONS:
        condition = case.condition()
        try:
            bound[condition] = bind(parse_where("where", condition), "orders", arrow, zone)
        except ConfigError:
            refused += 1
    expected = spark_s_rows(interpreting, tmp_path, case, list(bound))
    decoder, skipped = RowDecoder(arrow), 0
    payloads = [(payload, decoder.decode(payload, "it")) for payload in map(payload_of, case.payloads)]
    for condition, where in bound.items():
        found: set[int] = set()
        for payload, batch in payloads:
            rows = set(where.matching(batch.select([*where.columns.names, "row"])).column("row").to_pylist())
            if not where.may_match(*decoder.statistics(payload, "it", where.columns.names)):
                assert not rows, condition
                skipped += 1
            found |= rows
        assert found == expected[condition], condition
    assert refused < CONDITIONS
    assert skipped > CONDITIONS * PAYLOADS // 20


def spark_s_rows(session: SparkSession, directory: Path, case: Case, conditions: list[str]) -> dict[str, set[int]]:
    """The rows for which Spark finds each condition true, in one job."""
    parquet.write_table(pa.Table.from_batches(case.payloads), directory / "rows.parquet")
    stored = session.read.schema(SCHEMA).parquet(str(directory / "rows.parquet")).coalesce(1)
    columns = [F.expr(condition).alias(f"c{place}") for place, condition in enumerate(conditions)]
    answers = stored.select("row", *columns).toArrow()
    rows = answers.column("row")
    return {condition: set(rows.filter(answers.column(f"c{place}")).to_pylist()) for place, condition in enumerate(conditions)}


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
