"""The work of a read task, of a batch or of a stream: stretches of ledgers → Arrow record batches in the declared schema."""

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
from bk_spark.rows.parts import whole_payloads
from bk_spark.rows.where.filter import RowFilter

BATCH_BYTES = 2 * MIB
"""Smaller record batches are joined up to this size: Spark's cost per batch is noticeable only below a megabyte."""

BATCH_ROWS = 131_072
"""The same limit in rows, for rows of very few bytes."""

Converter: TypeAlias = Callable[[int, pa.RecordBatch], Iterator[pa.RecordBatch]]
"""Ledger id and a batch of its entries → the record batches for Spark."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Which columns and rows to give of the entries that are read, not which entries. Pickled to every task.

    ``schema`` has the columns to give; ``where`` is None for all rows.
    """

    options: SourceOptions
    schema: StructType
    where: RowFilter | None = None

    def batches(self, stretches: Iterable[Stretch]) -> Iterator[pa.RecordBatch]:
        """The rows of the stretches, in order, in exactly the declared schema and in batches of about BATCH_BYTES."""
        return joined(self._converted(stretches))

    def _converted(self, stretches: Iterable[Stretch]) -> Iterator[pa.RecordBatch]:
        options = self.options
        bookkeeper = connect(options.metadata, options.client)
        schema = to_arrow(self.schema)
        convert = entries_as(schema) if options.reads_entries else rows_as(schema, options.include_metadata, self.where)
        for stretch in stretches:
            with opened(bookkeeper, options, stretch.ledger_id) as handle:
                # The driver saw these entries confirmed; the bookies that this task asks may not know of that yet.
                read, place = handle.read_unconfirmed, (stretch.first_entry_id, stretch.last_entry_id)
                batches = read(*place) if options.reads_entries else whole_payloads(read, stretch.ledger_id, *place)
                for batch in batches:
                    yield from convert(stretch.ledger_id, batch)


def rows_as(schema: pa.Schema, include_metadata: bool, where: RowFilter | None = None) -> Converter:
    """Decodes the rows that match ``where`` into ``schema``.

    The columns that ``include_metadata`` adds do not come from the payloads. A payload whose statistics exclude every match is
    not decoded.
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
    """Gives entries as the columns of ``schema``: some or all of ledger_id, entry_id and payload."""

    def convert(ledger_id: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        columns = [_constant(ledger_id, batch.num_rows) if name == "ledger_id" else batch.column(name) for name in schema.names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return convert


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about BATCH_BYTES or BATCH_ROWS; larger batches pass uncopied."""
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
    """Open a ledger to read it. Only the driver may ``recover``: the tasks read up to the ends that it planned.

    Raises NoSuchLedgerError, UnauthorizedAccessError; ConfigError where the ledger does not have the given digest type.
    """
    handle = bookkeeper.open_ledger(ledger_id, options.password, recover=recover)
    found = handle.metadata.digest_type
    if "digesttype" in options.given and found is not options.digest_type:
        raise ConfigError("option 'digestType'", options.digest_type.name, f"ledger {ledger_id} was created with {found.name}")
    return handle


def _constant(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)
