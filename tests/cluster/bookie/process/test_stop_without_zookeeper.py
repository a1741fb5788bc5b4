"""A bookie that is told to stop while ZooKeeper does not answer. Orchestrators kill what has not ended within 30 s."""

from __future__ import annotations

import time
from dataclasses import replace

from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.identity.boot_file import BootPhase, read_boot
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalBookie, LocalCluster
from bk_spark.local.process import STOP_S

FAR_APART_S = 60.0
"""A session timeout that no wait of a stop may depend on."""


def test_a_bookie_stops_cleanly_within_seconds_though_zookeeper_does_not_answer() -> None:
    """While it is suspended, and after it was killed."""
    with LocalCluster(2, bookie_config=replace(DEFAULT_BOOKIE_CONFIG, session_timeout_s=FAR_APART_S)) as cluster:
        first, second = cluster.bookies
        cluster.zookeeper.suspend()
        _stops_cleanly(first)
        cluster.zookeeper.resume()
        cluster.zookeeper.kill()
        _stops_cleanly(second)


def _stops_cleanly(bookie: LocalBookie) -> None:
    began = time.monotonic()
    bookie.stop()  # raises if it must be killed after STOP_S
    assert time.monotonic() - began < STOP_S
    boot = read_boot(REAL_DISK, bookie.data_dir)
    assert boot is not None
    assert boot.phase is BootPhase.CLEAN
