"""Writes a streaming query to a log: every batch is one commit, and each row is in the log exactly once.

Spark may run a task more than once, commit a batch again after a restart with rows that were written anew, call ``abort``
after a commit that took effect, and let a losing attempt end after the commit. What holds against all of it is one
compare-and-set: the commit carries the query and the batch as application id and version, and the log drops what is not
above its last version of that application. (log rule 5)

The identity is ``spark-stream:<query id>`` with the batch's id as version. Spark draws the query's id when it makes a
checkpoint, and keeps it there: a restart from the checkpoint goes on under the same identity, a new checkpoint is a new
query, whose rows are added whatever the log holds already.

For each batch Spark makes a writer whose copies the tasks get, and after the tasks a new one that commits or aborts: only the
messages travel from the one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bk_spark.client.log.stored.values import CommitKind
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.write.checks import check_append, stored_schema
from bk_spark.datasource.write.task_attempt import Attempt
from bk_spark.datasource.write.writer import LedgerMessage, abort_job, commit_messages
from bk_spark.errors import ConfigError

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets in the tasks of a streaming query. Their names are not documented: a test notices when a
version of Spark has others."""

APPLICATION_PREFIX = "spark-stream:"


def application_of(query_id: str) -> str:
    """The application id under which a log knows a streaming query; ``query_id`` is ``StreamingQuery.id``."""
    return APPLICATION_PREFIX + query_id


def begin_batch(options: SourceOptions, schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of one batch, with a job of its own that only the tasks' messages make known to the writer that commits.

    Bookies are not asked for here: a batch whose rows are written is committed without them.
    Raises SchemaMismatchError, MetadataUnavailableError, ConfigError.
    """
    stored = stored_schema(options, schema)
    bookkeeper = connect(options.metadata, options.client)
    if not overwrite:
        check_append(bookkeeper, options, stored)
    kind = CommitKind.OVERWRITE if overwrite else CommitKind.APPEND
    return StreamWriter(Attempt(options, bookkeeper.logs.jobs.begin(options.log), stored), kind)


class StreamWriter(DataSourceStreamArrowWriter):
    """One batch of a streaming query. ``kind`` is OVERWRITE in output mode complete, where a batch is the whole content."""

    def __init__(self, attempt: Attempt, kind: CommitKind) -> None:
        self._attempt = attempt
        self._kind = kind

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LedgerMessage:
        """One task attempt. Its ledger is closed when this returns; nobody reads it before the commit."""
        query_id, batch_id = _running_batch()
        return LedgerMessage(self._attempt.job, self._attempt.write(iterator), query_id, batch_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the batch part of the log, unless the log has it: an empty one, too, so that the log knows how far it is.

        Raises ConfigError, and commits nothing, for messages of several queries, batches or jobs.
        """
        written = _of_one_batch(messages, batchId)
        query_id = written[0].query_id
        assert query_id is not None
        commit_messages(self._attempt, self._kind, written, (application_of(query_id), batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what the batch's tasks wrote, unless a commit took effect.

        Without any message the job is not known here: what its attempts left is the sweep's.
        """
        for job in {message.job for message in messages if isinstance(message, LedgerMessage)}:
            abort_job(self._attempt, job)


def _running_batch() -> tuple[str, int]:
    """The streaming query and the batch that the running task belongs to. Raises ConfigError where Spark does not say."""
    context = TaskContext.get()
    query_id, batch_id = (context and context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
    if not query_id or not batch_id or not batch_id.isdecimal():
        raise ConfigError(
            f"Spark's local properties {QUERY_ID} and {BATCH_ID}",
            (query_id, batch_id),
            "this version of Spark does not tell its tasks which batch they write, and a batch that is repeated could not be "
            "known again: use PySpark 4.2 or 4.3, or write from foreachBatch with applicationId and applicationVersion",
        )
    return query_id, int(batch_id)


def _of_one_batch(messages: list[WriterCommitMessage | None], batch_id: int) -> list[LedgerMessage]:
    """The messages, which must be of one query, one job and this batch (log rule 5)."""
    written = [message for message in messages if isinstance(message, LedgerMessage)]
    told = {(message.query_id, message.batch_id, message.job) for message in written}
    if len(written) != len(messages) or len(told) != 1:
        raise ConfigError(
            f"the commit messages of batch {batch_id}", messages, "they are not of one query and job: nothing is committed"
        )
    ((query_id, written_batch, _),) = told
    if query_id is None or written_batch != batch_id:
        found = f"of batch {written_batch} of query {query_id}"
        raise ConfigError(f"the commit messages of batch {batch_id}", found, "they are not of this batch: nothing is committed")
    return written
