"""A short round of ``make tiers``: tierers are killed at their calls, and every read holds against the model."""

from __future__ import annotations

from pathlib import Path

from bk_spark import LocalCluster
from tests.soak.tiers.run import Run

KILLS = 4


def test_kills_of_tierers_lose_no_row_and_show_none_twice(cluster: LocalCluster, tmp_path: Path) -> None:
    outcome = Run(cluster.metadata_uri, tmp_path, seed=3).play(KILLS)
    assert outcome.differences == []
    assert outcome.kills == KILLS
    assert outcome.counts["reads"] > 0
