"""What is to be called later, until somebody asks: for parts without a thread or a loop of their own."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class DueCalls:
    """Calls in the order of their times. ``clock``: seconds that only rise. For one thread at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (self._clock() + seconds, next(self._numbers), call))

    def run(self) -> None:
        """Call what is due by now."""
        now_s = self._clock()
        while self._calls and self._calls[0][0] <= now_s:
            heapq.heappop(self._calls)[2]()
