"""Writes a DataFrame or a streaming query: each task attempt writes a ledger, one commit makes all of them part of the log.

Each row of a stream is in the log exactly once, and every batch is one commit. Spark may run a task more than once, commit a
batch again after a restart with rows that were written anew, call ``abort`` after a commit that took effect, and let a losing
attempt end after the commit. One compare-and-set protects against all of it: the commit carries the query and the batch as
application id and version, and the log drops a commit whose version is not above its last one of that application
(log rule 5).

The application id is ``spark-stream:<query id>``, the version is the batch's id. Spark draws the query's id for a new
checkpoint and stores it there. A restart from the checkpoint keeps the id. A new checkpoint is a new query, whose rows are
added whatever the log holds already.

For each batch Spark makes a writer and pickles it to the tasks; after the tasks it makes a new one that commits or aborts.
Only the messages get from the first to the second.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.plain_errors import plain_errors
from bk_spark.datasource.write.checks import (
    CheckedAppend,
    check_append,
    check_bookies,
    found_log,
    lanes_of_write,
    stored_schema,
)
from bk_spark.datasource.write.task_attempt import Attempt
from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.values import CommitKind, CommittedLedger

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets in the tasks of a streaming query. Their names are not documented; a test notices if a
version of Spark changes them."""

logger = logging.getLogger(__name__)


def application_of(query_id: str) -> str:
    """The application id under which a log knows a streaming query; ``query_id`` is ``StreamingQuery.id``."""
    return f"spark-stream:{query_id}"


@dataclass(frozen=True, slots=True)
class LedgerMessage(WriterCommitMessage):
    """What one task attempt tells the driver: a ledger for each lane in which the task had rows.

    It carries job and lanes, because the writer that commits a batch of a stream is not the one that the tasks had.
    """

    job: WriteJob
    ledgers: tuple[CommittedLedger, ...]
    query_id: str | None = None
    batch_id: int | None = None
    """The streaming query that the task works for, and its batch; None in a batch write."""
    lanes: Lanes = PLAIN


def begin_write(options: SourceOptions, schema: StructType, overwrite: bool) -> BatchWriter:
    """Check all that can be known before the tasks run, then begin a write job.

    Raises SchemaMismatchError, NotEnoughBookiesError, MetadataUnavailableError, ConfigError.
    """
    return BatchWriter(*_begin(options, schema, overwrite, needs_bookies=True))


def begin_batch(options: SourceOptions, schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of one batch, with a new job. The writer that commits learns the job from the tasks' messages.

    Bookies are not counted: the commit of rows that are written needs none.
    Raises SchemaMismatchError, MetadataUnavailableError, ConfigError.
    """
    return StreamWriter(*_begin(options, schema, overwrite, needs_bookies=False))


def _begin(options: SourceOptions, schema: StructType, overwrite: bool, *, needs_bookies: bool) -> tuple[Attempt, CommitKind]:
    """Check a write and begin its job. ``needs_bookies``: refuse it where too few bookies are writable."""
    stored = stored_schema(options, schema)
    bookkeeper = connect(options.metadata, options.client)
    if needs_bookies:
        check_bookies(bookkeeper, options)
    checked = CheckedAppend(found_log(bookkeeper, options)[1]) if overwrite else check_append(bookkeeper, options, stored)
    lanes = lanes_of_write(options, stored, checked.head, overwrite=overwrite)
    kind = CommitKind.OVERWRITE if overwrite else CommitKind.APPEND
    job = bookkeeper.logs.jobs.begin(options.log)
    return Attempt(options, job, stored, lanes, timestamps=checked.timestamps, read_as=checked.read_as), kind


class _Writer:
    """A job's attempt; ``kind`` is OVERWRITE where the write replaces the whole content."""

    def __init__(self, attempt: Attempt, kind: CommitKind) -> None:
        self._attempt = attempt
        self._kind = kind


class BatchWriter(_Writer, DataSourceArrowWriter):
    """A batch write. The driver pickles it before the tasks run; the same state writes, commits and aborts."""

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> LedgerMessage:
        """Run one task attempt and close its ledger, which nobody reads before the commit."""
        return LedgerMessage(self._attempt.job, self._attempt.write(iterator), lanes=self._attempt.lanes)

    @plain_errors()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the ledgers part of the log, and delete the ledgers of losing attempts."""
        written = [self._checked(message) for message in messages]
        options = self._attempt.options
        application = None
        if options.application_id is not None and options.application_version is not None:
            application = (options.application_id, options.application_version)
        commit_messages(self._attempt, self._kind, written, application)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete all that the job created, unless its commit took effect: Spark calls this also after a commit that raised."""
        abort_job(self._attempt, self._attempt.job)

    def _checked(self, message: WriterCommitMessage | None) -> LedgerMessage:
        job = self._attempt.job
        if not isinstance(message, LedgerMessage) or message.job != job or message.query_id is not None:
            raise ConfigError("a commit message", message, f"it is not of write job {job.job_id}: nothing is committed")
        return message


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """One batch of a streaming query; in output mode complete an OVERWRITE."""

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> LedgerMessage:
        """Run one task attempt and close its ledger, which nobody reads before the commit."""
        query_id, batch_id = running_batch()
        return LedgerMessage(self._attempt.job, self._attempt.write(iterator), query_id, batch_id, self._attempt.lanes)

    @plain_errors()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the batch part of the log, unless the log has it. An empty batch is committed too, to record its id.

        Raises ConfigError, and commits nothing, for messages of several queries, batches or jobs.
        """
        written = _of_one_batch(messages, batchId)
        query_id = written[0].query_id
        assert query_id is not None
        commit_messages(self._attempt, self._kind, written, (application_of(query_id), batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what the batch's tasks wrote, unless its commit took effect.

        Without any message the job is not known here; then the sweep deletes what its attempts left.
        """
        for job in {message.job for message in messages if isinstance(message, LedgerMessage)}:
            abort_job(self._attempt, job)


def commit_messages(
    attempt: Attempt, kind: CommitKind, messages: list[LedgerMessage], application: tuple[str, int] | None
) -> None:
    """Commit the ledgers of ``messages``, which are at least one and of one job. May be repeated: it commits once.

    They are listed by lane, those of one lane in the order of Spark's partitions.
    """
    written = (ledger for message in messages for ledger in message.ledgers)
    ledgers = tuple(sorted(written, key=lambda ledger: ledger.lane))
    schema_json = None if attempt.schema is None else attempt.schema.json()
    merge = attempt.options.merge_schema
    request = CommitRequest(kind, ledgers, schema_json, merge, messages[0].lanes, application=application)
    logs, job = attempt.logs, messages[0].job
    if logs.commit(job, request).duplicate_of is not None:
        return
    try:
        logs.jobs.finish(job, [ledger.ledger_id for ledger in ledgers])
    except BookKeeperError as problem:
        # The rows are committed; after a failure here, Spark's user would write them again.
        logger.warning("ledgers of failed attempts at log '%s' are left to the sweep: %s", job.log_name, problem)


def abort_job(attempt: Attempt, job: WriteJob) -> None:
    """End the job and delete its ledgers, unless its commit took effect."""
    try:
        attempt.logs.jobs.abort(job)
    except BookKeeperError as problem:
        # Raised, it would hide from the user the failure that made Spark abort.
        logger.warning("write job %s on log '%s' is left to the sweep: %s", job.job_id, job.log_name, problem)


def running_batch() -> tuple[str, int]:
    """The streaming query and the batch of the running task. Raises ConfigError where Spark does not set them."""
    context = TaskContext.get()
    query_id, batch_id = (context and context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
    if not query_id or not batch_id or not batch_id.isdecimal():
        raise ConfigError(
            f"the pair of Spark's local properties {QUERY_ID} and {BATCH_ID}",
            (query_id, batch_id),
            "this version of Spark does not tell its tasks which batch they write, and a batch that is repeated could not be "
            "known again: use PySpark 4.2 or 4.3, or write from foreachBatch with applicationId and applicationVersion",
        )
    return query_id, int(batch_id)


def _of_one_batch(messages: list[WriterCommitMessage | None], batch_id: int) -> list[LedgerMessage]:
    """The messages. Raises ConfigError unless they are of one query, one job and this batch (log rule 5)."""
    what = f"the commit messages of batch {batch_id}"
    written = [message for message in messages if isinstance(message, LedgerMessage)]
    origins = {(message.query_id, message.batch_id, message.job) for message in written}
    if len(written) != len(messages) or len(origins) != 1:
        raise ConfigError(what, messages, "they are not of one query and job: nothing is committed")
    ((query_id, written_batch, _),) = origins
    if query_id is None or written_batch != batch_id:
        found = f"of batch {written_batch} of query {query_id}"
        raise ConfigError(what, found, "they are not of this batch: nothing is committed")
    return written
