"""The clocks that a bookie's background threads go by, handed in so that a test can turn them.

``time`` is here, against the import table, so that it is in none of the modules that are driven.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    wall_ms: Callable[[], int]
    """Since 1970: when a run ended, the age of tombstones."""
    steady_s: Callable[[], float]
    """Never goes back: intervals and rates."""


SYSTEM_CLOCKS = Clocks(lambda: time.time_ns() // 1_000_000, time.monotonic)
