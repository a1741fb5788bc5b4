"""Does a round's faults to a cluster, and undoes them.

Any number of bookies may be down at once. What they acknowledged is on their disks, or with SIGKILL in the memory of the
machine, which lives: chaos of processes loses no disk. Lost and damaged disks belong to the simulator.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.bookkeeper_cluster import ApacheBookie
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.metadata.registration import unregister
from bk_spark.metadata.uri import parse_uri
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect
from tests.soak.chaos.history import FAULT, Recorder
from tests.soak.chaos.plan import Fault
from tests.soak.chaos.slow_bookie import delay_file
from tests.soak.chaos.timetable import END_S, Timetable

Bookie = LocalBookie | ApacheBookie


class Nemesis(Timetable[Fault]):
    """Breaks ZooKeeper and bookies."""

    def __init__(self, cluster: LocalCluster, bookies: Sequence[Bookie], faults: Sequence[Fault], recorder: Recorder) -> None:
        """``bookies`` are those of the cluster, and perhaps Apache's that joined it."""
        super().__init__(faults)
        self._cluster = cluster
        self._bookies = bookies
        self._recorder = recorder
        self._broken = [threading.Lock() for _ in bookies]
        self._registry = threading.Lock()

    def _play(self, fault: Fault) -> None:
        if fault.kind == "zookeeper":
            self._stop_zookeeper(fault)
        else:
            self._break_bookie(fault)

    def _break_bookie(self, fault: Fault) -> None:
        """One fault of a bookie at a time; a later one waits. The disk of one of Apache's cannot be slowed: it is suspended."""
        bookie = self._bookies[fault.target]
        with self._broken[fault.target]:
            if fault.kind == "kill":
                self._hold(fault, bookie.kill)
                with self._registry:  # a bookie cannot start without ZooKeeper
                    start_again(bookie, self._cluster.metadata_uri)
            elif fault.kind == "slow disk" and isinstance(bookie, LocalBookie):
                self._hold(fault, lambda: _slow_down(bookie.data_dir, fault.delay_ms))
                delay_file(bookie.data_dir).unlink()
            else:
                self._hold(replace(fault, kind="suspend"), bookie.suspend)
                bookie.resume()

    def _stop_zookeeper(self, fault: Fault) -> None:
        with self._registry:
            self._hold(fault, self._cluster.zookeeper.kill)
            self._cluster.zookeeper.start()

    def _hold(self, fault: Fault, begin: Callable[[], None]) -> None:
        begin()
        self.done.append(fault.kind)
        self._recorder.record(FAULT, fault=fault.kind, target=fault.target, lasts_s=fault.lasts_s)
        time.sleep(fault.lasts_s)


def start_again(bookie: Bookie, metadata_uri: str) -> None:
    """Start a bookie that was killed."""
    if isinstance(bookie, ApacheBookie):  # it would give up while its last registration is there
        with connect(metadata_uri, connect_timeout_s=END_S, session_timeout_s=END_S) as store:
            unregister(store, Znodes(parse_uri(metadata_uri)[1]), bookie.bookie_id)
    bookie.start()


def _slow_down(data_dir: Path, delay_ms: int) -> None:
    file = delay_file(data_dir)
    complete = file.with_suffix(".new")
    complete.write_text(str(delay_ms))
    complete.replace(file)
