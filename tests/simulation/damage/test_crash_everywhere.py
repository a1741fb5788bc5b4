"""The machine stops at every file-system call and every index transaction of a fixed workload.

At each such point the disk is copied as it is, crashes in one of several ways (crash_workload.py says what is done,
simulated_disk.py what a crash leaves), and a bookie is started on the copy: every acked entry reads right, every acked fence
and last add confirmed holds, nothing deleted returns, no unacked batch is torn, and nothing is unknown or damaged. The start
is cut at its own calls in turn.

The normal run takes each STRIDE-th call of the workload, and the calls of a start at each NESTED_STRIDE-th of those; a soak
takes all of both (some five minutes).

Ref: docs/rules.md, storage rules 2, 4 to 7, 12 and 14, "Order of syncs", protocol rules 35 to 38, situations 53, 57 and 66.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bk_spark.bookie.bookie import Bookie
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError
from tests.budget import IS_SOAK
from tests.simulation.engines.choices import Choices, SeededChoices
from tests.simulation.world.simulated_disk import SimulatedDisk
from tests.unit.bookie.storage.crash_workload import CONFIG, Oracle, Run, open_bookie

Check = Callable[[Oracle, Bookie], None]

STRIDE = 1 if IS_SOAK else 6
NESTED_STRIDE = 1 if IS_SOAK else 11
KILLED, ALL_LOST, SOME_LOST = "the process is killed", "all that was not synced is lost", "some of it is lost"
OTHER_WAYS = {1: (SOME_LOST,), 3: (KILLED,)}
"""In the normal run, by the number of the call modulo 4."""

WITHOUT_JOURNAL = replace(CONFIG, journal_write_data=False)


class _Cuts:
    """Has a disk crash at each of its calls, on a copy of it, and looks at what a start makes of that."""

    def __init__(self, oracle: Callable[[], Oracle], start: Callable[[SimulatedDisk], Bookie], check: Check) -> None:
        self.calls = 0
        self.states = 0
        self.count = 0
        """How many states it crashed in."""
        self.starts = 0
        self._state: object = None
        self._start_state: object = None
        self._oracle = oracle
        self._start = start
        self._check = check

    def watch(self, disk: SimulatedDisk) -> None:
        disk.is_copied = True
        disk.at_step = lambda: self._cut(disk)

    def _cut(self, disk: SimulatedDisk) -> None:
        self.calls += 1
        if disk.state == self._state:
            return  # the end of one call, now the beginning of the next
        self._state = disk.state
        self.states += 1
        if self.states % STRIDE:
            return
        self.count += 1
        for way in (ALL_LOST, SOME_LOST, KILLED) if IS_SOAK else (ALL_LOST, *OTHER_WAYS.get(self.count % 4, ())):
            crashed = _crashed(disk, way, self.count)
            if way == ALL_LOST and self.count % NESTED_STRIDE == 0:
                crashed.is_copied = True
                crashed.at_step = lambda: self._cut_start(crashed)  # noqa: B023
            self._look(crashed, f"call {self.count}, {way}")

    def _cut_start(self, disk: SimulatedDisk) -> None:
        """The start after a crash is cut in turn."""
        if disk.state == self._start_state:
            return
        self._start_state = disk.state
        self.starts += 1
        way = (ALL_LOST, SOME_LOST)[self.starts % 2]
        self._look(_crashed(disk, way, self.starts), f"call {self.count}, then a call of the start, {way}")

    def _look(self, disk: SimulatedDisk, when: str) -> None:
        try:
            bookie = self._start(disk)
            disk.at_step = lambda: None
            self._check(self._oracle(), bookie)
        except (BookKeeperError, AssertionError) as problem:
            raise AssertionError(f"cut at {when}: {problem}") from problem


def _crashed(disk: SimulatedDisk, way: str, seed: int) -> SimulatedDisk:
    copy = disk.copy(seed)
    if way == KILLED:
        copy.kill_process()
    else:
        copy.crash_machine(_AllLost() if way == ALL_LOST else SeededChoices(seed), may_garble=False)
    return copy


class _AllLost(Choices):
    """All that was not synced is lost, names too."""

    def _next(self, count: int, label: str) -> int:
        return count - 1 if label == "names lost" else 0


def _play(config: BookieConfig, start: Callable[[SimulatedDisk], Bookie], check: Check) -> int:
    """How many calls were cut at."""
    disk = SimulatedDisk(1)
    runs: list[Run] = []
    cuts = _Cuts(lambda: runs[0].oracle if runs else Oracle(), start, check)
    cuts.watch(disk)
    runs.append(Run(disk, config))
    runs[0].play()
    check(runs[0].oracle, start(_crashed(disk, ALL_LOST, 0)))
    assert (runs[0].compacted > 3, runs[0].damaged) == (True, [])
    return cuts.count


@pytest.mark.timeout(1800 if IS_SOAK else 120)
def test_nothing_acked_is_lost_and_nothing_deleted_returns_wherever_the_machine_stops() -> None:
    count = _play(CONFIG, lambda disk: open_bookie(disk, CONFIG), lambda oracle, bookie: oracle.check(bookie))
    assert count > 300 // STRIDE


@pytest.mark.timeout(1800 if IS_SOAK else 120)
def test_without_a_journal_for_data_nothing_is_denied_no_fence_is_lost_and_nothing_deleted_returns() -> None:
    """Every start is one after a possible loss. A deletion and a fence are as durable as ever."""

    def start(disk: SimulatedDisk) -> Bookie:
        return open_bookie(disk, WITHOUT_JOURNAL, possible_loss="the journal was skipped", highest_issued=lambda: 1000)

    count = _play(WITHOUT_JOURNAL, start, lambda oracle, bookie: oracle.check(bookie, loses_adds=True))
    assert count > 200 // STRIDE
