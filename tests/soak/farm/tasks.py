"""What one process does for the farm at a time: some seconds of runs of one engine, and what came of them."""

from __future__ import annotations

import gc
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.simulation.engines.choices import Choices, SeededChoices, TapeChoices
from tests.simulation.engines.shrink import shrink
from tests.soak.farm.corpus import continued
from tests.soak.farm.engines import ENGINES, Played
from tests.soak.farm.states import State

FRESH, CONTINUED, AGAIN, MUTANT = "fresh", "continued", "again", "mutant"
"""Runs of new seeds; runs that begin like one of the corpus; the corpus itself; a deliberate bug that is searched for."""

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
    """``learnt`` are tapes with what each reached that no run of the task had reached before."""

    task: Task
    schedules: int = 0
    cpu_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    learnt: list[tuple[list[int], frozenset[State]]] = field(default_factory=list)
    failures: list[tuple[list[int], str]] = field(default_factory=list)
    """Tapes, and what they violated. Of a mutant: what caught it."""


def work(task: Task) -> Result:
    gc.disable()
    result, chosen, begun_s = Result(task), random.Random(task.seed), time.process_time()
    engine, seen = ENGINES[task.engine], set[State]()
    while _goes_on(result, begun_s):
        choices = _choices(task, result.schedules, chosen)
        if task.kind == MUTANT:
            with engine.mutants[task.mutant]():
                played = engine.play(choices)
        else:
            played = engine.play(choices)
        result.schedules += 1
        _take_in(result, played, seen)
    result.cpu_s = time.process_time() - begun_s
    gc.enable()
    gc.collect()
    return result


def _goes_on(result: Result, begun_s: float) -> bool:
    task = result.task
    if task.kind == AGAIN and result.schedules >= len(task.tapes):
        return False
    return not result.failures and time.process_time() - begun_s < task.seconds


def _choices(task: Task, number: int, chosen: random.Random) -> Choices:
    if task.kind == AGAIN:
        return TapeChoices(task.tapes[number])
    if task.kind == CONTINUED:
        return continued(task.tapes[number % len(task.tapes)], chosen)
    return SeededChoices(chosen.getrandbits(63))


def _take_in(result: Result, played: Played, seen: set[State]) -> None:
    result.faults.update(played.faults)
    if played.violation:
        result.failures.append((played.tape, played.violation))
        return
    new = played.states - seen
    seen.update(new)
    if new:
        result.learnt.append((played.tape, played.states))


def keep_failure(engine: str, tape: list[int], violation: str, directory: Path) -> Path:
    """Shrink a failure and write it down."""
    play, invariant = ENGINES[engine].play, violation.split(":")[0]

    def fails_alike(candidate: Sequence[int]) -> list[int] | None:
        played = play(TapeChoices(list(candidate)))
        return played.tape if played.violation.split(":")[0] == invariant else None

    small = shrink(tape, fails_alike, MAX_TRIES) if fails_alike(tape) is not None else tape
    played = play(TapeChoices(small), is_traced=True)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{invariant}-{sha256(repr(small).encode()).hexdigest()[:8]}.json"
    kept = {"engine": engine, "violation": played.violation or violation, "tape": small, "trace": played.trace}
    path.write_text(json.dumps(kept, indent=1))
    return path


def replayed(file: Path) -> Played:
    kept = json.loads(file.read_text())
    return ENGINES[kept["engine"]].play(TapeChoices(kept["tape"]), is_traced=True)
