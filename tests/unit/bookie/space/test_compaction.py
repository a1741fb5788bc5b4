"""Space comes back, live data stays. Protocol rules 42 and 43, storage rule 5, situation 63."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bk_spark.bookie.log_files.mark import KnownEntryLog, LogState
from bk_spark.bookie.space import compaction
from bk_spark.bookie.space.compaction import Compacted, choose
from bk_spark.errors import MissingLogError, StorageError
from tests.unit.bookie.space.gc_bookie import LARGE, CollectedBookie


@pytest.fixture
def bookie() -> Iterator[CollectedBookie]:
    made = CollectedBookie()
    yield made
    made.bookie.close()


def _log(file_id: int, live_bytes: int, total_bytes: int = 104_220, state: LogState = LogState.SEALED) -> KnownEntryLog:
    return KnownEntryLog(file_id, 0, state, total_bytes, live_bytes)


# --- which logs


def test_logs_below_the_threshold_are_chosen_those_first_that_give_most_for_least() -> None:
    logs = [_log(1, 79_000), _log(2, 10_000), _log(3, 81_000), _log(4, 0), _log(5, 19_999)]
    assert [one.file_id for one in choose(logs, 0.8)] == [4, 2, 5, 1]
    assert [one.file_id for one in choose(logs, 0.2)] == [4, 2, 5]


def test_only_logs_without_a_live_byte_are_chosen_without_a_threshold() -> None:
    assert [one.file_id for one in choose([_log(1, 1), _log(2, 0)], 0.0)] == [2]


@pytest.mark.parametrize("state", [LogState.OPEN, LogState.DEAD])
def test_only_sealed_logs_are_chosen(state: LogState) -> None:
    assert choose([_log(1, 0, state=state), _log(2, 5, state=state)], 1.0) == []


def test_a_small_log_that_is_all_live_is_not_copied_for_its_header() -> None:
    assert choose([_log(1, 200, total_bytes=200 + compaction.OVERHEAD_BYTES)], 0.8) == []


# --- what happens to them


def test_a_log_without_a_live_byte_is_unlinked_and_its_space_is_back(bookie: CollectedBookie) -> None:
    bookie.fill(1, entries=10)
    bookie.fill(2, entries=30)
    bookie.fill(3, entries=10)
    bookie.seal()
    bookie.delete(2)
    bookie.checkpoint()
    empty = {one for one, log in bookie.logs().items() if log.live_bytes == 0 and log.state is LogState.SEALED}
    before = bookie.files()
    done = bookie.compact(0.0)
    assert len(empty) >= 1
    assert done.logs_deleted == len(empty)
    assert done.bytes_freed == sum(before[one] for one in empty)
    assert (done.logs_compacted, bookie.copied) == (0, [])
    assert bookie.files() == {one: size for one, size in before.items() if one not in empty}
    assert empty.isdisjoint(bookie.logs())
    bookie.check()


def test_live_data_is_copied_and_the_rest_of_the_space_comes_back(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    sealed = {one for one, log in bookie.logs().items() if log.state is LogState.SEALED}
    live_bytes = sum(log.live_bytes for log in bookie.logs().values())
    before = sum(bookie.files().values())
    done = bookie.compact(0.8)
    bookie.check()
    assert done.logs_deleted == len(sealed)
    assert done.bytes_freed == before - sum(bookie.files().values())
    assert sealed.isdisjoint(bookie.files())
    assert sum(log.live_bytes for log in bookie.logs().values()) == live_bytes
    bookie.restart()
    bookie.check()
    bookie.kill()
    bookie.check()


def test_logs_above_the_threshold_stay(bookie: CollectedBookie) -> None:
    """Three of five parts are live."""
    bookie.fill_mixed()
    before = bookie.files()
    assert bookie.compact(0.2).logs_compacted == 0
    assert before.items() <= bookie.files().items()
    assert bookie.compact(0.8).logs_compacted > 0


def test_copies_of_many_logs_share_files(bookie: CollectedBookie) -> None:
    bookie.fill(*range(1, 11), entries=10)
    bookie.seal()
    bookie.delete(*range(2, 11))
    bookie.checkpoint()
    assert len(bookie.live_ids()) >= 10
    bookie.compact(0.8)
    assert len(bookie.live_ids()) == 2
    assert {log.state for log in bookie.logs().values() if log.live_bytes} == {LogState.SEALED}
    bookie.check()


def test_a_second_pass_finds_nothing_to_do(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    bookie.compact(0.8)
    before = bookie.files()
    assert bookie.compact(0.8) == Compacted()
    assert bookie.files() == before


def test_copies_can_be_compacted_again(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    bookie.compact(0.8)
    bookie.delete(1, 3)
    bookie.checkpoint()
    bookie.compact(0.8)
    bookie.check()
    bookie.restart()
    bookie.check()


def test_a_long_log_is_moved_in_several_steps(bookie: CollectedBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "STEP_BATCHES", 2)
    bookie.fill_mixed()
    steps: list[int] = []
    move = bookie.bookie.storage.move
    monkeypatch.setattr(bookie.bookie.storage, "move", lambda moves, *more: (steps.append(len(moves)), move(moves, *more))[1])
    bookie.compact(0.8)
    assert (max(steps), sum(steps)) == (2, 24 + 3)
    bookie.check()
    bookie.restart()
    bookie.check()


def test_an_entry_larger_than_a_step_is_copied(bookie: CollectedBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "STEP_BYTES", LARGE)
    bookie.fill_mixed()
    bookie.compact(0.8)
    bookie.check()


def test_what_is_copied_is_taken_from_the_rate(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    live_bytes = sum(log.live_bytes for log in bookie.logs().values())
    bookie.compact(0.8)
    assert sum(bookie.copied) == live_bytes


# --- what must not go


def test_a_log_whose_rows_are_only_in_memory_is_left_alone(bookie: CollectedBookie) -> None:
    """Storage rule 5: the large adds are acked, their log has rolled, and the index has not heard of them."""
    bookie.fill(1, entries=60)
    before = bookie.files()
    assert len(before) > 2
    bookie.compact(0.8)
    assert bookie.files() == before
    bookie.kill()
    bookie.check()


def test_a_wrong_count_of_live_bytes_never_unlinks_live_data(bookie: CollectedBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol rule 42: the log is read through before it goes."""
    bookie.fill_mixed()
    storage = bookie.bookie.storage
    entry_logs = storage.entry_logs
    monkeypatch.setattr(storage, "entry_logs", lambda: [replace(one, live_bytes=0) for one in entry_logs()])
    bookie.compact(0.0)
    bookie.check()
    monkeypatch.undo()
    bookie.restart()
    bookie.check()


def test_what_the_index_refers_to_is_not_unlinked_whatever_was_read(
    bookie: CollectedBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading that passes over a live record in silence."""
    bookie.fill_mixed()
    victim = bookie.batches(3)[1].location
    assert victim is not None
    logs = bookie.bookie.storage.log_files
    scan = logs.scan
    monkeypatch.setattr(logs, "scan", lambda *one, **more: (found for found in scan(*one, **more) if found[0] != victim))
    bookie.compact(0.8)
    assert victim.file_id in bookie.files()
    assert [stored.location for stored in bookie.damaged] == [victim]
    bookie.check()


def test_a_ledger_that_is_deleted_while_its_records_are_copied_does_not_return(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    asked = iter(range(1000))

    def delete_meanwhile() -> bool:
        if next(asked) == 5:
            bookie.delete(3)
            bookie.checkpoint()
        return True

    bookie.compact(0.8, delete_meanwhile)
    bookie.check()
    bookie.restart()
    bookie.check()
    assert bookie.batches(3) == []


def test_a_checkpoint_in_the_middle_does_no_harm(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    first = iter(range(100, 1000))

    def add_and_checkpoint() -> bool:
        bookie.add(1, (entry_id := next(first)), entry_id)
        bookie.checkpoint()
        return True

    bookie.ledgers[1] = []
    written = bookie.ledgers[1]
    bookie.compact(0.8, add_and_checkpoint)
    assert written
    found, _ = bookie.payloads(5, 30)
    assert len(found) == 31
    bookie.restart()
    assert len(bookie.payloads(5, 30)[0]) == 31


def test_a_reader_that_looked_up_a_batch_before_gets_it_after(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    storage = bookie.bookie.storage
    found = storage.batches_from((-1, -1, -1), 1000)
    before = [storage.get(stored) for stored in found]
    bookie.compact(0.8)
    assert [storage.get(stored) for stored in found] == before


def test_a_reader_of_a_log_that_is_gone_learns_nothing(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    storage = bookie.bookie.storage
    (stored, *_) = storage.batches_from((-1, -1, -1), 1)
    bookie.compact(0.8)
    bookie.delete(stored.ledger_id)
    bookie.checkpoint()
    bookie.compact(0.8)
    with pytest.raises(MissingLogError):
        storage.get(stored)


# --- space


def test_without_space_for_copies_only_logs_without_a_live_byte_go(bookie: CollectedBookie) -> None:
    bookie.fill(1, entries=10)
    bookie.fill(2, entries=30)
    bookie.seal()
    bookie.delete(2)
    bookie.checkpoint()
    bookie.free_bytes = 0
    done = bookie.compact(0.8)
    assert (done.logs_deleted > 0, bookie.copied, done.is_compacted) == (True, [], False)
    bookie.check()
    bookie.free_bytes = 1 << 40
    assert bookie.compact(0.8).is_compacted
    bookie.check()


def test_a_disk_that_is_full_in_the_middle_loses_nothing_and_keeps_no_half_copies(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    before = bookie.files()
    asked = iter(range(1000))

    def fill_the_disk() -> bool:
        if next(asked) == 4:
            bookie.disk.fails_on = "write"
        return True

    with pytest.raises(StorageError):
        bookie.compact(0.8, fill_the_disk)
    bookie.disk.fails_on = None
    assert set(bookie.files()) == set(bookie.logs()) <= set(before)
    bookie.check()
    assert bookie.bookie.failure is None
    bookie.compact(0.8)
    bookie.check()
    bookie.restart()
    bookie.check()


def test_a_pass_that_is_told_to_stop_keeps_what_it_has_moved(bookie: CollectedBookie) -> None:
    bookie.fill_mixed()
    for steps in range(1, 40, 7):
        answers = iter([True] * steps)
        assert not bookie.compact(0.8, lambda answers=answers: next(answers, False)).is_compacted or steps > 20
        bookie.check()
        bookie.kill()
        bookie.check()
    bookie.compact(0.8)
    bookie.check()


def test_a_pass_that_is_told_to_stop_reads_no_further(bookie: CollectedBookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many dead logs of a gibibyte each would hold up the stop of the bookie for minutes."""
    for ledger_id in (1, 2, 3):
        bookie.fill(ledger_id, entries=30)
        bookie.seal()
        bookie.delete(ledger_id)
    bookie.checkpoint()
    dead = [one for one in bookie.logs().values() if one.live_bytes == 0 and one.state is LogState.SEALED]
    assert len(dead) > 1
    read: list[int] = []
    monkeypatch.setattr(bookie.bookie.storage, "find", lambda *key: read.append(1))
    bookie.compact(0.0, lambda: not read)
    assert len(read) == 1
