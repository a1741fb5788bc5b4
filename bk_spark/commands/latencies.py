"""Many durations in bounded memory: a count for each step of one per cent, from a microsecond to twenty minutes."""

from __future__ import annotations

import math
from collections.abc import Sequence

STEP = 1.01
"""A quantile is told this exactly."""

SHORTEST_S = 1e-6
STEPS = 2_100
"""1.01 to this power is 1.2 thousand million: what is longer counts as twenty minutes, above every timeout of a client."""


class Latencies:
    """How long things took. One thread at a time."""

    def __init__(self) -> None:
        self._counts = [0] * STEPS
        self.count = 0

    def add(self, seconds: float) -> None:
        step = math.ceil(math.log(max(seconds, SHORTEST_S) / SHORTEST_S, STEP))
        self._counts[min(step, STEPS - 1)] += 1
        self.count += 1

    def quantile_s(self, part: float) -> float | None:
        """What ``part`` of all stayed at or below, from 0 to 1, at most one per cent too long; None where there is none."""
        rank, seen = max(math.ceil(part * self.count), 1), 0
        for step, count in enumerate(self._counts):
            seen += count
            if seen >= rank:
                return float(SHORTEST_S * STEP**step)
        return None

    def milliseconds(self, parts: Sequence[float]) -> list[float | None]:
        """The quantiles of ``parts``, to four digits."""
        found = [self.quantile_s(part) for part in parts]
        return [None if one is None else float(f"{one * 1000:.4g}") for one in found]
