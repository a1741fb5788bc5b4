"""When a run of the garbage collector is due, and what belongs to it.

Every run looks for deleted ledgers and unlinks entry logs without a live byte. The rarer work joins the first run after its
interval is over: over-replicated ledgers, minor and major compaction. What a run did not finish, because it failed, was
suspended, or the next one was due meanwhile, is owed to the next. Intervals begin with the process.

Ref: docs/rules.md, protocol rules 43 to 45; thresholds and intervals: config.BookieConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.config import BookieConfig

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
