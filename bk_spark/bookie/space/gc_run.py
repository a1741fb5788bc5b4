"""The garbage collector: one run, the schedule that says when a run is due and what belongs to it, and the thread.

A run handles deleted ledgers, then over-replicated ones, then entry logs. It considers only ledgers that are in the index. A
deleted ledger leaves the index with the next checkpoint, and only then its bytes count as dead. So the run requests checkpoints
and waits for them. It does not compact entry logs that are still written to; it has those sealed that are worth compacting. If
a checkpoint does not come in time, the next run does the rest.

Every run looks for deleted ledgers, and unlinks entry logs without a live byte. Rarer work (over-replicated ledgers, minor and
major compaction) joins the first run after its interval is over. What a run did not finish, because it failed, was suspended,
or the next one became due, is owed to the next. Intervals begin with the process.

A run that fails has changed only what it was sure of, and the next run tries again. ``suspend`` ends a run at its next step:
what was begun is finished, and no further deletion or compaction begins.

Ref: docs/rules.md, protocol rules 42 to 46, situations 63 to 65; thresholds and intervals: config.BookieConfig.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from bk_spark.bookie.background_task import BackgroundTask, TaskStatus
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogState
from bk_spark.bookie.pace import SYSTEM_CLOCKS, Clocks, RateLimiter
from bk_spark.bookie.space.compaction import Compaction, live_ratio
from bk_spark.bookie.space.garbage_collection import ClusterMember, DeletedLedgers, GoOn, LocalLedgers
from bk_spark.bookie.space.issued_ids import ids_given_out_again
from bk_spark.bookie.space.over_replication import OverReplicatedLedgers
from bk_spark.config import MIB, BookieConfig
from bk_spark.errors import BookKeeperError, ConfigError, MetadataConflictError, MetadataUnavailableError

logger = logging.getLogger(__name__)

CHECKPOINT_LOOKS = 100
CHECKPOINT_LOOK_S = 0.1
"""A checkpoint writes some 64 MiB and takes a second or two; a run waits ten seconds for it."""

MIN_ROLL_BYTES = MIB
"""Smaller open entry logs are left alone, so that a quiet bookie does not begin new files all the time."""

_SUMMED = ("ledgers_deleted", "logs_compacted", "logs_deleted", "bytes_freed", "bytes_copied")
"""The figures of a run that are added up in the status."""

ONLY_EMPTY = 0.0
"""The threshold of a run without compaction: only entry logs without a live byte are removed, as in every run."""


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What one run does besides looking for deleted ledgers."""

    threshold: float = ONLY_EMPTY
    """Entry logs with a smaller live part than this are compacted."""
    over_replicated: bool = False


class GcSchedule:
    """Plans the runs. Times are seconds of one clock that never goes back."""

    def __init__(self, config: BookieConfig, now_s: float) -> None:
        self._config = config
        self._owed = GcPlan()
        self._collection_due_s = now_s + config.gc_interval_s
        self._over_replication_due_s = now_s + config.over_replication_interval_s
        self._minor_due_s = now_s + config.minor_compaction_interval_s
        self._major_due_s = now_s + config.major_compaction_interval_s

    def wait_s(self, now_s: float) -> float:
        """The time until the next run; 0 if it is due."""
        return max(0.0, self._collection_due_s - now_s)

    def begin(self, now_s: float, *, major: bool | None = None) -> GcPlan:
        """The plan of the run that begins now. ``major`` forces everything, with a major (True) or minor (False) compaction."""
        self._collection_due_s = now_s + self._config.gc_interval_s
        threshold = max(self._owed.threshold, self._threshold(now_s, major))
        over_replicated = self._owed.over_replicated or major is not None or now_s >= self._over_replication_due_s
        self._owed = GcPlan(threshold, over_replicated)
        return self._owed

    def end(self, now_s: float, *, is_compacted: bool) -> None:
        """To be called after a run that did not fail; ``is_compacted`` if it left no entry log below its threshold."""
        done = self._owed
        self._owed = GcPlan() if is_compacted else GcPlan(done.threshold)
        if done.over_replicated:
            self._over_replication_due_s = now_s + self._config.over_replication_interval_s
        if is_compacted and done.threshold >= self._config.minor_compaction_threshold:
            self._minor_due_s = now_s + self._config.minor_compaction_interval_s
        if is_compacted and done.threshold >= self._config.major_compaction_threshold:
            self._major_due_s = now_s + self._config.major_compaction_interval_s

    def _threshold(self, now_s: float, major: bool | None) -> float:
        if major or now_s >= self._major_due_s:
            return self._config.major_compaction_threshold
        if major is not None or now_s >= self._minor_due_s:
            return self._config.minor_compaction_threshold
        return ONLY_EMPTY


@dataclass(frozen=True, slots=True)
class GcReport:
    """The result of one run."""

    ledgers_deleted: int = 0
    tombstones_purged: int = 0
    logs_compacted: int = 0
    logs_deleted: int = 0
    bytes_freed: int = 0
    bytes_copied: int = 0
    is_compacted: bool = False
    """Whether the run left no entry log below its threshold."""
    problem: str = ""
    """Why not all ledgers were checked; empty if they were."""


class GcRun:
    """Carries out runs, and keeps what must be remembered between them. For one thread."""

    def __init__(
        self,
        local: LocalLedgers,
        cluster: ClusterMember,
        limiter: RateLimiter,
        clock_ms: Callable[[], int],
        pause: Callable[[float], object],
    ) -> None:
        """``clock_ms`` is the wall clock; ``pause`` waits that many seconds, or less if the work is to end."""
        self._storage = local.storage
        self._cluster = cluster
        self._deleted = DeletedLedgers(local, cluster, clock_ms)
        self._over_replicated = OverReplicatedLedgers(local, cluster)
        self._compaction = Compaction(local, limiter)
        self._pause = pause

    def run(self, plan: GcPlan, go_on: GoOn, may_compact: GoOn) -> GcReport:
        """One run. Without the metadata store it only compacts. Raises what the disk raises; what was done stays done.

        Compaction ends once ``may_compact`` says no; a later run goes on with it.
        """
        self._checkpoint(go_on)
        try:
            report = self._collect(plan, go_on)
        except (MetadataUnavailableError, MetadataConflictError, ConfigError) as problem:
            report = GcReport(problem=str(problem))
        self._checkpoint(go_on)
        if go_on():
            self._roll(plan.threshold, go_on)
        return replace(report, **asdict(self._compaction.run(plan.threshold, may_compact)))

    def _collect(self, plan: GcPlan, go_on: GoOn) -> GcReport:
        problem = ids_given_out_again(self._storage, self._cluster)
        if problem:
            return GcReport(problem=f"no ledger is deleted, because {problem}")
        collected = self._deleted.collect(go_on)
        removed = self._over_replicated.collect(go_on) if plan.over_replicated and go_on() else 0
        return GcReport(collected.deleted + removed, collected.purged)

    def _checkpoint(self, go_on: GoOn) -> None:
        """Wait until the index contains everything put and deleted so far."""
        sequence = self._storage.log_files.sequences.next_sequence
        if not self._storage.is_indexed(sequence):
            self._storage.request_checkpoint()
            self._await(lambda: self._storage.is_indexed(sequence), go_on)

    def _roll(self, threshold: float, go_on: GoOn) -> None:
        """Have open entry logs sealed that are worth compacting. Otherwise only their size seals them, which may take for
        ever."""
        logs = [log for log in self._open_logs() if log.total_bytes >= MIN_ROLL_BYTES and live_ratio(log) < threshold]
        wanted = {log.file_id for log in logs}
        if wanted:
            self._storage.request_checkpoint(roll=True)
            self._await(lambda: wanted.isdisjoint(log.file_id for log in self._open_logs()), go_on)

    def _open_logs(self) -> list[KnownEntryLog]:
        return [log for log in self._storage.entry_logs() if log.state is LogState.OPEN]

    def _await(self, condition: Callable[[], bool], go_on: GoOn) -> None:
        for _ in range(CHECKPOINT_LOOKS):
            if condition() or not go_on():
                return
            self._pause(CHECKPOINT_LOOK_S)


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
                self._changed.wait_for(lambda: self._is_stopped or self._wait_s() == 0, self._wait_s())
                if self._is_stopped:
                    return
                if self._wait_s() != 0:
                    continue
                plan = self._schedule.begin(self._clocks.steady_s(), major=self._forced)
                self._forced = None
                self._note(is_running=True)
            self._one_run(plan)

    def _wait_s(self) -> float | None:
        """The time until the next run; 0 if it is due, None, for ever, while suspended."""
        if self._status.is_suspended:
            return None
        return 0.0 if self._forced is not None else self._schedule.wait_s(self._clocks.steady_s())

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
            logs = [log for log in self._local.storage.entry_logs() if log.state is not LogState.DEAD]
        except BookKeeperError as error:
            return self._status.live_bytes, self._status.total_bytes, problem or str(error)
        return sum(log.live_bytes for log in logs), sum(log.total_bytes for log in logs), problem

    def _may_go_on(self) -> bool:
        return super()._may_go_on() and not self._status.is_suspended

    def _may_compact(self) -> bool:
        """Not once the next run is due: compaction can take hours, and the search for deleted ledgers must not wait for it."""
        return self._may_go_on() and self._schedule.wait_s(self._clocks.steady_s()) > 0
