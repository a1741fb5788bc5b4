"""Brings rows that a program has at hand into the columns of a row writer. Pure: nothing is read or written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.log.rows.given_rows import batches_of, read_as_field, stream_of
from bk_spark.log.rows.python_rows import batch_of_dicts, check_columns
from bk_spark.rows.conversion import Conversion, check_dates
from bk_spark.rows.own_memory import in_own_memory
from bk_spark.rows.widening import differs_in_nulls


class RowForm:
    """The columns of a row writer. Threads may share it."""

    def __init__(self, log: str, schema: pa.Schema, timestamps: frozenset[str] = frozenset()) -> None:
        """``timestamps`` are places of dates in ``schema`` that the log has as timestamps."""
        self._log = log
        self.schema = schema
        self._timestamps = timestamps
        self._known: Conversion | None = None
        """Of the columns that came last: they are mostly the same, and to look at them takes longer than a few rows."""

    def of(self, rows: Any) -> list[pa.RecordBatch]:
        """Arrow data, a pandas DataFrame, a dict or a list of dicts as record batches of the schema, none of them empty.

        They are in memory of our own: what was given may be changed after the call.

        Raises ConfigError and SchemaMismatchError as ``RowWriteHandle.append_async``.
        """
        batches = [self._with_all_columns(batch) for batch in self._batches(rows) if batch.num_rows]
        for batch in batches:
            check_dates(self._log, batch, self._timestamps)
        if not batches:
            what = f"the data for log '{self._log}'"
            raise ConfigError(what, rows if isinstance(rows, list) else str(rows)[:200], "at least one row is expected")
        return batches

    def _batches(self, rows: Any) -> list[pa.RecordBatch]:
        if isinstance(rows, dict):
            rows = [rows]
        if isinstance(rows, list):
            return [batch_of_dicts(self._log, self.schema, rows)]
        if isinstance(rows, pa.RecordBatch):  # as a stream it would cost as much as a few rows
            return [in_own_memory(self._conversion(rows.schema).of(rows))]
        stream = stream_of(self._log, rows)
        conversion = self._conversion(stream.schema)
        return [in_own_memory(conversion.of(batch)) for batch in batches_of(self._log, stream)]

    def _conversion(self, given: pa.Schema) -> Conversion:
        known = self._known
        if known is None or not known.given.equals(given, check_metadata=True):
            known = self._known = Conversion(self._log, given)
        return known

    def _with_all_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.schema):
            return batch
        check_columns(self._log, self.schema, set(batch.schema.names))
        columns = []
        for wanted in self.schema:
            index = batch.schema.get_field_index(wanted.name)
            column = pa.nulls(batch.num_rows, wanted.type) if index < 0 else batch.column(index)
            if not differs_in_nulls(column.type, wanted.type):
                problem = f"column '{wanted.name}' is {wanted.type} in the log and {column.type} in the data: cast it"
                raise SchemaMismatchError(self._log, problem)
            columns.append(read_as_field(self._log, column, wanted))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
