"""What an index is asked to do, each thing by itself. Ref: docs/rules.md, storage rules 1, 3, 5, 10, 11, 14."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.index.ledger_index import LedgerChange
from bk_spark.bookie.index.sqlite_index import open_index
from bk_spark.bookie.index.values import MAX_UNSETTLED, Limbo
from bk_spark.bookie.log_files.mark import LogMark, LogState
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.errors import ConfigError, CorruptionError, InternalError
from tests.unit.bookie.index.index_model import KEY, log, look_up, stored

MARK = LogMark(next_sequence=1_000, next_entry_log_id=2)
THERE = EntryLocation(2, 8192, 300)


@pytest.fixture
def index(tmp_path):
    """It is whole after every test."""
    made = open_index(tmp_path, "bookie-1", REAL_DISK, logs_exist=False)
    yield made
    made.close()
    again = open_index(tmp_path, "bookie-1", REAL_DISK, logs_exist=True)
    assert sum(again.check(True))
    again.close()


def _commit(index, *batches, ledger_id=1, files=None, **more):
    index.commit([LedgerChange(ledger_id, KEY, 0, list(batches), **more)], MARK, [log(1)] if files is None else files)


def _log(index, file_id):
    return next(one for one in index.entry_logs() if one.file_id == file_id)


def _batches(index, ledger_id=1):
    return index.batches(ledger_id, (-1, 0), 100)


# --- deletion


def test_a_deletion_takes_the_rows_below_it_and_leaves_a_fenced_tombstone(index):
    """Storage rules 10 and 14: what keeps the writer out stays."""
    _commit(index, stored(1, 0, 9, 1), stored(1, 10, 19, 2))
    _commit(index, ledger_id=2)
    _commit(index, deleted_at=3, deleted_ms=77)
    summary = index.summary(1)
    assert (summary.is_deleted, summary.is_fenced, summary.deleted_at, summary.deleted_ms) == (True, True, 3, 77)
    assert (summary.master_key_hash, summary.batch_count, summary.highest_entry_id) == (KEY, 0, -1)
    assert _batches(index) == []
    assert _log(index, 1).live_bytes == 0
    assert not index.summary(2).is_deleted


def test_rows_above_a_deletion_stay_and_the_ledger_is_no_tombstone(index):
    """A recovery add came after it."""
    _commit(index, stored(1, 0, 9, 1), stored(1, 0, 9, 5), deleted_at=3, deleted_ms=77)
    assert _batches(index) == [stored(1, 0, 9, 5)]
    summary = index.summary(1)
    assert (summary.is_deleted, summary.is_fenced, summary.deleted_at) == (False, True, 3)


def test_a_deletion_that_comes_after_rows_above_it_makes_no_tombstone(index):
    """A rebuilt index has the stored batches of all logs before the journals are replayed."""
    _commit(index, stored(1, 0, 9, 1), stored(1, 0, 9, 5))
    _commit(index, deleted_at=3, deleted_ms=77)
    assert _batches(index) == [stored(1, 0, 9, 5)]
    assert (index.summary(1).is_deleted, index.summary(1).is_fenced) == (False, True)


def test_a_recovery_add_revives_a_tombstone_which_stays_fenced(index):
    _commit(index, stored(1, 0, 9, 1), deleted_at=3, deleted_ms=77)
    _commit(index, stored(1, 0, 9, 5))
    assert (index.summary(1).is_deleted, index.summary(1).is_fenced) == (False, True)


def test_what_is_older_than_a_deletion_never_comes_back(index):
    """Storage rule 14: a scan finds a large add of a ledger that was deleted since."""
    _commit(index, deleted_at=3, deleted_ms=77)
    _commit(index, stored(1, 0, 9, 1))
    assert _batches(index) == []
    assert index.summary(1).is_deleted


def test_a_deletion_that_is_replayed_takes_nothing_that_came_since(index):
    _commit(index, stored(1, 0, 9, 1), deleted_at=3, deleted_ms=77)
    _commit(index, stored(1, 0, 9, 5))
    _commit(index, deleted_at=3, deleted_ms=77)
    assert _batches(index) == [stored(1, 0, 9, 5)]
    assert not index.summary(1).is_deleted


def test_a_ledger_may_be_deleted_again(index):
    _commit(index, stored(1, 0, 9, 5), deleted_at=3, deleted_ms=77)
    _commit(index, deleted_at=9, deleted_ms=88)
    assert (index.summary(1).is_deleted, index.summary(1).deleted_ms) == (True, 88)


def test_only_tombstones_without_rows_are_purged(index):
    for ledger_id in (1, 2, 3):
        _commit(index, stored(ledger_id, 0, 9, ledger_id), ledger_id=ledger_id)
    _commit(index, deleted_at=10, deleted_ms=77)
    _commit(index, stored(2, 0, 9, 12), ledger_id=2, deleted_at=11, deleted_ms=77)
    index.purge([1, 2, 3, 4])
    assert [one.ledger_id for one in index.summaries(-1, 10)] == [2, 3]
    index.verify_ledger(1)


# --- compaction


def test_a_move_updates_the_rows_and_buries_the_emptied_log(index):
    _commit(index, stored(1, 0, 9, 1), files=[log(1, is_sealed=True)])
    assert index.move([(stored(1, 0, 9, 1), THERE)], [log(2, is_sealed=True, directory=1)], 1)
    assert _batches(index) == [replace(stored(1, 0, 9, 1), location=THERE)]
    assert (_log(index, 1).state, _log(index, 1).live_bytes) == (LogState.DEAD, 0)
    assert (_log(index, 2).state, _log(index, 2).live_bytes, _log(index, 2).directory) == (LogState.SEALED, 300, 1)


def test_a_move_leaves_a_row_that_points_elsewhere_by_now(index):
    """Storage rule 5: it was stored again, repaired or moved since it was read."""
    old = stored(1, 0, 9, 1)
    _commit(index, old, files=[log(1, is_sealed=True)])
    moved = replace(old, location=EntryLocation(3, 4096, 300))
    index.move([(old, moved.location)], [log(3)], 9)
    assert index.move([(old, THERE)], [log(2)], 1)
    assert _batches(index) == [moved]
    assert _log(index, 2).live_bytes == 0


def test_a_move_leaves_a_ledger_that_was_deleted_alone(index):
    _commit(index, stored(1, 0, 9, 1), files=[log(1, is_sealed=True)])
    _commit(index, deleted_at=3, deleted_ms=77)
    index.move([(stored(1, 0, 9, 1), THERE)], [log(2)], 1)
    assert _batches(index) == []


def test_a_log_with_any_live_row_is_never_dead(index):
    _commit(index, stored(1, 0, 9, 1), stored(1, 10, 19, 2), files=[log(1, is_sealed=True)])
    assert not index.move([(stored(1, 0, 9, 1), THERE)], [log(2)], 1)
    assert (_log(index, 1).state, _log(index, 1).live_bytes) == (LogState.SEALED, stored(1, 10, 19, 2).location.length)


def test_an_open_log_is_never_dead(index):
    """Stored batches that refer to it may be in memory alone (storage rule 5)."""
    _commit(index)
    assert not index.move([], [], 1)
    assert not index.move([], [], 7)
    assert _log(index, 1).state is LogState.OPEN


def test_no_row_comes_into_a_dead_log(index):
    _commit(index, files=[log(1, is_sealed=True)])
    assert index.move([], [], 1)
    with pytest.raises(InternalError, match="calls dead"):
        _commit(index, stored(1, 0, 9, 1))
    assert _log(index, 1).state is LogState.DEAD


def test_only_dead_logs_are_forgotten_and_their_ids_are_never_free_again(index):
    _commit(index, files=[log(5, is_sealed=True), log(6, is_sealed=True)])
    with pytest.raises(InternalError, match="entry log 5 is SEALED and was to be forgotten"):
        index.forget_log(5)
    assert index.move([], [], 5)
    index.forget_log(5)
    index.forget_log(9)
    assert [one.file_id for one in index.entry_logs()] == [6]
    assert index.mark.next_entry_log_id == 10
    _commit(index)
    assert index.mark.next_entry_log_id == 10


def test_a_sealed_log_stays_sealed_and_its_size_may_be_corrected(index):
    _commit(index, files=[log(1, is_sealed=True, size=5_000)])
    _commit(index, files=[log(1, size=4_000)])
    assert (_log(index, 1).state, _log(index, 1).total_bytes) == (LogState.SEALED, 4_000)


def test_rows_are_removed_if_they_are_what_they_were(index):
    _commit(index, stored(1, 0, 9, 1), stored(1, 0, 9, 2))
    index.remove_batches([replace(stored(1, 0, 9, 1), location=THERE), stored(1, 0, 9, 2), stored(3, 0, 9, 2)])
    assert _batches(index) == [stored(1, 0, 9, 1)]
    assert index.find(1, 0, 1) == stored(1, 0, 9, 1)
    assert index.find(1, 0, 2) is None


# --- pages


def test_rows_and_summaries_come_in_pages_across_ledgers(index):
    batches = [stored(ledger_id, first, first + 9, 10 * ledger_id + first) for ledger_id in (1, 2, 300) for first in (0, 5)]
    for one in batches:
        _commit(index, one, ledger_id=one.ledger_id)
    assert index.batches_from((-1, 0, 0), 4) == batches[:4]
    assert index.batches_from((2, 5, 25), 4) == batches[4:]
    assert [one.ledger_id for one in index.summaries(1, 1)] == [2]
    assert [one.ledger_id for one in index.summaries(2, 5)] == [300]


# --- limbo


def test_limbo_is_there_again_after_a_start(index, tmp_path):
    limbo = Limbo(1_000, 10, frozenset({3, 7, 1 << 40}))
    index.set_limbo(limbo)
    _commit(index, stored(1, 0, 9, 1))
    index.close()
    again = open_index(tmp_path, "bookie-1", REAL_DISK, logs_exist=True)
    assert again.limbo == limbo
    again.set_limbo(None)
    again.close()
    again = open_index(tmp_path, "bookie-1", REAL_DISK, logs_exist=True)
    assert again.limbo is None
    again.close()


def test_limbo_holds_what_is_above_the_settled_and_what_is_named():
    limbo = Limbo(100, 10, frozenset({3}))
    assert [one for one in (2, 3, 10, 11, 100, 101) if limbo.holds(one)] == [3, 11, 100]
    with pytest.raises(ConfigError, match="limbo names at most 1000"):
        Limbo(10_000, 5_000, frozenset(range(MAX_UNSETTLED + 1)))


# --- proofs


def test_an_entry_is_found_wherever_its_row_begins(index):
    """A stored batch spans at most 65,536 ids, so it begins in the segment of the entry or in the one before."""
    batches = [stored(1, 65_535, 131_070, 1), stored(1, (1 << 24) - 1, (1 << 24) + 65_534, 2), stored(1, 5 << 40, 5 << 40, 3)]
    _commit(index, *batches)
    for one in batches:
        assert look_up(index, 1, one.first_entry_id) == look_up(index, 1, one.last_entry_id) == one
        for entry_id in (one.first_entry_id - 1, one.last_entry_id + 1):
            assert look_up(index, 1, entry_id) is None
            index.verify_entry(1, entry_id)


@pytest.mark.parametrize("first", [0, 300 * 65_536, 40_000 * 65_536])
def test_a_lost_row_is_noticed_in_the_segments_of_every_level(index, first):
    """Storage rule 3."""
    batches = [stored(1, (1 << 40) + number * 65_536, (1 << 40) + number * 65_536, number + 1) for number in range(3)]
    _commit(index, stored(1, first, first + 99, 10), *batches)
    database = index._database
    database.run("SAVEPOINT here")
    for statement in (
        "DELETE FROM batches WHERE sequence = 10",
        f"DELETE FROM segments WHERE level = 0 AND number = {first >> 16}",
        f"DELETE FROM segments WHERE level = 1 AND number = {first >> 24}",
        f"DELETE FROM segments WHERE level = 2 AND number = {first >> 32}",
    ):
        database.run(statement)
        for entry_id in (first, first + 98):
            assert look_up(index, 1, entry_id) is None
            with pytest.raises(CorruptionError, match="that were committed"):
                index.verify_entry(1, entry_id)
    index.verify_entry(1, 1 << 41)
    database.run("ROLLBACK TO here")


def test_nothing_up_to_the_highest_entry_is_denied_without_a_proof(index):
    _commit(index, stored(1, 0, 9, 1))
    index._database.run("SAVEPOINT here")
    index._database.run("DELETE FROM batches")
    with pytest.raises(CorruptionError, match="0 batches of entries 0 to 65535 of ledger 1 are not the 1"):
        index.verify_entry(1, 9)
    index.verify_entry(1, 10)
    index._database.run("ROLLBACK TO here")


def test_to_deny_an_entry_costs_a_bounded_number_of_rows_whatever_the_ledger_has(index):
    """A ledger of half a billion entries in 8,192 segments: the segments beside the entry's are read, and the levels above."""
    batches = [stored(1, number << 16, (number << 16) + 9, number + 1) for number in range(1 << 13)]
    _commit(index, *batches)
    assert _steps(index, lambda: index.verify_entry(1, (5_000 << 16) + 70)) < 3_000
    assert _steps(index, lambda: list(index.check(True))) > 50_000


def test_to_deny_a_ledger_costs_few_rows_among_many_ledgers(index):
    index.commit([LedgerChange(ledger_id, KEY, 0, []) for ledger_id in range(1, 5_000)], MARK)
    assert _steps(index, lambda: index.verify_ledger(777)) < 100
    assert _steps(index, lambda: index.verify_ledger(30_000)) < 10


def _steps(index, call) -> int:
    """Stored batches that SQLite goes over, about: a tenth of the instructions of its machine."""
    steps = []
    connection = index._database._connection
    connection.set_progress_handler(lambda: steps.append(1), 10)
    call()
    connection.set_progress_handler(None, 10)
    return len(steps)


def test_a_check_goes_on_while_the_index_changes(index):
    """It looks at one segment at a time, and never takes a change for damage."""
    _commit(index, *(stored(1, number << 16, (number << 16) + 9, number + 1) for number in range(9)))
    done = 0
    for step, batches in enumerate(index.check(True)):
        done += batches
        _commit(index, stored(1, 70_000 + step, 70_000 + step, 100 + step), is_fenced=True)
        _commit(index, stored(2, step, step, 100 + step), ledger_id=2)
        index.remove_batches([stored(1, 0, 9, 1)])
    assert done > 9


def test_a_check_finds_damage_that_no_question_comes_across(index):
    _commit(index, stored(1, 0, 9, 1), stored(1, 10, 19, 2))
    for statement in (
        "UPDATE batches SET offset = 1 WHERE sequence = 2",
        "DELETE FROM batches WHERE sequence = 2",
        "INSERT INTO batches SELECT 5, first_entry_id, sequence, 1, 1, 1, 1, 1, 1, 1 FROM batches LIMIT 1",
        "DELETE FROM segments",
        "DELETE FROM entry_logs",
        "DELETE FROM buckets",
        "DELETE FROM ledgers",
    ):
        index._database.run("SAVEPOINT here")
        index._database.run(statement)
        with pytest.raises(CorruptionError):
            list(index.check(True))
        index._database.run("ROLLBACK TO here")


def test_a_full_check_adds_up_the_live_bytes(index):
    _commit(index, stored(1, 0, 9, 1))
    index._memory.entry_logs[1] = replace(_log(index, 1), live_bytes=0)
    with pytest.raises(CorruptionError, match="batches refer to 201 bytes of entry log 1, not to 0"):
        list(index.check(True))
