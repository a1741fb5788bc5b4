"""Values that are not nested as texts, and back. The table is in docs/guide/logs.md, "Rows in files".

A text is taken if the value says the same, and refused (BadValue) if it would be changed: nothing is rounded, cut or guessed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.commands.row_files import numbers, times
from bk_spark.commands.row_files.bad_value import BadValue

_BOOLEAN = r"^(?:true|false|True|False|TRUE|FALSE)$"


def from_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as values of a log's type ``kind``, which is not nested; null stays null. Raises BadValue."""
    return texts if pa.types.is_string(kind) else where_valid(texts, lambda some: _parsed(some, kind))


def to_texts(column: pa.Array) -> pa.Array:
    """The values as texts that ``from_texts`` takes for the same; null stays null. Text that is not UTF-8 stays as it is."""
    return column if pa.types.is_string(column.type) else where_valid(column, _formatted)


def where_valid(column: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """What ``convert`` makes of the values that are not null, each in its place."""
    if not column.null_count:
        return convert(column)
    places = pc.subtract(pc.cumulative_sum(column.is_valid().cast(pa.int64())), 1)
    return convert(column.drop_null()).take(pc.if_else(column.is_valid(), places, None))


def _parsed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array([_bytes_of(text) for text in texts.to_pylist()], kind)
    texts = pc.utf8_trim_whitespace(texts)
    if pa.types.is_boolean(kind):
        numbers.refuse_unlike(texts, _BOOLEAN, "is neither true nor false")
        return pc.equal(pc.utf8_lower(texts), "true")
    if pa.types.is_integer(kind):
        return numbers.integers(texts, kind)
    if pa.types.is_floating(kind):
        return numbers.floats(texts, kind)
    if pa.types.is_decimal(kind):
        return numbers.decimals(texts, kind)
    if pa.types.is_date(kind):
        return times.dates(texts)
    if pa.types.is_time(kind):
        return times.times(texts)
    if pa.types.is_timestamp(kind):
        return times.timestamps(texts, kind)
    if pa.types.is_duration(kind):
        return times.durations(texts)
    if len(texts):
        raise BadValue(texts[0].as_py(), "is in a column of nulls")
    return pa.nulls(0, kind)


def _formatted(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_binary(kind):
        return pa.array([base64.b64encode(value).decode() for value in column.to_pylist()], pa.string())
    if pa.types.is_floating(kind):
        return numbers.float_texts(column)
    if pa.types.is_date(kind):
        return times.date_texts(column)
    if pa.types.is_time(kind):
        return times.time_texts(column)
    if pa.types.is_timestamp(kind):
        return times.timestamp_texts(column)
    if pa.types.is_duration(kind):
        return times.duration_texts(column)
    return column.cast(pa.string())


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadValue(text, "is not base64, as bytes are written") from None
