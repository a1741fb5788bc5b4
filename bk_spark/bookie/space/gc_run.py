"""One run of the garbage collector, and the schedule that says when a run is due and what belongs to it.

A run handles deleted ledgers, then over-replicated ones, then entry logs. It considers only ledgers that are in the index. A
deleted ledger leaves the index with the next checkpoint, and only then count its bytes as dead. So the run requests checkpoints
and waits for them. It does not compact logs that are still written to; it has those sealed that are worth compacting. If a
checkpoint does not come in time, the next run does the rest.

Every run looks for deleted ledgers, and unlinks entry logs without a live byte. Rarer work (over-replicated ledgers, minor and
major compaction) joins the first run after its interval is over. What a run did not finish, because it failed, was suspended,
or the next one became due, is owed to the next. Intervals begin with the process.

Ref: docs/rules.md, protocol rules 42 to 46, situations 63 to 65; thresholds and intervals: config.BookieConfig.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from bk_spark.bookie.logs.mark import EntryLogRow, LogState
from bk_spark.bookie.pace import RateLimiter
from bk_spark.bookie.space.compaction import Compaction, live_ratio
from bk_spark.bookie.space.garbage_collection import ClusterMember, DeletedLedgers, GoOn, LocalLedgers
from bk_spark.bookie.space.over_replication import OverReplicatedLedgers
from bk_spark.config import MIB, BookieConfig
from bk_spark.errors import ConfigError, MetadataConflictError, MetadataUnavailableError

CHECKPOINT_LOOKS = 100
CHECKPOINT_LOOK_S = 0.1
"""A checkpoint writes some 64 MiB and takes a second or two; a run waits ten seconds for it."""

MIN_ROLL_BYTES = MIB
"""Smaller open logs are left alone, so that a quiet bookie does not begin new files all the time."""

ONLY_EMPTY = 0.0
"""The threshold of a run without compaction: only logs without a live byte are removed, as in every run."""


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
        """To be called after a run that did not fail; ``is_compacted`` if it left no log below its threshold."""
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
        collected = self._deleted.collect(go_on)
        removed = self._over_replicated.collect(go_on) if plan.over_replicated and go_on() else 0
        return GcReport(collected.deleted + removed, collected.purged)

    def _checkpoint(self, go_on: GoOn) -> None:
        """Wait until the index contains everything put and deleted so far."""
        sequence = self._storage.logs.sequences.next_sequence
        if not self._storage.is_indexed(sequence):
            self._storage.request_checkpoint()
            self._await(lambda: self._storage.is_indexed(sequence), go_on)

    def _roll(self, threshold: float, go_on: GoOn) -> None:
        """Have open logs sealed that are worth compacting. Otherwise only their size seals them, which may take for ever."""
        wanted = {log.file_id for log in self._storage.entry_logs() if _is_worth_rolling(log, threshold)}
        if wanted:
            self._storage.request_checkpoint(roll=True)
            self._await(
                lambda: not any(log.file_id in wanted and log.state is LogState.OPEN for log in self._storage.entry_logs()),
                go_on,
            )

    def _await(self, condition: Callable[[], bool], go_on: GoOn) -> None:
        for _ in range(CHECKPOINT_LOOKS):
            if condition() or not go_on():
                return
            self._pause(CHECKPOINT_LOOK_S)


def _is_worth_rolling(row: EntryLogRow, threshold: float) -> bool:
    return row.state is LogState.OPEN and row.total_bytes >= MIN_ROLL_BYTES and live_ratio(row) < threshold
