"""Writes a DataFrame or a streaming query into the logs that a column names: one transaction commits all of them.

As in ``writer.py``, an application makes a batch that Spark commits again harmless: that of a stream is the query and the
batch. It counts for the transaction, whatever logs it changes.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.plain_errors import plain_errors
from bk_spark.datasource.write.checks import check_bookies, stored_schema
from bk_spark.datasource.write.several_attempt import SeveralAttempt, WrittenPart, log_column_of
from bk_spark.datasource.write.writer import application_of, logger, running_batch
from bk_spark.errors import BookKeeperError, ConfigError, MetadataConflictError, State
from bk_spark.log.changes.commit_logs import MAX_LOGS, LogCommit
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind


@dataclass(frozen=True, slots=True)
class LogsMessage(WriterCommitMessage):
    """What one task attempt tells the driver."""

    parts: tuple[WrittenPart, ...]
    token: str
    query_id: str | None = None
    batch_id: int | None = None
    """The streaming query that the task works for, and its batch; None in a batch write."""


def attempt_of(options: SourceOptions, schema: StructType, overwrite: bool, *, needs_bookies: bool) -> SeveralAttempt:
    """Check all that can be known before the tasks run. Raises ConfigError, NotEnoughBookiesError."""
    if overwrite:
        remedy = "rows for several logs are appended to them: use mode('append'), and output mode append or update"
        raise ConfigError("the mode of a write with option 'logColumn'", State("overwrite"), remedy)
    column = log_column_of(options, schema)
    rows = stored_schema(options, StructType([field for field in schema.fields if field.name != column]))
    assert rows is not None, "option 'logColumn' is for rows"
    if needs_bookies:
        check_bookies(connect(options.metadata, options.client), options)
    return SeveralAttempt(options, column, rows, uuid.uuid4().hex)


class SeveralBatchWriter(DataSourceArrowWriter):
    """A batch write. The driver pickles it before the tasks run; the same state writes, commits and aborts."""

    def __init__(self, attempt: SeveralAttempt) -> None:
        self._attempt = attempt

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> LogsMessage:
        """Run one task attempt and close its ledgers, which nobody reads before the commit."""
        return LogsMessage(self._attempt.write(iterator), self._attempt.token)

    @plain_errors()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the ledgers parts of their logs, all at once."""
        options, written = self._attempt.options, _of_one_write(messages, "a write")
        application = None
        if options.application_id is not None and options.application_version is not None:
            application = (options.application_id, options.application_version)
        commit_parts(self._attempt, written, application)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete all that the tasks wrote, unless the commit took effect."""
        abort_parts(self._attempt.options, messages)


class SeveralStreamWriter(DataSourceStreamArrowWriter):
    """One batch of a streaming query."""

    def __init__(self, attempt: SeveralAttempt) -> None:
        self._attempt = attempt

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> LogsMessage:
        """Run one task attempt and close its ledgers, which nobody reads before the commit."""
        query_id, batch_id = running_batch()
        return LogsMessage(self._attempt.write(iterator), self._attempt.token, query_id, batch_id)

    @plain_errors()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the batch parts of its logs, all at once, unless they have it. A batch without rows commits nothing.

        Raises ConfigError, and commits nothing, for messages of several queries, batches or writes.
        """
        what = f"batch {batchId}"
        written = _of_one_write(messages, what)
        query_id = written[0].query_id
        if query_id is None or written[0].batch_id != batchId:
            found = f"of batch {written[0].batch_id} of query {query_id}"
            raise ConfigError(
                f"the list of commit messages of {what}", found, "they are not of this batch: nothing is committed"
            )
        commit_parts(self._attempt, written, (application_of(query_id), batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what the batch's tasks wrote, unless its commit took effect."""
        abort_parts(self._attempt.options, messages)


def commit_parts(attempt: SeveralAttempt, messages: Sequence[LogsMessage], application: tuple[str, int] | None) -> None:
    """One transaction. In each log the ledgers are listed by lane, those of one lane in the order of Spark's partitions."""
    of_log: defaultdict[str, list[WrittenPart]] = defaultdict(list)
    for message in messages:
        for part in message.parts:
            of_log[part.job.log_name].append(part)
    if len(of_log) > MAX_LOGS:
        remedy = f"one commit takes {MAX_LOGS} at most: write fewer logs at once"
        raise ConfigError(f"the number of logs that column '{attempt.column}' names", len(of_log), remedy)
    if of_log:
        logs = connect(attempt.options.metadata, attempt.options.client).logs
        logs.commit_logs([_commit_of(attempt, name, parts) for name, parts in sorted(of_log.items())], application)


def _commit_of(attempt: SeveralAttempt, name: str, parts: Sequence[WrittenPart]) -> LogCommit:
    job, lanes = parts[0].job, parts[0].lanes
    if any((one.job, one.lanes) != (job, lanes) for one in parts):
        raise MetadataConflictError(f"log '{name}'", "it was made, or made anew, while the rows were written: write them again")
    ledgers = sorted((ledger for one in parts for ledger in one.ledgers), key=lambda ledger: ledger.lane)
    merge = attempt.options.merge_schema
    return LogCommit(job, CommitRequest(CommitKind.APPEND, tuple(ledgers), attempt.schema.json(), merge, lanes))


def abort_parts(options: SourceOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """End the jobs and delete their ledgers, unless the transaction took effect. What tasks did not tell is swept later."""
    jobs = {part.job: None for message in messages if isinstance(message, LogsMessage) for part in message.parts}
    try:
        connect(options.metadata, options.client).logs.abort_logs(list[WriteJob](jobs))
    except BookKeeperError as problem:
        # Raised, it would hide from the user the failure that made Spark abort.
        logger.warning("the write jobs of a write to %d logs are left to the sweep: %s", len(jobs), problem)


def _of_one_write(messages: Sequence[WriterCommitMessage | None], what: str) -> list[LogsMessage]:
    """The messages. Raises ConfigError unless they are of one write (log rule 5)."""
    written = [message for message in messages if isinstance(message, LogsMessage)]
    origins = {replace(message, parts=()) for message in written}
    if len(written) != len(messages) or len(origins) != 1:
        raise ConfigError(f"the list of commit messages of {what}", messages, "they are not of one write: nothing is committed")
    return written
