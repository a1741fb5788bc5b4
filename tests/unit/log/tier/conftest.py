"""A log with a tier, for each test."""

from __future__ import annotations

import pytest

from tests.unit.log.tier.tier_scene import TierScene


@pytest.fixture
def scene() -> TierScene:
    return TierScene()
