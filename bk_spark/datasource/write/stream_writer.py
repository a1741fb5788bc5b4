"""Writes a streaming query to a log: every batch is one commit, and each row is in the log exactly once.

Spark may run a task more than once, commit a batch again after a restart with rows that were written anew, call ``abort``
after a commit that took effect, and let a losing attempt end after the commit. One compare-and-set protects against all of
it: the commit carries the query and the batch as application id and version, and the log drops a commit whose version is
not above its last one of that application (log rule 5).

The application id is ``spark-stream:<query id>``, the version is the batch's id. Spark draws the query's id for a new
checkpoint and stores it there. A restart from the checkpoint keeps the id. A new checkpoint is a new query, whose rows are
added whatever the log holds already.

For each batch Spark makes a writer and pickles it to the tasks; after the tasks it makes a new one that commits or aborts.
Only the messages get from the first to the second.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bk_spark.client.log.stored.values import CommitKind
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.write.task_attempt import Attempt
from bk_spark.datasource.write.writer import LedgerMessage, abort_job, begin, commit_messages
from bk_spark.errors import ConfigError

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets in the tasks of a streaming query. Their names are not documented; a test notices if a
version of Spark changes them."""

APPLICATION_PREFIX = "spark-stream:"


def application_of(query_id: str) -> str:
    """The application id under which a log knows a streaming query; ``query_id`` is ``StreamingQuery.id``."""
    return APPLICATION_PREFIX + query_id


def begin_batch(options: SourceOptions, schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of one batch, with a new job. The writer that commits learns the job from the tasks' messages.

    Bookies are not counted: the commit of rows that are written needs none.
    Raises SchemaMismatchError, MetadataUnavailableError, ConfigError.
    """
    return StreamWriter(*begin(options, schema, overwrite, needs_bookies=False))


class StreamWriter(DataSourceStreamArrowWriter):
    """One batch of a streaming query. In output mode complete ``kind`` is OVERWRITE: the batch is the whole content."""

    def __init__(self, attempt: Attempt, kind: CommitKind) -> None:
        self._attempt = attempt
        self._kind = kind

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LedgerMessage:
        """Run one task attempt and close its ledger, which nobody reads before the commit."""
        query_id, batch_id = _running_batch()
        return LedgerMessage(self._attempt.job, self._attempt.write(iterator), query_id, batch_id)

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


def _running_batch() -> tuple[str, int]:
    """The streaming query and the batch of the running task. Raises ConfigError where Spark does not set them."""
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
