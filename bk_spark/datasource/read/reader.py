"""A batch read: plans on the driver, reads in the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.datasource.connection import connect
from bk_spark.datasource.read.batch_range import PlannedLog, ledger_stretch, parts_of
from bk_spark.datasource.read.partitions import Stretch, plan
from bk_spark.datasource.read.read_task import Reading, opened


class EntryReader(DataSourceReader):
    """Reads a log, or ledgers, as Spark partitions of Arrow record batches. Goes to every task.

    ``log`` is None where the options name ledgers. Ends are fixed when partitions are planned: what is written later is not
    read.
    """

    def __init__(self, reading: Reading, log: PlannedLog | None) -> None:
        self._reading = reading
        self._log = log

    def partitions(self) -> Sequence[InputPartition]:
        """Raises NoSuchLogError, NoSuchLedgerError, UnauthorizedAccessError, and as ``parts_of``."""
        options = self._reading.options
        bookkeeper = connect(options.metadata, options.client)
        if self._log is not None:
            return [InputPartition(part) for part in parts_of(bookkeeper, self._reading, self._log)]
        planned = plan(self._ledgers(bookkeeper), options.max_bytes_per_partition, options.min_partitions)
        return [InputPartition(part) for part in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in log order, in exactly the declared schema."""
        return self._reading.batches(partition.value or ())

    def _ledgers(self, bookkeeper: BookKeeper) -> list[Stretch]:
        options = self._reading.options
        handles = (opened(bookkeeper, options, ledger_id, recover=options.recover) for ledger_id in options.ledger)
        return [ledger_stretch(handle) for handle in handles]
