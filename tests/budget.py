"""How much the tests try that draw cases by chance: a little before each push, much in ``make soak`` (``BK_SPARK_SOAK=1``)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

IS_SOAK = os.environ.get("BK_SPARK_SOAK") == "1"

SAMPLES = 2000 if IS_SOAK else 50
"""Bits that are flipped in each large file."""

PROFILE = settings(deadline=None, max_examples=1000 if IS_SOAK else 50, derandomize="CI" in os.environ and not IS_SOAK)
"""No deadline: a machine that is busy makes an example slow, never wrong. CI draws the same examples each time, so that
it judges the change alone; a developer's runs and the soak draw new ones."""


def examples(count: int, *suppressed: HealthCheck) -> settings:
    """For a test that needs more, or can afford fewer examples than others: ``count``, and twenty times that in a soak."""
    return settings(max_examples=20 * count if IS_SOAK else count, suppress_health_check=suppressed)
