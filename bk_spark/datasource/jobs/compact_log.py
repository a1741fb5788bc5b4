"""``log compact`` as a Spark job: few large ledgers replace many small ones, all at once.

Each task merges one group of neighbouring ledgers (``compaction_plan.py``) into a new ledger of their lane; the driver commits
one stretch of groups after the other. Rows are decoded and encoded anew with the log's schema, so that entries become large;
entries are copied as they are. The order and number of rows stay, and streams step over the commit (log rule 6). Nothing is
visible before the commit, and an attempt that fails, loses or comes late leaves nothing behind. The old ledgers stay
readable by version until a vacuum finds them older than the retention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.types import BinaryType, StructField, StructType

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.datasource.jobs.compact_by_key import compact_by_key
from bk_spark.datasource.jobs.job_options import JobOptions
from bk_spark.datasource.jobs.spark_job import SparkJob
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.read.read_task import Reading
from bk_spark.datasource.spark_schema import from_json
from bk_spark.datasource.write.checks import check_bookies
from bk_spark.datasource.write.task_attempt import Attempt
from bk_spark.errors import CorruptionError, MetadataConflictError
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup.compaction_plan import (
    TARGET_BYTES,
    CompactionReport,
    CompactionStretch,
    LedgerGroup,
    plan_compaction,
)
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.tier_places import untiered
from bk_spark.log.stored.values import CommitKind, CommittedLedger, LogVersion, Totals
from bk_spark.log.write_ledger import JobRefresh

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIES = 3
"""Each further one means that somebody truncated or replaced meanwhile what was being compacted."""

_PAYLOADS = StructType([StructField("payload", BinaryType())])

_RESULT = pa.schema([(name, pa.int64()) for name in ("place", "ledger_id", "last_entry_id", "length", "rows", "lane")])


def compact_log(
    spark: SparkSession,
    metadata_uri: str,
    name: str,
    *,
    target_bytes: int = TARGET_BYTES,
    by_key: bool | KeyCompaction | None = None,
    options: Mapping[str, str] | None = None,
) -> CompactionReport:
    """Rewrite neighbouring small ledgers of the log ``name`` into ledgers of up to ``target_bytes`` of payload.

    A ledger is small below half of that. In a secured log those without keys are rewritten, too, whatever their size. Open
    ledgers, and what others append meanwhile, stay as they are. ``options`` are those of the format ``bookkeeper`` for a
    write: ``password`` where the ledgers have one; ``ensembleSize``, ``writeQuorum``, ``ackQuorum`` and
    ``digestType``, by default those of the log's newest ledger.

    With ``by_key`` the newest row of each key stays alone (``Log.compact_by_key``), as it says, or as is set for the log; by
    default a log for which that is set is compacted so.

    Readers of older versions are not disturbed. A vacuum gives the space back once ``version_retention_s`` is over, together
    with the bookies' next garbage collection. May be called again after any error.

    Raises NoSuchLogError; ConfigError; UnauthorizedAccessError; NotEnoughBookiesError; JobFailedError where Spark's job fails;
    MetadataConflictError where the same part of the log was truncated or replaced meanwhile again and again;
    MetadataUnavailableError.
    """
    given = JobOptions.of(metadata_uri, name, dict(options or {}))
    asked = by_key if isinstance(by_key, KeyCompaction) else None
    if asked or by_key or (by_key is None and given.head.compaction is not None):
        return compact_by_key(spark, given, asked)
    return _Compaction(spark, given).run(target_bytes)


@dataclass(frozen=True, slots=True)
class _Task:
    """One group to merge."""

    group: LedgerGroup
    reading: Reading
    attempt: Attempt

    def run(self) -> CommittedLedger | None:
        """The new, closed ledger; None, and no ledger, where the group has no rows."""
        stretches = [Stretch(ledger.ledger_id, 0, ledger.last_entry_id, ledger.length) for ledger in self.group.ledgers]
        written = self.attempt.write(self.reading.batches(stretch for stretch in stretches if stretch.entries))
        rows = sum(one.rows for one in written)
        if rows != self.group.total.rows:
            first, last = stretches[0].ledger_id, stretches[-1].ledger_id
            what = f"the ledgers {first} to {last} of log '{self.attempt.job.log_name}'"
            raise CorruptionError(what, f"they hold {rows} rows, the log lists {self.group.total.rows}")
        return replace(written[0], lane=self.group.lane) if written else None


def _run_task(tasks: Sequence[_Task], place: int) -> list[dict[str, Any]]:
    written = tasks[place].run()
    return [] if written is None else [{"place": place, **asdict(written)}]


class _Compaction:
    """One call of ``compact_log``."""

    def __init__(self, spark: SparkSession, options: JobOptions) -> None:
        self._spark = spark
        self._name = options.name
        self._options = options
        self._bookkeeper = options.bookkeeper
        self._logs = self._bookkeeper.logs
        self._commits: list[LogVersion] = []

    def run(self, target_bytes: int) -> CompactionReport:
        conflict: MetadataConflictError | None = None
        for _ in range(_TRIES):
            snapshot = self._logs.reader.snapshot(self._name)
            listed = self._untiered(snapshot)
            stretches = plan_compaction(listed, target_bytes, self._without_key(snapshot, listed))
            conflict = self._compact(snapshot, stretches) if stretches else None
            if conflict is None:
                return self._report(snapshot)
        assert conflict is not None
        raise conflict

    def _untiered(self, snapshot: LogSnapshot) -> Sequence[CommittedLedger]:
        """Ledgers of the log's tier stay as they are."""
        return untiered(self._logs.names.head(self._name, snapshot.uid).tier, snapshot.ledgers)

    def _without_key(self, snapshot: LogSnapshot, ledgers: Sequence[CommittedLedger]) -> frozenset[int]:
        """Of a secured log, those that were written before."""
        if not self._logs.names.head(self._name, snapshot.uid).is_secured:
            return frozenset()
        found = self._logs.ledgers.find([one.ledger_id for one in ledgers])
        return frozenset(one.ledger_id for one in found if one is not None and not one.is_keyed)

    def _compact(self, snapshot: LogSnapshot, stretches: Sequence[CompactionStretch]) -> MetadataConflictError | None:
        """Rewrite and commit. Returns the conflict that kept one of the stretches from being committed."""
        writing = self._options.writing(snapshot)
        check_bookies(self._bookkeeper, writing)
        jobs = [self._logs.jobs.begin(self._name) for _ in stretches]
        try:
            with JobRefresh(lambda: self._refresh(jobs)):
                ledgers = self._rewrite(snapshot, writing, list(zip(stretches, jobs, strict=True)))
            return self._commit(stretches, jobs, ledgers)
        except BaseException:
            for job in jobs:
                self._logs.jobs.abort(job)  # does nothing to jobs that are committed
            raise

    def _rewrite(
        self, snapshot: LogSnapshot, writing: SourceOptions, work: Sequence[tuple[CompactionStretch, WriteJob]]
    ) -> list[list[CommittedLedger]]:
        """Run the Spark job. Returns the new ledgers of each stretch."""
        schema = None if snapshot.schema_json is None else from_json(snapshot.schema_json)
        reading = Reading(self._options.reading(snapshot), _PAYLOADS if schema is None else schema, checks_values=False)
        groups = [(place, group, job) for place, (stretch, job) in enumerate(work) for group in stretch.groups]
        key = snapshot.lanes.columns
        tasks = tuple(
            _Task(group, reading, Attempt(writing, job, schema, checks_values=False, key=key)) for _, group, job in groups
        )
        what = f"the compaction of log '{self._name}'"
        spark_job = SparkJob(what, "nothing of it is visible", partial(_run_task, tasks), _RESULT)
        ledgers: list[list[CommittedLedger]] = [[] for _ in work]
        for row in sorted(spark_job.run(self._spark, len(groups)), key=lambda row: row.place):
            ledgers[groups[row.place][0]].append(_ledger(row))
        return ledgers

    def _commit(
        self, stretches: Sequence[CompactionStretch], jobs: Sequence[WriteJob], ledgers: Sequence[list[CommittedLedger]]
    ) -> MetadataConflictError | None:
        conflict = None
        for stretch, job, added in zip(stretches, jobs, ledgers, strict=True):
            request = CommitRequest(CommitKind.COMPACT, tuple(added), remove=stretch.ledger_ids)
            try:
                self._commits.append(self._logs.commit_or_abort(job, request))
            except MetadataConflictError as problem:
                conflict = problem
        return conflict

    def _refresh(self, jobs: Sequence[WriteJob]) -> None:
        """Keep all jobs alive: they are committed together, when the tasks of the first may have ended long ago."""
        for job in jobs:
            self._logs.jobs.refresh(job)

    def _report(self, snapshot: LogSnapshot) -> CompactionReport:
        version = self._commits[-1].version if self._commits else snapshot.version
        removed = sum((commit.removed for commit in self._commits), Totals())
        added = sum((commit.added for commit in self._commits), Totals())
        return CompactionReport(self._name, version, len(self._commits), removed, added)


def _ledger(row: Row) -> CommittedLedger:
    return CommittedLedger(row.ledger_id, row.last_entry_id, row.length, row.rows, row.lane)
