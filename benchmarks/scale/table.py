"""The exponents of growth between two sizes, and the table of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.scale.measured import Used
from benchmarks.scale.operation import OPERATIONS
from benchmarks.scale.size import Size

LINEAR, CONSTANT = 1.1, 0.2
"""The largest exponents where the work is in proportion to the amount, and where it should not grow."""

FLOORS = {"wall_s": 0.02, "cpu_s": 0.02, "peak_mib": 8.0, "requests": 20.0}
"""Smaller figures count as this much: they tell of the machine, not of growth."""


@dataclass(frozen=True, slots=True)
class Grown:
    """One part of an operation at two sizes. Figures are by the names of FLOORS."""

    name: str
    about: str
    amounts: tuple[int, int]
    small: Mapping[str, float]
    large: Mapping[str, float]
    limit: float

    @property
    def exponents(self) -> dict[str, float]:
        ratio = math.log(self.amounts[1] / self.amounts[0])
        pairs = {name: (max(self.small[name], floor), max(self.large[name], floor)) for name, floor in FLOORS.items()}
        return {name: math.log(large / small) / ratio for name, (small, large) in pairs.items()}

    @property
    def excess(self) -> list[str]:
        """The figures that grow faster than the limit."""
        return [name for name, exponent in self.exponents.items() if exponent > self.limit]


Results = Mapping[str, Mapping[str, Used]]
"""Of one size: operation → part → what it used."""


def grown(sizes: tuple[Size, Size], small: Results, large: Results) -> Iterator[Grown]:
    """What both have."""
    for name, parts in large.items():
        one = OPERATIONS[name]
        for part, used in parts.items():
            if part in small.get(name, {}):
                limit = LINEAR if part in one.grows else CONSTANT
                before, after = figures(small[name][part]), figures(used)
                label = f"{name}: {part}" if part else name
                yield Grown(label, one.about, (one.amount(sizes[0]), one.amount(sizes[1])), before, after, limit)


def figures(used: Used) -> dict[str, float]:
    """By the names of FLOORS."""
    sums = {"wall_s": used.wall_s, "cpu_s": used.cpu_s, "peak_mib": used.peak_mib}
    return {**sums, "requests": float(sum(used.requests.values()))}


def lines(rows: Sequence[Grown]) -> Iterator[str]:
    """A table in Markdown: each figure at the large size, with its exponent behind it."""
    yield "| operation | amount | seconds | CPU seconds | memory MiB | requests | |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        exponents = row.exponents
        cells = [f"{_number(row.large[name])} ({exponents[name]:+.2f})" for name in FLOORS]
        verdict = f"above {row.limit:g}: {', '.join(row.excess)}" if row.excess else ""
        yield f"| {row.name} | {row.amounts[1]:,} | {' | '.join(cells)} | {verdict} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
