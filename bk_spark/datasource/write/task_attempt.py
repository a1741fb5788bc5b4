"""One task attempt of a write, of a batch or of a stream: its rows go to ledgers of its own, one for each lane.

Spark may run several attempts of a task, also at the same time, and a losing attempt may end after the commit. So no attempt
touches what another one wrote, and none makes anything visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.spark_schema import to_arrow
from bk_spark.errors import ConfigError, State
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.write_ledger import JobRefresh, until_ended, write_ledgers
from bk_spark.rows.codec import PayloadFormat
from bk_spark.rows.conversion import check_dates, check_values
from bk_spark.rows.gathering import gathered_entries
from bk_spark.rows.lanes import in_lanes
from bk_spark.rows.writing import row_payloads


@dataclass(frozen=True, slots=True)
class Attempt:
    """What all task attempts of a job have in common: made on the driver, pickled to the tasks.

    ``schema`` is the stored schema of rows; None if each row is an entry. ``lanes`` are those to which the rows go.
    """

    options: SourceOptions
    job: WriteJob
    schema: StructType | None
    lanes: Lanes = PLAIN
    checks_values: bool = True
    """False for who copies rows, whatever their values are."""
    timestamps: frozenset[str] = frozenset()
    """Places of dates that the log has as timestamps."""
    key: tuple[str, ...] = ()
    """The key columns of rows that are all of one lane, whose number the job's driver knows."""
    read_as: tuple[tuple[str, pa.DataType], ...] = ()
    """Columns that the log has with a wider type."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> tuple[CommittedLedger, ...]:
        """Write the rows of each lane to a new ledger and close it. A lane without rows has no ledger.

        Raises JobEndedError where the job was committed, aborted or swept meanwhile.
        """
        with JobRefresh(lambda: self.logs.jobs.refresh(self.job)) as refresh:
            payloads = self._payloads(until_ended(batches, refresh))
            return write_ledgers(self._create_ledger, payloads, self.options.client.add_window_bytes)

    @property
    def logs(self) -> LogStore:
        return connect(self.options.metadata, self.options.client).logs

    def _create_ledger(self, lane: int) -> WriteHandle:
        return create_ledger(self.options, self.job)

    def _payloads(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.BinaryArray, int]]:
        """Arrays of payloads to append, with the lane and the number of the rows in each."""
        options = self.options
        if self.schema is None:
            for payloads in gathered_entries(entry_payloads(batches), options.client.add_batch_bytes):
                yield 0, payloads, len(payloads)
            return
        checked = self._checked(batches) if self.checks_values else batches
        split = in_lanes(checked, self.lanes.columns, self.lanes.count)
        stored, cut = to_arrow(self.schema), payload_format(options, self.lanes.columns or self.key, self.read_as)
        yield from row_payloads(self.job.log_name, stored, cut, split, options.client.add_batch_bytes)

    def _checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            check_values(self.job.log_name, batch)
            yield check_dates(self.job.log_name, batch, self.timestamps)


def create_ledger(options: SourceOptions, job: WriteJob) -> WriteHandle:
    """A ledger of the job, as the options ask for it."""
    quorums = (options.ensemble_size, options.write_quorum, options.ack_quorum)
    bookkeeper = connect(options.metadata, options.client)
    return bookkeeper.create_ledger(*quorums, options.digest_type, options.password, job=job)


def payload_format(
    options: SourceOptions, key: tuple[str, ...] = (), read_as: tuple[tuple[str, pa.DataType], ...] = ()
) -> PayloadFormat:
    """How rows with these key columns, and columns that the log has with a wider type, are cut into entries."""
    return PayloadFormat(
        compression=options.compression,
        max_rows=options.max_rows_per_entry,
        max_bytes=options.max_bytes_per_entry,
        key=key,
        read_as=read_as,
    )


def entry_payloads(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.BinaryArray]:
    """The column ``payload`` of each batch as bytes. Raises ConfigError for a null, with the number of its row in the task."""
    before = 0
    for batch in batches:
        column = batch.column("payload")
        if column.null_count:
            row = before + column.is_null().index(True).as_py() + 1
            remedy = "an entry may be empty, not null: filter the nulls out, or coalesce them"
            raise ConfigError(f"column 'payload' in row {row} of a Spark partition", State("null"), remedy)
        before += len(column)
        yield column.cast(pa.binary())
