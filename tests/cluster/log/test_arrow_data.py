"""A short round of ``make arrow`` on real bookies: Arrow data by every way into a log and out of it, but for Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.local.cluster import LocalCluster
from tests.soak.arrow.on_cluster import run_case_on
from tests.soak.arrow.ways import Ways

CASES, TIERED_CASES = 6, 3
"""Some seconds. The net plays thousands in its hour."""


@pytest.fixture
def ways(cluster: LocalCluster, tmp_path: Path) -> Iterator[Ways]:
    found = Ways(cluster.metadata_uri, tmp_path)
    yield found
    found.close()


def test_drawn_data_is_read_back_equal_by_every_way_or_refused_by_name(ways: Ways) -> None:
    for seed in range(CASES):
        run_case_on(ways, seed)


def test_drawn_data_is_read_back_equal_from_files_once_it_is_in_a_tier(ways: Ways) -> None:
    for seed in range(TIERED_CASES):
        run_case_on(ways, seed, is_tiered=True)
