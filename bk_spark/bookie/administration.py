"""What an operator asks of a running bookie: garbage collection, the scrub, and how it is.

Everything returns at once: what was started goes on in its own thread, and its figures tell how far it came.

Ref: proto/bookie.proto, Administer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.disk_watch import DiskWatch
from bk_spark.wire import AdministerReply, Operation, Status


class TaskStatus(Protocol):
    @property
    def last_error(self) -> str:
        """Empty if the last try went through."""

    def figures(self) -> dict[str, int]: ...


class Task(Protocol):
    def status(self) -> TaskStatus: ...


class Scrub(Task, Protocol):
    def force(self) -> None: ...


class Collector(Task, Protocol):
    def force(self) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Tasks:
    """What runs in the background."""

    collector: Collector
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

    def administer(self, bookie_id: str, operation: Operation) -> AdministerReply:
        """UNKNOWN while the bookie starts, WRONG_BOOKIE if another one is meant."""
        if bookie_id != self._bookie_id:
            return AdministerReply(Status.WRONG_BOOKIE, f"this is bookie {self._bookie_id}")
        if operation is Operation.BOOKIE_STATUS:
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


def _carry_out(tasks: Tasks, operation: Operation) -> AdministerReply:
    match operation:
        case Operation.SCRUB:
            tasks.scrub.force()
        case Operation.GC_RUN:
            tasks.collector.force()
        case Operation.GC_SUSPEND:
            tasks.collector.suspend()
        case Operation.GC_RESUME:
            tasks.collector.resume()
    status = (tasks.scrub if operation is Operation.SCRUB else tasks.collector).status()
    return AdministerReply(Status.OK, status.last_error, status.figures())
