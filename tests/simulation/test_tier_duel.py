"""Duels for a log with a tier: tierers beside all who write, read and clean up, and others at the table.

Ref: DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.engines.choices import SeededChoices
from tests.simulation.logs.duel import run_duel
from tests.simulation.logs.tier_mutants import TIER_MUTANTS, TierMutant

DUELS = 60


def test_in_sixty_duels_each_row_is_in_the_table_once_and_readers_and_streams_miss_none() -> None:
    marks, faults = Counter[str](), Counter[str]()
    for seed in range(DUELS):
        outcome = run_duel(SeededChoices(seed), tiers=True)
        assert outcome.violation is None, f"python -m tests.simulation show-log {seed} --tiers"
        marks += outcome.marks
        faults += outcome.faults
    for mark in ("steps", "releases", "refused snapshots", "ledgers read from the tier", "joined files", "catalogs set back"):
        assert marks[mark] > 1, marks
    assert faults["cut uploads"] > 0


@pytest.mark.parametrize("seed", [332, 3122])
def test_rows_to_write_anew_are_found_where_others_joined_them_behind_a_step_that_was_given_up(seed: int) -> None:
    """Seldom drawn: the snapshot of the step landed behind the one that gave it up."""
    assert run_duel(SeededChoices(seed), tiers=True).violation is None


def test_a_stream_that_has_read_all_of_the_listing_it_began_in_is_told_of_no_loss() -> None:
    """Seldom drawn: the listing was vacuumed before the stream went on."""
    assert run_duel(SeededChoices(1381), tiers=True).violation is None


def test_a_stream_whose_ledger_a_vacuum_deletes_while_it_plans_is_told_of_no_loss() -> None:
    """Seldom drawn: the ledger was an empty one of a leader, which a compaction had left out."""
    assert run_duel(SeededChoices(4254), tiers=True).violation is None


@pytest.mark.parametrize("mutant", TIER_MUTANTS, ids=[one.name for one in TIER_MUTANTS])
def test_a_mutant_of_the_tier_is_caught(mutant: TierMutant) -> None:
    found = mutant.is_caught_by(mutant.caught_by) or mutant.caught() is not None
    assert found, f"none of {mutant.seeds} duels found it"
