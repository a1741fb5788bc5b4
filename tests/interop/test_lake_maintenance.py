"""What stock Spark does to a log's table: its maintenance, rows of others, and rows of the log that somebody deleted.

The log's own rows are never wrong: they are as before, or an error names the file or the ledger. Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bk_spark import ConfigError, CorruptionError, LogPosition
from tests.interop.lake import WITH_SPARK, Lake, by_polars, by_pyiceberg, by_spark, known_to
from tests.interop.stock_spark import StockSpark

pytestmark = [pytest.mark.timeout(1200), WITH_SPARK]

ALL_FILES = "options => map('rewrite-all', 'true')"
JOINS = {"binpack": ALL_FILES, "sort": f"strategy => 'sort', sort_order => 'text DESC', {ALL_FILES}"}
LONG_AGO_S = 1e9


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    inner = pa.array([{"n": number, "of": [f"t{number}", None]} for number in numbers])
    return pa.table({"id": pa.array(numbers, pa.int64()), "text": [f"text {n % 7}" for n in numbers], "inner": inner})


@pytest.fixture
def tiered(lake: Lake) -> Lake:
    """Three ledgers in three files, and gone from bookies."""
    lake.log.set_tier(lake.tier)
    for number in range(3):
        lake.log.append_rows(rows(20 * number, 20))
        lake.run()
    return lake


def call(stock: StockSpark, lake: Lake, procedure: str, arguments: str = "") -> None:
    known_to(stock, lake)
    more = f", {arguments}" if arguments else ""
    stock.run(f"CALL {lake.name}.system.{procedure}(table => '{lake.tier.table}'{more})")


def expire(stock: StockSpark, lake: Lake) -> None:
    call(stock, lake, "expire_snapshots", "older_than => timestamp '2100-01-01 00:00:00', retain_last => 1")


def first_snapshot(stock: StockSpark, lake: Lake, place: int) -> int:
    found = stock.rows(f"SELECT snapshot_id FROM {known_to(stock, lake)}.snapshots ORDER BY committed_at")
    return int(found["snapshot_id"][place].as_py())


def cut(lake: Lake) -> None:
    """The first ledger leaves the log."""
    lake.log.truncate(LogPosition(lake.log.ledgers()[1].ledger_id, 0))


@pytest.mark.parametrize("strategy", JOINS)
def test_files_that_spark_joined_are_found_and_the_log_goes_on(stock: StockSpark, tiered: Lake, strategy: str) -> None:
    before = tiered.rows()
    call(stock, tiered, "rewrite_data_files", JOINS[strategy])
    assert tiered.rows() == before
    expire(stock, tiered)
    with pytest.raises(CorruptionError, match="it is gone"):
        tiered.rows()
    tiered.run()
    assert tiered.rows() == before
    tiered.log.append_rows(rows(60, 5))
    cut(tiered)
    tiered.run()
    assert len(tiered.rows()) == 45
    assert tiered.as_read_by(by_spark(stock)) == tiered.as_read_by(by_polars) == tiered.rows()


def test_manifests_and_snapshots_are_sparks_to_rewrite_and_expire(stock: StockSpark, tiered: Lake) -> None:
    before = tiered.rows()
    call(stock, tiered, "rewrite_manifests")
    call(stock, tiered, "compute_table_stats")
    expire(stock, tiered)
    assert tiered.rows() == before
    tiered.log.append_rows(rows(60, 5))
    tiered.run()
    assert len(tiered.rows()) == 65
    assert tiered.as_read_by(by_spark(stock)) == tiered.rows()


def test_a_sweep_of_files_that_no_snapshot_names_leaves_the_table_and_its_catalog(
    stock: StockSpark, lake: Lake, tmp_path: Path
) -> None:
    """The catalog is a tier's default one, a file in the table's folder."""
    lake = replace(lake, tier=replace(lake.tier, catalog={"name": lake.name}))
    lake.log.append_rows(rows(0, 20))
    lake.log.set_tier(lake.tier)
    lake.run()
    stray = tmp_path / "lake" / "stray.parquet"
    stray.write_bytes(b"")
    for one in (tmp_path / "lake").rglob("*"):
        os.utime(one, (LONG_AGO_S, LONG_AGO_S))
    call(stock, lake, "remove_orphan_files")
    assert not stray.exists()
    lake.log.append_rows(rows(20, 5))
    lake.run()
    assert len(lake.rows()) == 25
    assert lake.as_read_by(by_spark(stock)) == lake.rows()


def test_rows_of_others_stay_beside_those_of_the_log(stock: StockSpark, tiered: Lake) -> None:
    table = known_to(stock, tiered)
    stock.run(f"INSERT INTO {table} (id, text) VALUES (-1, 'theirs'), (-2, 'theirs')")
    tiered.log.append_rows(rows(60, 5))
    tiered.run()
    assert len(tiered.rows()) == 65
    assert tiered.as_read_by(by_spark(stock)) == tiered.rows()
    assert stock.rows(f"SELECT id FROM {table} WHERE _ledger_id IS NULL").num_rows == 2


def test_a_file_that_has_rows_of_others_and_rows_that_leave_the_table_is_named_until_somebody_takes_them_apart(
    stock: StockSpark, tiered: Lake
) -> None:
    table = known_to(stock, tiered)
    stock.run(f"INSERT INTO {table} (id, text) VALUES (-1, 'theirs')")
    call(stock, tiered, "rewrite_data_files", ALL_FILES)
    tiered.run()
    cut(tiered)
    with pytest.raises(ConfigError, match="has rows of the log that are to be removed, and others"):
        tiered.run()
    assert len(tiered.rows()) == 40
    stock.run(f"DELETE FROM {table} WHERE _ledger_id IS NULL")
    tiered.run()
    assert tiered.as_read_by(by_spark(stock)) == tiered.rows()


@pytest.mark.parametrize(
    ("mode", "problem"), [("copy-on-write", "somebody changed its rows"), ("merge-on-read", "somebody deleted rows of")]
)
def test_rows_of_the_log_that_somebody_deleted_are_named_until_the_table_is_rolled_back(
    stock: StockSpark, tiered: Lake, mode: str, problem: str
) -> None:
    before, table = tiered.rows(), known_to(stock, tiered)
    stock.run(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = '{mode}')")
    stock.run(f"DELETE FROM {table} WHERE id IN (3, 25)")
    for _ in range(2):
        with pytest.raises(CorruptionError, match=problem):
            tiered.run()
    assert tiered.rows() == before
    snapshot = first_snapshot(stock, tiered, 2)
    stock.run(f"CALL {tiered.name}.system.rollback_to_snapshot('{tiered.tier.table}', {snapshot})")
    tiered.log.append_rows(rows(60, 5))
    tiered.run()
    assert len(tiered.rows()) == 65
    assert tiered.as_read_by(by_spark(stock)) == tiered.rows()


def test_a_value_of_the_log_that_somebody_changed_is_named(stock: StockSpark, tiered: Lake) -> None:
    before = tiered.rows()
    stock.run(f"UPDATE {known_to(stock, tiered)} SET text = 'changed' WHERE id = 25")
    with pytest.raises(CorruptionError, match="somebody changed its rows"):
        tiered.run()
    assert tiered.rows() == before


def test_a_row_that_somebody_adds_under_a_ledger_is_no_row_of_the_log_and_leaves_the_table_with_the_next_step(
    stock: StockSpark, tiered: Lake
) -> None:
    before, table = tiered.rows(), known_to(stock, tiered)
    ledger_id = tiered.log.ledgers()[1].ledger_id
    stock.run(f"INSERT INTO {table} (id, _ledger_id, _entry_id, _row) VALUES (-1, {ledger_id}, 0, 1000)")
    tiered.run()
    assert tiered.rows() == before
    tiered.log.append_rows(rows(60, 5))
    tiered.run()
    assert tiered.as_read_by(by_spark(stock)) == tiered.rows()


def test_types_that_somebody_widened_and_columns_in_another_order_change_no_row(stock: StockSpark, lake: Lake) -> None:
    lake.log.append_rows(pa.table({"id": [1, 2], "n": pa.array([1, 2], pa.int32())}))
    lake.log.set_tier(lake.tier)
    lake.run()
    table = known_to(stock, lake)
    for change in ("COLUMN n TYPE bigint", "COLUMN n FIRST", "COLUMN _row FIRST"):
        stock.run(f"ALTER TABLE {table} ALTER {change}")
    call(stock, lake, "rewrite_data_files", ALL_FILES)
    lake.log.append_rows(pa.table({"id": [3], "n": pa.array([3], pa.int32())}))
    lake.run()
    assert len(lake.rows()) == 3
    assert lake.as_read_by(by_spark(stock)) == lake.as_read_by(by_pyiceberg) == lake.rows()


CHANGED = {
    "partitions": ("ADD PARTITION FIELD bucket(4, id)", "somebody changed it"),
    "a format version that pyiceberg does not write": ("SET TBLPROPERTIES ('format-version' = '3')", "somebody upgraded it"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_table_that_no_file_of_a_tier_can_be_added_to_is_named(stock: StockSpark, tiered: Lake, what: str) -> None:
    change, problem = CHANGED[what]
    stock.run(f"ALTER TABLE {known_to(stock, tiered)} {change}")
    tiered.log.append_rows(rows(60, 5))
    with pytest.raises(ConfigError, match=problem):
        tiered.run()
    assert len(tiered.rows()) == 65
    assert len(tiered.as_read_by(by_spark(stock))) == 60


def test_partition_fields_that_were_dropped_again_hold_nothing_up(stock: StockSpark, tiered: Lake) -> None:
    table = known_to(stock, tiered)
    stock.run(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(4, id)")
    call(stock, tiered, "rewrite_data_files", ALL_FILES)
    stock.run(f"ALTER TABLE {table} DROP PARTITION FIELD bucket(4, id)")
    tiered.log.append_rows(rows(60, 5))
    tiered.run()
    assert tiered.as_read_by(by_spark(stock)) == tiered.rows()
    assert stock.rows(f"SELECT id FROM {table} WHERE id = 62").num_rows == 1
