"""Shares the time out: engines and kinds of runs that lately found more new states for a second of the processor get more.
States of different engines are of different kinds, so a find counts by how much it adds to what its engine knows.

A part goes to those that found less, as what is found changes; a part to deliberate bugs, which measure how much a minute of an
engine is worth.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from tests.soak.farm.corpus import Corpus, save, saved_tapes
from tests.soak.farm.engines import ENGINES
from tests.soak.farm.tasks import AGAIN, CONTINUED, FRESH, MUTANT, Result, Task, keep_failure, work

SLICE_S = 10.0
"""Of the processor, for a task."""

MUTANT_S = 20.0
"""For the search of one deliberate bug."""

MUTANTS_SHARE, CURIOSITY = 0.15, 0.2
"""Of the tasks: those that search for deliberate bugs; of the others those that are drawn, whatever they found lately."""

BEGINS = 50
"""Tapes of the corpus that a task begins with."""

HANGS_S = 600.0
"""A task takes seconds of the processor; a busy machine may have few to give."""

LATELY = 8
"""Tasks of an engine and a kind by which it is judged."""

FAILURES = 10
"""That are shrunk and written down of one engine: the first ones say enough."""

Arm = tuple[str, str]
"""An engine, and FRESH or CONTINUED."""


@dataclass(slots=True)
class Sums:
    """Of one engine and one kind."""

    schedules: int = 0
    cpu_s: float = 0.0
    new: int = 0
    """States that nothing had reached before."""
    lately: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=LATELY))
    """Of the last tasks the share of new states in all that are known, and the seconds."""

    @property
    def rate(self) -> float:
        return sum(new for new, _ in self.lately) / max(sum(cpu_s for _, cpu_s in self.lately), 0.001)


@dataclass(slots=True)
class Hunt:
    """For the deliberate bugs of one engine."""

    killed: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0


class Farm:
    """``directory`` holds the corpus of earlier farms, and gets this one's."""

    def __init__(self, directory: Path, seed: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.corpora = {engine: Corpus() for engine in ENGINES}
        self.sums: dict[Arm, Sums] = {(engine, kind): Sums() for engine in ENGINES for kind in (FRESH, CONTINUED)}
        self.hunts = {engine: Hunt() for engine in ENGINES}
        self.faults: dict[str, Counter[str]] = {engine: Counter() for engine in ENGINES}
        self.failures: dict[str, list[str]] = {engine: [] for engine in ENGINES}
        """What was violated, and the file."""
        self._directory = directory
        self._random = random.Random(seed)

    def run(self, seconds: float, processes: int) -> None:
        """Play for so long."""
        deadline_s = time.monotonic() + seconds
        for engine, tapes in saved_tapes(self._directory).items():
            self.corpora[engine].unplayed = tapes
        try:
            with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
                for result in _results(pool, processes, self._tasks(deadline_s)):
                    self._take_in(result)
        finally:
            save(self.corpora, self._directory)

    def _tasks(self, deadline_s: float) -> Iterator[Task]:
        """First what an earlier farm left, a slice at a time."""
        left = [
            Task(engine, AGAIN, 0, 0.0, corpus.unplayed[start : start + BEGINS])
            for engine, corpus in self.corpora.items()
            for start in range(0, len(corpus.unplayed), BEGINS)
        ]
        while time.monotonic() < deadline_s:
            yield left.pop() if left else self._next()

    def _next(self) -> Task:
        chosen = self._random
        seed = chosen.getrandbits(63)
        if chosen.random() < MUTANTS_SHARE:
            engine = chosen.choice(list(ENGINES))
            mutant = chosen.choice(sorted(ENGINES[engine].mutants))
            return Task(engine, MUTANT, seed, MUTANT_S, mutant=mutant)
        engine, kind = self._arm()
        tapes = self.corpora[engine].begins(BEGINS, chosen) if kind == CONTINUED else ()
        return Task(engine, kind, seed, SLICE_S, tapes)

    def _arm(self) -> Arm:
        arms = [arm for arm in self.sums if arm[1] == FRESH or self.corpora[arm[0]].kept]
        untried = [arm for arm in arms if not self.sums[arm].lately]
        if untried:
            return untried[0]
        if self._random.random() < CURIOSITY:
            return self._random.choice(arms)
        return max(arms, key=lambda arm: self.sums[arm].rate)

    def _take_in(self, result: Result) -> None:
        task = result.task
        if task.kind == MUTANT:
            self._hunted(result)
            return
        self.faults[task.engine].update(result.faults)
        corpus = self.corpora[task.engine]
        new = corpus.learn(result.learnt, result.met)
        if task.kind == AGAIN:
            failing = [tape for tape, _ in result.failures]
            corpus.unplayed = [tape for tape in corpus.unplayed if tape not in task.tapes or tape in failing]
        else:
            sums = self.sums[task.engine, task.kind]
            sums.schedules += result.schedules
            sums.cpu_s += result.cpu_s
            sums.new += new
            sums.lately.append((new / max(1, len(corpus.met)), result.cpu_s))
        for tape, violation in result.failures:
            self._failed(task.engine, tape, violation)

    def _hunted(self, result: Result) -> None:
        hunt = self.hunts[result.task.engine]
        hunt.cpu_s += result.cpu_s
        (hunt.killed if result.failures else hunt.missed)[result.task.mutant] += 1

    def _failed(self, engine: str, tape: list[int], violation: str) -> None:
        failures = self.failures[engine]
        file = keep_failure(engine, tape, violation, self._directory / "failures") if len(failures) < FAILURES else "not kept"
        failures.append(f"{violation}: {file}")


def _results(pool: ProcessPoolExecutor, processes: int, tasks: Iterator[Task]) -> Iterator[Result]:
    """As many tasks under way as there are processes. A task is drawn once what ended before it was taken in.

    Raises BrokenProcessPool if a process ends, and TimeoutError if one hangs.
    """
    under_way: set[Future[Result]] = set()
    for task in tasks:
        under_way.add(pool.submit(work, task))
        while len(under_way) >= processes:
            yield from _ended(under_way)
    while under_way:
        yield from _ended(under_way)


def _ended(under_way: set[Future[Result]]) -> Iterator[Result]:
    done, _ = wait(under_way, HANGS_S, FIRST_COMPLETED)
    if not done:
        raise TimeoutError(f"no task ended within {HANGS_S:g} s")
    for one in done:
        under_way.remove(one)
        yield one.result()
