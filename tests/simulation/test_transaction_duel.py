"""Duels for three logs with transactions over them. Ref: DESIGN.md, "Transactions"."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.engines.choices import SeededChoices
from tests.simulation.logs.transaction_mutants import TRANSACTION_MUTANTS, TransactionMutant
from tests.simulation.logs.transactions import run_transaction_duel

DUELS = 60


def test_in_sixty_duels_each_transaction_is_seen_in_all_of_its_logs_or_in_none() -> None:
    marks, faults = Counter[str](), Counter[str]()
    for seed in range(DUELS):
        outcome = run_transaction_duel(SeededChoices(seed))
        assert outcome.violation is None, f"python -m tests.simulation show-log {seed} --transactions"
        marks += outcome.marks
        faults += outcome.faults
    for mark in ("transactions", "duplicates", "aborted transactions", "looks at all logs", "writes that landed late"):
        assert marks[mark] > 1, marks
    assert faults["dies"] > 0


@pytest.mark.parametrize("mutant", TRANSACTION_MUTANTS, ids=[one.name for one in TRANSACTION_MUTANTS])
def test_a_mutant_of_transactions_is_caught(mutant: TransactionMutant) -> None:
    found = mutant.is_caught_by(mutant.caught_by) or mutant.caught() is not None
    assert found, f"none of {mutant.seeds} duels found it"
