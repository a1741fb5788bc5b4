"""What the simulator's runs do is held against the published specification of the protocol (I18)."""

from __future__ import annotations

import pytest

from tests.budget import IS_SOAK
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.engines.engine import run_choices
from tests.simulation.mutants import recovery_mutants, writer_mutants
from tests.simulation.mutants.mutant import Patch
from tests.specification.specification import BOOKIE_STEPS, CLIENT_STEPS

SCHEDULES = 200 if IS_SOAK else 40


def test_runs_take_every_step_of_the_specification_and_no_other() -> None:
    outcomes = [run_choices(SeededChoices(seed)) for seed in range(SCHEDULES)]
    assert [outcome.violation for outcome in outcomes] == [None] * SCHEDULES
    for step in (*CLIENT_STEPS, *BOOKIE_STEPS):
        assert any(outcome.allowed[step] for outcome in outcomes), step


@pytest.mark.parametrize(
    "patch",
    [
        recovery_mutants.fence_coverage_at_ack_quorum,
        recovery_mutants.fence_coverage_from_the_write_quorum,
        recovery_mutants.recovery_fences_nobody_first,
        recovery_mutants.recovery_is_not_marked,
        writer_mutants.fenced_writer_goes_on,
    ],
    ids=lambda patch: patch.__name__,
)
def test_a_guard_that_has_another_one_behind_it_is_missed_in_what_was_done(patch: Patch) -> None:
    """Nothing is lost without it (``SURVIVORS``), but a step is taken that the specification does not have."""
    with patch():
        violations = (run_choices(SeededChoices(seed)).violation for seed in range(SCHEDULES))
        assert any(one is not None and one.invariant == "I18" for one in violations)
