"""The engines of the simulator as the farm sees them: each plays a run from choices, and says what it reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tests.simulation.engines.bag import run_bag
from tests.simulation.engines.choices import Choices
from tests.simulation.engines.engine import Outcome, run_choices
from tests.simulation.logs.duel import run_duel
from tests.simulation.logs.mutants import LOG_MUTANTS
from tests.simulation.mutants.all_mutants import MUTANTS
from tests.simulation.mutants.driver_mutants import DRIVER_MUTANTS
from tests.simulation.mutants.mutant import Bag, Patch, VirtualTime
from tests.simulation.whole.run import run_whole
from tests.soak.farm.states import State, states_of

OFTEN = 3
"""What a duel counts is told apart up to so many times."""


@dataclass(frozen=True, slots=True)
class Played:
    """One run. ``violation`` is empty unless there was one."""

    tape: list[int]
    states: frozenset[State]
    faults: Counter[str]
    violation: str = ""
    trace: tuple[str, ...] = ()


class Play(Protocol):
    def __call__(self, choices: Choices, *, is_traced: bool = False) -> Played: ...


@dataclass(frozen=True, slots=True)
class Engine:
    play: Play
    mutants: Mapping[str, Patch]
    """Deliberate bugs that it is known to find."""


def _virtual_time(choices: Choices, *, is_traced: bool = False) -> Played:
    return _played(run_choices(choices, is_traced=is_traced))


def _whole_programs(choices: Choices, *, is_traced: bool = False) -> Played:
    return _played(run_whole(choices, is_traced=is_traced))


def _played(outcome: Outcome) -> Played:
    if outcome.violation is not None:
        return Played(outcome.tape, frozenset(), outcome.faults, str(outcome.violation), tuple(outcome.trace))
    return Played(outcome.tape, frozenset(states_of(outcome.actions)), outcome.faults)


def _bag(choices: Choices, *, is_traced: bool = False) -> Played:
    """It tells of no actions: what it reached is the shape of the run, and about how long it was."""
    outcome: Any = run_bag(choices, is_traced=is_traced)
    states = frozenset({(outcome.shape, len(outcome.tape).bit_length())})
    return Played(outcome.tape, states, Counter(), str(outcome.violation or ""), tuple(outcome.trace))


def _duels(choices: Choices, *, is_traced: bool = False) -> Played:
    """What came up together in one duel."""
    outcome = run_duel(choices, is_traced=is_traced)
    often = sorted((name, min(count, OFTEN)) for name, count in (outcome.faults + outcome.marks).items())
    pairs = frozenset((one, other) for one in often for other in often if one <= other)
    return Played(outcome.tape, pairs, outcome.faults, str(outcome.violation or ""), tuple(outcome.trace))


ENGINES: Mapping[str, Engine] = {
    "virtual time": Engine(_virtual_time, {one.name: one.patch for one in MUTANTS if VirtualTime() in one.engines}),
    "whole programs": Engine(_whole_programs, {one.__name__.replace("_", " "): one for one in DRIVER_MUTANTS}),
    "duels": Engine(_duels, {one.name: one.patch for one in LOG_MUTANTS}),
    "bag": Engine(_bag, {one.name: one.patch for one in MUTANTS if Bag() in one.engines}),
}
