"""Two processes duel for one log over real bookies: the short form of ``python -m tests.soak.chaos.duel --seconds 60``."""

from __future__ import annotations

from pathlib import Path

from bk_spark.local.cluster import LocalCluster
from tests.soak.chaos.duel import Duel

SECONDS = 8.0
SEED = 3


def test_duellists_agree_on_one_order_that_holds_all_that_was_confirmed(wide_cluster: LocalCluster, tmp_path: Path) -> None:
    """Log rules 1, 2 and 3; docs/rules.md, protocol rule 60."""
    duel = Duel(wide_cluster, tmp_path, SEED)
    verdict = duel.fight(SECONDS)
    assert verdict.violations == [], str(verdict)
    assert set(duel.faults) == {"suspend", "kill", "lose_bookie", "stall_bookie"}
    assert min(verdict.confirmed, verdict.displaced, verdict.reads) > 0
    assert verdict.ledgers > verdict.leaderships / 2, "few leaders rolled"
