"""What a reader wants of rows, wherever they lie: what ``rows_as`` takes for those of entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bk_spark.errors import CorruptionError, WrongValueError
from bk_spark.log.stored.tier_columns import ENTRY
from bk_spark.rows.reading import Added, Converter, constant, rows_as
from bk_spark.rows.validity import is_sound, wrong_value
from bk_spark.rows.where.filter import RowFilter
from bk_spark.rows.widening import TooLargeToWiden, read_as


@dataclass(frozen=True, slots=True)
class AskedRows:
    """Columns and rows to give."""

    schema: pa.Schema
    """The columns to give, with those that are ``added``."""
    where: RowFilter | None = None
    added: Added = field(default_factory=dict)
    checks_values: bool = True

    def of_entries(self) -> Converter:
        """Gives them of payloads."""
        return rows_as(self.schema, self.added, self.where, checks_values=self.checks_values)

    @property
    def stored(self) -> Mapping[str, pa.Field]:
        """The columns to read, and their types in the log."""
        tested = {one.name: one for one in self.where.columns} if self.where else {}
        return {**tested, **{one.name: one for one in self.schema if one.name not in self.added}}

    def of_file(self, ledger_id: int, found: pa.RecordBatch, what: str) -> Iterator[pa.RecordBatch]:
        """Gives them of rows of a file, which may lack columns, and has ``_entry_id``."""
        columns = {name: _as_stored(found, wanted, what) for name, wanted in self.stored.items()}
        rows = pa.RecordBatch.from_arrays([*columns.values(), found.column(ENTRY)], names=[*columns, ENTRY])
        if self.where is not None:
            rows = self.where.matching(rows)
        if self.checks_values:
            check_values(rows.select([one.name for one in self.schema if one.name in columns]), what)
        for some, entry_id in self._parts(rows):
            if some.num_rows:
                yield self._given(ledger_id, entry_id, some)

    def _parts(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Rows of one entry each where an added column needs to know it."""
        if not any(one.name in self.added for one in self.schema):
            yield rows, -1
            return
        entries = rows.column(ENTRY).to_numpy()
        ends = [*(np.flatnonzero(np.diff(entries)) + 1).tolist(), len(entries)]
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            if end > start:
                yield rows.slice(start, end - start), int(entries[start])

    def _given(self, ledger_id: int, entry_id: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            constant(self.added[one.name](ledger_id, entry_id), rows.num_rows, one.type)
            if one.name in self.added
            else rows.column(one.name)
            for one in self.schema
        ]
        if not columns:  # a batch without columns does not know how many rows it has
            return pa.record_batch([pa.nulls(rows.num_rows)], ["rows"])
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _as_stored(found: pa.RecordBatch, wanted: pa.Field, what: str) -> pa.Array:
    """A column as the log has it: a table has wider types, and the log's may have become wider since."""
    place = found.schema.get_field_index(wanted.name)
    if place < 0:
        return pa.nulls(found.num_rows, wanted.type)
    column = found.column(place)
    try:
        if column.type.num_fields and not column.type.equals(wanted.type):
            column = column.take(pa.array(np.arange(len(column))))  # without what lies beside the slice, and may not be cast
        return read_as(column, wanted.type)
    except (pa.ArrowException, TooLargeToWiden) as problem:
        raise CorruptionError(what, f"its column '{wanted.name}' cannot be read as {wanted.type} ({problem})") from None


def check_values(rows: pa.RecordBatch, what: str) -> None:
    """Raise WrongValueError for the first value of ``what`` that its type does not have."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        found = None if is_sound(column) else wrong_value(column, name)
        if found is not None:
            raise WrongValueError(what, found.place, found.value, str(found.kind))
