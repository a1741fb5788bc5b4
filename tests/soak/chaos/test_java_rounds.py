"""Rounds in which Apache's Java client plays some of the roles: ``make chaos JAVA=1`` plays as many as are asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.speed.measure import SkippedError
from tests.soak.chaos.__main__ import BOOKIES, describe
from tests.soak.chaos.plan import JAVA_CASTS, draw
from tests.soak.chaos.rounds import Arena, run_round

SEEDS = (1, 3, 7, 10, 11, 19)
"""Java plays every part in them, and they take seconds: neither ZooKeeper nor all bookies are killed."""


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    try:
        with Arena(tmp_path_factory.mktemp("chaos"), BOOKIES, java=True) as arena:
            yield arena
    except SkippedError as reason:
        pytest.skip(f"Apache BookKeeper's client is not to be had: {reason}")


@pytest.mark.parametrize("seed", SEEDS)
def test_java_s_client_and_ours_read_alike_what_either_was_told_to_be_confirmed(arena: Arena, seed: int) -> None:
    """Situations 1, 2, 20, 24, 25 and 37; docs/rules.md, protocol rules 5, 12, 13, 16 and 64."""
    outcome = run_round(arena, draw(seed, BOOKIES, java=True))
    assert not outcome.verdict.violations, describe(outcome)
    assert outcome.plan.starts_cold or outcome.verdict.confirmed > 0


def test_the_fixed_seeds_have_every_cast() -> None:
    assert {draw(seed, BOOKIES, java=True).java_roles for seed in SEEDS} == set(JAVA_CASTS)
