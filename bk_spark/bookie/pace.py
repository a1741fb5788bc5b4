"""Bytes per second: how background work leaves most of the disk to adds and reads.

Every amount is taken before it is read or written, and is paid for by a pause before the next one. Time that was not used is
not saved up, so work never comes in a burst larger than one amount. The clock and the pause are handed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

MIN_PAUSE_S = 0.01
"""Shorter pauses are put together: a sleep takes some 0.1 ms more than asked for, which small records would feel."""


class RateLimiter:
    """For one thread."""

    def __init__(self, bytes_per_s: int, clock_s: Callable[[], float], pause: Callable[[float], object]) -> None:
        """``clock_s`` never goes back; ``pause`` waits so many seconds, or shorter if the work is to end."""
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


# --- The clocks that a bookie's background threads go by, handed in so that a test can turn them
#
# ``time`` is here, against the import table, so that it is in none of the modules that are driven.


@dataclass(frozen=True, slots=True)
class Clocks:
    wall_ms: Callable[[], int]
    """Since 1970: when a run ended, the age of tombstones."""
    steady_s: Callable[[], float]
    """Never goes back: intervals and rates."""


SYSTEM_CLOCKS = Clocks(lambda: time.time_ns() // 1_000_000, time.monotonic)
