"""``view=latest`` through Spark: beside Spark's own window, with Spark's own filters on top, in SQL, and refused by name."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError
from tests.cluster.datasource.direct import Direct
from tests.spark.conftest import Logs
from tests.spark.test_user_errors import check

KEYS = 50


def changes(logs: Logs, first: int, count: int = 400) -> DataFrame:
    """A null is a key, and some rows are tombstones."""
    key = f"if(id % {KEYS} = 0, null, concat('c', id % {KEYS} % 37))"
    return logs.spark.range(first, first + count, 1, 2).selectExpr(f"{key} AS customer", "id AS n", "id % 11 = 3 AS gone")


@pytest.fixture
def filled(logs: Logs, log: str) -> str:
    logs.write(changes(logs, 0), log, partitionKey="customer", lanes=4)
    for first in (400, 800):
        logs.write(changes(logs, first), log)
    return log


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row["n"] for row in frame.collect())


def newest(frame: DataFrame, more: str = "true") -> list[int]:
    numbered = frame.selectExpr("*", "row_number() OVER (PARTITION BY customer ORDER BY n DESC) AS place")
    return numbers(numbered.where(f"place = 1 AND {more}"))


def test_the_newest_rows_are_those_of_sparks_window(logs: Logs, filled: str) -> None:
    whole = logs.read(filled)
    view = logs.read(filled, view="latest")
    assert numbers(view) == newest(whole)
    assert numbers(logs.read(filled, view="latest", deletedBy="Gone")) == newest(whole, "NOT gone")
    assert view.count() == 38
    old = logs.read(filled, view="latest", versionAsOf=1)
    assert numbers(old) == newest(logs.read(filled, versionAsOf=1))


@pytest.mark.parametrize("where", ["n < 1150", "customer = 'c3' AND n > 5", "customer IS NULL OR n % 2 = 0"])
def test_sparks_own_filters_are_of_the_newest_rows(logs: Logs, filled: str, where: str) -> None:
    assert numbers(logs.read(filled, view="latest").where(where)) == newest(logs.read(filled), f"({where})")


@pytest.mark.parametrize("where", ["n < 1150", "customer = 'c3' AND n > 5", "customer IS NULL OR gone = true"])
def test_option_where_is_of_the_newest_rows(logs: Logs, filled: str, where: str) -> None:
    assert numbers(logs.read(filled, view="latest", where=where)) == newest(logs.read(filled), f"({where})")


def test_lanes_are_read_apart_where_more_partitions_are_asked_for(logs: Logs, filled: str, bookkeeper: BookKeeper) -> None:
    parted = logs.read(filled, view="latest", minPartitions=100, includeMetadata=True)
    used = {one.lane for one in bookkeeper.logs.reader.snapshot(filled).ledgers}
    assert parted.rdd.getNumPartitions() == len(used) > 1
    assert numbers(parted) == newest(logs.read(filled))
    assert {row["_version"] for row in parted.collect()} == {3}


def test_columns_are_chosen_without_the_key(logs: Logs, filled: str) -> None:
    chosen = logs.read(filled, "n BIGINT", view="latest", deletedBy="gone", where="gone = false OR customer IS NULL")
    assert chosen.columns == ["n"]
    assert numbers(chosen) == newest(logs.read(filled), "NOT gone")


def test_a_view_of_sql_has_the_newest_rows(logs: Logs, filled: str) -> None:
    options = f"metadata '{logs.uri}', path '{filled}', view 'latest'"
    logs.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW newest USING bookkeeper OPTIONS ({options})")
    assert numbers(logs.spark.sql("SELECT n FROM newest WHERE gone")) == newest(logs.read(filled), "gone")


REFUSED = {
    "no view": ({"deletedBy": "gone"}, "option 'deletedBy' is 'gone': it only works with option 'view' set to 'latest'"),
    "another view": ({"view": "newest"}, "option 'view' is 'newest'"),
    "no boolean": ({"view": "latest", "deletedBy": "n"}, "column 'n' is int64, and only a boolean says"),
    "offsets": (
        {"view": "latest", "startingOffsets": "earliest"},
        "it does not apply to view=latest: leave it out",
    ),
    "entries": ({"view": "latest", "content": "entries"}, "option 'view' is 'latest': it does not apply to entries"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_newest_rows_is_refused(logs: Logs, filled: str, case: str) -> None:
    options, says = REFUSED[case]
    check(lambda: logs.read(filled, **options).collect(), says)


def test_several_logs_and_streams_refuse_the_view(logs: Logs, filled: str, direct: Direct) -> None:
    check(lambda: logs.read(None, logs=f"{filled},{filled}2", view="latest"), "it does not apply to several logs")
    with pytest.raises(ConfigError, match="option 'view' is 'latest': it does not apply to a stream read"):
        direct.stream(filled, view="latest").initialOffset()


def test_a_log_without_a_key_refuses_the_view(logs: Logs, log: str) -> None:
    logs.write(changes(logs, 0), log)
    check(lambda: logs.read(log, view="latest").collect(), f"version 1 of log '{log}' has no key")
