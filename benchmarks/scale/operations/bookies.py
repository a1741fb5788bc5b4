"""What a bookie with many ledgers does: garbage collection, and its start after a kill."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping

from benchmarks.scale.made_cluster import HELD, LEDGERS, MadeCluster
from benchmarks.scale.made_ledgers import held_by_first
from benchmarks.scale.measured import Used, packets, process_running
from benchmarks.scale.operation import on_cluster
from benchmarks.scale.operations.waiting import until
from benchmarks.scale.size import Size
from benchmarks.speed.processes import peak_memory_mib, usage
from bk_spark.local.cluster import LocalBookie
from bk_spark.wire.messages import AdminOperation

DELETED_EACH = 100
"""One of so many of the bookie's ledgers is deleted."""


def held(size: Size) -> int:
    return size.held


@on_cluster("start of a bookie after a kill", held, grows=[""], needs=(LEDGERS, HELD))
def start_after_kill(cluster: MadeCluster) -> Mapping[str, Used]:
    bookie, used = cluster.local.bookies[0], Used()
    bookie.kill()
    received, began_s = packets(cluster.uri), time.perf_counter()
    bookie.start()
    used.wall_s = time.perf_counter() - began_s
    pid = _pid(bookie)
    used.cpu_s, used.peak_mib = usage([pid]).cpu_s, peak_memory_mib([pid])
    used.requests["all"] = packets(cluster.uri) - received
    return {"": used}


@on_cluster("garbage collection of a bookie", held, grows=["", "deletes"], needs=(LEDGERS, HELD))
def gc_pass(cluster: MadeCluster) -> Mapping[str, Used]:
    """All of it: deleted ledgers, those that others hold by now, compaction. Then again with deleted ledgers."""
    bookie = cluster.local.bookies[0]
    parts = {"": Used(), "deletes": Used()}
    with process_running(parts[""], _pid(bookie), cluster.uri):
        _collect(cluster, bookie)
    for ledger_id in itertools.islice(held_by_first(cluster.size.ledgers), 0, None, DELETED_EACH):
        cluster.client.delete_ledger(ledger_id, force=True)
    _collect(cluster, bookie)  # only what is missing for the second time is deleted
    with process_running(parts["deletes"], _pid(bookie), cluster.uri):
        _collect(cluster, bookie)
    return parts


def _collect(cluster: MadeCluster, bookie: LocalBookie) -> None:
    ask = cluster.client.administer_bookie
    wanted = ask(bookie.bookie_id, AdminOperation.GC_STATUS).figures["runs"] + 1
    ask(bookie.bookie_id, AdminOperation.GC_RUN)
    until(lambda: ask(bookie.bookie_id, AdminOperation.GC_STATUS).figures.get("runs", 0) >= wanted)


def _pid(bookie: LocalBookie) -> int:
    assert bookie.pid is not None
    return bookie.pid
