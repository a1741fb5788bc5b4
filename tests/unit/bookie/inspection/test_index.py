"""The index as an inspector sees it: beside a running bookie, in the middle of commits, and damaged in any way."""

from __future__ import annotations

import sqlite3

import pytest

from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.index.values import IndexState
from bk_spark.bookie.inspection.index import MAX_READINGS, IndexReading, IndexView, read_index
from bk_spark.bookie.log_files.mark import LogState
from tests.unit.bookie.harness import BOOKIE_ID, Harness
from tests.unit.bookie.inspection.test_logs import LARGE, tree


def read(harness: Harness, what=lambda view: view.state) -> IndexReading:
    return read_index(harness.data_dir / "index", REAL_DISK, what)


def fill(harness: Harness) -> None:
    """Two ledgers in the index: one fenced, one with large and small adds; the bookie goes on running."""
    harness.start()
    harness.add(1, 0, 9)
    harness.add(2, 0, 1, size=LARGE)
    harness.add(2, 2, 2)
    harness.fence(1)
    harness.restart()


def everything(view: IndexView) -> object:
    view.verify(full=True)
    return [view.entry_logs(), view.ledgers(0, 100), view.batches(2), view.live_bytes()]


def test_the_index_of_a_running_bookie_is_read_beside_its_lock(harness: Harness) -> None:
    fill(harness)
    reading = read(harness)
    assert isinstance(reading.value, IndexState)
    assert (reading.value.bookie_id, reading.problem, reading.is_one_state) == (BOOKIE_ID, "", True)
    ledgers = read(harness, lambda view: view.ledgers(0, 100)).value
    assert [(one.ledger_id, one.is_fenced, one.highest_entry_id) for one in ledgers] == [(1, True, 9), (2, False, 2)]
    assert [one.ledger_id for one in read(harness, lambda view: view.ledgers(2, 1)).value] == [2]
    assert [(stored.first_entry_id, stored.last_entry_id) for stored in read(harness, lambda view: view.batches(2)).value] == [
        (0, 1),
        (2, 2),
    ]


@pytest.mark.parametrize("page_batches", [1, 2, 100])
def test_live_bytes_of_ledgers_add_up_to_those_of_their_logs(harness: Harness, page_batches: int, monkeypatch) -> None:
    monkeypatch.setattr("bk_spark.bookie.inspection.index.PAGE_BATCHES", page_batches)
    fill(harness)
    live = read(harness, IndexView.live_bytes).value
    assert {ledger_id for _, ledger_id in live} == {1, 2}
    logs = read(harness, IndexView.entry_logs).value
    for log in logs:
        assert log.live_bytes == sum(size for (file_id, _), size in live.items() if file_id == log.file_id)
        assert log.state in (LogState.OPEN, LogState.SEALED)
    assert sum(log.live_bytes for log in logs) == sum(live.values()) > 0


def test_a_commit_in_between_makes_it_read_once_more(harness: Harness) -> None:
    fill(harness)
    generations: list[int] = []

    def with_a_commit(view: IndexView) -> int:
        if not generations:
            assert harness.bookie is not None
            harness.add(3, 0, 0)
            harness.bookie.storage.checkpoint()
        generations.append(view.state.generation)
        return view.state.generation

    reading = read(harness, with_a_commit)
    assert reading.is_one_state
    assert generations == [reading.value - 1, reading.value]


def test_if_commits_never_leave_room_what_was_read_is_said_to_be_no_single_state(harness: Harness) -> None:
    fill(harness)
    readings = []

    def with_a_commit(view: IndexView) -> int:
        assert harness.bookie is not None
        harness.add(3, len(readings), len(readings))
        harness.bookie.storage.checkpoint()
        readings.append(view.state.generation)
        return view.state.generation

    reading = read(harness, with_a_commit)
    assert not reading.is_one_state
    assert reading.value == readings[-1]
    assert len(readings) == MAX_READINGS


def test_a_rollback_journal_that_a_crash_left_is_told_of_and_not_undone(harness: Harness) -> None:
    fill(harness)
    harness.kill()
    (harness.data_dir / "index" / "ledgers.sqlite-journal").write_bytes(bytes(1000))
    before = tree(harness.data_dir)
    reading = read(harness)
    assert (reading.is_one_state, reading.rollback_bytes) == (False, 1000)
    assert tree(harness.data_dir) == before


def test_looking_changes_nothing(harness: Harness) -> None:
    fill(harness)
    harness.kill()
    before = tree(harness.data_dir)
    assert read(harness, everything).problem == ""
    assert tree(harness.data_dir) == before


def test_an_index_that_is_missing_or_empty_is_said_to_be_so(harness: Harness) -> None:
    assert "No such file" in read(harness).problem
    (harness.data_dir / "index").mkdir()
    (harness.data_dir / "index" / "ledgers.sqlite").write_bytes(b"")
    assert "empty" in read(harness).problem


def test_a_row_that_is_gone_shows_when_the_tallies_are_held_against_it(harness: Harness) -> None:
    """Storage rule 3: nothing that is left is wrong by itself."""
    fill(harness)
    harness.stop()
    database = sqlite3.connect(harness.data_dir / "index" / "ledgers.sqlite")
    database.execute("DELETE FROM batches WHERE ledger_id = 2 AND first_entry_id = 0")
    database.commit()
    database.close()
    assert len(read(harness, lambda view: view.batches(2)).value) == 1
    assert "ledger 2" in read(harness, lambda view: view.verify(full=True)).problem
    assert read(harness, lambda view: view.verify(full=False)).problem == ""
