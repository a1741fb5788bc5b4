"""Bytes per second: how background work leaves most of the disk to adds and reads.

Every amount is taken before it is read or written, and is paid for by a pause before the next one. Time that was not used is
not saved up, so work never comes in a burst larger than one amount. The clock and the pause are handed in.
"""

from __future__ import annotations

from collections.abc import Callable

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
