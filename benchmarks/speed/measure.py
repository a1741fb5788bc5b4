"""What is measured: contestants that take turns, and the ratios of what they did in the same round.

Absolute figures of a shared machine say little: it is twice as fast a minute later. So contestants alternate, each round
gives one ratio, and a claim is the median of these ratios, beside the lowest and the highest.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Result:
    """What one workload gave."""

    name: str
    about: str
    samples: Mapping[str, Sequence[Sample]]
    """By contestant; one a round."""
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()
    """Paragraphs in Markdown for who reads the page: settings that matter, what was left out."""


T = TypeVar("T")


class SkippedError(Exception):
    """This machine lacks what a workload needs: the text says what. That is no failure."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one contestant."""

    seconds: float
    rows: int
    """Or entries, or operations."""
    nbytes: int
    """Bytes of the user, counted once whatever the replicas."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Anything more, with its unit at the end of the name: ``p99_ms``, ``cpu_s``, ``rss_mib``."""

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def bytes_per_s(self) -> float:
        return self.nbytes / self.seconds


class Contestant(Protocol):
    @property
    def name(self) -> str: ...

    def run(self, turn: int) -> Sample:
        """One run. Turns count up over warm-ups and rounds, so that each run may use names and data of its own."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contestant that is one function."""

    name: str
    function: Callable[[int], Sample]

    def run(self, turn: int) -> Sample:
        return self.function(turn)


def alternate(contestants: Sequence[Contestant], runs: int, warmups: int = 1) -> dict[str, list[Sample]]:
    """The samples of each contestant, one a round; warm-ups are not kept."""
    samples: dict[str, list[Sample]] = {contestant.name: [] for contestant in contestants}
    for turn, order in enumerate(_orders(contestants, warmups + runs)):
        for contestant in order:
            sample = contestant.run(turn)
            if turn >= warmups:
                samples[contestant.name].append(sample)
    return samples


def _orders(contestants: Sequence[Contestant], rounds: int) -> Iterator[list[Contestant]]:
    """Every other round reverses the one before, so that a machine that becomes slower is so for all; what is reversed is drawn
    anew, always the same draws, so that no contestant has the same one before it each time, and what that one left behind."""
    draw = random.Random(1)
    order = list(contestants)
    for turn in range(rounds):
        if turn % 2:
            order.reverse()
        elif turn:
            draw.shuffle(order)
        yield list(order)


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of what must be shown."""

    text: str
    ratio: float
    """The median over rounds of ours / theirs of the same round."""
    lowest: float
    highest: float
    wanted: float
    at_least: bool = True
    """Whether the ratio must reach ``wanted``; False: must not exceed it."""

    @property
    def is_met(self) -> bool:
        return self.ratio >= self.wanted if self.at_least else self.ratio <= self.wanted


def claim(text: str, ours: Sequence[float], theirs: Sequence[float], wanted: float, *, at_least: bool = True) -> Claim:
    """A claim from what each round gave, in the order of the rounds."""
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    return Claim(text, statistics.median(ratios), min(ratios), max(ratios), wanted, at_least)


def in_series(*rates: float) -> float:
    """The rate of things that are done one after the other: 1 / (1/a + 1/b + …)."""
    return 1 / sum(1 / rate for rate in rates)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least this many percent of them do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


@dataclass(frozen=True, slots=True)
class Setting:
    """How a workload is run."""

    small: bool
    """As small as it goes: it shows that the workload runs, and its figures mean nothing."""
    runs: int
    seed: int
    directory: Path
    """An empty directory of the workload's own, on the disk that is measured; removed afterwards."""

    def choose(self, full: T, small: T) -> T:
        return small if self.small else full


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    about: str
    run: Callable[[Setting], Result]


WORKLOADS: dict[str, Workload] = {}
"""By name, in the order in which their modules are imported."""


def workload(name: str, about: str) -> Callable[[Callable[[Setting], Result]], Callable[[Setting], Result]]:
    """Register a function as a workload. It starts what it needs once, alternates, and stops all of it, also on errors."""

    def register(function: Callable[[Setting], Result]) -> Callable[[Setting], Result]:
        assert name not in WORKLOADS, f"two workloads are called {name}"
        WORKLOADS[name] = Workload(name, about, function)
        return function

    return register
