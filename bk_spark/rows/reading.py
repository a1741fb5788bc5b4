"""Entries of rows → record batches of the wanted columns and rows: what Spark's tasks and readers without Spark share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from bk_spark.config import MIB
from bk_spark.rows.codec import RowDecoder, row_count
from bk_spark.rows.gathering import as_one
from bk_spark.rows.where.filter import RowFilter

BATCH_BYTES = 2 * MIB
"""Smaller record batches are joined up to this size: Spark's cost per batch is noticeable only below a megabyte."""

BATCH_ROWS = 131_072
"""The same limit in rows, for rows of very few bytes."""

Converter: TypeAlias = Callable[[int, pa.RecordBatch], Iterator[pa.RecordBatch]]
"""Ledger id and a batch of its entries → the record batches to give."""

Added: TypeAlias = Mapping[str, Callable[[int, int], Any]]
"""Columns that do not come from payloads: name → the value for all rows of an entry, given its ledger id and entry id."""


def rows_as(
    schema: pa.Schema, added: Added | None = None, where: RowFilter | None = None, *, checks_values: bool = True
) -> Converter:
    """Decodes the rows that match ``where`` into ``schema``, which may have some of the columns ``added``.

    A payload whose statistics exclude every match is not decoded. Only values that are given are checked, unless
    ``checks_values`` is False (codec.py).
    """
    values = {name: value for name, value in (added or {}).items() if name in schema.names}
    wanted = {field.name: field for field in schema if field.name not in values}
    tested = {field.name: field for field in where.columns} if where else {}
    decoded = {**tested, **wanted}
    decoder = RowDecoder(pa.schema(list(decoded.values())), checks_values=checks_values)

    def rows_of(payload: pa.Buffer, what: str) -> pa.RecordBatch | None:
        if not decoded:  # a batch without columns does not know how many rows it has
            return pa.record_batch([pa.nulls(row_count(payload, what))], ["rows"])
        if where is None:
            return decoder.decode(payload, what)
        if not where.may_match(*decoder.statistics(payload, what, tested)):
            return None
        return decoder.decode(payload, what, lambda rows: chosen(where.matching(rows)))

    def chosen(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.select(list(wanted)) if wanted else pa.record_batch([pa.nulls(rows.num_rows)], ["rows"])

    def convert(ledger_id: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for entry_id, payload in zip(batch.column("entry_id").to_pylist(), batch.column("payload"), strict=True):
            rows = rows_of(payload.as_buffer(), f"the payload of entry {entry_id} of ledger {ledger_id}")
            if rows is None or not rows.num_rows:
                continue
            for some in _slices(rows) if values else [rows]:
                columns = [
                    constant(values[field.name](ledger_id, entry_id), some.num_rows, field.type)
                    if field.name in values
                    else some.column(field.name)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return convert


def _slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """At most BATCH_ROWS each: a payload may have many rows of few bytes, and an added column has bytes of its own for each."""
    for start in range(0, rows.num_rows, BATCH_ROWS):
        yield rows.slice(start, BATCH_ROWS)


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


def constant(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    """A column of one value, which may be None."""
    return pa.repeat(pa.scalar(value, kind), count)
