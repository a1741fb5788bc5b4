"""Compaction and crashes, at each call of the disk and among all else. Protocol rule 43, storage rule 5, situation 63."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bk_spark.bookie.log_files.mark import LogState
from bk_spark.bookie.space import compaction
from tests.budget import IS_SOAK, examples
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.world.simulated_disk import MachineStops, SimulatedDisk
from tests.unit.bookie.space.gc_bookie import LARGE, SMALL, CollectedBookie

CRASHES_AT_EACH_STEP = 2 if IS_SOAK else 1
"""What of the unsynced bytes and names is left differs from one to the next."""


def _filled() -> CollectedBookie:
    """Four ledgers in several logs, one of them deleted, one log without a live byte."""
    bookie = CollectedBookie()
    bookie.fill(1, 2, 3, entries=4)
    bookie.fill(4, entries=9)
    for ledger_id in (1, 2, 3):
        bookie.add(ledger_id, 4, 8, SMALL)
    bookie.seal()
    bookie.delete(2, 4)
    bookie.checkpoint()
    return bookie


def _crash_points(bookie: CollectedBookie, threshold: float) -> list[SimulatedDisk]:
    """The disk as it is at each point of a compaction at which the machine may stop."""
    points: list[SimulatedDisk] = []
    bookie.disk.is_copied = True
    bookie.disk.at_step = lambda: points.append(bookie.disk.copy(len(points)))
    bookie.compact(threshold)
    bookie.disk.at_step = lambda: None
    points.append(bookie.disk.copy(len(points)))
    return points


@pytest.mark.parametrize("step_batches", [2, 100])
def test_a_crash_at_any_call_of_the_disk_loses_nothing_and_the_next_pass_ends_the_work(
    monkeypatch: pytest.MonkeyPatch, step_batches: int
) -> None:
    """Step by step or as a whole: after each crash everything live is read, nothing deleted returns, no file is left over."""
    monkeypatch.setattr(compaction, "STEP_BATCHES", step_batches)
    bookie = _filled()
    points = _crash_points(bookie, 0.8)
    assert len(points) > 30
    for number, point in enumerate(points):
        for seed in range(CRASHES_AT_EACH_STEP):
            disk = point.copy(seed)
            disk.crash_machine(SeededChoices(number * CRASHES_AT_EACH_STEP + seed), may_garble=False)
            after = CollectedBookie(disk, deepcopy(bookie.ledgers))
            after.check()
            after.compact(0.8)
            after.check()
            assert after.files().keys() == after.logs().keys(), f"at step {number}"
            assert not [row for row in after.logs().values() if row.state is LogState.DEAD]
            after.restart()
            after.compact(0.8)
            after.check()
            assert sum(after.files().values()) <= sum(bookie.files().values()) + 8_192


def test_a_kill_at_any_call_of_the_disk_and_another_in_the_pass_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "STEP_BATCHES", 2)
    for calls in range(1, 200, 1 if IS_SOAK else 9):
        bookie = _filled()
        for again in (calls, 7, 3):
            bookie.disk.stop_after(again)
            with suppress(MachineStops):
                bookie.compact(0.8)
            bookie.disk.stop_never()
            bookie.kill()
            bookie.check()
        bookie.compact(0.8)
        bookie.check()
        assert bookie.files().keys() == bookie.logs().keys()


class Collecting(RuleBasedStateMachine):
    """Adds, deletions, checkpoints, compactions, restarts, kills and crashes, in any order, against a model of what is live."""

    @initialize()
    def begin(self) -> None:
        self.bookie = CollectedBookie()
        self.next_ledger = 0
        self.open: list[int] = []
        self.crashes = 0

    @rule(size=st.sampled_from([SMALL, LARGE]), entries=st.integers(1, 6))
    def write_new_ledger(self, size: int, entries: int) -> None:
        self.open.append(self.next_ledger)
        self.bookie.fill(self.next_ledger, entries=entries, size=size)
        self.next_ledger += 1

    @rule(which=st.integers(0, 99), size=st.sampled_from([SMALL, LARGE]), entries=st.integers(1, 9))
    def write_more(self, which: int, size: int, entries: int) -> None:
        """As one batch behind what the ledger has."""
        if self.open:
            ledger_id = self.open[which % len(self.open)]
            first = max(one.last for one in self.bookie.ledgers[ledger_id]) + 1
            self.bookie.add(ledger_id, first, first + entries - 1, size)

    @rule(which=st.integers(0, 99))
    def delete(self, which: int) -> None:
        if self.open:
            self.bookie.delete(self.open.pop(which % len(self.open)))

    @rule()
    def checkpoint(self) -> None:
        self.bookie.checkpoint()

    @rule(threshold=st.sampled_from([0.0, 0.2, 0.8]), steps=st.integers(1, 60))
    def compact(self, threshold: float, steps: int) -> None:
        answers = iter([True] * steps)
        self.bookie.compact(threshold, lambda: next(answers, False))

    @rule(threshold=st.sampled_from([0.0, 0.8]), calls=st.integers(1, 60), lost=st.booleans())
    def compact_and_stop(self, threshold: float, calls: int, lost: bool) -> None:
        """The machine, or the process alone, ends in the middle."""
        self.bookie.disk.stop_after(calls)
        with suppress(MachineStops):
            self.bookie.compact(threshold)
        self.bookie.disk.stop_never()
        self.crashes += 1
        if lost:
            self.bookie.disk.crash_machine(SeededChoices(self.crashes), may_garble=False)
        self.bookie.kill()

    @rule()
    def restart(self) -> None:
        self.bookie.restart()

    @invariant()
    def everything_live_is_there(self) -> None:
        if hasattr(self, "bookie"):
            self.bookie.check()


TestCollecting = Collecting.TestCase
TestCollecting.settings = settings(examples(20, *HealthCheck), stateful_step_count=25)
