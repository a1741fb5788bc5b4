"""Reads a log, or ledgers, as Spark partitions of Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.read_handle import ReadHandle
from bk_spark.config import MIB
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.partitions import Stretch, cut_at_fragments, plan
from bk_spark.datasource.row_codec import RowDecoder
from bk_spark.datasource.spark_schema import METADATA_COLUMNS, to_arrow
from bk_spark.errors import ConfigError, NoSuchLogError

BATCH_BYTES = 2 * MIB
"""Smaller record batches are joined up to this size: below a megabyte Spark's cost per batch shows, above it hardly."""

BATCH_ROWS = 131_072
"""The same in rows, for those that take hardly any bytes."""

Converter: TypeAlias = Callable[[int, pa.RecordBatch], Iterator[pa.RecordBatch]]
"""Ledger id and a batch of its entries → what Spark is given of them."""


@dataclass(frozen=True, slots=True)
class PlannedLog:
    """The one version of one log that a ``load()`` reads."""

    name: str
    uid: str
    version: int


class EntryReader(DataSourceReader):
    """Plans on the driver, reads in the workers. Goes to every task, so it holds what to read, not where it lies.

    ``log`` is None where the options name ledgers. Ends are fixed when partitions are
    planned: what is written later is not read.
    """

    def __init__(self, options: SourceOptions, schema: StructType, log: PlannedLog | None) -> None:
        self._options = options
        self._schema = schema
        self._log = log

    def partitions(self) -> Sequence[InputPartition]:
        """Raises NoSuchLogError, NoSuchLedgerError, UnauthorizedAccessError."""
        bookkeeper = connect(self._options.metadata, self._options.client)
        stretches = self._ledgers(bookkeeper) if self._log is None else self._stretches(bookkeeper, self._log)
        planned = plan(stretches, self._options.max_bytes_per_partition, self._options.min_partitions)
        return [InputPartition(partition) for partition in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in log order, in exactly the declared schema."""
        return joined(self._batches(partition.value or ()))

    def _stretches(self, bookkeeper: BookKeeper, log: PlannedLog) -> list[Stretch]:
        snapshot = bookkeeper.logs.snapshot(log.name, log.version)
        if snapshot.uid != log.uid:
            raise NoSuchLogError(log.name)
        whole = [Stretch(one.ledger_id, 0, one.last_entry_id, one.length) for one in snapshot.ledgers]
        large = [one.ledger_id for one in whole if one.length > self._options.max_bytes_per_partition]
        metadata = dict(zip(large, bookkeeper.ledger_metadata_many(large), strict=True))
        pieces = [cut_at_fragments(one, metadata[one.ledger_id]) if one.ledger_id in metadata else [one] for one in whole]
        return [piece for some in pieces for piece in some]

    def _ledgers(self, bookkeeper: BookKeeper) -> list[Stretch]:
        stretches = []
        for ledger_id in self._options.ledger:
            handle = _opened(bookkeeper, self._options, ledger_id, recover=self._options.recover)
            stretches.append(Stretch(ledger_id, 0, handle.last_add_confirmed, handle.length))
        return stretches

    def _batches(self, stretches: Iterable[Stretch]) -> Iterator[pa.RecordBatch]:
        bookkeeper = connect(self._options.metadata, self._options.client)
        schema = to_arrow(self._schema)
        convert = entries_as(schema) if self._options.reads_entries else rows_as(schema, self._options.include_metadata)
        for stretch in stretches:
            with _opened(bookkeeper, self._options, stretch.ledger_id) as handle:
                # Up to the end that the driver saw confirmed, which this quorum of an open ledger need not know yet.
                for batch in handle.read_unconfirmed(stretch.first_entry_id, stretch.last_entry_id):
                    yield from convert(stretch.ledger_id, batch)


def rows_as(schema: pa.Schema, include_metadata: bool) -> Converter:
    """Decodes row payloads into ``schema``, whose metadata columns, if included, are not looked for in the payloads."""
    added = METADATA_COLUMNS.names if include_metadata else []
    decoder = RowDecoder(pa.schema([field for field in schema if field.name not in added]))

    def convert(ledger_id: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for entry_id, payload in zip(batch.column("entry_id").to_pylist(), batch.column("payload"), strict=True):
            rows = decoder.decode(payload.as_buffer(), f"the payload of entry {entry_id} of ledger {ledger_id}")
            constants = {"_ledger_id": ledger_id, "_entry_id": entry_id} if include_metadata else {}
            columns = [
                _constant(constants[name], rows.num_rows) if name in constants else rows.column(name) for name in schema.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return convert


def entries_as(schema: pa.Schema) -> Converter:
    """Gives entries as the columns of ``schema``, some or all of ledger_id, entry_id and payload."""

    def convert(ledger_id: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        columns = [_constant(ledger_id, batch.num_rows) if name == "ledger_id" else batch.column(name) for name in schema.names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return convert


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about BATCH_BYTES or BATCH_ROWS; what is larger already passes uncopied."""
    waiting: list[pa.RecordBatch] = []
    nbytes = rows = 0
    for batch in batches:
        waiting.append(batch)
        nbytes, rows = nbytes + batch.nbytes, rows + batch.num_rows
        if nbytes >= BATCH_BYTES or rows >= BATCH_ROWS:
            yield from _concatenated(waiting)
            waiting, nbytes, rows = [], 0, 0
    yield from _concatenated(waiting)


def _concatenated(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) <= 1:
        return batches
    joined_batches: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined_batches


def _constant(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def _opened(bookkeeper: BookKeeper, options: SourceOptions, ledger_id: int, *, recover: bool = False) -> ReadHandle:
    """``recover`` on the driver alone: the tasks read up to the ends that were planned."""
    handle = bookkeeper.open_ledger(ledger_id, options.password, recover=recover)
    found = handle.metadata.digest_type
    if "digesttype" in options.given and found is not options.digest_type:
        raise ConfigError("option 'digestType'", options.digest_type.name, f"ledger {ledger_id} was created with {found.name}")
    return handle
