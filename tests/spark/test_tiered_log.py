"""Spark reads a log over bookies and its tier: batches, streams, conditions, versions, metadata. Ref: DESIGN.md, "Lake"."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

import bk_spark
from bk_spark import BookKeeper, JobFailedError, LogPosition, Tier
from bk_spark.lake import file_tasks
from tests.spark.conftest import Logs


@pytest.fixture
def tiered(logs: Logs, bookkeeper: BookKeeper, log: str, tmp_path: Path) -> str:
    """Three commits whose ledgers have left the bookies, and one whose ledgers have not."""
    for start in (0, 1000, 2000):
        logs.write(logs.spark.range(start, start + 1000).selectExpr("id", "cast(id AS string) AS name", "id % 7 AS day"), log)
    bookkeeper.open_log(log).set_tier(Tier(f"file://{tmp_path}/lake", "shop.numbers", keep_on_bookies_s=0))
    assert bookkeeper.tier_log(log).released.rows == 3000
    logs.write(logs.spark.range(3000, 4000).selectExpr("id", "cast(id AS string) AS name", "id % 7 AS day"), log)
    return log


def ids(rows: list) -> list[int]:
    return [row.id for row in rows]


def test_a_batch_reads_both_places_in_the_logs_order(logs: Logs, tiered: str) -> None:
    assert ids(logs.read(tiered).collect()) == list(range(4000))
    assert ids(logs.read(tiered, versionAsOf=2).collect()) == list(range(2000))
    found = logs.read(tiered, where="id >= 1998 AND day = 5").collect()
    assert ids(found) == [n for n in range(1998, 4000) if n % 7 == 5]
    assert logs.read(tiered).selectExpr("name").where("id = 1500").collect() == [("1500",)]


def test_ledgers_larger_than_a_partition_are_cut_in_both_places(logs: Logs, tiered: str) -> None:
    """Their fragments are known of bookies alone."""
    frame = logs.read(tiered, maxBytesPerPartition=500)
    assert frame.rdd.getNumPartitions() > 4
    assert ids(frame.collect()) == list(range(4000))


def test_rows_tell_the_same_places_and_versions_as_before(logs: Logs, tiered: str) -> None:
    frame = logs.read(tiered, includeMetadata=True)
    counted = frame.groupBy("_version").count().sort("_version").collect()
    assert [(row[0], row[1]) for row in counted] == [(version, 1000) for version in (1, 2, 3, 4)]
    assert frame.where("_entry_id IS NULL OR _ledger_id IS NULL OR _commit_timestamp IS NULL").count() == 0


def test_a_stream_goes_from_the_tier_on_into_ledgers_with_each_row_once(logs: Logs, tiered: str, tmp_path: Path) -> None:
    reader = logs.spark.readStream.format("bookkeeper").option("metadata", logs.uri)
    frame = reader.option("startingOffsets", "earliest").option("maxRowsPerTrigger", 700).load(tiered)
    for _ in range(2):  # the second run finds nothing more
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
    assert sorted(ids(logs.spark.read.parquet(str(tmp_path / "out")).collect())) == list(range(4000))


def test_an_overwrite_takes_the_old_rows_out_of_the_table_and_their_version_stays(
    logs: Logs, bookkeeper: BookKeeper, tiered: str
) -> None:
    new = logs.spark.range(50).selectExpr("id + 9000 AS id", "cast(id AS string) AS name", "id % 7 AS day")
    logs.write(new, tiered, mode="overwrite")
    report = bookkeeper.tier_log(tiered)
    assert (report.tiered.rows, report.released.rows) == (50, 50)
    assert sorted(ids(logs.read(tiered).collect())) == list(range(9000, 9050))
    assert ids(logs.read(tiered, versionAsOf=3).collect()) == list(range(3000))


def test_a_spark_job_tiers_a_log_with_files_that_its_tasks_write(
    logs: Logs, bookkeeper: BookKeeper, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tasks, "FILE_BYTES", 4000)  # so that there are several tasks
    frame = logs.spark.range(0, 1000, 1, 4).selectExpr("id", "cast(id AS string) AS name", "array(id, null) AS several")
    logs.write(frame, log)
    bookkeeper.open_log(log).set_tier(Tier(f"file://{tmp_path}/lake", "shop.numbers", keep_on_bookies_s=0))
    report = bk_spark.tier_log(logs.spark, logs.uri, log)
    assert (report.tiered.rows, report.released.rows, report.waiting) == (1000, 1000, 0)
    written = list((tmp_path / "lake").rglob("data/**/*.parquet"))
    assert len(written) >= 4
    assert ids(logs.read(log).sort("id").collect()) == list(range(1000))
    assert bk_spark.tier_log(logs.spark, logs.uri, log).tiered.rows == 0
    bookkeeper.open_log(log).truncate(LogPosition(bookkeeper.open_log(log).ledgers()[2].ledger_id, 0))
    left = bookkeeper.open_log(log).read_rows().read_all()
    bk_spark.tier_log(logs.spark, logs.uri, log)
    table = load_catalog("default", type="sql", uri=f"sqlite:///{tmp_path}/lake/_catalog.db").load_table("shop.numbers")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(left["id"].to_pylist())


def test_a_task_that_fails_names_what_it_could_not_write_and_the_next_job_completes_the_step(
    logs: Logs, bookkeeper: BookKeeper, log: str, tmp_path: Path
) -> None:
    logs.write(logs.spark.range(100), log)
    bookkeeper.open_log(log).set_tier(Tier(f"file://{tmp_path}/lake", "shop.numbers", keep_on_bookies_s=0))
    (tmp_path / "lake" / "data").write_text("in the way")
    with pytest.raises(JobFailedError, match=rf"tiering of log '{log}'.*writing file://{tmp_path}/lake/data"):
        bk_spark.tier_log(logs.spark, logs.uri, log)
    (tmp_path / "lake" / "data").unlink()
    assert bk_spark.tier_log(logs.spark, logs.uri, log).released.rows == 100
    assert ids(logs.read(log).sort("id").collect()) == list(range(100))
