"""Some rounds with fixed seeds. ``make partitions`` plays as many as are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.partitions.__main__ import shown
from tests.soak.partitions.fabric import problem
from tests.soak.partitions.plan import draw
from tests.soak.partitions.rounds import Arena, run_round

pytestmark = pytest.mark.skipif(bool(problem()), reason=problem())

SEEDS = (0, 1, 7)

MOST_ROUNDS = 6
"""The seed fixes what is done, not what it meets."""


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with Arena(tmp_path_factory.mktemp("partitions"), seed=0) as arena:
        yield arena


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_confirmed_is_read_alike_by_all_however_the_network_was_cut(arena: Arena, seed: int) -> None:
    outcome = run_round(arena, draw(seed))
    assert not outcome.violations, shown(outcome)
    assert min(outcome.packets[fate] for fate in ("passed", "cut")) > 0
    assert min(life.verdict.confirmed for life in outcome.lives) > 0


FOUND_FROM = {
    "a late ack counts after a change": 1002,
    "a reconnect resends to the wrong bookie": 1658,
    "a duplicate is taken as a new add": 1200,
    "unknown is taken as no": 1300,
    "a takeover does not fence": 7,
    "one no is enough": 1600,
    "a lost reply is taken as success": 2,
    "recovery reads do not fence": 1800,
    "a fenced writer goes on": 1903,
    "confirmations come out of order": 2101,
}
"""Bugs that rounds are known to find, each with the first seed that did."""


@pytest.mark.parametrize(("bug", "first"), FOUND_FROM.items())
def test_a_deliberate_bug_is_found_within_a_few_rounds(bug: str, first: int, tmp_path: Path) -> None:
    with Arena(tmp_path, first, bug) as arena:
        assert any(run_round(arena, draw(seed)).violations for seed in range(first, first + MOST_ROUNDS))
