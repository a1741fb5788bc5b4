"""Many duels: seeds shared out over processes, what happened in them added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Protocol

from tests.simulation.engines.choices import Choices, SeededChoices, TapeChoices
from tests.simulation.logs.duel import DuelOutcome, run_duel
from tests.simulation.logs.transactions import run_transaction_duel

SEEDS_A_TASK = 10
RERUN_EVERY = 20
"""One duel in so many is played twice and must come out the same."""
MAX_FAILURES = 20
"""A campaign ends after so many: the first ones say enough."""


@dataclass(slots=True)
class DuelTotals:
    duels: int = 0
    turns: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)
    """Seed → what was violated."""

    def add(self, other: DuelTotals) -> None:
        self.duels += other.duels
        self.turns += other.turns
        self.faults.update(other.faults)
        self.marks.update(other.marks)
        self.failures |= other.failures

    def report(self, seconds: float) -> str:
        """For people."""
        rate = self.duels / max(seconds, 0.001)
        return (
            f"{self.duels} duels, {self.turns} turns, {len(self.failures)} failed; {rate:.0f} duels/s\n"
            f"faults: {_listed(self.faults)}\nwhat happened: {_listed(self.marks)}"
        )


class Kind(Protocol):
    """Plays one duel."""

    def __call__(self, choices: Choices, *, is_traced: bool = False) -> DuelOutcome: ...


def kind_of(*, tiers: bool, transactions: bool) -> Kind:
    """Duels for a log, without or with a tier, or for several logs."""
    return run_transaction_duel if transactions else partial(run_duel, tiers=tiers)


def run_duels(seeds: Iterable[int], kind: Kind = run_duel) -> DuelTotals:
    """Play seeds one after the other in this process."""
    totals = DuelTotals()
    for seed in seeds:
        outcome = kind(SeededChoices(seed))
        totals.duels += 1
        totals.turns += outcome.turns
        totals.faults.update(outcome.faults)
        totals.marks.update(outcome.marks)
        if outcome.violation is not None:
            totals.failures[seed] = str(outcome.violation)
        elif seed % RERUN_EVERY == 0 and kind(TapeChoices(outcome.tape)).digest != outcome.digest:
            totals.failures[seed] = "played again it is another duel"
    return totals


def run_campaign(first: int, count: int, processes: int, kind: Kind = run_duel) -> DuelTotals:
    """Seeds from ``first`` on."""
    tasks = [range(start, min(start + SEEDS_A_TASK, first + count)) for start in range(first, first + count, SEEDS_A_TASK)]
    play = partial(run_duels, kind=kind)
    if processes == 1:
        return _added(map(play, tasks))
    with get_context("spawn").Pool(processes) as pool:
        return _added(pool.imap_unordered(play, tasks))


def _added(results: Iterable[DuelTotals]) -> DuelTotals:
    totals = DuelTotals()
    for result in results:
        totals.add(result)
        if len(totals.failures) >= MAX_FAILURES:
            break
    return totals


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
