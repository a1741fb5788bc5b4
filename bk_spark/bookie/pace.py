"""What a bookie's background threads go by: a rate of bytes that leaves most of the disk to adds and reads, and clocks.

Clocks and pauses are handed in, so that a test can control them. ``time`` is imported here so that the modules which are given
a clock need not import it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bk_spark.entries.rate import ByteRate

MIN_PAUSE_S = 0.01
"""Shorter pauses are added up: a sleep takes about 0.1 ms longer than asked for, which would slow down small records."""


class RateLimiter:
    """Pauses one thread so that it keeps to a rate: each amount is taken before it is read or written."""

    def __init__(self, bytes_per_s: int, clock_s: Callable[[], float], pause: Callable[[float], object]) -> None:
        """``clock_s`` never goes back; ``pause`` waits so many seconds, or shorter if the work is to end."""
        self._rate = ByteRate(bytes_per_s)
        self._clock_s = clock_s
        self._pause = pause

    def take(self, nbytes: int) -> None:
        """Wait until what was taken before is paid for, then take ``nbytes``."""
        now_s = self._clock_s()
        owed_s = self._rate.paid_ms / 1000 - now_s
        if owed_s >= MIN_PAUSE_S:
            self._pause(owed_s)
            now_s = self._clock_s()
        self._rate.take(nbytes, now_s * 1000)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of background threads."""

    wall_ms: Callable[[], int]
    """Since 1970: for the end of a run and the age of tombstones."""
    steady_s: Callable[[], float]
    """Never goes back: for intervals and rates."""


SYSTEM_CLOCKS = Clocks(lambda: time.time_ns() // 1_000_000, time.monotonic)
"""NB: Linux's steady clock does not count the time in which the machine was suspended. After it an epoch counts as younger than
it is, by that time, so that the bookie lapses later (process/epoch_keeper.py)."""
