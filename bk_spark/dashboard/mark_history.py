"""How many ledgers were under-replicated over the last day, as far as this process has seen. Bounded, and without a clock."""

from __future__ import annotations

STEP_S = 300.0
"""One figure for five minutes, the highest of them: a short loss must not disappear between two samples."""

KEPT = 288
"""Steps: a day, in some 3 KiB of each answer."""


class MarkHistory:
    """One thread gives it each count with its time; times never go backwards. Any thread may ask."""

    def __init__(self) -> None:
        self._steps: tuple[tuple[int, int], ...] = ()
        """Number of the step, and the highest count in it. A step in which nothing was read is missing. Replaced as a whole."""
        self._since_s: float | None = None

    def add(self, count: int, now_s: float) -> None:
        if self._since_s is None:
            self._since_s = now_s
        step, before = int(now_s // STEP_S), self._steps
        if before and before[-1][0] == step:
            before, count = before[:-1], max(count, before[-1][1])
        self._steps = (*before, (step, count))[-KEPT:]

    def rows(self, now_s: float) -> list[tuple[int, int]]:
        """How many steps ago, 0 for the one that is under way, and the highest count; the oldest first."""
        last = int(now_s // STEP_S)
        return [(last - step, count) for step, count in self._steps if last - step < KEPT]

    def known_s(self, now_s: float) -> float | None:
        """How long ago the first count was added; None without one."""
        return None if self._since_s is None else now_s - self._since_s
