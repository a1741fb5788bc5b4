"""Values of every type of a log as texts, as CSV has them, and back: nested values are JSON, others as in simple_values.py."""

from __future__ import annotations

import pyarrow as pa

from bk_spark.commands.row_files import json_values, simple_values
from bk_spark.commands.row_files.bad_value import BadValue
from bk_spark.commands.row_files.simple_values import where_valid


def from_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as values of a log's type ``kind``; null stays null. Raises BadValue."""
    if not pa.types.is_nested(kind):
        return simple_values.from_texts(texts, kind)
    return where_valid(texts, lambda some: json_values.column([_from_json(text) for text in some.to_pylist()], kind))


def to_texts(column: pa.Array) -> pa.Array:
    """The values as texts that ``from_texts`` takes for the same; null stays null. Raises BadValue for what is not UTF-8."""
    if not pa.types.is_nested(column.type):
        texts = simple_values.to_texts(column)
        if (found := not_utf8(texts)) is not None:
            raise BadValue(found[1], "is not UTF-8, as CSV must be: use --format json, parquet or arrow")
        return texts
    return where_valid(column, lambda some: pa.array(list(map(json_values.dumped, json_values.plain(some))), pa.string()))


def not_utf8(texts: pa.Array) -> tuple[int, bytes] | None:
    """The first text that is not UTF-8: its place, and its bytes."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        values = enumerate(texts.cast(pa.binary()).to_pylist())
        return next((place, value) for place, value in values if value is not None and not _is_utf8(value))
    return None


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _from_json(text: str) -> object:
    try:
        return json_values.loaded(text)
    except (ValueError, RecursionError) as problem:
        raise BadValue(text, f"is not JSON, as nested values are written ({problem})") from None
