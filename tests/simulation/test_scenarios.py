"""The schedules of tests/scenarios, each of which once broke some system: here they do no harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.engines.invariants import Violation
from tests.simulation.mutants.recovery_mutants import reads_do_not_fence
from tests.simulation.scripts.script_engine import play, scenarios
from tests.simulation.scripts.script_names import ScriptError


@pytest.mark.parametrize("path", list(scenarios()), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    play(path.read_text())


BEYOND_APACHES_WIRE = {
    "an_id_that_was_given_out_twice_names_two_ledgers": "it has no creator's token",
    "rule_61_a_bookie_that_joins_a_recovery_is_named_with_all_it_acked": "it names no boot, which unjournaled bookies need",
    "rule_61_copies_are_durable_in_one_boot_before_they_are_named": "the same",
    "s9_damage_is_not_absence": "what is confirmed is asked by reading the last entry, which finds the damage one step earlier",
}


@pytest.mark.parametrize("path", list(scenarios()), ids=lambda path: path.stem)
def test_scenario_over_apaches_wire(path: Path) -> None:
    if path.stem not in BEYOND_APACHES_WIRE:
        play(path.read_text(), is_apache=True)


def test_a_broken_script_says_which_line_and_what_happened_up_to_there() -> None:
    text = "ledger 2/2/2 on b1 b2\nW writes\nW appends\ndeliver W add 0 <-> b1\nexpect W acked 0\n"
    with pytest.raises(ScriptError, match=r"(?s)line 5, expect W acked 0: .*W +<- b1: add #1: OK"):
        play(text)


def test_a_step_that_nothing_is_in_flight_for_is_an_error() -> None:
    with pytest.raises(ScriptError, match="no message W add 1 -> b1 is in flight, but W add 0 -> b1, W add 0 -> b2"):
        play("ledger 2/2/2 on b1 b2\nW writes\nW appends\ndeliver W add 1 -> b1\n")


@pytest.mark.parametrize("is_apache", [False, True])
def test_a_violated_invariant_ends_a_script_with_its_trace(is_apache: bool) -> None:
    path = next(path for path in scenarios() if path.stem == "s1_recovery_reads_fence_two_bookies")
    with reads_do_not_fence(), pytest.raises(Violation, match=r"(?s)line \d+, deliver W add 0 <-> b2: I1.*W +is acked"):
        play(path.read_text(), is_apache=is_apache)
