"""One cluster with something to look at, for all tests of the dashboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bk_spark.dashboard.server import Dashboard
from tests.cluster.dashboard.lively_cluster import Lively, lively_cluster


@pytest.fixture(scope="session")
def lively() -> Iterator[Lively]:
    with lively_cluster() as lively:
        yield lively


@pytest.fixture(scope="module")
def dashboard(lively: Lively) -> Iterator[Dashboard]:
    with Dashboard(lively.client) as dashboard:
        yield dashboard
