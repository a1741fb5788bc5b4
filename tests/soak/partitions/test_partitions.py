"""Some rounds with fixed seeds. ``make partitions`` plays as many as are asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.soak.partitions.__main__ import shown
from tests.soak.partitions.fabric import problem
from tests.soak.partitions.plan import draw
from tests.soak.partitions.rounds import Arena, run_round

pytestmark = pytest.mark.skipif(bool(problem()), reason=problem())

SEEDS = (0, 1, 7)


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
