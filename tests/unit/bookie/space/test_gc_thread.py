"""The collector's thread: forced, suspended, resumed, stopped; and what it tells of itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from bk_spark.bookie.log_files.mark import KnownEntryLog, LogState
from bk_spark.bookie.pace import Clocks
from bk_spark.bookie.space.gc_run import GarbageCollector, GcPlan, GcStatus
from bk_spark.config import BookieConfig
from tests.unit.bookie.space.gc_cluster import GcCluster

DEADLINE_S = 60.0


class Running(GcCluster):
    """A collector whose steady clock only moves when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.steady_s = 0.0
        self.collector = GarbageCollector(
            self.local, self.cluster, BookieConfig(), Clocks(lambda: self.now_ms, lambda: self.steady_s)
        )

    def wait_for(self, condition: Callable[[GcStatus], bool]) -> GcStatus:
        changed = self.collector._changed
        with changed:
            assert changed.wait_for(lambda: condition(self.collector._status), DEADLINE_S), self.collector._status
            return self.collector._status

    def run(self, *, major: bool = True) -> GcStatus:
        """Force a run and wait for its end."""
        runs = self.collector.status().runs
        self.collector.force(major)
        return self.wait_for(lambda status: status.runs == runs + 1)


@pytest.fixture
def gc() -> Iterator[Running]:
    made = Running()
    yield made
    made.collector.stop()


def test_nothing_runs_before_its_time(gc: Running) -> None:
    gc.collector.start()
    gc.collector.stop()
    assert gc.collector.status() == GcStatus()


def test_a_run_comes_when_its_interval_is_over(gc: Running) -> None:
    gc.steady_s = 900.0
    gc.collector.start()
    assert gc.wait_for(lambda status: status.runs == 1).last_error == ""


def test_forced_runs_delete_and_are_counted(gc: Running) -> None:
    gc.storage.put(1, 2)
    gc.collector.start()
    assert gc.run().ledgers_deleted == 0
    status = gc.run(major=False)
    assert (status.ledgers_deleted, status.runs, status.last_run_ms, status.is_running) == (2, 2, gc.now_ms, False)
    assert gc.storage.deleted == [1, 2]


def test_while_suspended_nothing_runs_and_what_was_forced_is_kept(gc: Running) -> None:
    gc.storage.put(1)
    gc.collector.suspend()
    gc.collector.start()
    gc.collector.force()
    gc.steady_s = 10_000.0
    gc.collector.force()
    assert gc.collector._wait_s() is None
    assert (gc.collector.status().runs, gc.collector.status().is_suspended) == (0, True)
    gc.collector.resume()
    assert not gc.wait_for(lambda status: status.runs == 1).is_suspended


def test_suspending_ends_a_run_at_its_next_step_and_the_rest_is_done_later(gc: Running) -> None:
    gc.storage.put(1, 2, 3)
    gc.collector.start()
    gc.run()
    delete = gc.storage.delete

    def delete_and_suspend(ledger_id: int, deleted_ms: int) -> bool:
        gc.collector.suspend()
        return delete(ledger_id, deleted_ms)

    object.__setattr__(gc.local, "delete_ledger", delete_and_suspend)
    gc.run()
    assert gc.storage.deleted == [1]
    object.__setattr__(gc.local, "delete_ledger", delete)
    gc.collector.resume()
    gc.run()
    assert gc.storage.deleted == [1, 2, 3]


def test_stopping_ends_a_run_at_its_next_step(gc: Running) -> None:
    gc.storage.put(1, 2, 3)
    gc.collector.start()
    gc.run()
    begun, may_go_on = threading.Event(), threading.Event()
    delete = gc.storage.delete

    def slow_delete(ledger_id: int, deleted_ms: int) -> bool:
        begun.set()
        assert may_go_on.wait(DEADLINE_S)
        return delete(ledger_id, deleted_ms)

    object.__setattr__(gc.local, "delete_ledger", slow_delete)
    gc.collector.force()
    assert begun.wait(DEADLINE_S)
    assert gc.collector.status().is_running
    stopper = threading.Thread(target=gc.collector.stop)
    stopper.start()
    gc.wait_for(lambda _: gc.collector._is_stopped)
    may_go_on.set()
    stopper.join(DEADLINE_S)
    assert not stopper.is_alive()
    assert gc.storage.deleted == [1]


def test_a_run_that_fails_says_why_and_the_next_one_tries_again(gc: Running) -> None:
    gc.storage.put(1)
    gc.collector.start()
    gc.store.failing = "sync"
    assert "no answer" in gc.run().last_error
    gc.store.failing = None
    assert gc.run().last_error == ""
    assert gc.run().ledgers_deleted == 1


def test_a_bug_in_a_run_does_not_end_the_thread(gc: Running) -> None:
    gc.storage.put(1)
    gc.collector.start()
    gc.store.after_listing = lambda: 1 // 0  # type: ignore[assignment,return-value]
    assert "ZeroDivisionError" in gc.run().last_error
    gc.store.after_listing = lambda: None
    assert gc.run().last_error == ""


def test_a_major_run_that_was_asked_for_stays_one(gc: Running) -> None:
    gc.collector.force(major=True)
    gc.collector.force(major=False)
    assert gc.collector._forced is True


def test_compaction_makes_room_for_the_next_run_when_it_is_due(gc: Running) -> None:
    """It may take hours; looking for deleted ledgers does not wait for it."""
    assert gc.collector._may_compact()
    gc.steady_s = 900.0
    assert not gc.collector._may_compact()
    assert gc.collector._may_go_on()


def test_a_run_that_went_through_owes_nothing_and_one_that_failed_does(gc: Running) -> None:
    gc.storage.put(1)
    gc.collector.start()
    gc.store.failing = "sync"
    gc.run()
    assert gc.collector._schedule._owed == GcPlan(0.8, over_replicated=True)
    gc.store.failing = None
    gc.run(major=False)
    assert gc.collector._schedule._owed == GcPlan()


def test_the_status_tells_what_is_stored_and_what_of_it_is_live(gc: Running) -> None:
    gc.storage.open_logs = [KnownEntryLog(1, 0, LogState.OPEN, 5_000, 10), KnownEntryLog(2, 0, LogState.OPEN, 7_000, 6_000)]
    gc.collector.start()
    status = gc.run()
    assert (status.live_bytes, status.total_bytes) == (6_010, 12_000)


def test_all_numbers_of_the_status_have_names(gc: Running) -> None:
    figures = GcStatus(is_suspended=True, bytes_freed=7, last_error="x").figures()
    assert (figures["is_suspended"], figures["bytes_freed"], figures["runs"]) == (1, 7, 0)
    assert "last_error" not in figures
