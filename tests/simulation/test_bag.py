"""Random orders of messages do no harm, and would be noticed if they did."""

from __future__ import annotations

from tests.budget import IS_SOAK
from tests.simulation.engines.bag import run_bag
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.mutants.mutant import Bag, caught
from tests.simulation.mutants.writer_mutants import confirms_out_of_order

SCHEDULES = 600 if IS_SOAK else 75
"""A few seconds."""


def test_random_orders_do_no_harm() -> None:
    for seed in range(SCHEDULES):
        violation = run_bag(SeededChoices(seed)).violation
        assert violation is None, f"bag, seed {seed}: {violation}"


def test_the_same_seed_gives_the_same_run() -> None:
    for seed in range(5):
        first, second = (run_bag(SeededChoices(seed), is_traced=True) for _ in range(2))
        assert (first.tape, first.trace) == (second.tape, second.trace)
        assert first.trace


def test_a_bug_is_noticed() -> None:
    with confirms_out_of_order():
        assert caught(Bag(200).runs(), ("I2",)) is not None


def test_runs_differ_in_shape_and_outcome() -> None:
    assert len({run_bag(SeededChoices(seed)).shape for seed in range(40)}) > 5
