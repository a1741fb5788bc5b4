"""A real stream under fire, in its short form. ``make streams`` kills more, executors of a Spark cluster too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.streams.__main__ import describe, play
from tests.soak.streams.forms import LONG, SHORT
from tests.soak.streams.plan import BOOKIE, DRIVER, MOMENTS, TAILER, WEIGHTS, draw
from tests.soak.streams.progress import Standing

KILLS, SEED = 4, 1


@pytest.mark.timeout(400)
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds Spark's processes in /proc")
def test_logs_hold_each_row_of_the_source_once_in_order_whoever_is_killed(tmp_path: Path) -> None:
    """Log rules 1, 2, 5, 6 and 7."""
    outcome = play(tmp_path, SHORT, KILLS, SEED)
    assert not outcome.violations, f"{describe(outcome)}\nall logs are in {tmp_path}"
    assert outcome.batches > KILLS
    assert outcome.applications > 1, "no driver was killed"
    assert outcome.lines


def test_a_seed_draws_the_same_plan_again_and_other_seeds_draw_others() -> None:
    assert draw(5, 50, LONG.victims) == draw(5, 50, LONG.victims)
    assert len({draw(seed, 50, LONG.victims) for seed in range(20)}) == 20


def test_fifty_kills_have_every_victim_and_every_moment() -> None:
    plan = draw(1, 50, LONG.victims)
    assert {kill.victim for kill in plan} == set(WEIGHTS) == set(LONG.victims)
    assert {kill.moment for kill in plan} >= set(MOMENTS)
    assert {kill.query for kill in plan if kill.victim == DRIVER} == {0, 1}


def test_the_short_form_kills_a_driver_a_bookie_and_the_tailer() -> None:
    assert {DRIVER, BOOKIE, TAILER} <= {kill.victim for kill in draw(SEED, KILLS, SHORT.victims)}


def test_a_driver_that_dies_between_the_logs_commit_and_sparks_note_is_told_from_others() -> None:
    assert Standing(planned=4, sunk=4, noted=3).describes == "committed in the log, not noted by Spark"
    assert Standing(planned=4, sunk=3, noted=3).describes == "planned or being written"
    assert Standing(planned=4, sunk=4, noted=4).describes == "between two batches"
