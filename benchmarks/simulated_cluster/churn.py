"""A cluster over weeks: ledgers come and go, bookies are lost and added. How evenly are load and space spread? In steps of
hours.

New ledgers get ensembles as in ``layout.py``, for the bookies that are there at that step. A lost bookie's ledgers get the
bookies that the shipped ``EnsembleChoice`` gives them; how long that takes, ``cluster.py`` tells. Moves are those of the
shipped ``BalancePlan``, within a rate of bytes, as if ``bk-spark bookie balance`` ran at each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import numpy.typing as npt

from benchmarks.simulated_cluster.layout import drawn_ensembles, registered
from benchmarks.simulated_cluster.ledger_table import Ensembles
from bk_spark.client.driver.client_context import EnsembleChoice
from bk_spark.client.protocol.state_machine import ChooseReplacements
from bk_spark.config import ClientConfig
from bk_spark.replication.balance_plan import BalancePlan, BookieCapacity, HeldFragment

COPIES = 3
STEP_H = 6
SETTLED_H = 72
"""What clients wrote to a bookie in less time than this is chance."""
SAMPLES = 200
"""Ensembles that placement chooses for the new ledgers of a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Churn:
    """What happens. Days count from the beginning; before it the first bookies held everything."""

    bookies: int
    racks: int
    zones: int = 1
    ledgers: int
    """That there are at a time."""
    days: int = 30
    short_days: float = 7.0
    """For so long half of the ledgers are kept."""
    long_days: float = 365.0
    """And the other half, among those that are written at a time, share the rest of the space."""
    share_short: float = 0.5
    """Of what is written."""
    lost: Mapping[int, int] = field(default_factory=dict)
    """Day → how many bookies are lost for good; each is replaced by an empty one in its rack a day later."""
    added: Mapping[int, int] = field(default_factory=dict)
    """Day → how many bookies are added."""
    balance_share: float = 0.0
    """Of all space, what the balance moves in a day at most. 0: none."""
    seed: int = 1


@dataclass(slots=True)
class Spread:
    """At the end of one day."""

    day: int
    bookies: int
    space: float
    """Highest over mean of the bytes that bookies hold."""
    load: float
    """Highest over mean of the bytes an hour that clients wrote to them so far; of those that have been there for SETTLED_H."""
    moved_share: float
    """Of all space, what was moved so far."""


class _State:
    def __init__(self, plan: Churn) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        self.rng = np.random.default_rng(plan.seed)
        self.bookies = [
            registered(number, number % plan.racks, (number % plan.racks) % plan.zones) for number in range(plan.bookies)
        ]
        """All that there ever were, by number."""
        self.alive = list(range(plan.bookies))
        self.choice = EnsembleChoice(ClientConfig(), self.random.randrange)
        self.capacity = 1
        per_day = plan.ledgers / (plan.share_short * plan.short_days + (1 - plan.share_short) * plan.long_days)
        self.per_step = max(1, round(per_day * STEP_H / 24))
        self.ensembles, self.nbytes, self.ends_h = self._before(per_day)
        self.written = np.zeros(plan.bookies)
        self.since_h = [0.0] * plan.bookies
        self.now_h = 0.0
        self.moved = 0

    def _before(self, per_day: float) -> tuple[Ensembles, npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """What there is after a long time with the first bookies: ages are spread evenly."""
        plan, rng = self.plan, self.rng
        short = round(per_day * plan.share_short * plan.short_days)
        long = round(per_day * (1 - plan.share_short) * plan.long_days)
        ends = np.concatenate([rng.random(short) * plan.short_days, rng.random(long) * plan.long_days]) * 24
        return drawn_ensembles(self.bookies, COPIES, len(ends), plan.seed), self._sizes(len(ends)), ends

    def _sizes(self, count: int) -> npt.NDArray[np.int64]:
        """Log-normal around 100 MB: one in twenty is more than twice as large."""
        return (self.rng.lognormal(0.0, 0.5, count) * 90e6).astype(np.int64) + 1

    # --- what happens in a step

    def step(self, now_h: float) -> None:
        self.now_h = now_h
        kept = self.ends_h > now_h
        here = [self.bookies[number] for number in self.alive]
        fresh = np.array(self.alive, dtype=np.int16)[
            drawn_ensembles(here, COPIES, self.per_step, self.random.randrange(1 << 30), SAMPLES)
        ]
        sizes = self._sizes(self.per_step)
        is_short = self.rng.random(self.per_step) < self.plan.share_short
        ends = now_h + 24 * np.where(is_short, self.plan.short_days, self.plan.long_days)
        for slot in range(COPIES):
            np.add.at(self.written, fresh[:, slot], sizes)
        self.ensembles = np.concatenate([self.ensembles[kept], fresh])
        self.nbytes = np.concatenate([self.nbytes[kept], sizes])
        self.ends_h = np.concatenate([self.ends_h[kept], ends])

    def add(self, count: int, rack_of: int | None = None) -> None:
        """To the racks in turn, or in the place of a bookie that was lost."""
        for _ in range(count):
            number = len(self.bookies)
            rack = (number if rack_of is None else rack_of) % self.plan.racks
            self.bookies.append(registered(number, rack, rack % self.plan.zones))
            self.alive.append(number)
            self.since_h.append(self.now_h)
        self.written = np.append(self.written, np.zeros(count))

    def lose(self) -> int:
        """One bookie, by chance: its copies are made again by those who are left. Returns its rack."""
        gone = self.alive.pop(self.random.randrange(len(self.alive)))
        here = [self.bookies[number] for number in self.alive]
        numbers = {one.bookie_id: number for number, one in enumerate(self.bookies)}
        names = [one.bookie_id for one in self.bookies]
        for row, slot in zip(*np.nonzero(self.ensembles == gone), strict=True):
            ensemble = tuple(names[number] for number in self.ensembles[row])
            wanted = ChooseReplacements(1, ensemble, (int(slot),), frozenset({names[gone]}), is_patient=True)
            [(_, chosen)] = self.choice.replacements(here, wanted, COPIES, 0).bookies
            self.ensembles[row, slot] = numbers[chosen]
        return gone % self.plan.racks

    def balance(self, max_bytes: int) -> None:
        held = self.held()
        names = [one.bookie_id for one in self.bookies]
        numbers = {name: number for number, name in enumerate(names)}
        spaces = [BookieCapacity(names[one], self.bookies[one].rack, int(held[one]), self.capacity) for one in self.alive]
        plan = BalancePlan(spaces, max_bytes=max_bytes)
        if plan.is_done:
            return
        overfull = [numbers[name] for name in plan.overfull]
        rows = np.flatnonzero(np.isin(self.ensembles, overfull).any(axis=1))
        for row in self.rng.permutation(rows):
            ensemble = tuple(names[number] for number in self.ensembles[row])
            move = plan.move_of(HeldFragment(int(row), 0, ensemble, COPIES, int(self.nbytes[row])))
            if move is not None:
                self.ensembles[row, move.slot] = numbers[move.target]
                self.moved += move.nbytes
            if plan.left_bytes <= 0 or not plan.overfull:
                break

    # --- what came of it

    def held(self) -> npt.NDArray[np.float64]:
        held = np.zeros(len(self.bookies))
        for slot in range(COPIES):
            held += np.bincount(self.ensembles[:, slot], weights=self.nbytes, minlength=len(self.bookies))
        return held

    def spread(self, day: int) -> Spread:
        held = self.held()[self.alive]
        settled = [one for one in self.alive if self.now_h - self.since_h[one] >= SETTLED_H]
        written = [float(self.written[one]) / (self.now_h - self.since_h[one]) for one in settled]
        moved = float(self.moved / held.sum())
        return Spread(day, len(self.alive), _over_mean(held), _over_mean(written), moved)


def play(plan: Churn) -> list[Spread]:
    """What each day ended with; day 0 is before the first."""
    state, spreads, racks = _State(plan), [], list[int]()
    spreads.append(Spread(0, len(state.alive), _over_mean(state.held()), 1.0, 0.0))
    for day in range(1, plan.days + 1):
        for rack in racks:
            state.add(1, rack)
        racks = [state.lose() for _ in range(plan.lost.get(day, 0))]
        state.add(plan.added.get(day, 0))
        for step in range(24 // STEP_H):
            state.step((day - 1) * 24 + (step + 1) * STEP_H)
            if plan.balance_share:
                state.balance(int(plan.balance_share * STEP_H / 24 * state.nbytes.sum() * COPIES))
        spreads.append(state.spread(day))
    return spreads


def _over_mean(amounts: npt.NDArray[np.float64] | Sequence[float]) -> float:
    found = np.asarray(amounts, dtype=np.float64)
    return float(found.max() / found.mean()) if found.any() else 1.0
