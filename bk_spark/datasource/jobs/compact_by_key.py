"""``log compact`` by key as a Spark job: each task chooses and writes the rows of some lanes, the driver commits one span.

The keys of a task that do not fit into its memory go to files beside Spark's own. Nothing is visible before the commit, and an
attempt that fails, loses or comes late leaves nothing behind.

Ref: DESIGN.md, "Compaction by key".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bk_spark.datasource.connection import connect
from bk_spark.datasource.jobs.job_options import JobOptions
from bk_spark.datasource.jobs.spark_job import SparkJob
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.read.read_task import Sources, opener_of
from bk_spark.datasource.write.checks import check_bookies
from bk_spark.datasource.write.task_attempt import create_ledger, payload_format
from bk_spark.errors import MetadataConflictError
from bk_spark.log.by_key.compact import TRIES, empty_ledger, report_of, setting_of
from bk_spark.log.by_key.plan import KeyCompactionPlan, plan_by_key
from bk_spark.log.by_key.share import KeyShare
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.cleanup.compaction_plan import CompactionReport
from bk_spark.log.stored.by_key.entry_rows import EntryRows
from bk_spark.log.stored.by_key.settings import KeyCompaction
from bk_spark.log.stored.values import CommittedLedger, LogVersion
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.write_ledger import JobRefresh, until_ended, write_ledgers
from bk_spark.rows.writing import row_payloads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESULT = pa.schema([("ledgers", pa.string()), ("entries", pa.string())])
"""What a task has written and read, as JSON."""


def compact_by_key(spark: SparkSession, options: JobOptions, compaction: KeyCompaction | None) -> CompactionReport:
    """See ``compact_log`` and ``Log.compact_by_key``. ``compaction``: by default what is set for the log."""
    logs, conflict = options.bookkeeper.logs, None
    for _ in range(TRIES):
        snapshot = logs.reader.snapshot(options.name)
        plan = plan_by_key(logs, snapshot, compaction or setting_of(logs, options.name, snapshot.uid))
        try:
            return report_of(options.name, snapshot, _compacted(spark, options, plan) if plan.ledgers else None)
        except MetadataConflictError as problem:
            conflict = problem
    assert conflict is not None
    raise conflict


def _compacted(spark: SparkSession, options: JobOptions, plan: KeyCompactionPlan) -> LogVersion | None:
    logs, writing = options.bookkeeper.logs, options.writing(plan.snapshot)
    check_bookies(options.bookkeeper, writing)
    job = logs.jobs.begin(options.name, plan.snapshot.uid)
    try:
        with JobRefresh(lambda: logs.jobs.refresh(job)):
            written, entries = _written(spark, _Tasks(plan.shares, options.reading(plan.snapshot), writing, job))
            if sum(one.rows for one in written) == plan.total.rows:
                logs.jobs.abort(job)
                return None
            if not written:
                written = [empty_ledger(create_ledger(writing, job))]
    except BaseException:
        logs.jobs.abort(job)
        raise
    return logs.commit_or_abort(job, plan.request(written, entries))


def _written(spark: SparkSession, tasks: _Tasks) -> tuple[list[CommittedLedger], list[EntryRows]]:
    """Run the Spark job. Returns the new ledgers, in any order, and what the old ones' entries had."""
    what = f"the compaction of log '{tasks.job.log_name}' by key"
    rows = SparkJob(what, "nothing of it is visible", tasks.run, _RESULT).run(spark, len(tasks.shares)) if tasks.shares else []
    ledgers = [CommittedLedger(**one) for row in rows for one in json.loads(row["ledgers"])]
    return ledgers, [EntryRows.read(one) for row in rows for one in json.loads(row["entries"])]


@dataclass(frozen=True, slots=True)
class _Tasks:
    """What the tasks have in common. Pickled to each of them."""

    shares: Sequence[KeyShare]
    reading: SourceOptions
    writing: SourceOptions
    job: WriteJob

    def run(self, number: int) -> list[dict[str, Any]]:
        """Write the rows that stay of one share."""
        share, writing = self.shares[number], self.writing
        chosen = share.chosen(self._read)
        logs = connect(writing.metadata, writing.client).logs
        with JobRefresh(lambda: logs.jobs.refresh(self.job)) as refresh:
            rows = until_ended(share.kept(self._read, chosen.rows), refresh)
            form = payload_format(writing, share.key)
            payloads = row_payloads(self.job.log_name, share.stored, form, rows, writing.client.add_batch_bytes)
            ledgers = write_ledgers(lambda _: create_ledger(writing, self.job), payloads, writing.client.add_window_bytes)
            told = json.dumps([asdict(one) for one in ledgers]), json.dumps([one.stored() for one in chosen.entries])
            return [dict(zip(_RESULT.names, told, strict=True))]

    def _read(self, ledger: CommittedLedger, asked: AskedRows) -> Iterator[pa.RecordBatch]:
        bookkeeper = connect(self.reading.metadata, self.reading.client)
        opener = opener_of(bookkeeper, self.reading, Sources(self.job.log_name, self.job.uid))
        return opener.rows(opener(ledger.ledger_id), 0, ledger.last_entry_id, asked)
