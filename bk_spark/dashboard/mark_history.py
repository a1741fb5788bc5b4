"""How many ledgers were under-replicated over the last day, as far as this process has seen. Bounded, and without a clock."""

from __future__ import annotations

STEP_S = 300.0
"""One figure for five minutes, the highest of them: a short loss must not disappear between two samples."""

KEPT = 288
"""Steps: a day, in some 3 KiB of each answer."""


class MarkHistory:
    """One thread gives it each count with its time; times never go backwards. Any thread may ask."""

    def __init__(self) -> None:
        self._steps: tuple[tuple[int, int, bool], ...] = ()
        """Number of the step, the highest count, and whether marks were all there is, all the time. A step in which nothing was
        read is missing. Replaced as a whole."""
        self._since_s: float | None = None

    def add(self, count: int, now_s: float, *, are_all: bool) -> None:
        """``are_all``: no ledger lacks copies without a mark, as far as an auditor has looked."""
        if self._since_s is None:
            self._since_s = now_s
        step, before = int(now_s // STEP_S), self._steps
        if before and before[-1][0] == step:
            _, highest, were_all = before[-1]
            before, count, are_all = before[:-1], max(count, highest), are_all and were_all
        self._steps = (*before, (step, count, are_all))[-KEPT:]

    def rows(self, now_s: float) -> list[tuple[int, int, bool]]:
        """How many steps ago, 0 for the one that is under way, the highest count, and whether it is all; the oldest first."""
        last = int(now_s // STEP_S)
        return [(last - step, count, are_all) for step, count, are_all in self._steps if last - step < KEPT]

    def known_s(self, now_s: float) -> float | None:
        """How long ago the first count was added; None without one."""
        return None if self._since_s is None else now_s - self._since_s
