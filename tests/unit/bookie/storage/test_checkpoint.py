"""Ref: docs/rules.md, protocol rules 36 and 38, "Order of syncs", situations 57 and 58."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from bk_spark.bookie.index.values import unpack_state
from bk_spark.bookie.log_files.mark import LogState
from bk_spark.bookie.log_files.witness import WITNESS_FILE
from bk_spark.bookie.storage.checkpoint import run_inline
from bk_spark.errors import StorageError
from bk_spark.wire.messages import Status


def _mark(data_dir):
    connection = sqlite3.connect(f"file:{data_dir}/index/ledgers.sqlite?immutable=1", uri=True)
    (value,) = connection.execute("SELECT value FROM state").fetchone()
    connection.close()
    return unpack_state(value, "the index").mark


def _batch_count(data_dir):
    connection = sqlite3.connect(f"file:{data_dir}/index/ledgers.sqlite?immutable=1", uri=True)
    (count,) = connection.execute("SELECT count(*) FROM batches").fetchone()
    connection.close()
    return count


def _log_states(data_dir):
    connection = sqlite3.connect(f"file:{data_dir}/index/ledgers.sqlite?immutable=1", uri=True)
    states = [LogState(state) for (state,) in connection.execute("SELECT state FROM entry_logs ORDER BY file_id")]
    connection.close()
    return states


def _entry_count(data_dir):
    connection = sqlite3.connect(f"file:{data_dir}/index/ledgers.sqlite?immutable=1", uri=True)
    (count,) = connection.execute("SELECT sum(last_entry_id - first_entry_id + 1) FROM batches").fetchone()
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
    assert 50 < _mark(harness.data_dir).next_sequence < 100
    assert _entry_count(harness.data_dir) > 150
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
    left = [*harness.files("index"), harness.data_dir / WITNESS_FILE]
    before = {path.relative_to(harness.data_dir): path.read_bytes() for path in left}
    harness.bookie.storage.checkpoint()
    harness.kill()
    for name, data in before.items():  # as if the crash had come before the index transaction
        (harness.data_dir / name).write_bytes(data)
    harness.start()
    harness.assert_holds(1, 0, 29)
    harness.stop()
    assert (_batch_count(harness.data_dir), _entry_count(harness.data_dir)) == (1, 30)


def test_a_clean_stop_leaves_nothing_to_replay(harness):
    harness.start()
    harness.add(1, 0, 2)
    harness.add(1, 3, 5, size=2000)
    harness.stop()
    mark = _mark(harness.data_dir)
    harness.start()
    harness.stop()
    assert _mark(harness.data_dir) == mark


def test_a_thousand_single_appends_become_one_row_and_read_as_before(harness, expected_payload):
    harness.start()
    for one in range(1000):
        harness.stage(harness.batch(1, one, one))
    assert {reply.status for reply in harness.sync()} == {Status.OK}
    harness.bookie.storage.checkpoint()
    assert _batch_count(harness.data_dir) == 1
    for _ in range(2):
        batches, end = harness.read(1, 0, 999)
        assert end.status is Status.OK
        assert [one for batch in batches for one in batch.last_add_confirmed.tolist()] == list(range(-1, 999))
        harness.assert_holds(1, 0, 999)
        harness.kill()
        harness.start()


def test_adds_go_on_and_reads_see_everything_while_a_checkpoint_runs(harness, held_background):
    harness.background = held_background
    harness.start()
    harness.add(1, 0, 4)
    harness.add(1, 5, 9, size=2000)
    harness.fence(2)
    harness.confirm(3, 6)
    harness.bookie.storage.request_checkpoint()
    harness.bookie.idle()
    assert len(held_background.steps) == 1
    assert harness.add(1, 10, 14).status is Status.OK
    assert harness.add(2, 0, 4).status is Status.FENCED, "the frozen cache has the fence"
    assert harness.confirm(3, 5).status is Status.OK
    assert harness.confirmed(3).last_add_confirmed == 6
    assert harness.add(1, 0, 4, key=b"x" * 20).status is Status.UNAUTHORIZED
    for _ in range(2):
        harness.assert_holds(1, 0, 4)
        harness.assert_holds(1, 5, 9, size=2000)
        harness.assert_holds(1, 10, 14)
        assert harness.confirmed(1).last_add_confirmed == 9
        assert harness.confirmed(2).is_fenced
        held_background.run()


def test_a_row_that_moves_while_it_is_read_is_seen_in_one_place_or_the_other(harness, held_background):
    """At every step of a checkpoint: frozen, copied, committed, dropped."""
    harness.background = held_background
    harness.start()
    harness.add(1, 0, 4)
    steps = []

    def look(name, call):
        def instead(*arguments, **more):
            harness.assert_holds(1, 0, 4)
            steps.append(name)
            given = call(*arguments, **more)
            harness.assert_holds(1, 0, 4)
            return given

        return instead

    storage = harness.bookie.storage
    logs, layers = storage.log_files, storage._layers
    copies = logs.copies("checkpoint")
    copies.append, copies.sync = look("append", copies.append), look("sync", copies.sync)
    layers.freeze = look("freeze", layers.freeze)
    layers.drop_frozen = look("drop", layers.drop_frozen)
    logs.delete_journals = look("delete", logs.delete_journals)
    storage.request_checkpoint()
    harness.bookie.idle()
    held_background.run()
    assert steps == ["freeze", "append", "sync", "drop", "delete"]


def test_when_the_next_checkpoint_is_due_the_sync_thread_does_the_one_before_first(harness, held_background):
    """So there are two caches at most, whatever the background does; replies never wait for it."""
    harness.background = held_background
    harness.start(write_cache_bytes=20_000)
    layers = harness.bookie.storage._layers
    sizes = []
    for first in range(0, 600, 3):
        harness.add(1, first, first + 2)
        sizes.append(layers.active.size_bytes + (layers.frozen.size_bytes if layers.frozen else 0))
    assert max(sizes) < 2 * (20_000 + 2 * 1500)
    assert _entry_count(harness.data_dir) > 400
    assert len(held_background.steps) > 3
    held_background.run()
    harness.assert_holds(1, 0, 599)


def test_what_the_frozen_cache_knows_is_added_to_without_waiting_for_the_index(harness, held_background):
    """A large commit holds it for long."""
    harness.background = held_background
    harness.start()
    harness.add(1, 0, 4)
    harness.fence(2)
    harness.bookie.storage.request_checkpoint()
    harness.bookie.idle()
    with harness.bookie.storage._index.reading():  # a lock that is not to be taken twice
        assert harness.add(1, 5, 9).status is Status.OK
        assert harness.add(2, 0, 4).status is Status.FENCED
        assert harness.fence(1).status is Status.OK
    held_background.run()
    harness.assert_holds(1, 0, 9)


def test_the_sync_thread_waits_for_a_checkpoint_that_another_thread_runs(harness):
    """Back-pressure: a full cache behind a slow flush stops the adds, not the bookie."""
    may_go_on, threads = threading.Event(), []

    def background(step):
        threads.append(threading.Thread(target=step))
        threads[-1].start()

    harness.background = background
    harness.start(write_cache_bytes=5_000)
    copies = harness.bookie.storage.log_files.copies("checkpoint")
    sync, is_slow = copies.sync, threading.Event()

    def slow():
        is_slow.set()
        assert may_go_on.wait(10)
        sync()

    copies.sync = slow
    for first in range(0, 24, 3):
        harness.add(1, first, first + 2)  # freezes the first cache, fills the second one
    assert is_slow.wait(10)
    writer = threading.Thread(target=lambda: harness.add(1, 24, 26))
    writer.start()
    writer.join(0.05)
    assert writer.is_alive()
    harness.assert_holds(1, 0, 23)
    may_go_on.set()
    writer.join(10)
    assert not writer.is_alive()
    harness.assert_holds(1, 0, 26)
    for thread in threads:
        thread.join(10)


@pytest.mark.parametrize("verb", ["write", "sync"])
def test_a_flush_that_fails_in_the_background_stops_all_changes_and_denies_nothing(harness, held_background, verb):
    """Situation 58: the mark does not move, and a restart has everything."""
    harness.background = held_background
    harness.start()
    harness.add(1, 0, 4)
    harness.fence(2)
    before = _mark(harness.data_dir)
    harness.bookie.storage.request_checkpoint()
    harness.bookie.idle()
    harness.add(1, 5, 9)
    harness.disk.fail(verb, "entry_log")
    held_background.run()
    assert harness.bookie.failure is not None
    assert harness.add(1, 10, 14).status is Status.IO_ERROR
    assert harness.fence(3).status is Status.IO_ERROR
    harness.assert_holds(1, 0, 9)
    assert harness.read(1, 10, 10)[1].status is Status.IO_ERROR
    assert _mark(harness.data_dir) == before
    harness.disk.failing.clear()
    harness.power_off()
    harness.start()
    harness.assert_holds(1, 0, 9)
    assert harness.add(2, 0, 4).status is Status.FENCED


def test_a_failure_is_logged_once_however_many_requests_come_after_it(harness, caplog):
    harness.start(write_cache_bytes=5_000)
    harness.disk.fail("sync", "entry_log")
    for first in range(0, 60, 3):
        harness.add(1, first, first + 2)
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1


def test_the_mark_of_a_checkpoint_is_that_of_its_freeze(harness, held_background):
    """Protocol rule 38, situation 57: what came while it ran is replayed, and the journals that hold it stay."""
    harness.background = held_background
    harness.start(journal_file_bytes=4600)
    harness.add(1, 0, 4)
    harness.bookie.storage.request_checkpoint()
    harness.bookie.idle()
    for first in range(5, 50, 5):
        harness.add(1, first, first + 4)
    harness.fence(2)
    held_background.run()
    harness.power_off()
    harness.background = run_inline
    harness.start()
    harness.assert_holds(1, 0, 49)
    assert harness.add(2, 0, 4).status is Status.FENCED


def test_a_request_for_a_checkpoint_is_heard_by_an_idle_bookie(harness):
    harness.start()
    harness.add(1, 0, 4)
    assert harness.bookie.storage.ledgers(-1, 10) == []
    harness.bookie.storage.request_checkpoint()
    harness.bookie.idle()
    assert [one.ledger_id for one in harness.bookie.storage.ledgers(-1, 10)] == [1]


def test_a_clean_stop_tells_the_index_that_all_logs_are_sealed(harness):
    harness.start()
    harness.add(1, 0, 4)
    harness.add(1, 5, 9, size=2000)
    harness.stop()
    assert _log_states(harness.data_dir) == [LogState.SEALED] * 2
    harness.start()
    assert {one.state for one in harness.bookie.storage.entry_logs()} == {LogState.SEALED}


def test_a_clean_stop_seals_the_copies_of_its_checkpoints_too(harness):
    """There is no other entry log: all adds were small."""
    harness.start()
    harness.add(1, 0, 4)
    harness.stop()
    assert _log_states(harness.data_dir) == [LogState.SEALED]


def test_what_the_index_knows_as_sealed_is_not_told_it_again(harness):
    """Otherwise each checkpoint would write a row for every entry log of the bookie's life."""
    harness.start(entry_log_file_bytes=8000)
    for first in range(0, 30, 3):
        harness.add(1, first, first + 2, size=2000)
    harness.bookie.storage.checkpoint()
    assert len(harness.files("entry_log")) > 3
    assert len(harness.bookie.storage.log_files.files()) <= 1


def test_the_cache_stays_bounded_behind_a_checkpoint_that_nobody_begins(harness, held_background):
    harness.background = held_background
    harness.start(write_cache_bytes=20_000)
    for first in range(100):
        assert harness.add(1, first, first, size=1000).status is Status.OK
    assert sum(harness.bookie.storage.cache_bytes) < 50_000


def test_a_reader_of_a_staged_entry_goes_on_as_soon_as_it_is_durable(harness):
    harness.durable_wait_s = 3600.0
    harness.start()
    harness.stage(harness.batch(1, 0, 4))
    reader = threading.Thread(target=lambda: harness.read(1, 0, 4), daemon=True)
    reader.start()
    reader.join(0.05)
    assert reader.is_alive()
    harness.sync()
    reader.join(10)
    assert not reader.is_alive()


def test_a_requested_roll_seals_all_logs_with_data_and_adds_go_on(harness):
    """Storage rule 5: what is sealed then is below the mark, so that compaction may have it."""
    harness.start()
    harness.add(1, 0, 4)
    harness.add(1, 5, 9, size=2000)
    harness.bookie.storage.request_checkpoint(roll=True)
    harness.bookie.idle()
    assert [one.state for one in harness.bookie.storage.entry_logs()] == [LogState.SEALED] * 2
    harness.bookie.storage.request_checkpoint(roll=True)
    harness.bookie.idle()
    assert len(harness.bookie.storage.entry_logs()) == 2
    harness.add(1, 10, 14)
    harness.add(1, 15, 19, size=2000)
    harness.power_off()
    harness.start()
    for first in (0, 10):
        harness.assert_holds(1, first, first + 4)
        harness.assert_holds(1, first + 5, first + 9, size=2000)
