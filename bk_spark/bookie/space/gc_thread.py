"""The thread of the garbage collector: it starts a run when one is due or an operator asks for it, and keeps count.

A run that fails has changed only what it was sure of, and the next run tries again. ``suspend`` ends a run at its next step:
what was begun is finished, and no further deletion or compaction begins.

Ref: gc_run.py for when a run is due and what it does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from bk_spark.bookie.background_task import BackgroundTask, TaskStatus
from bk_spark.bookie.logs.mark import LogState
from bk_spark.bookie.pace import SYSTEM_CLOCKS, Clocks, RateLimiter
from bk_spark.bookie.space.garbage_collection import ClusterMember, LocalLedgers
from bk_spark.bookie.space.gc_run import GcPlan, GcReport, GcRun, GcSchedule
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError

logger = logging.getLogger(__name__)

_SUMMED = ("ledgers_deleted", "logs_compacted", "logs_deleted", "bytes_freed", "bytes_copied")
"""The figures of a run that are added up in the status."""


@dataclass(frozen=True, slots=True)
class GcStatus(TaskStatus):
    """Counts are since the start of the collector."""

    is_suspended: bool = False
    is_running: bool = False
    runs: int = 0
    last_run_ms: int = 0
    """When the last run ended, by the wall clock; 0 before the first."""
    ledgers_deleted: int = 0
    logs_compacted: int = 0
    logs_deleted: int = 0
    bytes_freed: int = 0
    bytes_copied: int = 0
    """By compaction, which freed them before."""
    live_bytes: int = 0
    """In entry logs, as of the end of the last run."""
    total_bytes: int = 0


class GarbageCollector(BackgroundTask[GcStatus]):
    """``force``, ``suspend`` and ``resume`` return at once."""

    def __init__(
        self, local: LocalLedgers, cluster: ClusterMember, config: BookieConfig, clocks: Clocks = SYSTEM_CLOCKS
    ) -> None:
        super().__init__("garbage collection", GcStatus())
        self._local = local
        self._clocks = clocks
        self._schedule = GcSchedule(config, clocks.steady_s())
        limiter = RateLimiter(config.compaction_bytes_per_s, clocks.steady_s, self._pause)
        self._run = GcRun(local, cluster, limiter, clocks.wall_ms, self._pause)
        self._forced: bool | None = None
        """Whether the run that was asked for includes a major compaction; None if none was asked for."""

    def force(self, major: bool = True) -> None:
        """Ask for a run now, with a major or a minor compaction. While suspended the collector keeps it until ``resume``."""
        with self._changed:
            self._forced = major or bool(self._forced)
            self._changed.notify_all()

    def suspend(self) -> None:
        """Begin nothing new until ``resume``."""
        self._note(is_suspended=True)

    def resume(self) -> None:
        self._note(is_suspended=False)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or self._is_due(), self._wait_s())
                if self._is_stopped:
                    return
                if not self._is_due():
                    continue
                plan = self._schedule.begin(self._clocks.steady_s(), major=self._forced)
                self._forced = None
                self._note(is_running=True)
            self._one_run(plan)

    def _is_due(self) -> bool:
        if self._status.is_suspended:
            return False
        return self._forced is not None or self._schedule.wait_s(self._clocks.steady_s()) == 0

    def _wait_s(self) -> float | None:
        """None, for ever, while suspended."""
        return None if self._status.is_suspended else self._schedule.wait_s(self._clocks.steady_s())

    def _one_run(self, plan: GcPlan) -> None:
        report = GcReport()
        try:
            report = self._run.run(plan, self._may_go_on, self._may_compact)
            problem = report.problem
        except BookKeeperError as error:
            problem = str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            logger.exception("garbage collection failed")
        if problem:
            logger.error("garbage collection is not complete, the next run tries again: %s", problem)
        else:
            self._schedule.end(self._clocks.steady_s(), is_compacted=report.is_compacted)
        self._record(report, problem)

    def _record(self, report: GcReport, problem: str) -> None:
        live_bytes, total_bytes, problem = self._sizes(problem)
        before = self._status
        self._note(
            is_running=False,
            runs=before.runs + 1,
            last_run_ms=self._clocks.wall_ms(),
            live_bytes=live_bytes,
            total_bytes=total_bytes,
            last_error=problem,
            **{name: getattr(before, name) + getattr(report, name) for name in _SUMMED},
        )

    def _sizes(self, problem: str) -> tuple[int, int, str]:
        """Live and all bytes of the entry logs. If the index cannot be asked: the last known ones, and its error."""
        try:
            logs = [row for row in self._local.storage.entry_logs() if row.state is not LogState.DEAD]
        except BookKeeperError as error:
            return self._status.live_bytes, self._status.total_bytes, problem or str(error)
        return sum(row.live_bytes for row in logs), sum(row.total_bytes for row in logs), problem

    def _may_go_on(self) -> bool:
        return super()._may_go_on() and not self._status.is_suspended

    def _may_compact(self) -> bool:
        """Not once the next run is due: compaction can take hours, and the search for deleted ledgers must not wait for it."""
        return self._may_go_on() and self._schedule.wait_s(self._clocks.steady_s()) > 0
