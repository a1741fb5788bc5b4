"""One run of the garbage collector: deleted ledgers, over-replicated ones, then entry logs, in this order.

Only ledgers that the index knows are looked at, and a ledger that is deleted leaves it with the next checkpoint; only then do
its bytes count as dead. So the run asks for checkpoints and waits for them. Logs that are still written to are not compacted;
those that are worth it are sealed first. If a checkpoint does not come in time, the rest is left to the next run.

Ref: docs/rules.md, protocol rules 42 to 46, situations 63 to 65.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bk_spark.bookie.logs.mark import EntryLogRow, LogState
from bk_spark.bookie.pace import RateLimiter
from bk_spark.bookie.space.compaction import Compaction, live_ratio
from bk_spark.bookie.space.garbage_collection import ClusterMember, DeletedLedgers, GoOn, LocalLedgers
from bk_spark.bookie.space.over_replication import OverReplicatedLedgers
from bk_spark.config import MIB, BookieConfig
from bk_spark.errors import ConfigError, MetadataConflictError, MetadataUnavailableError

# --- When a run of the garbage collector is due, and what belongs to it
#
# Every run looks for deleted ledgers and unlinks entry logs without a live byte. The rarer work joins the first run after its
# interval is over: over-replicated ledgers, minor and major compaction. What a run did not finish, because it failed, was
# suspended, or the next one was due meanwhile, is owed to the next. Intervals begin with the process.
#
# Ref: docs/rules.md, protocol rules 43 to 45; thresholds and intervals: config.BookieConfig.

ONLY_EMPTY = 0.0
"""The threshold of a run without compaction: no log has less that is live; those without a live byte go always."""


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What one run is to do, beside looking for deleted ledgers."""

    threshold: float = ONLY_EMPTY
    """Entry logs of which less than this part is live are compacted."""
    over_replicated: bool = False


class GcSchedule:
    """Times in seconds of one clock that never goes back."""

    def __init__(self, config: BookieConfig, now_s: float) -> None:
        self._config = config
        self._owed = GcPlan()
        self._collection_due_s = now_s + config.gc_interval_s
        self._over_replication_due_s = now_s + config.over_replication_interval_s
        self._minor_due_s = now_s + config.minor_compaction_interval_s
        self._major_due_s = now_s + config.major_compaction_interval_s

    def wait_s(self, now_s: float) -> float:
        """How long until the next run; 0 if it is due."""
        return max(0.0, self._collection_due_s - now_s)

    def begin(self, now_s: float, *, major: bool | None = None) -> GcPlan:
        """The run that begins now. ``major`` forces a compaction, a major or a minor one, and a look at everything."""
        self._collection_due_s = now_s + self._config.gc_interval_s
        threshold = max(self._owed.threshold, self._threshold(now_s, major))
        is_everything = self._owed.over_replicated or major is not None or now_s >= self._over_replication_due_s
        self._owed = GcPlan(threshold, is_everything)
        return self._owed

    def end(self, now_s: float, *, is_compacted: bool) -> None:
        """The run is over that began last; ``is_compacted``: no log is left that it asked for. One that failed has no end."""
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


CHECKPOINT_LOOKS = 100
CHECKPOINT_LOOK_S = 0.1
"""A checkpoint writes some 64 MiB and takes a second or two; ten seconds are waited for it."""

MIN_ROLL_BYTES = MIB
"""Open logs below this size are left alone: a quiet bookie does not begin new files all the time."""


@dataclass(frozen=True, slots=True)
class GcReport:
    """What one run did."""

    ledgers_deleted: int = 0
    tombstones_purged: int = 0
    logs_compacted: int = 0
    logs_deleted: int = 0
    bytes_freed: int = 0
    bytes_copied: int = 0
    is_compacted: bool = False
    """Whether no entry log is left that the run's threshold asked for."""
    problem: str = ""
    """Why not all ledgers were looked at; empty if they were."""


class GcRun:
    """Used by one thread, run after run; what must be remembered between two is here."""

    def __init__(
        self,
        local: LocalLedgers,
        cluster: ClusterMember,
        limiter: RateLimiter,
        clock_ms: Callable[[], int],
        pause: Callable[[float], object],
    ) -> None:
        """``clock_ms`` is the wall clock; ``pause`` waits so many seconds, or shorter if the work is to end."""
        self._storage = local.storage
        self._deleted = DeletedLedgers(local, cluster, clock_ms)
        self._over_replicated = OverReplicatedLedgers(local, cluster)
        self._compaction = Compaction(local, limiter)
        self._pause = pause

    def run(self, plan: GcPlan, go_on: GoOn, may_compact: GoOn) -> GcReport:
        """Raises what the disk raises; what was done before stays done. Without the metadata store it compacts all the same.

        Once ``may_compact`` says no, compaction ends, and the rest of it is for a later run.
        """
        self._checkpoint(go_on)
        try:
            report = self._collect(plan, go_on)
        except (MetadataUnavailableError, MetadataConflictError, ConfigError) as problem:
            report = GcReport(problem=str(problem))
        self._checkpoint(go_on)
        if go_on():
            self._roll(plan.threshold, go_on)
        compacted = self._compaction.run(plan.threshold, may_compact)
        return replace(
            report,
            logs_compacted=compacted.logs_compacted,
            logs_deleted=compacted.logs_deleted,
            bytes_freed=compacted.bytes_freed,
            bytes_copied=compacted.bytes_copied,
            is_compacted=compacted.is_complete,
        )

    def _collect(self, plan: GcPlan, go_on: GoOn) -> GcReport:
        collected = self._deleted.collect(go_on)
        removed = self._over_replicated.collect(go_on) if plan.over_replicated and go_on() else 0
        return GcReport(collected.deleted + removed, collected.purged)

    def _checkpoint(self, go_on: GoOn) -> None:
        """Have the index know of all that was put and deleted so far."""
        sequence = self._storage.logs.sequences.next_sequence
        if not self._storage.is_indexed(sequence):
            self._storage.request_checkpoint()
            self._await(lambda: self._storage.is_indexed(sequence), go_on)

    def _roll(self, threshold: float, go_on: GoOn) -> None:
        """Have open logs sealed that are worth compacting: they are rolled by size alone, which may take for ever."""
        wanted = {one.file_id for one in self._storage.entry_logs() if _is_worth_rolling(one, threshold)}
        if wanted:
            self._storage.request_checkpoint(roll=True)
            self._await(lambda: all(one.state is not LogState.OPEN for one in self._logs(wanted)), go_on)

    def _logs(self, file_ids: set[int]) -> list[EntryLogRow]:
        return [one for one in self._storage.entry_logs() if one.file_id in file_ids]

    def _await(self, condition: Callable[[], bool], go_on: GoOn) -> None:
        for _ in range(CHECKPOINT_LOOKS):
            if condition() or not go_on():
                return
            self._pause(CHECKPOINT_LOOK_S)


def _is_worth_rolling(row: EntryLogRow, threshold: float) -> bool:
    return row.state is LogState.OPEN and row.total_bytes >= MIN_ROLL_BYTES and live_ratio(row) < threshold
