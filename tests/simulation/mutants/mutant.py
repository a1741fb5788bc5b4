"""What a mutant is, and the engines that may catch it."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.checkout import ROOT
from tests.simulation.engines.bag import run_bag
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.engines.engine import run_choices
from tests.simulation.engines.exhaustive import Scope, search
from tests.simulation.engines.invariants import Violation
from tests.simulation.scripts.script_engine import play
from tests.simulation.scripts.script_names import ScriptError

Patch = Callable[[], Any]
"""Gives a context manager."""

SCENARIOS = ROOT / "tests" / "scenarios"


@dataclass(frozen=True, slots=True)
class Script:
    """The scenario that fails, without its suffix."""

    name: str

    def runs(self) -> Iterator[Violation | None]:
        yield _play_script(self.name)


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """The states that a search through a scope may take."""

    scope: Scope
    maximum_states: int = 300_000

    def runs(self) -> Iterator[Violation | None]:
        yield search(self.scope, self.maximum_states).violation


@dataclass(frozen=True, slots=True)
class Bag:
    """How many seeds are tried, from 0 on."""

    schedules: int = 5_000

    def runs(self) -> Iterator[Violation | None]:
        return (run_bag(SeededChoices(seed)).violation for seed in range(self.schedules))


@dataclass(frozen=True, slots=True)
class VirtualTime:
    """As Bag."""

    schedules: int = 2_000

    def runs(self) -> Iterator[Violation | None]:
        return (run_choices(SeededChoices(seed)).violation for seed in range(self.schedules))


@dataclass(frozen=True, slots=True)
class RereplicatedLedger:
    """Virtual time, with re-replication in each run. As Bag."""

    schedules: int = 2_000

    def runs(self) -> Iterator[Violation | None]:
        return (run_choices(SeededChoices(seed), replicated_percent=100).violation for seed in range(self.schedules))


@dataclass(frozen=True, slots=True)
class RestoredDisk:
    """Virtual time, with disks that go back to snapshots in each run. As Bag."""

    schedules: int = 500

    def runs(self) -> Iterator[Violation | None]:
        return (run_choices(SeededChoices(seed), restored_percent=100).violation for seed in range(self.schedules))


@dataclass(frozen=True, slots=True)
class UnjournaledBookies:
    """Virtual time, with bookies that have no journal and with re-replication in each run. As Bag."""

    schedules: int = 4_000

    def runs(self) -> Iterator[Violation | None]:
        return (
            run_choices(SeededChoices(seed), replicated_percent=100, restored_percent=0, unjournaled_percent=100).violation
            for seed in range(self.schedules)
        )


Engine = Script | Bag | VirtualTime | RereplicatedLedger | RestoredDisk | UnjournaledBookies | Exhaustive


@dataclass(frozen=True, slots=True)
class Mutant:
    """``rule`` is what it breaks; the first of ``engines`` is the one that the tests use."""

    name: str
    rule: str
    patch: Patch
    invariants: tuple[str, ...]
    engines: tuple[Engine, ...]


def mutant(rule: str, patch: Patch, invariants: str, *engines: Engine) -> Mutant:
    """Named as its patch; ``invariants`` with blanks between."""
    return Mutant(patch.__name__.replace("_", " "), rule, patch, tuple(invariants.split()), engines)


@dataclass(frozen=True, slots=True)
class Survivor:
    """``why`` nothing catches it alone; ``partner`` is the guard behind it, ``clean`` are scopes that it leaves clean."""

    name: str
    why: str
    patch: Patch
    partner: Patch
    invariants: tuple[str, ...]
    engine: Engine
    clean: tuple[Scope, ...] = field(default=())


def caught(runs: Iterator[Violation | None], invariants: tuple[str, ...]) -> int | None:
    """After how many runs a violation of one of ``invariants`` came, or an assertion of the shipped code; None if none did."""
    for number in itertools.count(1):
        try:
            violation = next(runs)
        except StopIteration:
            return None
        except AssertionError as problem:
            if not _is_shipped(problem):
                raise
            return number
        if violation is not None and (violation.invariant in invariants or _is_shipped(violation.__cause__)):
            return number
    return None


def _is_shipped(problem: BaseException | None) -> bool:
    """Whether it is an assertion of the shipped code."""
    if not isinstance(problem, AssertionError):
        return False
    *_, (frame, _) = traceback.walk_tb(problem.__traceback__)
    return str(frame.f_globals["__name__"]).startswith("bk_spark.")


def _play_script(name: str) -> Violation | None:
    try:
        play((SCENARIOS / f"{name}.txt").read_text())
    except Violation as violation:
        return violation
    except ScriptError as problem:
        return Violation("I14", str(problem))
    return None


@contextmanager
def all_of(*patches: Any) -> Iterator[None]:
    """All of them at once."""
    if not patches:
        yield
        return
    with patches[0], all_of(*patches[1:]):
        yield


def together(*bugs: Patch) -> Patch:
    return lambda: all_of(*(bug() for bug in bugs))
