"""DataFrames of pandas and Polars, whose way into Arrow drops or changes a part without a word: that part is refused here.

No library is imported: a frame is known by the classes that it derives from, and by what it says of its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

_WAYS = (
    ("toArrow", "toArrow()"),
    ("to_arrow_reader", "to_arrow_reader()"),
    ("fetch_record_batch", "fetch_record_batch()"),
    ("scanner", "scanner().to_reader()"),
    ("collect", "collect()"),
    ("to_frame", "to_frame()"),
)
"""A method of what is no Arrow data → what gives it: of Spark, cursors of DuckDB, data sets, lazy frames and single columns."""


class NotTakenError(Exception):
    """Why a frame is not taken, with the way out."""


def is_pandas(rows: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "pandas" for kind in type(rows).__mro__)


def is_pandas_frame(rows: Any) -> bool:
    return is_pandas(rows) and any(kind.__name__ == "DataFrame" for kind in type(rows).__mro__)


def table_of_pandas(rows: Any) -> pa.Table:
    """The columns of a pandas DataFrame. Raises NotTakenError for an index with a name, or of other values than integers."""
    _check_index(rows.index)
    try:
        return pa.Table.from_pandas(rows, preserve_index=False)
    except Exception as problem:  # whatever a type of the program's own raises
        if not rows.columns.is_unique:
            raise NotTakenError(f"{error_text(problem)}: give each column a name of its own") from problem
        column = next((name for place, name in enumerate(rows.columns) if not _is_taken(rows.iloc[:, place])), None)
        which = "the frame" if column is None else f"column '{column}'"
        raise NotTakenError(
            f"{which}: {error_text(problem)}: give it values of one type that Arrow has with astype(), or leave it out"
        ) from problem


def check_described(rows: Any) -> None:
    """Raise NotTakenError for a column of Python objects, or a name with NUL, in a frame whose ``schema`` is a mapping, or in a
    single column with a ``name`` and a ``dtype``.

    The C interface of Arrow ends a name at its NUL, and Polars the whole process there. It gives objects as their addresses.
    """
    for name, kind in _described(rows):
        if str(kind) == "Object":
            raise NotTakenError(
                f"column '{name}' holds objects of Python, which it gives as addresses in memory: convert it before"
            )
        wrong = next((one for one in (name, *_inner_names(kind)) if "\0" in str(one)), None)
        if wrong is not None:
            raise NotTakenError(f"the name {wrong!r} holds a NUL, at which other programs cut it: rename it")


def way_out(rows: Any) -> str | None:
    """What a program writes in the place of ``rows``, which are no Arrow data."""
    if isinstance(rows, dict):
        return "pyarrow.table(rows) makes one of columns, pyarrow.Table.from_pylist([row]) of a row"
    if isinstance(rows, (list, tuple)):
        kind = "from_batches" if rows and isinstance(rows[0], pa.RecordBatch) else "from_pylist"
        return f"pyarrow.Table.{kind}(rows) makes one"
    if isinstance(rows, Iterator):
        return "pyarrow.RecordBatchReader.from_batches(schema, rows) makes one of record batches"
    method = next((shown for name, shown in _WAYS if hasattr(rows, name)), None)
    return None if method is None else f"give what its {method} gives"


def error_text(problem: Exception) -> str:
    """Arrow gives what went wrong and where as two arguments."""
    if isinstance(problem, UnicodeError) or not problem.args:
        return str(problem) or type(problem).__name__
    return ", ".join(map(str, problem.args))


def _check_index(index: Any) -> None:
    named = [str(name) for name in index.names if name is not None]
    if named:
        which = f"its index '{', '.join(named)}' has a name"
    elif index.nlevels > 1 or (len(index) and index.dtype.kind not in "iu"):
        which = "its index has no name, and other values than integers"
    else:
        return
    raise NotTakenError(f"{which}: make columns of it with reset_index(), or drop it with reset_index(drop=True)")


def _described(rows: Any) -> Iterable[tuple[Any, Any]]:
    """Names and types of the columns, as far as ``rows`` says them."""
    described = getattr(rows, "schema", None)
    if isinstance(described, Mapping):
        return described.items()
    return [(rows.name, rows.dtype)] if hasattr(rows, "name") and hasattr(rows, "dtype") else []


def _is_taken(column: Any) -> bool:
    try:
        pa.Array.from_pandas(column)
    except Exception:  # whatever a type of the program's own raises
        return False
    return True


def _inner_names(kind: Any) -> Iterator[str]:
    """Of the fields of structs in a type of Polars."""
    fields = getattr(kind, "fields", ())
    for field in fields if isinstance(fields, (list, tuple)) else ():
        yield field.name
        yield from _inner_names(field.dtype)
    if (inner := getattr(kind, "inner", None)) is not None:
        yield from _inner_names(inner)
