"""Ref: docs/rules.md, protocol rules 36 and 38, "Order of syncs"."""

from __future__ import annotations

import sqlite3

import pytest

from bk_spark.bookie.index_rows import unpack_state
from bk_spark.errors import StorageError
from bk_spark.wire import Status


def _mark(data_dir):
    connection = sqlite3.connect(f"file:{data_dir}/index/ledgers.sqlite?immutable=1", uri=True)
    (value,) = connection.execute("SELECT value FROM state").fetchone()
    connection.close()
    return unpack_state(value, "the index").mark


def _row_count(data_dir):
    connection = sqlite3.connect(f"file:{data_dir}/index/ledgers.sqlite?immutable=1", uri=True)
    (count,) = connection.execute("SELECT count(*) FROM batches").fetchone()
    connection.close()
    return count


@pytest.mark.parametrize(
    ("settings", "size"),
    [({"write_cache_bytes": 20_000}, 10), ({"checkpoint_bytes": 20_000}, 10), ({"checkpoint_bytes": 50_000}, 2000)],
    ids=["cache", "journal", "entry log"],
)
def test_a_checkpoint_comes_by_itself_after_enough_bytes_in_any_log(harness, settings, size):
    harness.start(**settings)
    for first in range(0, 300, 3):
        harness.add(1, first, first + 2, size=size)
    assert 50 < _row_count(harness.data_dir) < 100
    assert _mark(harness.data_dir).next_sequence > 50
    harness.assert_holds(1, 0, 299, size=size)
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, 299, size=size)


def test_journals_before_the_mark_are_deleted(harness):
    harness.start(journal_file_bytes=6000, write_cache_bytes=40_000)
    for first in range(0, 900, 3):
        harness.add(1, first, first + 2)
    assert len(harness.files("journal")) < 40
    assert harness.files("journal")[0].name > "0000000001.journal"
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, 899)


@pytest.mark.parametrize("verb", ["write", "sync"])
@pytest.mark.parametrize("place", ["entry_log", "generation"])
def test_the_mark_is_not_moved_past_what_a_failed_flush_left(harness, verb, place):
    harness.start()
    for first in range(0, 30, 3):
        harness.add(1, first, first + 2)
    before = _mark(harness.data_dir)
    harness.disk.fail(verb, place)
    with pytest.raises(StorageError):
        harness.stop()
    harness.disk.failing.clear()
    after = _mark(harness.data_dir)
    assert after == before if place == "entry_log" else after.next_sequence > before.next_sequence
    assert harness.files("journal")
    harness.start()
    harness.assert_holds(1, 0, 29)


def test_a_checkpoint_that_fails_beside_adds_keeps_their_acks_and_stops_later_ones(harness):
    harness.start(write_cache_bytes=20_000)
    harness.disk.fail("sync", "entry_log")
    statuses = [harness.add(1, first, first + 2).status for first in range(0, 300, 3)]
    acked = statuses.index(Status.IO_ERROR)
    assert set(statuses[:acked]) == {Status.OK}
    assert set(statuses[acked:]) == {Status.IO_ERROR}
    harness.assert_holds(1, 0, 3 * acked - 1)
    harness.disk.failing.clear()
    harness.restart()
    harness.assert_holds(1, 0, 3 * acked - 1)


def test_copies_of_a_checkpoint_that_was_cut_short_are_not_counted_twice(harness):
    harness.start()
    for first in range(0, 30, 3):
        harness.add(1, first, first + 2)
    index = {path.name: path.read_bytes() for path in harness.files("index")}
    harness.bookie._storage.checkpoint()
    harness.kill()
    for name, data in index.items():  # as if the crash had come before the index transaction
        (harness.data_dir / "index" / name).write_bytes(data)
    harness.start()
    harness.assert_holds(1, 0, 29)
    harness.stop()
    assert _row_count(harness.data_dir) == 10


def test_a_clean_stop_leaves_nothing_to_replay(harness):
    harness.start()
    harness.add(1, 0, 2)
    harness.add(1, 3, 5, size=2000)
    harness.stop()
    mark = _mark(harness.data_dir)
    harness.start()
    harness.stop()
    assert _mark(harness.data_dir) == mark
