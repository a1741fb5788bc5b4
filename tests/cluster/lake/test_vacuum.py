"""What a vacuum gives back of a tier, on real tables. Ref: DESIGN.md, "Lake"."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotsUpdate

from bk_spark import LogPosition, Retention, StorageError
from bk_spark.lake import tierer
from bk_spark.lake.iceberg import IcebergTable, _expiry
from bk_spark.lake.tier_log import Tiering
from bk_spark.metadata import store
from tests.cluster.lake.conftest import TieredLog


def append(tiered: TieredLog, first: int, count: int = 100) -> None:
    tiered.log.append_rows(pa.table({"id": range(first, first + count)}))


def truncate(tiered: TieredLog, ledgers: int) -> None:
    tiered.log.truncate(LogPosition(tiered.log.ledgers()[ledgers].ledger_id, 0))


def vacuum(tiered: TieredLog, keep_s: int = 0) -> None:
    """Of the log, and then what follows of its tier."""
    tiered.log.set_retention(Retention(version_retention_s=keep_s))
    tiered.client.vacuum_log(tiered.log.name)
    tiered.run()


def data_files(tiered: TieredLog) -> set[Path]:
    return {path for path in location(tiered).rglob("data/**/*") if path.is_file()}


def location(tiered: TieredLog) -> Path:
    return Path(tiered.tier.location.removeprefix("file://"))


def of_table(table: Table) -> set[Path]:
    return {Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()}


def ids(tiered: TieredLog, version: int | None = None) -> list[int]:
    return tiered.log.read_rows(version=version).read_all()["id"].to_pylist()


@pytest.fixture
def truncated(tiered: TieredLog) -> TieredLog:
    """Four ledgers, each in a section and on bookies no more, of which two have left the log and the table."""
    tiered.log.set_tier(tiered.tier)
    for number in range(4):
        append(tiered, 100 * number)
        tiered.run()
    truncate(tiered, 2)
    tiered.run()
    return tiered


def test_what_left_the_table_stays_for_as_long_as_an_old_version_can_be_read(truncated: TieredLog) -> None:
    vacuum(truncated, keep_s=3600)
    assert ids(truncated, version=4) == list(range(400))
    assert len(data_files(truncated)) == 4
    assert len(truncated.table().snapshots()) == 5


def test_a_vacuum_gives_back_what_no_version_needs(truncated: TieredLog) -> None:
    metadata = location(truncated).rglob("metadata/*.avro")
    before = len(list(metadata))
    vacuum(truncated)
    assert ids(truncated) == list(range(200, 400))
    assert truncated.in_table()["id"].to_pylist() == list(range(200, 400))
    assert data_files(truncated) == of_table(truncated.table())
    assert len(truncated.table().snapshots()) == 1
    assert set(truncated.table().metadata.refs) == {"main"}
    assert len(list(location(truncated).rglob("metadata/*.avro"))) < before
    uid, paths = truncated.log.uid, truncated.client.logs.names.paths(truncated.log.uid)
    assert truncated.client.logs.store.children(paths.tier_section_bucket(0)) == ["2", "3"]
    head = truncated.client.logs.names.fresh_head(truncated.log.name, uid)
    assert head.tier is not None
    assert (head.tier.oldest, head.tier.sections) == (2, 4)


def test_tiering_goes_on_behind_a_vacuum_also_of_all_that_was_tiered(truncated: TieredLog) -> None:
    append(truncated, 1000, 10)
    truncate(truncated, 2)
    truncated.run()
    vacuum(truncated)
    append(truncated, 2000, 10)
    assert truncated.run().tiered.rows == 10
    assert ids(truncated) == [*range(1000, 1010), *range(2000, 2010)]
    assert truncated.in_table()["id"].to_pylist() == ids(truncated)
    assert data_files(truncated) == of_table(truncated.table())


def test_a_file_goes_once_none_of_its_ledgers_is_needed(tiered: TieredLog) -> None:
    """Ledgers that were tiered together lie in one file; what stays of it was written anew."""
    tiered.log.set_tier(tiered.tier)
    for number in range(4):
        append(tiered, 100 * number)
    tiered.run()
    [first] = data_files(tiered)
    truncate(tiered, 2)
    vacuum(tiered)
    assert ids(tiered) == list(range(200, 400))
    assert data_files(tiered) == of_table(tiered.table())
    assert not first.exists()


def test_files_and_snapshots_of_others_stay(truncated: TieredLog) -> None:
    """Those that somebody gave a name, and files outside of our folders."""
    table = truncated.table()
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "audit").commit()
    other = location(truncated) / "data" / "others.parquet"
    other.write_bytes(b"not ours")
    vacuum(truncated)
    assert other.exists()
    kept = truncated.table().scan(snapshot_id=first).to_arrow()
    assert kept["id"].to_pylist() == list(range(100))


def test_a_file_that_no_attempt_named_is_swept(truncated: TieredLog) -> None:
    """A Spark task that was tried twice, or came late, left it."""
    folder = next(iter(of_table(truncated.table()))).parent
    stray = folder / "00000-late-00000.parquet"
    stray.write_bytes(b"late")
    vacuum(truncated)
    assert not stray.exists()
    assert ids(truncated) == list(range(200, 400))


def test_another_engine_s_expiry_leaves_the_files_of_old_versions(truncated: TieredLog) -> None:
    """The tag on the snapshot before keeps them."""
    table = truncated.table()
    with table.maintenance.expire_snapshots() as expire:
        expire.by_ids([one.snapshot_id for one in table.snapshots() if one.snapshot_id not in named(table)])
    kept = {task for snapshot in truncated.table().snapshots() for task in paths_of(truncated.table(), snapshot.snapshot_id)}
    assert data_files(truncated) == kept
    assert ids(truncated, version=4) == list(range(400))


def named(table: Table) -> set[int]:
    return {ref.snapshot_id for ref in table.metadata.refs.values()}


def paths_of(table: Table, snapshot: int) -> set[Path]:
    found = table.scan(snapshot_id=snapshot).plan_files()
    return {Path(task.file.file_path.removeprefix("file://")) for task in found}


def test_what_was_vacuumed_before_it_was_released_is_no_damage(tiered: TieredLog) -> None:
    tiered.log.set_tier(replace(tiered.tier, keep_on_bookies_s=86_400))
    for number in range(3):
        append(tiered, 100 * number)
        tiered.run()
    tiered_ids = {one.ledger_id for one in tiered.log.ledgers()}
    truncate(tiered, 2)
    tiered.run()
    vacuum(tiered)
    report = tiered.run()
    assert (report.released.ledgers, report.waiting) == (0, 1)
    found = tiered.client.logs.reader.tier.find(tiered.log.name, tiered.log.uid, tiered_ids)
    assert found.keys() == {one.ledger_id for one in tiered.log.ledgers()}


def test_a_snapshot_stays_for_as_long_as_versions_do_after_it_was_replaced(tiered: TieredLog) -> None:
    """However long ago it was made: a log may be tiered rarely. And it goes also if the log has nothing new."""
    tiered.log.set_tier(tiered.tier)
    for number in range(2):
        append(tiered, 100 * number)
        tiered.run()
    first, second = tiered.table().snapshots()
    metadata = tiered.table().metadata
    assert first.timestamp_ms < second.timestamp_ms
    assert _expiry(metadata, second.timestamp_ms, 0) == ()
    [gone] = _expiry(metadata, second.timestamp_ms + 1, 0)
    assert isinstance(gone, RemoveSnapshotsUpdate)
    assert gone.snapshot_ids == [first.snapshot_id]
    tiered.log.set_retention(Retention(version_retention_s=0))
    wait_until(lambda: tiered.run().tiered.rows == 0 and len(tiered.table().snapshots()) == 1)
    assert tiered.in_table()["id"].to_pylist() == list(range(200))


def wait_until(holds: Callable[[], bool]) -> None:
    deadline, tick = time.monotonic() + 60.0, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        tick.wait(0.05)


def test_vacuums_at_once_do_not_fail_each_other(truncated: TieredLog) -> None:
    truncated.log.set_retention(Retention(version_retention_s=0))
    truncated.client.vacuum_log(truncated.log.name)
    opener = truncated.client.log_opener(truncated.log.name, truncated.log.uid)
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(Tiering(opener)._vacuum.run, 2**60) for _ in range(4)]
    assert any(one.result() for one in done)
    assert data_files(truncated) == of_table(truncated.table())


def test_a_vacuum_that_the_catalog_refuses_is_told_and_the_run_counts(
    truncated: TieredLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: IcebergTable, before_ms: int, version: int) -> None:
        raise StorageError("expiring snapshots of table shop.orders", "ForbiddenError: no")

    monkeypatch.setattr(IcebergTable, "expire", refuse)
    append(truncated, 1000)
    truncated.log.set_retention(Retention(version_retention_s=0))
    truncated.client.vacuum_log(truncated.log.name)
    assert truncated.run().tiered.rows == 100
    assert "was not vacuumed: expiring snapshots of table shop.orders failed: ForbiddenError: no" in caplog.text


def test_a_step_whose_records_are_too_large_for_one_transaction_is_done_and_they_follow(
    tiered: TieredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others joined the files of many sections, and one ledger of these leaves."""
    monkeypatch.setattr(tierer, "MOST_BYTES", 500)
    monkeypatch.setattr(store, "MAX_TRANSACTION_BYTES", 2000)  # of which the five records alone are more
    tiered.log.set_tier(tiered.tier)
    for number in range(5):
        append(tiered, 100 * number)
        tiered.run()
    table = tiered.table()
    table.overwrite(table.scan().to_arrow())
    truncate(tiered, 1)
    for _ in range(2):
        tiered.run()
    assert ids(tiered) == list(range(100, 500))
    assert tiered.in_table()["id"].to_pylist() == list(range(100, 500))
    assert ids(tiered, version=5) == list(range(500))
