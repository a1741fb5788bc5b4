"""Columns that a log takes in no case: other types, names that Spark cannot tell apart, wrong values, buffers that do not fit.

Each may lie inside of lists, structs and maps. An error must name the column.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

NAME = "never"
"""What such a column is called."""


def refused_column(chance: random.Random, count: int) -> tuple[pa.Array, bool]:
    """A column of ``count`` rows, at least one, and whether its buffers fit together: else no file can hold it."""
    is_whole = chance.random() < 0.6
    column = chance.choice(_WHOLE if is_whole else _MALFORMED)(chance, count)
    for _ in range(chance.choice((0, 0, 1, 2, 9))):
        column = chance.choice(_NESTS)(column)
    return column, is_whole


# --- around


def _in_list(column: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(
        pa.list_(column.type), len(column), [None, _numbers(range(len(column) + 1))], children=[column]
    )


def _in_struct(column: pa.Array) -> pa.Array:
    kind = pa.struct([("a", column.type)])
    return pa.Array.from_buffers(kind, len(column), [None], children=[column])


def _in_map(column: pa.Array) -> pa.Array:
    kind = pa.map_(pa.string(), column.type)
    entries = pa.struct([kind.key_field, kind.item_field])
    pairs = pa.Array.from_buffers(entries, len(column), [None], children=[pa.array(["k"] * len(column)), column])
    return pa.Array.from_buffers(kind, len(column), [None, _numbers(range(len(column) + 1))], children=[pairs])


_NESTS = (_in_list, _in_struct, _in_map)

# --- whole


def _twins(chance: random.Random, count: int) -> pa.Array:
    names = chance.choice((("a", "a"), ("a", "A"), ("Größe", "GRÖSSE".replace("SS", "ß")), ("b", "c", "B")))
    return pa.StructArray.from_arrays([pa.array(range(count)) for _ in names], names=list(names))


def _nanoseconds(chance: random.Random, count: int) -> pa.Array:
    kind = chance.choice((pa.time64("ns"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns")))
    return pa.array([chance.randint(0, 10**6) * 1000 + 1] * count, pa.int64()).view(kind)


def _no_time(chance: random.Random, count: int) -> pa.Array:
    if chance.random() < 0.5:
        return pa.array([86_400_000 + chance.randint(0, 5)] * count, pa.int32()).view(pa.time32("ms"))
    return pa.array([chance.choice((86_400_000_000, -1))] * count, pa.int64()).view(pa.time64("us"))


def _too_many_digits(chance: random.Random, count: int) -> pa.Array:
    """Of every width: a value with a digit more than its type, or a type of more than 38 digits."""
    width, most, make = chance.choice(
        ((4, 8, pa.decimal32), (8, 17, pa.decimal64), (16, 37, pa.decimal128), (32, 38, pa.decimal256))
    )
    digits = chance.randint(1, most)
    raw = pa.array([(10**digits).to_bytes(width, "little")] * count, pa.binary(width))
    return raw.view(make(digits, chance.randint(0, digits)))


def _too_wide(chance: random.Random, count: int) -> pa.Array:
    return pa.array([0] * count).cast(pa.decimal256(chance.randint(39, 76), 0))


def _other_type(chance: random.Random, count: int) -> pa.Array:
    if chance.random() < 0.5:
        return pa.array([(1, 2, 3)] * count, pa.month_day_nano_interval())
    return pa.UnionArray.from_sparse(pa.array([0] * count, pa.int8()), [pa.array(range(count))])


_WHOLE: tuple[Callable[[random.Random, int], pa.Array], ...] = (
    _twins,
    _nanoseconds,
    _no_time,
    _too_many_digits,
    _too_wide,
    _other_type,
)

# --- malformed


def _numbers(values: Any, kind: Any = np.int32) -> pa.Buffer:
    return pa.py_buffer(np.array(list(values), kind))


def _falling(count: int) -> pa.Buffer:
    """Offsets of ``count`` rows, at least two. Arrow itself looks at the first and the last one."""
    return _numbers([0, 2, 1, *([2] * (count - 2))])


def _text_offsets(chance: random.Random, count: int) -> pa.Array:
    if count < 2:
        return _dictionary_index(chance, count)
    buffers = [None, _falling(count), pa.py_buffer(b"abcde")]
    return pa.Array.from_buffers(chance.choice((pa.string(), pa.binary())), count, buffers)


def _list_offsets(chance: random.Random, count: int) -> pa.Array:
    if count < 2:
        return _dictionary_index(chance, count)
    child = pa.array([1, 2], pa.int32())
    return pa.Array.from_buffers(pa.list_(pa.int32()), count, [None, _falling(count)], children=[child])


def _list_view(chance: random.Random, count: int) -> pa.Array:
    place, size = chance.choice(((0, 9), (9, 1), (-1, 1), (0, -1)))
    buffers = [None, _numbers([place] * count), _numbers([size] * count)]
    return pa.Array.from_buffers(pa.list_view(pa.int32()), count, buffers, children=[pa.array([1, 2], pa.int32())])


def _dictionary_index(chance: random.Random, count: int) -> pa.Array:
    indices = pa.array([*([0] * (count - 1)), chance.choice((2, 100, -1))], pa.int8())
    values = pa.array(["x", "y"]) if chance.random() < 0.5 else pa.array([1, 2])
    return pa.DictionaryArray.from_arrays(indices, values, safe=False)


def _null_count(chance: random.Random, count: int) -> pa.Array:
    """Nulls are told where there are none."""
    valid = pa.py_buffer(b"\xff" * 16)
    return pa.Array.from_buffers(
        pa.int64(), count, [valid, _numbers(range(count), np.int64)], null_count=chance.randint(1, count)
    )


def _view_place(chance: random.Random, count: int) -> pa.Array:
    """A text of 20 bytes in a buffer that is not there, or does not have them."""
    views = np.zeros(count, np.dtype([("size", "<i4"), ("prefix", "S4"), ("buffer", "<i4"), ("offset", "<i4")]))
    views[:] = (20, b"abcd", chance.choice((0, 3)), chance.choice((0, 500)))
    return pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(views), pa.py_buffer(b"abcdefgh")])


def _run_ends(chance: random.Random, count: int) -> pa.Array:
    ends = pa.array(chance.choice(([count, count], [0, count], [count + 1, count])), pa.int32())
    kind = pa.run_end_encoded(pa.int32(), pa.int64())
    return pa.Array.from_buffers(kind, count, [None], children=[ends, pa.array([1, 2])])


_MALFORMED: tuple[Callable[[random.Random, int], pa.Array], ...] = (
    _text_offsets,
    _list_offsets,
    _list_view,
    _dictionary_index,
    _null_count,
    _view_place,
    _run_ends,
)
