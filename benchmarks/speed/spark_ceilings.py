"""What Spark itself allows: a Python data source that throws rows away, and one that repeats one prebuilt record batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from benchmarks.speed.measure import Sample
from benchmarks.speed.spark_session import PARTITIONS, SparkTable, read_through
from bk_spark.config import MIB

BATCH_BYTES = 2 * MIB
"""Of the batch that is repeated: smaller ones are slower to take for Spark, larger ones too."""


class ThrowAway(DataSource):
    """``df.write.format("throw-away").mode("append").save()``: each row reaches Python in a record batch, and nothing more."""

    @classmethod
    def name(cls) -> str:
        return "throw-away"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _ThrowingAway()


class _ThrowingAway(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Repeat(DataSource):
    """``spark.read.format("repeat").schema(…).options(batch=…, rows=…).load()``: the rows of ``batch`` over and over.

    ``batch`` is the path of an Arrow file with one record batch, ``rows`` how many rows all partitions have.
    """

    @classmethod
    def name(cls) -> str:
        return "repeat"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Repeating(self.options)


class _Repeating(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = options["batch"]
        self._rows = int(options["rows"])

    def partitions(self) -> Sequence[InputPartition]:
        share, more = divmod(self._rows, PARTITIONS)
        return [InputPartition(share + (number < more)) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_file(self._path) as file:
            batch = file.get_batch(0)
        left: int = partition.value
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


def register(spark: SparkSession) -> None:
    spark.dataSource.register(ThrowAway)
    spark.dataSource.register(Repeat)


def throw_away(table: SparkTable) -> Sample:
    return table.timed(lambda: table.frame.write.format("throw-away").mode("append").save())


def repeat(spark: SparkSession, batch: Path, schema: StructType, expected: SparkTable) -> Sample:
    """As many rows as ``expected`` has, of the batch in the file ``batch``."""
    options = {"batch": str(batch), "rows": str(expected.rows)}
    return read_through(spark.read.format("repeat").schema(schema).options(**options).load(), expected)


def write_batch(path: Path, table: pa.Table) -> None:
    """The first rows of the table, as one record batch of about BATCH_BYTES, for ``repeat``."""
    rows = max(1, BATCH_BYTES * table.num_rows // table.nbytes)
    batch = table.slice(0, rows).combine_chunks().to_batches()[0]
    with pa.ipc.new_file(path, batch.schema) as file:
        file.write_batch(batch)
