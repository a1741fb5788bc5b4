"""What one process does for the farm at a time: some seconds of runs of one engine, and what came of them."""

from __future__ import annotations

import gc
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.simulation.engines.choices import Choices, ContinuedChoices, SeededChoices, TapeChoices
from tests.simulation.engines.shrink import shrink
from tests.soak.farm.engines import ENGINES, Played
from tests.soak.farm.states import State

FRESH, CONTINUED, AGAIN, MUTANT = "fresh", "continued", "again", "mutant"
"""Runs of new seeds; runs that begin like one of the corpus; the corpus itself; a deliberate bug that is searched for."""

RUNS_A_COLLECTION = 25

NOT_AGAIN = "-does-not-come-again"
"""In the name of the file of a failure that a second run of its tape has not."""

MAX_TRIES = 300
"""Runs that the shrinking of a failure may take."""


@dataclass(frozen=True, slots=True)
class Task:
    engine: str
    kind: str
    seed: int
    seconds: float
    """Of the processor, at most; a last run may take longer."""
    tapes: Sequence[list[int]] = ()
    mutant: str = ""


@dataclass(slots=True)
class Result:
    """``learnt`` are tapes, each with what it reached and no run of the task had reached before."""

    task: Task
    schedules: int = 0
    cpu_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    learnt: list[tuple[list[int], frozenset[State]]] = field(default_factory=list)
    met: Counter[State] = field(default_factory=Counter)
    """How many runs met each state."""
    failures: list[tuple[list[int], str]] = field(default_factory=list)
    """Tapes, and what they violated. Of a mutant: what caught it."""


def work(task: Task) -> Result:
    gc.disable()  # a run leaves no cycles worth a collection in its middle
    result, chosen, begun_s = Result(task), random.Random(task.seed), time.process_time()
    while _goes_on(result, begun_s):
        choices = _choices(task, result.schedules, chosen)
        result.schedules += 1
        _take_in(result, _play(task, choices))
        if result.schedules % RUNS_A_COLLECTION == 0:
            gc.collect()
    result.cpu_s = time.process_time() - begun_s
    gc.enable()
    gc.collect()
    return result


def _play(task: Task, choices: Choices) -> Played:
    """An exception is a failure like any other: of what was played, or of what judges it."""
    engine = ENGINES[task.engine]
    try:
        with engine.mutants[task.mutant]() if task.kind == MUTANT else nullcontext():
            return engine.play(choices)
    except Exception as problem:
        return Played(choices.tape, frozenset(), Counter(), f"I0: {type(problem).__name__}: {problem}")


def _goes_on(result: Result, begun_s: float) -> bool:
    task = result.task
    if task.kind == AGAIN:
        return result.schedules < len(task.tapes)
    return not result.failures and time.process_time() - begun_s < task.seconds


def _choices(task: Task, number: int, chosen: random.Random) -> Choices:
    if task.kind == AGAIN:
        return TapeChoices(task.tapes[number])
    if task.kind == CONTINUED:
        return ContinuedChoices(task.tapes[number % len(task.tapes)], chosen.getrandbits(63))
    return SeededChoices(chosen.getrandbits(63))


def _take_in(result: Result, played: Played) -> None:
    result.faults.update(played.faults)
    if played.violation:
        result.failures.append((played.tape, played.violation))
        return
    new = played.states - result.met.keys()
    result.met.update(played.states)
    if new:
        result.learnt.append((played.tape, new))


def keep_failure(engine: str, tape: list[int], violation: str, directory: Path) -> Path:
    """Shrink a failure and write it down. One that does not come again says that a tape does not fix its run."""
    task, invariant = Task(engine, AGAIN, 0, 0.0), violation.split(":")[0]

    def fails_alike(candidate: Sequence[int]) -> list[int] | None:
        played = _play(task, TapeChoices(list(candidate)))
        return played.tape if played.violation.split(":")[0] == invariant else None

    comes_again = fails_alike(tape) is not None
    small = shrink(tape, fails_alike, MAX_TRIES) if comes_again else tape
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{invariant}-{sha256(repr(small).encode()).hexdigest()[:8]}"
    path = directory / f"{name}{'' if comes_again else NOT_AGAIN}.json"
    kept = {"engine": engine, "violation": violation, "tape": small, "comes_again": comes_again}
    path.write_text(json.dumps(kept, indent=1))
    return path


def replayed(file: Path) -> Played:
    kept = json.loads(file.read_text())
    return ENGINES[kept["engine"]].play(TapeChoices(kept["tape"]), is_traced=True)
