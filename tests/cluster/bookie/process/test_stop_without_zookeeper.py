"""A bookie that is told to stop while ZooKeeper does not answer. Orchestrators kill what has not ended within 30 s."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.boot_file import BootPhase, read_boot
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalCluster
from bk_spark.local.process import STOP_S
from bk_spark.local.zookeeper_server import LocalZooKeeper

FAR_APART_S = 60.0
"""A session timeout that no wait of a stop may depend on."""


@pytest.mark.parametrize("lose", [LocalZooKeeper.kill, LocalZooKeeper.suspend], ids=["killed", "suspended"])
def test_a_bookie_stops_cleanly_within_seconds_though_zookeeper_does_not_answer(
    lose: Callable[[LocalZooKeeper], None], tmp_path: Path
) -> None:
    with LocalCluster(1, tmp_path, bookie_config=replace(DEFAULT_BOOKIE_CONFIG, session_timeout_s=FAR_APART_S)) as cluster:
        bookie = cluster.bookies[0]
        lose(cluster.zookeeper)
        began = time.monotonic()
        bookie.stop()  # raises if it must be killed after STOP_S
        assert time.monotonic() - began < STOP_S
        boot = read_boot(REAL_DISK, bookie.data_dir)
        assert boot is not None
        assert boot.phase is BootPhase.CLEAN
        if cluster.zookeeper.pid is None:
            cluster.zookeeper.start()
        else:
            cluster.zookeeper.resume()
