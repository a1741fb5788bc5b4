"""One run of the garbage collector: deleted ledgers, over-replicated ones, then entry logs, in this order.

Only ledgers that the index knows are looked at, and a ledger that is deleted leaves it with the next checkpoint; only then do
its bytes count as dead. So the run asks for checkpoints and waits for them. Logs that are still written to are not compacted;
those that are worth it are sealed first. If a checkpoint does not come in time, the rest is left to the next run.

Ref: docs/rules.md, protocol rules 42 to 46, situations 63 to 65.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bk_spark.bookie.compaction import Compaction, live_ratio
from bk_spark.bookie.garbage_collection import Cluster, DeletedLedgers, GoOn, LocalLedgers
from bk_spark.bookie.gc_schedule import GcPlan
from bk_spark.bookie.index_rows import EntryLogRow, LogState
from bk_spark.bookie.over_replication import OverReplicatedLedgers
from bk_spark.bookie.rate_limit import RateLimiter
from bk_spark.config import MIB
from bk_spark.errors import ConfigError, MetadataConflictError, MetadataUnavailableError

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
        cluster: Cluster,
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
