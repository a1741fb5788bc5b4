"""Writes a DataFrame: each task attempt with rows writes a ledger, the driver's commit makes them part of the log at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bk_spark.client.log.changes.jobs import WriteJob
from bk_spark.client.log.changes.plan import CommitRequest
from bk_spark.client.log.stored.values import CommitKind, CommittedLedger
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.write.checks import check_append, check_bookies, stored_schema
from bk_spark.datasource.write.task_attempt import Attempt
from bk_spark.errors import BookKeeperError, ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerMessage(WriterCommitMessage):
    """What one task attempt tells the driver; ``ledger`` is None where the task had no rows.

    It carries the job, because the writer that commits a batch of a stream is not the one that the tasks had.
    """

    job: WriteJob
    ledger: CommittedLedger | None
    query_id: str | None = None
    batch_id: int | None = None
    """The streaming query that the task works for, and its batch; None in a batch write."""


def begin_write(options: SourceOptions, schema: StructType, overwrite: bool) -> BatchWriter:
    """Check all that can be known before the tasks run, then begin a write job.

    Raises SchemaMismatchError, NotEnoughBookiesError, MetadataUnavailableError, ConfigError.
    """
    return BatchWriter(*begin(options, schema, overwrite, needs_bookies=True))


def begin(options: SourceOptions, schema: StructType, overwrite: bool, *, needs_bookies: bool) -> tuple[Attempt, CommitKind]:
    """Check a write and begin its job. ``needs_bookies``: refuse it where too few bookies are writable.

    The kind is OVERWRITE where the write replaces the whole content.
    """
    stored = stored_schema(options, schema)
    bookkeeper = connect(options.metadata, options.client)
    if needs_bookies:
        check_bookies(bookkeeper, options)
    if not overwrite:
        check_append(bookkeeper, options, stored)
    kind = CommitKind.OVERWRITE if overwrite else CommitKind.APPEND
    return Attempt(options, bookkeeper.logs.begin_job(options.log), stored), kind


class BatchWriter(DataSourceArrowWriter):
    """A batch write. The driver pickles it before the tasks run; the same state writes, commits and aborts."""

    def __init__(self, attempt: Attempt, kind: CommitKind) -> None:
        self._attempt = attempt
        self._kind = kind

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LedgerMessage:
        """Run one task attempt and close its ledger, which nobody reads before the commit."""
        return LedgerMessage(self._attempt.job, self._attempt.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the ledgers part of the log, in the order of Spark's partitions, and delete the ledgers of losing attempts."""
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


def commit_messages(
    attempt: Attempt, kind: CommitKind, messages: list[LedgerMessage], application: tuple[str, int] | None
) -> None:
    """Commit the ledgers of ``messages``, which are at least one and of one job. May be repeated: it commits once."""
    ledgers = tuple(message.ledger for message in messages if message.ledger is not None)
    schema_json = None if attempt.schema is None else attempt.schema.json()
    merge = attempt.options.merge_schema
    request = CommitRequest(kind, ledgers, schema_json, merge, application=application)
    logs, job = attempt.logs, messages[0].job
    if logs.commit(job, request).duplicate_of is not None:
        return
    try:
        logs.finish(job, [ledger.ledger_id for ledger in ledgers])
    except BookKeeperError as problem:
        # The rows are committed; after a failure here, Spark's user would write them again.
        logger.warning("ledgers of failed attempts at log '%s' are left to the sweep: %s", job.log_name, problem)


def abort_job(attempt: Attempt, job: WriteJob) -> None:
    """End the job and delete its ledgers, unless its commit took effect."""
    try:
        attempt.logs.abort(job)
    except BookKeeperError as problem:
        # Raised, it would hide from the user the failure that made Spark abort.
        logger.warning("write job %s on log '%s' is left to the sweep: %s", job.job_id, job.log_name, problem)
