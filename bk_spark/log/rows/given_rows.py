"""Rows as a program gives them, in any form that Arrow takes, as a stream of record batches. Nothing is written here.

Where Arrow or pandas cannot take the data, a ConfigError names the log. An error of the program's own source stays what it is,
where it gives its stream and in the middle of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bk_spark.errors import ConfigError, SchemaMismatchError, State
from bk_spark.log.rows.given_frames import (
    NotTakenError,
    check_described,
    error_text,
    is_pandas,
    is_pandas_frame,
    table_of_pandas,
    way_out,
)
from bk_spark.rows.conversion import Conversion
from bk_spark.rows.widening import TooLargeToWiden, differs_in_nulls, read_as, unreadable

_FORMS = "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas DataFrame, or anything with __arrow_c_stream__"


def stream_of(log: str, rows: Any) -> pa.RecordBatchReader:
    """Arrow data in any form, or a pandas DataFrame (without its index). Raises ConfigError, and what the source raises."""
    what, kind = f"the data for log '{log}'", type(rows).__name__
    try:
        stream = _stream_of(rows)
    except NotTakenError as problem:
        raise ConfigError(what, kind, f"it cannot be taken as Arrow data: {problem}") from problem.__cause__
    if stream is None:
        way = way_out(rows)
        raise ConfigError(what, kind, f"it must be {_FORMS}{'' if way is None else f': {way}'}")
    if not len(stream.schema):
        raise ConfigError(what, kind, "it has no column, there is nothing to write")
    return stream


def batches_of(log: str, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a stream, each with what the stream's schema says.

    Raises ConfigError where Arrow cannot take the next one, and SchemaMismatchError for one that has other columns.
    """
    schema = stream.schema
    while True:
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            return
        except pa.ArrowException as problem:
            remedy = f"its stream ended with an error, and nothing of it was written ({error_text(problem)})"
            raise ConfigError(f"the data for log '{log}'", State("incomplete"), remedy) from problem
        yield batch if batch.schema.equals(schema) else _as_said(log, batch, schema)


def checked_stream(log: str, rows: Any, check: Callable[[], None]) -> pa.RecordBatchReader:
    """The same as ``stream_of``; ``check`` is called before each batch, and may end the stream by an error."""
    stream = stream_of(log, rows)

    def checked() -> Iterator[pa.RecordBatch]:
        check()
        for batch in batches_of(log, stream):
            yield batch
            check()

    return pa.RecordBatchReader.from_batches(stream.schema, checked())


@dataclass(frozen=True, slots=True)
class _Capsule:
    """The stream that a source gave."""

    stream: object

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.stream


def _stream_of(rows: Any) -> pa.RecordBatchReader | None:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(rows.schema, [rows])
    if isinstance(rows, pa.Table):  # through the C interface its names would end at a NUL, and nobody could see it
        return rows.to_reader()
    if is_pandas(rows):
        return table_of_pandas(rows).to_reader() if is_pandas_frame(rows) else None
    if not hasattr(rows, "__arrow_c_stream__"):
        return None
    check_described(rows)
    try:
        capsule = rows.__arrow_c_stream__()
    except pa.ArrowException as problem:
        raise _unfit(problem) from problem
    try:
        return pa.RecordBatchReader.from_stream(_Capsule(capsule))
    except Exception as problem:  # whatever Arrow raises for what is no stream
        raise _unfit(problem) from problem


def _unfit(problem: Exception) -> NotTakenError:
    text = error_text(problem)
    if "non-struct" in text:
        return NotTakenError(f"it is one column ({text}): give it a name, with pyarrow.table({{'name': column}})")
    return NotTakenError(f"{text}: convert what it cannot give, or make a pyarrow.Table of it before")


def _as_said(log: str, batch: pa.RecordBatch, said: pa.Schema) -> pa.RecordBatch:
    """A batch of other encodings, such as other units of time, in the form in which the log stores it."""
    conversion = Conversion(log, batch.schema)
    wanted = Conversion(log, said).stored
    if conversion.stored.names != wanted.names:
        given, expected = (", ".join(map(repr, schema.names)) for schema in (batch.schema, said))
        raise SchemaMismatchError(log, f"a batch has the columns {given}, the schema of its reader {expected}")
    for field, other in zip(conversion.stored, wanted, strict=True):
        if not differs_in_nulls(field.type, other.type):
            kind, other_kind = batch.schema.field(field.name).type, said.field(field.name).type
            kinds = f"{kind} in a batch and {other_kind} in the schema of its reader"
            raise SchemaMismatchError(log, f"column '{field.name}' is {kinds}: cast it before")
    columns = [read_as_field(log, column, field) for column, field in zip(conversion.of(batch).columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def read_as_field(log: str, column: pa.Array, field: pa.Field) -> pa.Array:
    """A column of a write, as a wider type. Raises SchemaMismatchError where that takes too much memory."""
    try:
        return read_as(column, field.type)
    except TooLargeToWiden as problem:
        raise SchemaMismatchError(log, unreadable(field.name, column.type, field.type, problem)) from None
