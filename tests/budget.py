"""How much the tests try that draw cases by chance: a little before each push, much in ``make soak`` (``BK_SPARK_SOAK=1``)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

IS_SOAK = os.environ.get("BK_SPARK_SOAK") == "1"

SAMPLES = 2000 if IS_SOAK else 200
"""Bits that are flipped in each large file."""

PROFILE = settings(deadline=None, max_examples=1000 if IS_SOAK else 50)
"""No deadline: a machine that is busy makes an example slow, never wrong."""


def examples(count: int, *suppressed: HealthCheck) -> settings:
    """For a test that needs more, or can afford fewer examples than others: ``count``, and twenty times that in a soak."""
    return settings(max_examples=20 * count if IS_SOAK else count, suppress_health_check=suppressed)
