"""The thread of the garbage collector: runs when one is due or asked for, and tells how far it came.

A run that fails changes nothing that it was not sure of; the next one tries again. Suspending ends a run at its next step: what
was begun is finished, nothing new is begun, neither deletions nor compaction.

``threading`` is here, against the import table, for the thread and its waits.

Ref: gc_run.py for when, gc_run.py for what.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import asdict, dataclass, replace

from bk_spark.bookie.logs.mark import LogState
from bk_spark.bookie.pace import SYSTEM_CLOCKS, Clocks, RateLimiter
from bk_spark.bookie.space.garbage_collection import ClusterMember, LocalLedgers
from bk_spark.bookie.space.gc_run import GcPlan, GcReport, GcRun, GcSchedule
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GcStatus:
    """How the collector stands; counts since its start."""

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
    last_error: str = ""
    """What ended the last run; empty if it went through."""

    def figures(self) -> dict[str, int]:
        """All numbers by name."""
        return {name: int(value) for name, value in asdict(self).items() if not isinstance(value, str)}


class GarbageCollector:
    """Any thread may call it."""

    def __init__(
        self, local: LocalLedgers, cluster: ClusterMember, config: BookieConfig, clocks: Clocks = SYSTEM_CLOCKS
    ) -> None:
        self._local = local
        self._clocks = clocks
        self._schedule = GcSchedule(config, clocks.steady_s())
        limiter = RateLimiter(config.compaction_bytes_per_s, clocks.steady_s, self._pause)
        self._run = GcRun(local, cluster, limiter, clocks.wall_ms, self._pause)
        self._changed = threading.Condition()
        self._status = GcStatus()
        self._forced: bool | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._serve, name="garbage collection")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End a run under way at its next step, and wait for it. The storage must still be open."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def force(self, major: bool = True) -> None:
        """Ask for a run now, with a major or a minor compaction; does not wait. While suspended it is kept until ``resume``."""
        with self._changed:
            self._forced = major or bool(self._forced)
            self._changed.notify_all()

    def suspend(self) -> None:
        """Begin nothing new until ``resume``."""
        self._set_suspended(True)

    def resume(self) -> None:
        self._set_suspended(False)

    def status(self) -> GcStatus:
        with self._changed:
            return self._status

    # --- the thread

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
                self._status = replace(self._status, is_running=True)
            self._one_run(plan)

    def _is_due(self) -> bool:
        if self._status.is_suspended:
            return False
        return self._forced is not None or self._schedule.wait_s(self._clocks.steady_s()) == 0

    def _wait_s(self) -> float | None:
        """None, for ever, while suspended."""
        return None if self._status.is_suspended else self._schedule.wait_s(self._clocks.steady_s())

    def _one_run(self, plan: GcPlan) -> None:
        report, problem = GcReport(), ""
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
        with self._changed:
            before = self._status
            self._status = replace(
                before,
                is_running=False,
                runs=before.runs + 1,
                last_run_ms=self._clocks.wall_ms(),
                ledgers_deleted=before.ledgers_deleted + report.ledgers_deleted,
                logs_compacted=before.logs_compacted + report.logs_compacted,
                logs_deleted=before.logs_deleted + report.logs_deleted,
                bytes_freed=before.bytes_freed + report.bytes_freed,
                bytes_copied=before.bytes_copied + report.bytes_copied,
                live_bytes=live_bytes,
                total_bytes=total_bytes,
                last_error=problem,
            )
            self._changed.notify_all()

    def _sizes(self, problem: str) -> tuple[int, int, str]:
        """Live and all bytes of the entry logs, the last known ones where the index cannot be asked."""
        try:
            logs = [one for one in self._local.storage.entry_logs() if one.state is not LogState.DEAD]
        except BookKeeperError as error:
            return self._status.live_bytes, self._status.total_bytes, problem or str(error)
        return sum(one.live_bytes for one in logs), sum(one.total_bytes for one in logs), problem

    def _may_go_on(self) -> bool:
        return not self._is_stopped and not self._status.is_suspended

    def _may_compact(self) -> bool:
        """Compaction takes hours at times: the next look for deleted ledgers does not wait for it."""
        return self._may_go_on() and self._schedule.wait_s(self._clocks.steady_s()) > 0

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._may_go_on(), seconds)

    def _set_suspended(self, is_suspended: bool) -> None:
        with self._changed:
            self._status = replace(self._status, is_suspended=is_suspended)
            self._changed.notify_all()
