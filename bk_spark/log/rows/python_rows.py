"""Rows as dicts, as a record batch of a row writer's columns: each value comes back equal, or is refused (rows/python)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.rows.python.columns import REFUSED, array_of_values
from bk_spark.rows.python.values import Unfit


def batch_of_dicts(log: str, schema: pa.Schema, rows: Sequence[Any]) -> pa.RecordBatch:
    """The rows in ``schema``; columns that a row lacks are null. Raises ConfigError, SchemaMismatchError."""
    check_columns(log, schema, _names(log, rows))
    columns = [_column(log, field, [row.get(field.name) for row in rows]) for field in schema]
    try:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    except REFUSED as problem:
        raise _too_much(log, rows, problem) from None


def check_columns(log: str, schema: pa.Schema, names: set[str]) -> None:
    """Raise SchemaMismatchError for a name that is no column of the writer."""
    extra = sorted(names - set(schema.names))
    if extra:
        problem = f"the writer has no column '{extra[0]}', its columns are {', '.join(schema.names)}"
        raise SchemaMismatchError(log, f"{problem}: open it with a schema that has it, and merge_schema=True")


def _names(log: str, rows: Sequence[Any]) -> set[str]:
    if all(isinstance(row, dict) for row in rows):
        names: set[Any] = set().union(*rows)
        if set(map(type, names)) <= {str}:
            return names
    wrong = next(row for row in rows if not isinstance(row, dict) or not all(type(name) is str for name in row))
    remedy = "it must be a dict with the names of columns, which are strings"
    raise ConfigError(f"a row for log '{log}'", _shown(wrong), remedy)


def _column(log: str, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return array_of_values(field, values)
    except Unfit as unfit:
        what = f"a value of column '{unfit.place}' for log '{log}'"
        raise ConfigError(what, _shown(unfit.value), unfit.reason) from None
    except REFUSED as problem:
        raise _too_much(log, values, problem) from None


def _too_much(log: str, given: Sequence[Any], problem: Exception) -> ConfigError:
    return ConfigError(f"the data for log '{log}'", _shown(given[0]), f"it cannot be taken as Arrow data ({problem})")


def _shown(value: Any) -> str:
    try:
        return (str(value) if not isinstance(value, (dict, list)) else repr(value))[:200]
    except Exception:  # whatever a class of the program's own raises; or an int of thousands of digits
        return type(value).__name__
