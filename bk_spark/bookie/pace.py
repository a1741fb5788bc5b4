"""Limits background work to a number of bytes per second, so that adds and reads get most of the disk; and its clocks.

Work takes every amount before it reads or writes it, and pays for it by a pause before it takes the next one. Unused time is
not saved up, so there is never a burst larger than one amount. Callers pass in the clocks and the pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

MIN_PAUSE_S = 0.01
"""Shorter pauses are added up: a sleep takes about 0.1 ms longer than asked for, which would slow down small records."""


class RateLimiter:
    """For one thread."""

    def __init__(self, bytes_per_s: int, clock_s: Callable[[], float], pause: Callable[[float], object]) -> None:
        """``clock_s`` never goes back; ``pause`` waits that many seconds, or less if the work is to end."""
        self._bytes_per_s = bytes_per_s
        self._clock_s = clock_s
        self._pause = pause
        self._paid_at = clock_s()

    def take(self, nbytes: int) -> None:
        """Wait until what was taken before is paid for, then take ``nbytes``."""
        now = self._clock_s()
        debt_s = self._paid_at - now
        if debt_s >= MIN_PAUSE_S:
            self._pause(debt_s)
            now = self._clock_s()
        self._paid_at = max(self._paid_at, now) + nbytes / self._bytes_per_s


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of background threads."""

    wall_ms: Callable[[], int]
    """Since 1970: for the end of a run and the age of tombstones."""
    steady_s: Callable[[], float]
    """Never goes back: for intervals and rates."""


SYSTEM_CLOCKS = Clocks(lambda: time.time_ns() // 1_000_000, time.monotonic)
