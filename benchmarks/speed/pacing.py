"""Doing things at a fixed rate, and how long they took, counted from when they should have begun.

A driver that waits for a slow answer before it begins the next thing measures the stall once, though everything that was to
begin meanwhile suffered from it. So latencies count from the intended time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from benchmarks.speed.measure import percentile

PERCENTS = {"p50_ms": 50.0, "p99_ms": 99.0, "p999_ms": 99.9}


def at_rate(count: int, per_s: float) -> Iterator[float]:
    """The intended times, on the clock of ``time.perf_counter``; each is given when it has come, late ones at once."""
    start = time.perf_counter()
    for number in range(count):
        intended = start + number / per_s
        if (wait := intended - time.perf_counter()) > 0:
            time.sleep(wait)
        yield intended


def latency_figures(seconds: Sequence[float]) -> dict[str, float]:
    return {name: percentile(seconds, percent) * 1000 for name, percent in PERCENTS.items()}
