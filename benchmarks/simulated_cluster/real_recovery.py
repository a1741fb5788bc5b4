"""A bookie of a real cluster on this machine is killed for good, and AutoRecovery copies what it held: time, CPU, requests."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from benchmarks.scale.measured import Meter, packets
from benchmarks.speed.processes import usage
from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalCluster
from bk_spark.local.process import LocalProcess
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.settings import AutoRecoveryConfig

SESSION_S = 10.0
GRACE_S = 1.0
CONFIG = AutoRecoveryConfig(lost_bookie_grace_s=GRACE_S)
ENTRY_BYTES = 16_384
_LOOK_S = 0.1
_DEADLINE_S = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """``ledgers`` name the bookie that is killed. The others are as many as it takes."""

    bookies: int
    copies: int
    ledgers: int
    entries: int
    """Of ``ENTRY_BYTES`` in each ledger."""
    workers: int = 2

    @property
    def ledger_bytes(self) -> int:
        return self.entries * ENTRY_BYTES


@dataclass(slots=True)
class RealRecovery:
    """Time and CPU, in seconds, are from the first mark to the last one's end."""

    all_ledgers: int
    copying_s: float = 0.0
    requests: int = 0
    """To ZooKeeper since the bookie was killed, without those of this process."""
    workers_cpu_s: float = 0.0
    bookies_cpu_s: float = 0.0
    zookeeper_cpu_s: float = 0.0


def recovered(plan: Plan) -> RealRecovery:
    config = replace(DEFAULT_BOOKIE_CONFIG, session_timeout_s=SESSION_S)
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(plan.bookies, Path(directory) / "cluster", bookie_config=config) as cluster,
        BookKeeper(cluster.metadata_uri) as client,
    ):
        lost = cluster.bookies[-1]
        found = RealRecovery(_fill(client, plan, lost.bookie_id))
        workers = [cluster.start_autorecovery(CONFIG) for _ in range(plan.workers)]
        _await_candidates(client, plan.workers)
        received, meter = packets(cluster.metadata_uri), Meter()
        with meter.running():
            lost.kill()
            _measure(cluster, client, workers, found)
        found.requests = packets(cluster.metadata_uri) - received - sum(meter.used()[""].requests.values())
        left = [one for one in client.existing_ledgers(list(client.list_ledgers())) if lost.bookie_id in one.bookies]
        assert not left, f"{len(left)} ledgers name the lost bookie after the last mark is gone"
        return found


def _fill(client: BookKeeper, plan: Plan, lost: str) -> int:
    payloads = pa.array([os.urandom(ENTRY_BYTES) for _ in range(plan.entries)], pa.binary())

    def fill(_: int) -> bool:
        with client.create_ledger(ensemble_size=plan.copies, write_quorum=plan.copies, ack_quorum=plan.copies) as writer:
            writer.append_batch(payloads)
        return lost in writer.metadata.last_fragment.ensemble

    written = naming = 0
    with ThreadPoolExecutor(4) as pool:
        while (missing := plan.ledgers - naming) > 0:
            naming += sum(pool.map(fill, range(missing)))
            written += missing
    return written


def _await_candidates(client: BookKeeper, workers: int) -> None:
    marks, deadline_s = UnderReplication(client.metadata_store, client.znodes), time.monotonic() + _DEADLINE_S
    while marks.candidates() < workers:
        assert time.monotonic() < deadline_s, "AutoRecovery does not start"
        time.sleep(_LOOK_S)


def _measure(cluster: LocalCluster, client: BookKeeper, workers: Sequence[LocalProcess], found: RealRecovery) -> None:
    marks, deadline_s = UnderReplication(client.metadata_store, client.znodes), time.monotonic() + _DEADLINE_S
    groups: list[Sequence[LocalProcess]] = [workers, cluster.bookies[:-1], [cluster.zookeeper]]
    before = [_cpu_s(group) for group in groups]
    while not marks.count():
        assert time.monotonic() < deadline_s, "no ledger is marked"
        time.sleep(_LOOK_S / 10)
        before = [_cpu_s(group) for group in groups]
    began_s = time.monotonic()
    while marks.count():
        assert time.monotonic() < deadline_s, f"{marks.count()} ledgers are still marked"
        time.sleep(_LOOK_S)
    found.copying_s = time.monotonic() - began_s
    used = [_cpu_s(group) - then for group, then in zip(groups, before, strict=True)]
    found.workers_cpu_s, found.bookies_cpu_s, found.zookeeper_cpu_s = used


def _cpu_s(group: Sequence[LocalProcess]) -> float:
    return usage([one.pid for one in group if one.pid is not None]).cpu_s
