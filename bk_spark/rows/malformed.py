"""Whether the buffers of a column fit together, whatever its values are.

Arrow's full check also looks at values, and sees a column as another type wrongly where a slice holds runs. So each level is
checked by itself, around children of nulls, and values are seen as bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as of

from bk_spark.rows.ranges import BYTES, has_range


def check_whole(column: pa.Array) -> None:
    """Raise ArrowException for a malformed column of any type."""
    kind = column.type
    column.validate()  # before a number of values is asked for: it may be negative
    if isinstance(column, pa.ExtensionArray):
        check_whole(column.storage)
    elif of.is_dictionary(kind):
        pa.DictionaryArray.from_arrays(column.indices, pa.nulls(len(column.dictionary)), safe=True)
        check_whole(column.dictionary)
    elif of.is_run_end_encoded(kind):
        runs = pa.run_end_encoded(kind.run_end_type, pa.null())
        _check_level(column, runs, [column.run_ends, pa.nulls(len(column.values))])
        check_whole(column.values)
    elif of.is_struct(kind):
        _check_level(column, pa.struct([]), [])
        for place in range(kind.num_fields):
            check_whole(column.field(place))
    elif of.is_map(kind):
        _check_level(column, pa.list_(pa.null()), [pa.nulls(len(column.keys))])
        check_whole(column.keys)
        check_whole(column.items)
    else:
        for is_one, around_nulls in _LISTS:
            if is_one(kind):
                _check_level(column, around_nulls(kind), [pa.nulls(len(column.values))])
                check_whole(column.values)
                return
        _check_leaf(column)


def _check_level(column: pa.Array, kind: pa.DataType, children: list[pa.Array]) -> None:
    """``kind`` is laid out as the column's type, but for its children."""
    buffers = column.buffers()[: kind.num_buffers]
    level = pa.Array.from_buffers(kind, len(column), buffers, column.null_count, column.offset, children=children)
    level.validate(full=True)


def _check_leaf(column: pa.Array) -> None:
    """Values with a range, and text, are bytes."""
    kind = column.type
    if has_range(kind):
        column = column.view(pa.binary(kind.bit_width // 8))
    elif kind in BYTES:
        column = column.view(BYTES[kind])
    column.validate(full=True)


_LISTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (of.is_list, lambda kind: pa.list_(pa.null())),
    (of.is_large_list, lambda kind: pa.large_list(pa.null())),
    (of.is_fixed_size_list, lambda kind: pa.list_(pa.null(), kind.list_size)),
    (of.is_list_view, lambda kind: pa.list_view(pa.null())),
    (of.is_large_list_view, lambda kind: pa.large_list_view(pa.null())),
)
"""Kinds of lists, and the type of such lists of nulls."""
