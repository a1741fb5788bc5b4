"""Many runs: seeds shared out over processes, what they did added up, failures kept as files that can be played again."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from tests.simulation.engines.choices import Choices, SeededChoices, TapeChoices
from tests.simulation.engines.engine import Outcome, run_choices
from tests.simulation.engines.shrink import MAX_TRIES, shrink

SEEDS_A_TASK = 25
"""Seeds that a process takes at a time."""

RERUN_EVERY = 20
"""One run in so many is played twice and must come out the same."""

MAX_FAILURES = 20
"""A campaign ends after so many: the first ones say enough."""


class Play(Protocol):
    """Draws a schedule and plays it: ``run_choices``, or ``whole.run.run_whole``."""

    def __call__(self, choices: Choices, *, is_traced: bool = False) -> Outcome: ...


@dataclass(slots=True)
class Totals:
    schedules: int = 0
    steps: int = 0
    reruns: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
    """The steps of the specification."""
    failed_seeds: list[int] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.reruns += other.reruns
        self.faults.update(other.faults)
        self.marks.update(other.marks)
        self.shapes.update(other.shapes)
        self.allowed.update(other.allowed)
        self.failed_seeds += other.failed_seeds


def run_seeds(seeds: Iterable[int], play: Play = run_choices) -> Totals:
    """Play seeds one after the other in this process."""
    gc.disable()  # a run leaves no cycles worth a collection in its middle
    totals = Totals()
    for seed in seeds:
        outcome = play(SeededChoices(seed))
        totals.schedules += 1
        totals.steps += outcome.steps
        totals.faults.update(outcome.faults)
        totals.marks.update(outcome.marks)
        totals.allowed.update(outcome.allowed)
        totals.shapes["/".join(map(str, outcome.schedule.shape))] += 1
        is_bad = outcome.violation is not None
        if seed % RERUN_EVERY == 0:
            totals.reruns += 1
            is_bad |= play(TapeChoices(outcome.tape)).digest != outcome.digest
        if is_bad:
            totals.failed_seeds.append(seed)
        if totals.schedules % SEEDS_A_TASK == 0:
            gc.collect()
    gc.enable()
    return totals


def run_campaign(first: int, count: int, processes: int, play: Play = run_choices) -> Iterator[Totals]:
    """Seeds from ``first`` on; gives back what is done so far, task by task."""
    tasks = [range(start, min(start + SEEDS_A_TASK, first + count)) for start in range(first, first + count, SEEDS_A_TASK)]
    totals = Totals()
    if processes == 1:
        results: Iterable[Totals] = map(partial(run_seeds, play=play), tasks)
        yield from _added(results, totals)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from _added(pool.imap_unordered(partial(run_seeds, play=play), tasks), totals)


def _added(results: Iterable[Totals], totals: Totals) -> Iterator[Totals]:
    for result in results:
        totals.add(result)
        yield totals
        if len(totals.failed_seeds) >= MAX_FAILURES:
            return


def report(totals: Totals, seconds: float) -> str:
    """What a campaign did, for people."""
    return (
        f"{totals.schedules} schedules, {totals.steps} steps, {totals.reruns} of them played twice,"
        f" {len(totals.failed_seeds)} failed; {totals.schedules / max(seconds, 0.001):.0f} schedules/s\n"
        f"faults: {_listed(totals.faults)}\nwhat happened: {_listed(totals.marks)}\nshapes: {_listed(totals.shapes)}\n"
        f"steps of the specification: {_listed(totals.allowed)}"
    )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def keep_failure(seed: int, directory: Path, maximum_tries: int = MAX_TRIES, play: Play = run_choices) -> str:
    """Shrink a failed seed and write it down; gives back the one line that says so."""
    outcome = play(SeededChoices(seed))
    if outcome.violation is None:
        return f"seed {seed}: a second run of the same tape came out differently"
    tape = shrink(outcome.tape, lambda candidate: _same_failure(candidate, outcome, play), maximum_tries)
    shrunk = play(TapeChoices(tape), is_traced=True)
    engine = "virtual time" if play is run_choices else "whole programs"
    path = write_failure(seed, shrunk, directory, engine)
    shape = "/".join(map(str, shrunk.schedule.shape))
    return f"seed {seed}, {engine}, {shape}, {shrunk.violation}, {path}"


def write_failure(seed: int, outcome: Outcome, directory: Path, engine: str = "virtual time") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    assert outcome.violation is not None
    path = directory / f"{outcome.violation.invariant}-{seed}.json"
    kept = {
        "seed": seed,
        "engine": engine,
        "shape": outcome.schedule.shape,
        "violation": str(outcome.violation),
        "tape": outcome.tape,
        "trace": outcome.trace,
    }
    path.write_text(json.dumps(kept, indent=1))
    return path


def run_seed(seed: int, play: Play = run_choices) -> Outcome:
    """With its trace."""
    return play(SeededChoices(seed), is_traced=True)


def replay_failure(path: Path, play: Play = run_choices) -> Outcome:
    return play(TapeChoices(json.loads(path.read_text())["tape"]), is_traced=True)


def _same_failure(tape: Iterable[int], outcome: Outcome, play: Play) -> list[int] | None:
    played = play(TapeChoices(list(tape)))
    if played.violation is None or outcome.violation is None:
        return None
    return played.tape if played.violation.invariant == outcome.violation.invariant else None
