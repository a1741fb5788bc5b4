"""An interrupt at any step of a call of a writer leaves the writer as it was: a sample of ``tests.soak.interrupts``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.soak.interrupts.writers import CASES, Case, Sweep

SAMPLED = 25


@pytest.fixture(scope="module")
def sweep() -> Iterator[Sweep]:
    sweep = Sweep()
    yield sweep
    sweep.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_after_an_interrupt_at_any_step_of_a_call_the_writer_goes_on_as_before(sweep: Sweep, case: Case) -> None:
    steps = sweep.steps(case)
    for step in range(1, steps + 1, max(1, steps // SAMPLED)):
        sweep.interrupt(case, step)
