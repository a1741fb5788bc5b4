"""What the rounds of the chaos test draw."""

from __future__ import annotations

from dataclasses import replace

from tests.soak.chaos.plan import JAVA_CASTS, ROLES, draw


def test_java_plays_some_roles_of_each_round_but_not_all_and_every_cast_comes_up() -> None:
    casts = [draw(seed, 5, java=True).java_roles for seed in range(60)]
    assert all(0 < len(cast) < len(ROLES) for cast in casts)
    assert set(casts) == set(JAVA_CASTS)
    assert len(JAVA_CASTS) == 6


def test_java_s_roles_leave_the_rest_of_a_plan_as_it_is_without_java() -> None:
    for seed in range(20):
        assert replace(draw(seed, 5, java=True), java_roles=()) == draw(seed, 5)
