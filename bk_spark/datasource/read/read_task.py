"""What a task of a batch or of a stream does: stretches of ledgers → Arrow record batches in the declared schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructType

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.config import MIB
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.read.partitions import Stretch
from bk_spark.datasource.spark_schema import METADATA_COLUMNS, to_arrow
from bk_spark.errors import ConfigError
from bk_spark.rows.codec import RowDecoder
from bk_spark.rows.gathering import as_one
from bk_spark.rows.where.filter import RowFilter

BATCH_BYTES = 2 * MIB
"""Smaller record batches are joined up to this size: below a megabyte Spark's cost per batch shows, above it hardly."""

BATCH_ROWS = 131_072
"""The same in rows, for those that take hardly any bytes."""

Converter: TypeAlias = Callable[[int, pa.RecordBatch], Iterator[pa.RecordBatch]]
"""Ledger id and a batch of its entries → what Spark is given of them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What to give of the entries that are read. Goes to every task, so it holds what to read, not where it lies.

    ``schema`` has the columns to give; ``where`` is None where all rows are wanted.
    """

    options: SourceOptions
    schema: StructType
    where: RowFilter | None = None

    def batches(self, stretches: Iterable[Stretch]) -> Iterator[pa.RecordBatch]:
        """The rows of the stretches, in their order, in exactly the declared schema and in batches of a useful size."""
        return joined(self._converted(stretches))

    def _converted(self, stretches: Iterable[Stretch]) -> Iterator[pa.RecordBatch]:
        options = self.options
        bookkeeper = connect(options.metadata, options.client)
        schema = to_arrow(self.schema)
        convert = entries_as(schema) if options.reads_entries else rows_as(schema, options.include_metadata, self.where)
        for stretch in stretches:
            with opened(bookkeeper, options, stretch.ledger_id) as handle:
                # Up to the end that the driver saw confirmed, which this quorum of an open ledger need not know yet.
                for batch in handle.read_unconfirmed(stretch.first_entry_id, stretch.last_entry_id):
                    yield from convert(stretch.ledger_id, batch)


def rows_as(schema: pa.Schema, include_metadata: bool, where: RowFilter | None = None) -> Converter:
    """Decodes row payloads into ``schema``, whose metadata columns, if included, are not looked for in the payloads.

    Of the rows that ``where`` lets pass; a payload whose statistics say that there is none is not decoded.
    """
    added = METADATA_COLUMNS.names if include_metadata else []
    wanted = {field.name: field for field in schema if field.name not in added}
    tested = {field.name: field for field in where.columns} if where else {}
    decoder = RowDecoder(pa.schema(list({**tested, **wanted}.values())))

    def rows_of(payload: pa.Buffer, what: str) -> pa.RecordBatch | None:
        if where is None:
            return decoder.decode(payload, what)
        if not where.may_match(*decoder.statistics(payload, what, tested)):
            return None
        return where.matching(decoder.decode(payload, what))

    def convert(ledger_id: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for entry_id, payload in zip(batch.column("entry_id").to_pylist(), batch.column("payload"), strict=True):
            rows = rows_of(payload.as_buffer(), f"the payload of entry {entry_id} of ledger {ledger_id}")
            if rows is None or not rows.num_rows:
                continue
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
            yield as_one(waiting)
            waiting, nbytes, rows = [], 0, 0
    if waiting:
        yield as_one(waiting)


def opened(bookkeeper: BookKeeper, options: SourceOptions, ledger_id: int, *, recover: bool = False) -> ReadHandle:
    """A ledger to read. ``recover`` on the driver alone: the tasks read up to the ends that were planned.

    Raises NoSuchLedgerError, UnauthorizedAccessError; ConfigError where a digest type was asked for that it has not got.
    """
    handle = bookkeeper.open_ledger(ledger_id, options.password, recover=recover)
    found = handle.metadata.digest_type
    if "digesttype" in options.given and found is not options.digest_type:
        raise ConfigError("option 'digestType'", options.digest_type.name, f"ledger {ledger_id} was created with {found.name}")
    return handle


def _constant(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)
