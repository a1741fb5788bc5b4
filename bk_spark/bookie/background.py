"""What a bookie does beside serving: it repairs what it lost, scrubs what it keeps, and collects garbage.

Each has a thread of its own, and its errors are its own: they are logged, and it tries again.

Ref: process.py, phase 4; docs/rules.md, protocol rules 44 and 51.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from bk_spark.bookie.administration import Administration, Tasks
from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.disk_watch import DiskWatch
from bk_spark.bookie.garbage_collection import Cluster, LocalLedgers
from bk_spark.bookie.gc_thread import GarbageCollector
from bk_spark.bookie.integrity import Integrity
from bk_spark.bookie.ledger_repair import LedgerRepair, Peers
from bk_spark.bookie.scrub import Scrubber
from bk_spark.bookie.server import BookieServer
from bk_spark.config import BookieConfig
from bk_spark.wire import DeleteLedgerRequest, Status

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningBookie:
    """A bookie that serves and is registered: what its background works with."""

    bookie_id: str
    bookie: Bookie
    config: BookieConfig
    cluster: Cluster
    watch: DiskWatch
    administration: Administration
    server: BookieServer
    peers: Peers | None
    """None where this process has no client: nothing is repaired from other bookies then."""


class _Task(Protocol):
    def start(self) -> None:
        """Begin. Returns at once."""

    def stop(self) -> None:
        """End, and wait for it. The server has stopped already, the bookie is still open."""


class Background:
    """All that runs beside the server of one bookie."""

    def __init__(self, running: RunningBookie) -> None:
        bookie, peers = running.bookie, running.peers
        repair = None
        if peers is not None:
            repair = LedgerRepair(running.bookie_id, bookie.storage, peers, running.server.call)
        elif bookie.limbo is not None:
            log.warning("bookie %s is in limbo and stays so: this process has no client to repair it with", running.bookie_id)
        scrubber = Scrubber(bookie.storage, repair, running.config)
        collector = GarbageCollector(_local(running, scrubber), running.cluster, running.config)
        integrity = Integrity(bookie, repair) if repair is not None else None
        self.tasks = Tasks(collector, scrubber, integrity)
        self._to_start: list[_Task] = [task for task in (integrity, scrubber, collector) if task is not None]
        self._started: list[_Task] = []

    def start(self) -> None:
        for task in self._to_start:
            task.start()
            self._started.append(task)

    def stop(self) -> None:
        """Waits. To be called with the server stopped and the bookie still open."""
        while self._started:
            self._started.pop().stop()


def _local(running: RunningBookie, scrubber: Scrubber) -> LocalLedgers:
    def delete_ledger(ledger_id: int, deleted_ms: int, decided_at: int | None = None, /) -> bool:
        return running.server.call(DeleteLedgerRequest(ledger_id, deleted_ms, decided_at)).status is Status.OK

    return LocalLedgers(running.bookie.storage, delete_ledger, running.watch.spare_bytes, scrubber.report)
