"""Rows as a program gives them, in any form that Arrow takes, as a stream of record batches. Nothing is written here.

What another library raises while it hands its data over becomes a ConfigError that names the log. An error of the program's own
source, in the middle of a stream, stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from bk_spark.errors import ConfigError

_FORMS = "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas DataFrame, or anything with __arrow_c_stream__"


def stream_of(log: str, rows: Any) -> pa.RecordBatchReader:
    """Arrow data in any form, or a pandas DataFrame (without its index). Raises ConfigError."""
    what, kind = f"the data for log '{log}'", type(rows).__name__
    try:
        stream = _stream_of(rows)
    except Exception as problem:  # whatever a library raises that cannot give its data
        remedy = (
            f"it cannot be taken as Arrow data ({_text(problem)}): give each column a name of its own and values of one type"
        )
        raise ConfigError(what, kind, remedy) from problem
    if stream is None:
        raise ConfigError(what, kind, f"it must be {_FORMS}")
    if not len(stream.schema):
        raise ConfigError(what, kind, "it has no column, there is nothing to write")
    return stream


def batches_of(log: str, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a stream. Raises ConfigError where Arrow cannot take the next one."""
    while True:
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            return
        except pa.ArrowException as problem:
            remedy = f"its stream ended with an error, and nothing of it was written ({_text(problem)})"
            raise ConfigError(f"the data for log '{log}'", "incomplete", remedy) from problem
        yield batch


def checked_stream(log: str, rows: Any, check: Callable[[], None]) -> pa.RecordBatchReader:
    """The same as ``stream_of``; ``check`` is called before each batch, and may end the stream by an error."""
    stream = stream_of(log, rows)

    def checked() -> Iterator[pa.RecordBatch]:
        check()
        for batch in batches_of(log, stream):
            yield batch
            check()

    return pa.RecordBatchReader.from_batches(stream.schema, checked())


def _stream_of(rows: Any) -> pa.RecordBatchReader | None:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(rows.schema, [rows])
    if type(rows).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(rows, preserve_index=False).to_reader() if hasattr(rows, "columns") else None
    return pa.RecordBatchReader.from_stream(rows) if hasattr(rows, "__arrow_c_stream__") else None


def _text(problem: Exception) -> str:
    """Arrow gives what went wrong and where as two arguments."""
    return ", ".join(str(one) for one in problem.args) or type(problem).__name__
