"""A tier whose table is partitioned. Ref: docs/guide/lake.md."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import polars as pl
import pyarrow as pa
import pytest

from bk_spark import ConfigError, LogPosition
from bk_spark.lake import file_tasks
from tests.cluster.lake.conftest import TieredLog

BEGIN = datetime(2026, 1, 1)
HOW = ("days(at)", "bucket(3, shop)")


def rows(first: int, count: int) -> pa.Table:
    """Times go forth and back, so that each ledger has rows of several days in turn."""
    numbers = range(first, first + count)
    times = [None if n % 50 == 49 else BEGIN + timedelta(hours=7 * (n % 13)) for n in numbers]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "shop": [None if n % 31 == 30 else f"shop {n % 5}" for n in numbers],
        }
    )


@pytest.fixture
def partitioned(tiered: TieredLog) -> TieredLog:
    """Three ledgers, on bookies no more."""
    found = replace(tiered, tier=replace(tiered.tier, partition=HOW))
    for number in range(3):
        found.log.append_rows(rows(200 * number, 200))
    found.log.set_tier(found.tier)
    found.run()
    assert found.on_bookies() == 0
    return found


def test_a_partitioned_log_is_read_as_before_and_every_file_has_rows_of_one_partition(partitioned: TieredLog) -> None:
    everything = pa.concat_tables([rows(200 * number, 200) for number in range(3)])
    assert partitioned.log.read_rows().read_all().equals(everything)
    assert partitioned.log.read_rows(version=2).read_all().num_rows == 400
    assert partitioned.log.read_rows(["id"], "shop = 'shop 3' AND id < 20").read_all()["id"].to_pylist() == [3, 8, 13, 18]
    assert partitioned.in_table().to_pylist() == everything.to_pylist()
    files = [task.file for task in partitioned.table().scan().plan_files()]
    assert len(files) == len({tuple(one.partition._data) for one in files}) > 5
    partitioned.log.append_rows(rows(600, 50))
    assert partitioned.log.read_rows().read_all().num_rows == 650


@pytest.mark.parametrize("shop", ["shop 0", "shop 4"])
def test_other_engines_read_the_partitions_that_a_condition_asks_for(partitioned: TieredLog, shop: str) -> None:
    condition = f"shop = '{shop}' AND at >= '2026-01-02T00:00:00+00:00' AND at < '2026-01-03T00:00:00+00:00'"
    scan = partitioned.table().scan(row_filter=condition)
    assert len(list(scan.plan_files())) == 1
    everything = pa.concat_tables([rows(200 * number, 200) for number in range(3)]).to_pylist()
    wanted = [one["id"] for one in everything if one["shop"] == shop and one["at"] and one["at"].day == 2]
    assert sorted(scan.to_arrow()["id"].to_pylist()) == wanted
    by_polars = pl.scan_iceberg(partitioned.table()).filter(pl.col("shop") == shop).collect()
    assert sorted(by_polars["id"].to_list()) == [one["id"] for one in everything if one["shop"] == shop]


def test_a_partitioned_table_follows_truncation_overwrite_and_new_columns(partitioned: TieredLog) -> None:
    partitioned.log.truncate(LogPosition(partitioned.log.ledgers()[1].ledger_id, 0))
    partitioned.log.append_rows(rows(600, 60).append_column("extra", pa.array(range(60))), merge_schema=True)
    partitioned.run()
    assert partitioned.in_table().to_pylist() == partitioned.log.read_rows().read_all().to_pylist()
    assert partitioned.in_table().num_rows == 460
    assert partitioned.log.read_rows(version=3).read_all().num_rows == 600
    partitioned.log.append_rows(rows(700, 20).select(["id", "shop"]).append_column("extra", pa.nulls(20, pa.int64())))
    partitioned.run()
    assert partitioned.in_table().to_pylist() == partitioned.log.read_rows().read_all().to_pylist()
    assert partitioned.on_bookies() == 0


def test_few_files_are_open_at_a_time_and_large_ledgers_are_cut(
    partitioned: TieredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tasks, "MOST_OPEN", 2)
    monkeypatch.setattr(file_tasks, "FILE_BYTES", 3000)
    monkeypatch.setattr(file_tasks, "GROUP_ROWS", 20)
    partitioned.log.append_rows(rows(600, 500))
    partitioned.log.append_rows(rows(1100, 3))
    partitioned.run()
    assert partitioned.on_bookies() == 0
    assert (
        partitioned.in_table().to_pylist()
        == partitioned.log.read_rows().read_all().to_pylist()
        == (pa.concat_tables([rows(0, 600), rows(600, 500), rows(1100, 3)]).to_pylist())
    )


def test_partitions_stay_as_they_are(partitioned: TieredLog) -> None:
    with pytest.raises(ConfigError, match=r"has days\(at\), bucket\(3, shop\), and that cannot change: give the same"):
        partitioned.log.set_tier(replace(partitioned.tier, partition=["days(at)"]))
    with partitioned.table().update_spec() as spec:
        spec.remove_field("at_day")
    partitioned.log.append_rows(rows(600, 5))
    with pytest.raises(ConfigError, match="somebody changed it, and files of the tier have days"):
        partitioned.run()
    assert partitioned.log.read_rows().read_all().num_rows == 605


def test_a_column_that_cannot_be_partitioned_so_is_named_and_no_table_is_made(tiered: TieredLog) -> None:
    tiered.log.append_rows(rows(0, 3))
    with pytest.raises(ConfigError, match=r"a partition of a tier is 'days\(shop\)': column 'shop' is string"):
        tiered.log.set_tier(replace(tiered.tier, partition=["days(shop)"]))
