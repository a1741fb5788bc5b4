"""Every guard of the protocol is needed, and the simulator notices when it is gone."""

from __future__ import annotations

import pytest

from tests.simulation.engines.exhaustive import Scope, search
from tests.simulation.mutants.all_mutants import MUTANTS, SURVIVORS
from tests.simulation.mutants.mutant import Exhaustive, Mutant, Script, Survivor, caught, together
from tests.simulation.scripts.script_engine import scenarios

MAXIMUM_STATES = 20_000
"""Of a scope that a survivor leaves clean; most have fewer."""

every_mutant = pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{one.name}: {one.rule}" for one in MUTANTS])
every_survivor = pytest.mark.parametrize("survivor", SURVIVORS, ids=[one.name for one in SURVIVORS])


def test_each_of_the_protocols_rules_that_the_list_names_has_a_mutant() -> None:
    assert len({mutant.patch for mutant in MUTANTS}) >= 30


@every_mutant
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    """By the first engine, and by every script that is named for it."""
    scripts = [engine for engine in mutant.engines[1:] if isinstance(engine, Script)]
    with mutant.patch():
        for engine in (mutant.engines[0], *scripts):
            assert caught(engine.runs(), mutant.invariants) is not None, engine


@every_mutant
def test_the_engine_of_the_tests_is_one_that_needs_no_luck(mutant: Mutant) -> None:
    assert isinstance(mutant.engines[0], (Script, Exhaustive))  # test_scenarios.py and test_exhaustive.py: no false alarms


def test_every_scenario_fails_without_some_guard() -> None:
    engines = [engine for mutant in MUTANTS for engine in mutant.engines] + [one.engine for one in SURVIVORS]
    named = {engine.name for engine in engines if isinstance(engine, Script)}
    assert named == {path.stem for path in scenarios()}


@every_survivor
def test_a_guard_with_another_one_behind_it_is_not_missed(survivor: Survivor) -> None:
    with survivor.patch():
        assert [search(scope, MAXIMUM_STATES).violation for scope in survivor.clean] == [None] * len(survivor.clean)


@every_survivor
def test_without_both_guards_it_is_caught(survivor: Survivor) -> None:
    with together(survivor.patch, survivor.partner)():
        assert caught(survivor.engine.runs(), survivor.invariants) is not None


def test_patches_leave_nothing_behind() -> None:
    with MUTANTS[0].patch():
        assert search(Scope((2, 2, 2)), MAXIMUM_STATES).violation is not None
    assert search(Scope((2, 2, 2)), MAXIMUM_STATES).is_exhausted
