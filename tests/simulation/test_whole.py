"""Whole runs: the shipped client programs, down to where they meet sockets, under the faults of virtual time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from tests.budget import IS_SOAK
from tests.checkout import ROOT
from tests.simulation.engines.campaign import report, run_seeds
from tests.simulation.engines.choices import SeededChoices, TapeChoices
from tests.simulation.mutants.driver_mutants import DRIVER_MUTANTS
from tests.simulation.mutants.mutant import Patch
from tests.simulation.whole.loop import MAX_CALLS, SimulatedLoop
from tests.simulation.whole.run import run_whole
from tests.simulation.world.client_process import ClientProcess

SCHEDULES = 400 if IS_SOAK else 40

MOST_SEEDS = 20
"""A change of the code gives seeds other runs: then another one soon catches the mutant."""


def test_nothing_confirmed_is_lost_by_whole_programs_in_schedules_with_faults() -> None:
    totals = run_seeds(range(SCHEDULES), run_whole)
    assert totals.failed_seeds == [], report(totals, 1)
    assert totals.marks["entries acked"] > SCHEDULES
    assert totals.marks["closed by a recoverer"] > SCHEDULES / 2


def test_a_tape_gives_the_same_whole_run_as_its_seed() -> None:
    outcome = run_whole(SeededChoices(4), is_traced=True)
    assert outcome.trace
    assert run_whole(TapeChoices(outcome.tape), is_traced=True).digest == outcome.digest


def test_a_whole_run_does_not_depend_on_the_order_of_sets() -> None:
    program = (
        "from tests.simulation.engines.campaign import run_seed; from tests.simulation.whole.run import run_whole;"
        "print(*(run_seed(seed, run_whole).digest for seed in (3, 7, 12)))"
    )
    digests = set()
    for hash_seed in ("0", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", program]
        digests.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(digests) == 1


@pytest.mark.parametrize(("patch", "seed"), DRIVER_MUTANTS.items(), ids=[one.__name__ for one in DRIVER_MUTANTS])
def test_a_deliberate_bug_of_a_driver_is_caught(patch: Patch, seed: int) -> None:
    with patch():
        assert any(run_whole(SeededChoices(one)).violation for one in range(seed, seed + MOST_SEEDS))


# --- the loop


class _World:
    """Of one process: what is to come, in its order."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.due: list[tuple[int, object]] = []


class _Process(ClientProcess):
    """Gets its turns at once where the test asks for them."""

    def __init__(self) -> None:
        self.name, self.world = "process", _World()  # type: ignore[assignment]

    def later(self, delay_ms: int, wake: object) -> None:  # type: ignore[override]
        self.world.due.append((self.world.now_ms + delay_ms, wake))  # type: ignore[attr-defined]

    def run(self) -> None:
        due = self.world.due  # type: ignore[attr-defined]
        while due:
            due.sort(key=lambda one: one[0])
            self.world.now_ms, wake = due.pop(0)
            wake()


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop(_Process())


def test_a_loop_takes_its_time_from_the_run(loop: SimulatedLoop) -> None:
    async def sleep() -> float:
        await asyncio.sleep(2.5)
        return loop.time()

    task = loop.create_task(sleep())
    loop.process.run()  # type: ignore[attr-defined]
    assert task.result() == 2.5
    loop.end()


def test_what_a_callback_raises_comes_out_of_its_turn(loop: SimulatedLoop) -> None:
    loop.call_soon(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.process.run()  # type: ignore[attr-defined]
    loop.end()


def test_callbacks_that_call_each_other_for_ever_end_the_run(loop: SimulatedLoop) -> None:
    calls = 0

    def again() -> None:
        nonlocal calls
        calls += 1
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(AssertionError, match="does not come to rest"):
        loop.process.run()  # type: ignore[attr-defined]
    assert calls == MAX_CALLS
    loop.end()
