"""Entries of rows → record batches of the wanted columns and rows: what Spark's tasks and readers without Spark share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from bk_spark.config import MIB
from bk_spark.rows.codec import RowDecoder
from bk_spark.rows.gathering import as_one
from bk_spark.rows.where.filter import RowFilter

BATCH_BYTES = 2 * MIB
"""Smaller record batches are joined up to this size: Spark's cost per batch is noticeable only below a megabyte."""

BATCH_ROWS = 131_072
"""The same limit in rows, for rows of very few bytes."""

Converter: TypeAlias = Callable[[int, pa.RecordBatch], Iterator[pa.RecordBatch]]
"""Ledger id and a batch of its entries → the record batches to give."""


def rows_as(schema: pa.Schema, positions: Sequence[str] = (), where: RowFilter | None = None) -> Converter:
    """Decodes the rows that match ``where`` into ``schema``.

    ``positions`` names the columns of ``schema``, ``_ledger_id`` and ``_entry_id``, that do not come from the payloads. A
    payload whose statistics exclude every match is not decoded.
    """
    wanted = {field.name: field for field in schema if field.name not in positions}
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
            constants = {"_ledger_id": ledger_id, "_entry_id": entry_id} if positions else {}
            columns = [
                constant(constants[name], rows.num_rows) if name in constants else rows.column(name) for name in schema.names
            ]
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


def constant(value: int, count: int) -> pa.Array:
    """An int64 column of one value."""
    return pa.repeat(pa.scalar(value, pa.int64()), count)
