"""One task attempt of a write, of a batch or of a stream: its rows go to a ledger of its own.

Spark runs attempts more than once, also at the same time, and a losing one may end after the commit: none of them touches
what another one wrote, and none makes anything visible.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.client.log.changes.jobs import WriteJob
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.stored.values import CommittedLedger
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.spark_schema import to_arrow
from bk_spark.datasource.write.job_refresh import JobRefresh
from bk_spark.errors import BookKeeperError, ConfigError
from bk_spark.rows.codec import PayloadFormat, RowEncoder
from bk_spark.rows.gathering import gathered_batches, gathered_entries, gathered_payloads


@dataclass(frozen=True, slots=True)
class Attempt:
    """What every attempt of a job has in common: made on the driver, pickled to the tasks.

    ``schema`` is the normalised one of rows, None where each row is an entry.
    """

    options: SourceOptions
    job: WriteJob
    schema: StructType | None

    def write(self, batches: Iterator[pa.RecordBatch]) -> CommittedLedger | None:
        """Write all rows to a new ledger, which is closed when this returns; None, and no ledger, without rows.

        Raises JobEndedError where the job was committed, aborted or swept meanwhile.
        """
        written = _AttemptLedger(self.options, self.job)
        try:
            with JobRefresh(lambda: self.logs.jobs.refresh(self.job)) as refresh:
                for payloads, rows in self._payloads(_until_ended(batches, refresh)):
                    written.append(payloads, rows)
                return written.close()
        except BaseException:
            written.give_up()
            raise

    @property
    def logs(self) -> LogStore:
        return connect(self.options.metadata, self.options.client).logs

    def _payloads(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.BinaryArray, int]]:
        """Payloads to append, and how many rows they hold."""
        options = self.options
        if self.schema is None:
            for payloads in gathered_entries(map(entry_payloads, batches), options.client.add_batch_bytes):
                yield payloads, len(payloads)
            return
        cut = PayloadFormat(
            compression=options.compression, max_rows=options.max_rows_per_entry, max_bytes=options.max_bytes_per_entry
        )
        encoder = RowEncoder(self.job.log_name, to_arrow(self.schema), cut)
        pieces = gathered_batches(batches, cut.max_rows, cut.max_bytes)
        encoded = itertools.chain.from_iterable(map(encoder.encode, pieces))
        yield from gathered_payloads(encoded, options.client.add_batch_bytes)


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


def _until_ended(batches: Iterator[pa.RecordBatch], refresh: JobRefresh) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        refresh.check()
        yield batch


def entry_payloads(batch: pa.RecordBatch) -> pa.BinaryArray:
    """The ``payload`` column as bytes. Raises ConfigError for a null."""
    column = batch.column("payload")
    if column.null_count:
        raise ConfigError("column 'payload'", None, "an entry may be empty, not null: filter the nulls out, or coalesce them")
    return column.cast(pa.binary())
