"""The columns of all files of one call, each accounted for by the rule for appends (log/stored/schema.py).

Every file is held against the log, and against the files before it. A column or a field of a struct that only some have is
refused by the names of the file and the column, or becomes part of all with ``--merge-schema``: null where a file lacks it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from bk_spark.errors import SchemaMismatchError
from bk_spark.log.stored.merging import filled
from bk_spark.log.stored.schema import Schema, appended_schema, type_name
from bk_spark.rows.arrow_types import arrow_schema
from bk_spark.rows.widening import read_as


@dataclass(frozen=True, slots=True)
class FileColumns:
    """What one file holds. ``schema`` is Spark's JSON, all nullable."""

    path: str
    schema: Schema


def one_schema(log: str, stored: Schema | None, files: list[FileColumns], *, merge: bool) -> pa.Schema:
    """The columns of ``files`` together, as they are stored. ``stored`` is the log's schema, None where it has none yet.

    Raises SchemaMismatchError for the first file that does not fit.
    """
    together: Schema | None = None
    for file in files:
        try:
            if stored is not None:
                stored = appended_schema(log, stored, file.schema, merge=merge)
            elif together is not None and not merge:
                _refuse_missing(log, files[0], file)
                appended_schema(log, filled(together, file.schema), file.schema, merge=False)
            together = file.schema if together is None else appended_schema(log, together, file.schema, merge=True)
        except SchemaMismatchError as problem:
            raise SchemaMismatchError(log, f"file '{file.path}': {_said(problem, stored)}") from None
    assert together is not None, "a call names a file at least"
    return arrow_schema(together if stored is None else filled(together, stored))


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with the columns of ``schema``; those that the batch lacks are null."""
    columns = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        columns.append(pa.nulls(batch.num_rows, field.type) if place < 0 else read_as(batch.column(place), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _said(problem: SchemaMismatchError, stored: Schema | None) -> str:
    text = problem.problem.replace("option 'mergeSchema'", "--merge-schema")
    return text if stored is not None else text.replace("in the log", "in the files before it")


def _refuse_missing(log: str, first: FileColumns, file: FileColumns) -> None:
    both = [(first, file), (file, first)]
    for one, other in both:
        there = {field["name"].lower() for field in other.schema["fields"]}
        extra = next((field for field in one.schema["fields"] if field["name"].lower() not in there), None)
        if extra is not None:
            where = f"only '{one.path}' has the column '{extra['name']}' ({type_name(extra['type'])})"
            raise SchemaMismatchError(log, f"{where}: drop it, or add it with --merge-schema, null where a file lacks it")
