"""Reads a column of a payload as the type that the log has today, which may be wider than the one it was written with.

A payload keeps the types of its DataFrame. The log's type may have become wider before or after that (option ``mergeSchema``),
or a stream may know fewer fields of a struct than the payload has. All values stay what they are:

==================================== ===========================================================
stored                               is read as
==================================== ===========================================================
int8, int16, int32                   a wider one of int16, int32, int64; float64
int8, int16, int32, int64            decimal128(p, s) with p - s of at least 3, 5, 10, 19
float32                              float64
decimal128(p, s)                     decimal128(p', s') with p' - s' ≥ p - s and s' ≥ s
date32                               timestamp[us] without a zone: midnight
null                                 every type: nulls
list, map                            the same with wider elements or values; keys stay
struct                               by name of its fields: new ones are null, others are left out
==================================== ===========================================================

The rule is transitive, so a payload needs no record of the types between its own and the log's.

Ref: docs/formats.md, "Row payloads"; log/stored/merging.py, which says what a log's type may become.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from bk_spark.rows.arrow_types import arrow_schema
from bk_spark.rows.statistics import ColumnStatistics, Key, Kind, kind_of

MAX_WIDENED_BYTES = 1 << 30
"""The most bytes that the values of one field take in a wider type. Elements of arrays may take no byte in a payload, such as
structs of nulls, and a new field in two thousand million of them would. It is four times what a payload holds at most."""

_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
"""The decimal digits that hold every value. A later type of the four holds every value of an earlier one."""
_INTEGERS = tuple(_INTEGER_DIGITS)
_DAY_US = 86_400_000_000


class TooLargeToWiden(Exception):
    """The values of one field would take more than MAX_WIDENED_BYTES."""


def is_readable(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether ``read_as`` gives a column of type ``stored`` as ``wanted``. Both are normalised (codec.py)."""
    if stored.equals(wanted):
        return True
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return is_readable(stored.value_type, wanted.value_type)
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return bool(stored.key_type.equals(wanted.key_type)) and is_readable(stored.item_type, wanted.item_type)
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        return _is_readable_struct(stored, wanted)
    return _is_wider(wanted, stored)


def read_as(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same values as ``wanted``, which ``is_readable``; buffers that stay the same are not copied.

    Raises ArrowInvalid for a date beyond the timestamps of 64 bits, which end in the years -290308 and 294247, and
    TooLargeToWiden where the values of one field would take more than MAX_WIDENED_BYTES.
    """
    if column.type.equals(wanted):
        return column
    if pa.types.is_null(column.type):
        return _nulls(len(column), wanted)
    if pa.types.is_list(wanted):
        return _with_child(column, wanted, read_as(column.values, wanted.value_type))
    if pa.types.is_map(wanted):
        parts = [column.keys, read_as(column.items, wanted.item_type)]
        return _with_child(column, wanted, pa.StructArray.from_arrays(parts, fields=[wanted.key_field, wanted.item_field]))
    if pa.types.is_struct(wanted):
        children = [_child(column, field) for field in wanted]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=column.is_null())
    _check_size(len(column), wanted)
    if pa.types.is_decimal128(wanted) and pa.types.is_integer(column.type):
        # Arrow asks for room for every value of the integer's type, which may be wider here than the one that was written.
        column = column.cast(pa.decimal256(_INTEGER_DIGITS[pa.int64()] + wanted.scale, wanted.scale))
    return column.cast(wanted)


def check_widened(column: pa.Array, wanted: pa.DataType) -> None:
    """Raise TooLargeToWiden where ``read_as`` would once the column was written and read again. Nothing is built."""
    kind = column.type
    if kind.equals(wanted):
        return
    if pa.types.is_list(wanted) and pa.types.is_list(kind):
        check_widened(_within(column, column.values), wanted.value_type)
    elif pa.types.is_map(wanted) and pa.types.is_map(kind):
        check_widened(_within(column, column.items), wanted.item_type)
    elif pa.types.is_struct(wanted) and pa.types.is_struct(kind):
        for field in wanted:
            place = kind.get_field_index(field.name)
            if place < 0:
                _check_size(len(column), field.type)
            else:
                check_widened(column.field(place), field.type)
    else:
        _check_size(len(column), wanted)


def wider_types(given: pa.Schema, appended: Mapping[str, Any]) -> tuple[tuple[str, pa.DataType], ...]:
    """Columns of ``given``, in their stored form, that a log with the columns ``appended`` (Spark's JSON) reads as wider."""
    known = {column["name"]: column for column in appended["fields"]}
    columns = [known[name] for name in given.names if name in known]
    return tuple(
        (field.name, field.type)
        for field in arrow_schema({"fields": columns})
        if not (mine := given.field(field.name).type).equals(field.type) and is_readable(mine, field.type)
    )


def unreadable(name: str, given: pa.DataType, wanted: pa.DataType, problem: TooLargeToWiden) -> str:
    """Why a column cannot be written, and the way out."""
    return f"column '{name}' is {given}, and no reader could read it as {wanted} ({problem}): write fewer values in a row"


def statistics_as(known: ColumnStatistics, stored: pa.DataType, wanted: pa.DataType) -> ColumnStatistics:
    """The statistics of a column that is read as ``wanted``: its bounds in that type's form."""
    if known.low is None or known.high is None or stored.equals(wanted):
        return known
    return ColumnStatistics(known.nulls, _key(known.low, stored, wanted), _key(known.high, stored, wanted), known.has_nan)


def differs_in_nulls(given: pa.DataType, stored: pa.DataType) -> bool:
    """Whether the types are the same but for null in ``given`` where ``stored`` has any type, at any depth."""
    if pa.types.is_null(given) or given.equals(stored):
        return True
    if given.id != stored.id or given.num_fields != stored.num_fields or not given.num_fields:
        return False
    inner = [(given.field(place), stored.field(place)) for place in range(given.num_fields)]
    if pa.types.is_struct(given) and any(one.name != other.name for one, other in inner):
        return False
    return all(differs_in_nulls(one.type, other.type) for one, other in inner)


def _is_wider(wanted: pa.DataType, stored: pa.DataType) -> bool:
    if pa.types.is_null(stored):
        return True
    if pa.types.is_decimal128(wanted):
        places = wanted.precision - wanted.scale
        if pa.types.is_decimal128(stored):
            return bool(places >= stored.precision - stored.scale and wanted.scale >= stored.scale)
        return stored in _INTEGER_DIGITS and bool(places >= _INTEGER_DIGITS[stored])
    if stored in _INTEGER_DIGITS and wanted in _INTEGER_DIGITS:
        return _INTEGERS.index(wanted) > _INTEGERS.index(stored)
    if wanted == pa.float64():
        return stored in (pa.int8(), pa.int16(), pa.int32(), pa.float32())
    return bool(stored == pa.date32() and wanted == pa.timestamp("us"))


def _is_readable_struct(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """By name. A struct with a field that is never null is a variant, which is only read as itself."""
    is_ambiguous = len({field.name for field in stored}) < stored.num_fields
    if is_ambiguous or not wanted.num_fields or not all(field.nullable for field in (*stored, *wanted)):
        return False
    places = ((field, stored.get_field_index(field.name)) for field in wanted)
    return all(place < 0 or is_readable(stored.field(place).type, field.type) for field, place in places)


def _child(column: pa.StructArray, field: pa.Field) -> pa.Array:
    place = column.type.get_field_index(field.name)
    if place >= 0:
        return read_as(column.field(place), field.type)
    return _nulls(len(column), field.type)


def _nulls(count: int, kind: pa.DataType) -> pa.Array:
    _check_size(count, kind)
    return pa.nulls(count, kind)


def _check_size(values: int, wanted: pa.DataType) -> None:
    """Raise TooLargeToWiden before Arrow allocates too much for ``values`` new values."""
    nbytes = values * pa.nulls(64, wanted).nbytes // 64
    if nbytes > MAX_WIDENED_BYTES:
        raise TooLargeToWiden(f"{values} values as {wanted} take {nbytes} bytes, the maximum is {MAX_WIDENED_BYTES}")


def _within(column: pa.Array, values: pa.Array) -> pa.Array:
    """Those of the values that lists or maps have. A slice of them is written with these alone."""
    first, last = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
    return values.slice(first, last - first)


def _with_child(column: pa.Array, wanted: pa.DataType, child: pa.Array) -> pa.Array:
    """The lists or maps ``column`` with other values behind the same offsets."""
    return pa.Array.from_buffers(wanted, len(column), column.buffers()[:2], offset=column.offset, children=[child])


def _key(value: Key, stored: pa.DataType, wanted: pa.DataType) -> Key:
    """One bound. Every step is exact."""
    if kind_of(wanted) is Kind.FLOAT:
        return float(value)
    if pa.types.is_decimal128(wanted):
        return int(value) * int(10 ** (wanted.scale - (stored.scale if pa.types.is_decimal128(stored) else 0)))
    return int(value) * (_DAY_US if pa.types.is_timestamp(wanted) else 1)
