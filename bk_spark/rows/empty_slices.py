"""New empty arrays in place of empty slices, which Arrow's interface for C hands over without the buffers that they point into.

Arrow calls them valid, and writes a message of them that nobody can read: a column that is empty inside of lists or maps would
make the whole batch unreadable.
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pyarrow.types as of


def renewed(column: pa.Array) -> pa.Array:
    """The same values; the column itself where nothing in it is empty."""
    kind = column.type
    if not len(column):
        return column if _holds_encodings(kind) else pa.nulls(0, kind)
    if of.is_struct(kind):
        children = [column.field(place) for place in range(kind.num_fields)]
        whole = [renewed(child) for child in children]
        if all(new is old for new, old in zip(whole, children, strict=True)):
            return column
        return pa.StructArray.from_arrays(whole, fields=list(kind), mask=column.is_null())
    if of.is_map(kind):
        before = [column.keys, column.items]
        parts = [renewed(part) for part in before]
        if all(new is old for new, old in zip(parts, before, strict=True)):
            return column
        return _around(column, pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field]), 2)
    if of.is_dictionary(kind):
        dictionary = column.dictionary
        new = renewed(dictionary)
        return column if new is dictionary else _with_dictionary(column, new)
    buffers = next((count for is_one, count in _LISTS if is_one(kind)), 0)
    if not buffers:
        return column
    child = column.values
    new = renewed(child)
    return column if new is child else _around(column, new, buffers)


@cache
def _holds_encodings(kind: pa.DataType) -> bool:
    """Of these Arrow makes no array without a row, or no valid one. They are not stored as they are (conversion.py)."""
    if of.is_run_end_encoded(kind) or of.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType):
        return True
    return any(_holds_encodings(kind.field(place).type) for place in range(kind.num_fields))


_LISTS = (
    (of.is_list, 2),
    (of.is_large_list, 2),
    (of.is_fixed_size_list, 1),
    (of.is_list_view, 3),
    (of.is_large_list_view, 3),
)
"""Kinds of lists, and how many buffers of its own each has."""


def _with_dictionary(column: pa.DictionaryArray, dictionary: pa.Array) -> pa.DictionaryArray:
    """Whether the indices are in it is not looked at here."""
    return pa.DictionaryArray.from_arrays(column.indices, dictionary, ordered=column.type.ordered, safe=False)


def _around(column: pa.Array, child: pa.Array, buffers: int) -> pa.Array:
    """The lists ``column`` with another child."""
    return pa.Array.from_buffers(
        column.type, len(column), column.buffers()[:buffers], column.null_count, column.offset, children=[child]
    )
