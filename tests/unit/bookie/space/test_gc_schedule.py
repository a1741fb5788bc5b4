"""When the collector runs, and what joins a run. Situation 63: thresholds and intervals."""

from __future__ import annotations

import pytest

from bk_spark.bookie.space.gc_run import ONLY_EMPTY, GcPlan, GcSchedule
from bk_spark.config import BookieConfig

HOUR = 3_600.0
DAY = 24 * HOUR
MINOR, MAJOR = 0.2, 0.8


@pytest.fixture
def schedule() -> GcSchedule:
    return GcSchedule(BookieConfig(), now_s=0.0)


def _run(schedule: GcSchedule, now_s: float, *, is_compacted: bool = True, major: bool | None = None) -> GcPlan:
    plan = schedule.begin(now_s, major=major)
    schedule.end(now_s, is_compacted=is_compacted)
    return plan


def test_a_run_is_due_an_interval_after_the_last_one_began(schedule: GcSchedule) -> None:
    assert schedule.wait_s(0.0) == 900.0
    assert schedule.wait_s(899.0) == 1.0
    assert schedule.wait_s(5_000.0) == 0.0
    schedule.begin(5_000.0)
    assert schedule.wait_s(5_100.0) == 800.0


def test_minor_compaction_joins_each_hour_and_major_each_day(schedule: GcSchedule) -> None:
    plans = {hour: _run(schedule, hour * HOUR).threshold for hour in range(1, 73)}
    assert {hour for hour, threshold in plans.items() if threshold == MAJOR} == {24, 48, 72}
    assert {threshold for hour, threshold in plans.items() if hour % 24} == {MINOR}


def test_runs_between_compactions_take_only_empty_logs(schedule: GcSchedule) -> None:
    assert [_run(schedule, minute * 60.0).threshold for minute in (15, 30, 45, 60, 75)] == [ONLY_EMPTY] * 3 + [
        MINOR,
        ONLY_EMPTY,
    ]


def test_a_major_compaction_is_a_minor_one_too(schedule: GcSchedule) -> None:
    assert _run(schedule, DAY).threshold == MAJOR
    assert _run(schedule, DAY + 900).threshold == ONLY_EMPTY


def test_over_replicated_ledgers_are_looked_for_each_day(schedule: GcSchedule) -> None:
    assert [hour for hour in range(1, 50) if _run(schedule, hour * HOUR).over_replicated] == [24, 48]


def test_a_forced_run_looks_at_everything(schedule: GcSchedule) -> None:
    assert _run(schedule, 1.0, major=True) == GcPlan(MAJOR, True)
    assert _run(schedule, 2.0, major=False) == GcPlan(MINOR, True)


def test_compaction_that_was_not_finished_is_owed_to_the_next_run(schedule: GcSchedule) -> None:
    _run(schedule, 1.0, is_compacted=False, major=True)
    assert _run(schedule, 900.0, is_compacted=False) == GcPlan(MAJOR, False)
    assert _run(schedule, 1_800.0) == GcPlan(MAJOR, False)
    assert _run(schedule, 2_700.0) == GcPlan(ONLY_EMPTY, False)


def test_a_run_that_failed_is_owed_as_a_whole(schedule: GcSchedule) -> None:
    schedule.begin(1.0, major=True)
    assert _run(schedule, 900.0) == GcPlan(MAJOR, True)
