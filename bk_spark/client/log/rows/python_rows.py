"""Rows as dicts, as a record batch of a row writer's columns; what Arrow would cut off without a word is an error.

Arrow drops what is behind the point of a number for a column of whole numbers, the time of a datetime for a column of dates,
its zone for a column of times without one, and fields that a struct does not have.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.types as of

from bk_spark.errors import ConfigError, SchemaMismatchError

_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, KeyError)
"""What Arrow raises for values that are not of a column's type."""


def batch_of_dicts(log: str, schema: pa.Schema, rows: Sequence[Any]) -> pa.RecordBatch:
    """The rows in ``schema``; columns that a row lacks are null. Raises ConfigError, SchemaMismatchError."""
    wrong = [row for row in rows if not isinstance(row, dict) or not all(type(name) is str for name in row)]
    if wrong:
        remedy = "it must be a dict with the names of columns, which are strings"
        raise ConfigError(f"a row for log '{log}'", repr(wrong[0])[:200], remedy)
    check_columns(log, schema, {name for row in rows for name in row})
    for field in schema:
        if _may_lose(field.type):
            for row in rows:
                _check_value(log, field.name, field.type, row.get(field.name))
    try:
        return pa.RecordBatch.from_pylist(list(rows), schema=schema)
    except _REFUSED as problem:
        raise _refusal(log, schema, rows, problem) from None


def check_columns(log: str, schema: pa.Schema, names: set[str]) -> None:
    """Raise SchemaMismatchError for a name that is no column of the writer."""
    extra = sorted(names - set(schema.names))
    if extra:
        problem = f"the writer has no column '{extra[0]}', its columns are {', '.join(schema.names)}"
        raise SchemaMismatchError(log, f"{problem}: open it with a schema that has it, and merge_schema=True")


def _refusal(log: str, schema: pa.Schema, rows: Sequence[dict[str, Any]], problem: Exception) -> ConfigError:
    """Names the first value that Arrow does not take; ``problem`` is what it said."""
    for field in schema:
        for row in rows:
            value = row.get(field.name)
            if value is not None and not _is_taken(value, field):
                return _unfit(log, field.name, value, f"it is no {field.type} ({problem}): convert it before")
    return ConfigError(f"the data for log '{log}'", str(rows[0])[:200], f"it cannot be taken as Arrow data ({problem})")


def _is_taken(value: Any, field: pa.Field) -> bool:
    try:
        pa.RecordBatch.from_pylist([{field.name: value}], schema=pa.schema([field]))
    except _REFUSED:
        return False
    return True


@cache
def _may_lose(kind: pa.DataType) -> bool:
    is_exact = not (
        of.is_integer(kind) or of.is_date(kind) or of.is_struct(kind) or (of.is_timestamp(kind) and kind.tz is None)
    )
    return not is_exact or any(_may_lose(kind.field(place).type) for place in range(kind.num_fields))


def _check_value(log: str, place: str, kind: pa.DataType, value: Any) -> None:
    """Raise ConfigError where Arrow would keep only a part of the value. What it refuses by itself passes."""
    if value is None:
        return
    if of.is_struct(kind) and isinstance(value, dict):
        extra = [name for name in value if kind.get_field_index(name) < 0]
        if extra:
            fields = ", ".join(field.name for field in kind)
            raise _unfit(
                log, f"{place}.{extra[0]}", value[extra[0]], f"'{place}' has no such field, it has {fields}: leave it out"
            )
        for field in kind:
            _check_value(log, f"{place}.{field.name}", field.type, value.get(field.name))
    elif of.is_map(kind):
        for key, one in value.items() if isinstance(value, dict) else _pairs(value):
            _check_value(log, f"{place}.key", kind.key_type, key)
            _check_value(log, f"{place}.value", kind.item_type, one)
    elif of.is_list(kind):
        for one in value if _may_lose(kind.value_type) and isinstance(value, Iterable) else ():
            _check_value(log, f"{place}.element", kind.value_type, one)
    elif lost := _lost(kind, value):
        raise _unfit(log, place, value, f"as {kind} it would lose {lost}: convert it before")


def _pairs(value: Any) -> list[Any]:
    """Those of a map that is given as a list."""
    return [one for one in value if isinstance(one, tuple) and len(one) == 2] if isinstance(value, Iterable) else []


def _lost(kind: pa.DataType, value: Any) -> str | None:
    if of.is_integer(kind):
        has_rest = not isinstance(value, int) and hasattr(value, "__trunc__") and value == value and value % 1 != 0
        return "what is behind the point" if has_rest else None
    if not isinstance(value, datetime.datetime):
        return None
    if of.is_date(kind):
        return "its time of day" if value.time() != datetime.time() or value.tzinfo is not None else None
    return "its time zone" if of.is_timestamp(kind) and value.tzinfo is not None else None


def _unfit(log: str, place: str, value: Any, remedy: str) -> ConfigError:
    return ConfigError(f"a value of column '{place}' for log '{log}'", str(value)[:200], remedy)
