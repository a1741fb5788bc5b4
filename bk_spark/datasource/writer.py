"""Writes a DataFrame: one ledger for each task attempt that has rows, made part of the log all at once by the driver."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bk_spark.client.log_jobs import WriteJob
from bk_spark.client.log_layout import CommitKind, CommittedLedger
from bk_spark.client.log_plan import CommitRequest
from bk_spark.client.log_store import LogStore
from bk_spark.client.write_handle import WriteHandle
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.row_codec import PayloadFormat, RowEncoder
from bk_spark.datasource.spark_schema import to_arrow
from bk_spark.errors import BookKeeperError, ConfigError

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerMessage(WriterCommitMessage):
    """What one task attempt tells the driver; ``ledger`` is None where the task had no rows."""

    job_id: str
    ledger: CommittedLedger | None


class LogWriter(DataSourceArrowWriter):
    """Pickled by the driver before the tasks run; the same state writes, commits and aborts.

    ``schema`` is the normalised one of rows, None where each row is an entry.
    """

    def __init__(self, options: SourceOptions, job: WriteJob, kind: CommitKind, schema: StructType | None) -> None:
        self._options = options
        self._job = job
        self._kind = kind
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LedgerMessage:
        """One task attempt. Its ledger is closed when this returns; nobody reads it before the commit."""
        written = _AttemptLedger(self._options, self._job)
        try:
            for payloads, rows in self._payloads(iterator):
                written.append(payloads, rows)
            return LedgerMessage(self._job.job_id, written.close())
        except BaseException:
            written.give_up()
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the ledgers part of the log, in the order of Spark's partitions, and delete those of losing attempts."""
        ledgers = tuple(ledger for ledger in map(self._ledger_of, messages) if ledger is not None)
        version = self._logs.commit(self._job, self._request(ledgers))
        if version.duplicate_of is not None:
            return
        try:
            self._logs.finish(self._job, [ledger.ledger_id for ledger in ledgers])
        except BookKeeperError as problem:
            # The rows are committed: to fail here would make Spark's user write them again.
            _LOGGER.warning("ledgers of failed attempts at log '%s' are left behind: %s", self._job.log_name, problem)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete all that the job created, unless a commit took effect; Spark calls this after a commit that raised, too."""
        self._logs.abort(self._job)

    def _payloads(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.BinaryArray, int]]:
        """Payloads to append, and how many rows they hold."""
        options = self._options
        if self._schema is None:
            for batch in batches:
                if batch.num_rows:
                    yield entry_payloads(batch), batch.num_rows
            return
        cut = PayloadFormat(
            compression=options.compression, max_rows=options.max_rows_per_entry, max_bytes=options.max_bytes_per_entry
        )
        encoder = RowEncoder(self._job.log_name, to_arrow(self._schema), cut)
        for batch in batches:
            for payload, rows in encoder.encode(batch):
                yield _single(payload), rows

    def _request(self, ledgers: tuple[CommittedLedger, ...]) -> CommitRequest:
        options = self._options
        application = None
        if options.application_id is not None and options.application_version is not None:
            application = (options.application_id, options.application_version)
        schema_json = None if self._schema is None else self._schema.json()
        return CommitRequest(self._kind, ledgers, schema_json, options.merge_schema, application=application)

    def _ledger_of(self, message: WriterCommitMessage | None) -> CommittedLedger | None:
        if not isinstance(message, LedgerMessage) or message.job_id != self._job.job_id:
            raise ConfigError("a commit message", message, f"it is not of write job {self._job.job_id}: nothing is committed")
        return message.ledger

    @property
    def _logs(self) -> LogStore:
        return connect(self._options.metadata, self._options.client).logs


class _AttemptLedger:
    """The ledger of one task attempt: made with the first row, closed once all is confirmed."""

    def __init__(self, options: SourceOptions, job: WriteJob) -> None:
        self._options = options
        self._job = job
        self._handle: WriteHandle | None = None
        self._last: Future[tuple[int, int]] | None = None
        self._rows = 0

    def append(self, payloads: pa.BinaryArray, rows: int) -> None:
        """Waits while too much is unconfirmed. An earlier append's failure shows at a later one, or at ``close``."""
        self._handle = self._handle or self._create()
        self._last = self._handle.append_batch_async(payloads)
        self._rows += rows

    def close(self) -> CommittedLedger | None:
        """None where nothing was appended. Entries are confirmed in order: with the last one, all are."""
        if self._handle is None or self._last is None:
            return None
        _, last_entry_id = self._last.result()
        self._handle.close()
        return CommittedLedger(self._handle.ledger_id, last_entry_id, self._handle.length, self._rows)

    def give_up(self) -> None:
        """Leave no handle behind. What goes wrong here adds nothing to the failure under way: the job's end deletes all."""
        if self._handle is not None:
            with suppress(BookKeeperError):
                self._handle.close()

    def _create(self) -> WriteHandle:
        options = self._options
        return connect(options.metadata, options.client).create_ledger(
            options.ensemble_size,
            options.write_quorum,
            options.ack_quorum,
            options.digest_type,
            options.password,
            job=self._job,
        )


def entry_payloads(batch: pa.RecordBatch) -> pa.BinaryArray:
    """The ``payload`` column as bytes. Raises ConfigError for a null."""
    column = batch.column("payload")
    if column.null_count:
        raise ConfigError("column 'payload'", None, "an entry may be empty, not null: filter the nulls out, or coalesce them")
    return column.cast(pa.binary())


def _single(payload: pa.Buffer) -> pa.BinaryArray:
    offsets = pa.py_buffer(struct.pack("<2i", 0, payload.size))
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, offsets, payload])
