"""What a bookie does beside serving: it repairs what it lost, scrubs what it keeps, and collects garbage.

Each has a thread of its own, and its errors are its own: they are logged, and it tries again.

Ref: process.py, phase 4; docs/rules.md, protocol rules 44 and 51.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.process.disk_watch import DiskWatch
from bk_spark.bookie.repair.integrity import Integrity
from bk_spark.bookie.repair.ledger_repair import LedgerRepair, Peers
from bk_spark.bookie.repair.scrub import Scrubber
from bk_spark.bookie.server.server import BookieServer
from bk_spark.bookie.space.garbage_collection import ClusterMember, LocalLedgers
from bk_spark.bookie.space.gc_thread import GarbageCollector
from bk_spark.config import BookieConfig
from bk_spark.wire.messages import AdministerReply, AdminOperation, DeleteLedgerRequest, Status

# --- What an operator asks of a running bookie: garbage collection, the scrub, and how it is
#
# Everything returns at once: what was started goes on in its own thread, and its figures tell how far it came.
#
# Ref: proto/bookie.proto, Administer.


class TaskStatus(Protocol):
    @property
    def last_error(self) -> str:
        """Empty if the last try went through."""

    def figures(self) -> dict[str, int]: ...


class Task(Protocol):
    def status(self) -> TaskStatus: ...


class Scrub(Task, Protocol):
    def force(self) -> None: ...


class CollectorTask(Task, Protocol):
    def force(self) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Tasks:
    """What runs in the background."""

    collector: CollectorTask
    scrub: Scrub
    repair: Task | None
    """After a possible loss of data, where there is a client to repair with."""


class Administration:
    """Any thread may ask."""

    def __init__(self, bookie: Bookie, bookie_id: str, watch: DiskWatch) -> None:
        self._bookie = bookie
        self._bookie_id = bookie_id
        self._watch = watch
        self._tasks: Tasks | None = None

    @property
    def tasks(self) -> Tasks | None:
        """None before the background has started."""
        return self._tasks

    def begin(self, tasks: Tasks) -> None:
        """The background has started; before, only the state can be asked for."""
        self._tasks = tasks

    def administer(self, bookie_id: str, operation: AdminOperation) -> AdministerReply:
        """UNKNOWN while the bookie starts, WRONG_BOOKIE if another one is meant."""
        if bookie_id != self._bookie_id:
            return AdministerReply(Status.WRONG_BOOKIE, f"this is bookie {self._bookie_id}")
        if operation is AdminOperation.BOOKIE_STATUS:
            return self._state()
        if self._tasks is None:
            return AdministerReply(Status.UNKNOWN, "this bookie is starting: ask again")
        return _carry_out(self._tasks, operation)

    def _state(self) -> AdministerReply:
        bookie, tasks = self._bookie, self._tasks
        flags = {"read_only": bookie.is_read_only, "failed": bookie.failure is not None, "limbo": bookie.limbo is not None}
        figures = {name: int(is_so) for name, is_so in flags.items()}
        for name, task in (("scrub", tasks.scrub), ("repair", tasks.repair)) if tasks else ():
            if task is not None:
                figures |= {f"{name}_{figure}": value for figure, value in task.status().figures().items()}
        return AdministerReply(Status.OK, str(bookie.failure or self._watch.state.problem), figures)


def _carry_out(tasks: Tasks, operation: AdminOperation) -> AdministerReply:
    match operation:
        case AdminOperation.SCRUB:
            tasks.scrub.force()
        case AdminOperation.GC_RUN:
            tasks.collector.force()
        case AdminOperation.GC_SUSPEND:
            tasks.collector.suspend()
        case AdminOperation.GC_RESUME:
            tasks.collector.resume()
    status = (tasks.scrub if operation is AdminOperation.SCRUB else tasks.collector).status()
    return AdministerReply(Status.OK, status.last_error, status.figures())


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningBookie:
    """A bookie that serves and is registered: what its background works with."""

    bookie_id: str
    bookie: Bookie
    config: BookieConfig
    cluster: ClusterMember
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
            logger.warning(
                "bookie %s is in limbo and stays so: this process has no client to repair it with", running.bookie_id
            )
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
