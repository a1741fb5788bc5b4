"""Re-replication in virtual time: lost bookies, workers that stall and lose their locks, copies that are collected.

Ref: protocol rules 45 and 53 to 55; situations 6, 40, 76 and 83.
"""

from __future__ import annotations

from collections import Counter

from tests.simulation.engines.choices import SeededChoices, TapeChoices
from tests.simulation.engines.engine import Outcome, run_choices

SCHEDULES = 40


def test_no_copy_is_lost_by_re_replication_in_schedules_with_faults() -> None:
    """Longer: ``make simulate``, where a quarter of all runs re-replicates."""
    happened: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        outcome = _run(seed)
        assert outcome.violation is None, f"seed {seed}, always replicated: {outcome.violation}"
        happened += outcome.faults + outcome.marks
    wanted = (
        "copied entries",
        "moved copies",
        "bookies replaced",
        "deleted copies",
        "stall",
        "expire",
        "kill replicator",
        "gone",
    )
    assert all(happened[one] > 0 for one in wanted), happened


def test_the_same_seed_gives_the_same_run() -> None:
    for seed in range(3):
        first = _run(seed)
        assert first.digest == _run(seed).digest == _run(seed, first.tape).digest
        assert first.schedule.replicators


def _run(seed: int, tape: list[int] | None = None) -> Outcome:
    choices = SeededChoices(seed) if tape is None else TapeChoices(tape)
    return run_choices(choices, replicated_percent=100)
