"""The data source called as Spark calls it, pickled on the way as Spark does, but without Spark: much faster."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bk_spark.datasource.read.reader import EntryReader
from bk_spark.datasource.read.stream_reader import StreamReader
from bk_spark.datasource.source import BookKeeperDataSource
from bk_spark.log.stream.positions import Offset

Row = dict[str, Any]


@dataclass(frozen=True)
class Direct:
    """Writes and reads of one cluster; options are given as a user gives them."""

    uri: str
    streams: list[StreamReader] = field(default_factory=list, compare=False)
    """Opened so far: each has a thread until it is stopped."""

    def source(self, log: str | None, **options: Any) -> BookKeeperDataSource:
        named = {"metadata": self.uri} | ({} if log is None else {"path": log}) | options
        texts = {key.lower(): str(value) if not isinstance(value, bool) else str(value).lower() for key, value in named.items()}
        return pickle.loads(pickle.dumps(BookKeeperDataSource(texts)))

    def write(self, log: str | None, *batches: pa.RecordBatch, overwrite: bool = False, **options: Any) -> None:
        """One task for each batch."""
        schema = from_arrow_schema(batches[0].schema)
        writer = pickle.loads(pickle.dumps(self.source(log, **options).writer(schema, overwrite)))
        writer.commit([writer.write(iter([batch])) for batch in batches])

    def reader(self, log: str | None, schema: StructType | None = None, **options: Any) -> EntryReader:
        source = self.source(log, **options)
        return pickle.loads(pickle.dumps(source)).reader(schema or source.schema())

    def read(self, log: str | None, schema: StructType | None = None, **options: Any) -> list[Row]:
        return list(rows_of(self.reader(log, schema, **options)))

    def column(self, log: str | None, name: str = "id", **options: Any) -> list[Any]:
        return [row[name] for row in self.read(log, **options)]

    def stream(self, log: str | None, **options: Any) -> StreamReader:
        """What is wrong its methods raise, not this."""
        source = self.source(log, **options)
        self.streams.append(cast("StreamReader", source.streamReader(source.schema())))
        return self.streams[-1]


def rows_of(reader: EntryReader) -> Iterator[Row]:
    """Each partition is read by another copy of the reader."""
    for partition in pickle.loads(pickle.dumps(reader.partitions())):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            yield from batch.to_pylist()


def micro_batch(reader: StreamReader, start: Offset, end: Offset, name: str = "id") -> list[Any]:
    """A column of what a stream reads between two offsets."""
    found = []
    for partition in reader.partitions(start, end):
        found += [row[name] for batch in reader.read(partition) for row in batch.to_pylist()]
    return found


def micro_batches(reader: StreamReader, name: str = "id") -> Iterator[tuple[Offset, Offset, list[Any]]]:
    """Start, end and rows of every micro-batch of what there is now."""
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        yield start, end, micro_batch(reader, start, end, name)
        reader.commit(end)
        start = end
