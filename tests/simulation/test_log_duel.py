"""Duels for a log: several leaders, jobs, streams and operators at once, under faults, with the shipped code of all of them.

Ref: docs/rules.md, log rules 1 to 4, 6 and 8.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.__main__ import main
from tests.simulation.engines.choices import SeededChoices, TapeChoices
from tests.simulation.logs.duel import DuelOutcome, run_duel
from tests.simulation.logs.mutants import LOG_MUTANTS, LogMutant

DUELS = 60
"""Seconds, on one core. ``make simulate`` plays thousands."""


def test_in_sixty_duels_with_faults_the_log_has_one_order_and_all_that_was_confirmed() -> None:
    """Log rules 1 to 4, 6 and 8."""
    marks, faults = Counter[str](), Counter[str]()
    for seed in range(DUELS):
        outcome = _run(seed)
        assert outcome.violation is None, f"python -m tests.simulation show-log {seed}"
        marks += outcome.marks
        faults += outcome.faults
    for mark in ("lost leaderships", "commits to compact", "duplicates", "aborted jobs", "writes that landed late"):
        assert marks[mark] > 5, marks
    assert marks["confirmed appends"] > 200
    assert min(faults[one] for one in ("broken writes", "reads cut off", "stale reads", "dies")) > 5, faults


def test_a_seed_gives_the_same_duel_and_so_does_its_tape() -> None:
    first = _run(4, is_traced=True)
    assert first.trace != []
    assert _run(4, is_traced=True).digest == first.digest
    assert run_duel(TapeChoices(first.tape), is_traced=True).digest == first.digest


@pytest.mark.parametrize("mutant", LOG_MUTANTS, ids=[f"{one.name} (log rule {one.rule})" for one in LOG_MUTANTS])
def test_a_mutant_of_the_log_is_caught(mutant: LogMutant) -> None:
    found = mutant.is_caught_by(mutant.caught_by) or mutant.caught() is not None
    assert found, f"none of {mutant.seeds} duels found it"


def test_the_command_says_what_it_ran_and_shows_a_duel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run-logs", "--seeds", "4", "--processes", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("4 duels, ")
    assert "what happened: " in said
    assert main(["show-log", "2"]) == 0
    assert "sync" in capsys.readouterr().out


def _run(seed: int, *, is_traced: bool = False) -> DuelOutcome:
    return run_duel(SeededChoices(seed), is_traced=is_traced)
