"""Compaction by key on real bookies: what stays, what is refused, and what it meets on its way.

Random histories: tests/soak/latest. Ref: DESIGN.md, "Compaction by key".
"""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import bk_spark
from bk_spark import aio
from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import ConfigError, NoSuchLogError, StorageError, UnauthorizedAccessError
from bk_spark.local.cluster import LocalCluster
from bk_spark.log.by_key.compact import KeyCompactor
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_handle import Log, key_compactor
from bk_spark.log.stored.by_key.settings import PLACE, KeyCompaction
from bk_spark.log.stored.tier_settings import Tier
from bk_spark.log.stored.values import CommitKind, Retention
from bk_spark.rows.newest import spilled


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client


@pytest.fixture
def log(client: BookKeeper) -> Log:
    return client.open_log(f"by-key-{uuid.uuid4().hex}", create=True)


def readings(first: int, count: int = 100, meters: int = 10, gone: int | None = None) -> pa.Table:
    """``gone`` is the meter that is removed."""
    numbers = list(range(first, first + count))
    return pa.table(
        {
            "meter": [f"m{number % meters}" for number in numbers],
            "n": numbers,
            "gone": [number % meters == gone for number in numbers],
        }
    )


@pytest.fixture
def filled(log: Log) -> Log:
    """The newest rows are 290 to 299."""
    log.append_rows(readings(0), partition_key="meter")
    log.append_rows(readings(100))
    log.append_rows(readings(200))
    return log


def numbers_of(rows: Any) -> list[int]:
    return [n for batch in rows for n in batch.column("n").to_pylist()]


def in_order(log: Log) -> list[int]:
    """As a tail gives all rows from the first one on."""
    return numbers_of(log.tail_rows("earliest", timeout_s=0))


def vacuum(client: BookKeeper, log: Log) -> None:
    log.set_retention(Retention(version_retention_s=0))
    client.vacuum_log(log.name)


def test_the_newest_row_of_each_key_stays_in_the_order_of_the_log_and_old_versions_are_kept(client, filled) -> None:
    before = [n for n in numbers_of(filled.read_rows()) if n >= 290]
    report = filled.compact_by_key()
    assert (report.commits, report.removed.rows, report.added.rows) == (1, 300, 10)
    assert (report.version, filled.versions()[-1].kind) == (4, CommitKind.COMPACT_KEYS)
    assert sorted(numbers_of(filled.read_rows())) == list(range(290, 300))
    assert sorted(numbers_of(filled.read_rows(version=3))) == list(range(300))
    assert in_order(filled) == numbers_of(filled.read_rows(version=3))
    vacuum(client, filled)
    assert in_order(filled) == before
    with pytest.raises(ConfigError, match="versionAsOf is 3"):
        filled.read_rows(version=3)


def test_a_second_compaction_has_nothing_to_do_until_rows_come(filled) -> None:
    filled.compact_by_key()
    assert filled.compact_by_key().commits == 0
    assert filled.compact_by_key(KeyCompaction("gone")).commits == 0
    filled.append_rows(readings(300, 5))
    assert filled.compact_by_key().removed.rows == 15
    assert sorted(numbers_of(filled.read_rows())) == [*range(295, 305)]


def test_look_ups_and_the_latest_view_stay_the_same(client, filled) -> None:
    def seen() -> list[object]:
        latest = filled.read_rows(view="latest", deleted_by="gone")
        return [sorted(numbers_of(latest)), *(filled.get(f"m{meter}", deleted_by="gone").to_pylist() for meter in range(10))]

    filled.append_rows(readings(300, 10, gone=3))
    before = seen()
    filled.compact_by_key(KeyCompaction("gone"))
    assert (seen(), filled.get("m3").num_rows) == (before, 1)
    filled.compact_by_key(KeyCompaction("gone", tombstones_kept_s=0))
    vacuum(client, filled)
    assert (seen(), filled.get("m3").num_rows) == (before, 0)


def test_a_log_whose_keys_are_all_removed_keeps_its_row_numbers(client, log) -> None:
    log.append_rows(readings(0, 10), partition_key="meter")
    tail = log.tail_rows("earliest", timeout_s=0)
    assert len(numbers_of(tail)) == 10
    for meter in range(10):
        log.append_rows(readings(10, 10).slice(meter, 1).set_column(2, "gone", pa.array([True])))
    report = log.compact_by_key(KeyCompaction("gone", tombstones_kept_s=0))
    assert (report.added.rows, report.added.ledgers, log.read_rows().read_all().num_rows) == (0, 1, 0)
    vacuum(client, log)
    log.append_rows(readings(20, 10))
    assert sorted(numbers_of(log.tail_rows(tail.position, timeout_s=0))) == list(range(20, 30))
    assert sorted(in_order(log)) == list(range(20, 30))
    assert log.compact_by_key().commits == 0
    assert log.compact_by_key(KeyCompaction("gone")).commits == 0
    log.append_rows(readings(30, 1))
    assert log.compact_by_key().removed.ledgers > 1


def test_the_setting_of_a_log_says_how_and_is_kept(filled) -> None:
    assert filled.compaction is None
    setting = bk_spark.KeyCompaction(deleted_by="gone", min_age_s=3600)
    filled.set_compaction(setting)
    assert filled.compaction == setting
    assert filled.compact_by_key().commits == 0
    assert filled.compact_by_key(KeyCompaction()).commits == 1
    filled.set_compaction(None)
    assert filled.compaction is None


def test_a_truncation_takes_the_span_as_a_whole(client, filled) -> None:
    filled.compact_by_key()
    filled.append_rows(readings(300, 5))
    span = [one for one in filled.ledgers() if one.span is not None]
    assert len(span) > 1
    inside = [LogPosition(span[-1].ledger_id, 0), LogPosition(span[0].ledger_id, 100)]
    for place in inside:
        filled.truncate(place)
        assert sorted(numbers_of(filled.read_rows())) == list(range(290, 305))
    filled.truncate(LogPosition(filled.ledgers()[len(span)].ledger_id, 0))
    assert sorted(numbers_of(filled.read_rows())) == list(range(300, 305))
    assert sorted(in_order(filled)) == list(range(300, 305))


def test_retention_removes_a_span_as_a_whole(client, filled) -> None:
    filled.compact_by_key()
    filled.append_rows(readings(300, 50))
    filled.set_retention(Retention(version_retention_s=0, retention_bytes=0))
    client.vacuum_log(filled.name)
    assert len(filled.ledgers()) == 1


def test_coroutines_compact_and_follow_too(client, cluster, filled) -> None:
    async def compacted() -> list[int]:
        async with await aio.connect(cluster.metadata_uri) as other:
            log = await other.open_log(filled.name)
            await log.set_compaction(KeyCompaction("gone"))
            assert await log.compaction() == KeyCompaction("gone")
            assert (await log.compact_by_key()).commits == 1
            vacuum(client, filled)
            async with log.tail_rows("earliest", timeout_s=0) as tail:
                return [n async for batch in tail for n in batch.column("n").to_pylist()]

    assert sorted(asyncio.run(compacted())) == list(range(290, 300))


def test_a_cancelled_compaction_leaves_the_log_as_it_was(filled) -> None:
    calls = iter(range(100))

    def stop() -> None:
        if next(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        key_compactor(filled, stop).run()
    assert filled.snapshot().version == 3
    assert filled.compact_by_key().commits == 1


def test_rows_of_other_schemas_and_nested_ones_and_large_ones_stay_as_they_are(client, log) -> None:
    log.append_rows(pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]}), partition_key="id")
    large = "x" * (6 << 20)
    more = {"id": [2, 3], "text": ["B", large], "more": [{"list": [1, None]}, None]}
    log.append_rows(pa.table(more), merge_schema=True)
    expected = sorted(log.read_rows(view="latest").read_all().to_pylist(), key=lambda row: row["id"])
    log.compact_by_key()
    vacuum(client, log)
    for rows in (log.read_rows(), log.tail_rows("earliest", timeout_s=0)):
        found = [row for batch in rows for row in batch.to_pylist()]
        assert sorted(found, key=lambda row: row["id"]) == expected
    assert PLACE not in log.schema.names


def test_a_tail_of_some_columns_rows_and_lanes_reads_a_span_so(client, filled) -> None:
    filled.compact_by_key()
    vacuum(client, filled)
    [found] = {name for batch in filled.tail_rows("earliest", ["n"], "n > 294", timeout_s=0) for name in batch.schema.names}
    assert found == "n"
    assert sorted(numbers_of(filled.tail_rows("earliest", ["n"], "n > 294", timeout_s=0))) == list(range(295, 300))
    lanes = [sorted(numbers_of(filled.tail_rows("earliest", lane=lane, timeout_s=0))) for lane in range(8)]
    assert sorted(n for lane in lanes for n in lane) == list(range(290, 300))
    assert lanes == [sorted(numbers_of(filled.read_rows(lane=lane))) for lane in range(8)]


def test_what_is_appended_meanwhile_stays(filled, monkeypatch) -> None:
    real = KeyCompactor._written

    def append_first(*arguments: Any) -> Any:
        filled.append_rows(readings(300, 5))
        return real(*arguments)

    monkeypatch.setattr(KeyCompactor, "_written", append_first)
    assert filled.compact_by_key().added.rows == 10
    assert sorted(numbers_of(filled.read_rows())) == list(range(290, 305))


@pytest.mark.parametrize("often", [1, 9])
def test_what_is_truncated_meanwhile_makes_it_begin_anew_and_at_last_give_up(client, filled, monkeypatch, often) -> None:
    real, times = KeyCompactor._written, iter(range(often))

    def truncate_first(*arguments: Any) -> Any:
        if next(times, None) is not None:
            filled.truncate(LogPosition(filled.ledgers()[1].ledger_id, 0))
            vacuum(client, filled)
        return real(*arguments)

    monkeypatch.setattr(KeyCompactor, "_written", truncate_first)
    if often == 1:
        assert filled.compact_by_key().commits == 1
        assert sorted(numbers_of(filled.read_rows())) == list(range(290, 300))
    else:
        with pytest.raises(bk_spark.BookKeeperError, match=r"ledger|log"):
            filled.compact_by_key()


def test_a_full_disk_is_one_error_and_changes_nothing(filled, monkeypatch) -> None:
    monkeypatch.setattr("bk_spark.rows.newest.newest_rows.NewestRows.__init__.__defaults__", (100,))
    full = mock.patch.object(spilled.tempfile, "TemporaryFile", side_effect=OSError(28, "No space left on device"))
    with full, pytest.raises(StorageError, match="No space left on device"):
        filled.compact_by_key()
    assert filled.snapshot().version == 3


def test_what_cannot_be_compacted_by_key_is_refused_in_a_sentence(client, log) -> None:
    log.append_rows(pa.table({"id": [1]}))
    for call in (log.compact_by_key, lambda: log.set_compaction(KeyCompaction())):
        with pytest.raises(ConfigError, match="has no key, for none was given with its first rows"):
            call()
    keyed = client.open_log(f"{log.name}-keyed", create=True)
    keyed.append_rows(pa.table({"id": [1], "gone": ["no"]}), partition_key="id")
    problems = {"gone": "only a boolean says whether a row removes its key", "nothing": "has the columns id, gone"}
    for asked, problem in ((KeyCompaction(column), problem) for column, problem in problems.items()):
        for ask in (keyed.compact_by_key, keyed.set_compaction):
            with pytest.raises(ConfigError, match=problem):
                ask(asked)
    with pytest.raises(ConfigError, match="logs that are compacted by key have it for their own: rename it"):
        client.open_log(f"{log.name}-ours", create=True).append_rows(pa.table({PLACE.upper(): [1]}))
    keyed.delete()
    with pytest.raises(NoSuchLogError):
        keyed.compact_by_key()


@pytest.mark.parametrize("bad", [{"deleted_by": ""}, {"deleted_by": 3}, {"min_age_s": -1}, {"tombstones_kept_s": 1.5}])
def test_settings_that_make_no_sense_are_refused(bad) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        KeyCompaction(**bad)


def test_a_log_has_a_tier_or_is_compacted_by_key(client, filled) -> None:
    with tempfile.TemporaryDirectory() as folder:
        location = Path(folder).as_uri()
        tier = Tier(location=location, table="shop.meters", catalog={"type": "sql", "uri": f"sqlite:///{folder}/c.db"})
        filled.set_compaction(KeyCompaction())
        with pytest.raises(ConfigError, match="it is compacted by key, and a table keeps every row"):
            filled.set_tier(tier)
        assert [*Path(folder).iterdir()] == []
        filled.set_compaction(None)
        filled.set_tier(tier)
        for call in (filled.compact_by_key, lambda: filled.set_compaction(KeyCompaction())):
            with pytest.raises(ConfigError, match="it has a tier, whose table keeps every row"):
                call()


def test_ledgers_keep_their_password_and_sizes(cluster, client, log) -> None:
    with BookKeeper(cluster.metadata_uri) as other:
        secret = other.open_log(log.name, password=b"secret")
        options = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 1, "digest_type": "CRC32"}
        secret.append_rows(readings(0), partition_key="meter", **options)
        secret.append_rows(readings(100), **options)
        with pytest.raises(UnauthorizedAccessError):
            log.compact_by_key()
        secret.compact_by_key()
        for one in secret.ledgers():
            metadata = client.ledger_metadata(one.ledger_id)
            assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (2, 2, 1)
            assert (metadata.digest_type.name, metadata.password) == ("CRC32", b"secret")


def test_a_compaction_of_a_log_that_others_compact_gives_way(filled, monkeypatch) -> None:
    real, times = KeyCompactor._written, iter(range(1))

    def compact_first(*arguments: Any) -> Any:
        made = real(*arguments)
        if next(times, None) is not None:
            filled.compact_by_key()
        return made

    monkeypatch.setattr(KeyCompactor, "_written", compact_first)
    assert filled.compact_by_key().commits == 0
    assert sorted(numbers_of(filled.read_rows())) == list(range(290, 300))
