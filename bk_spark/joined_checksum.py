"""The CRC32C of pieces put together, from the CRC32C of each: what verifies ten thousand entries with one look at their bytes.

A CRC is linear over GF(2): ``crc(a ‖ b) = moved(crc(a), len(b)) ^ crc(b)``, where ``moved`` is linear, and moving by m and then
by n is moving by m + n. So the checksum of all pieces is the exclusive-or of each one's, moved over all that stands behind
it. Pieces are moved by the lowest byte of that distance and by the next one, with a table for each value of a byte; what has
the rest in common is taken together before it is moved on. Pieces of one size are put together in pairs, and so are the pairs:
each step has one distance, and one small table.

Ref: the same identity is behind zlib's ``crc32_combine``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bk_spark.checksum import Words, one_byte_further

Sizes: TypeAlias = npt.NDArray[np.int64]

_STEPS = 256
"""Distances of one table: 0 to 255 times its unit."""

_KEPT_DISTANCES = 256
"""Tables for one distance that are kept, of 4 KiB each: a dozen for every size of pieces."""


def crc32c_joined(values: Words, sizes: Sizes) -> int:
    """The checksum of all pieces in a row; ``values`` are their checksums, at least one, and ``sizes`` their bytes."""
    if (sizes == sizes[0]).all():
        return _paired(values, int(sizes[0]))
    ends = np.cumsum(sizes)
    behind = ends[-1] - ends
    bytewise, pagewise = _tables()
    moved = _moved(pagewise, behind >> 8 & 255, _moved(bytewise, behind & 255, values))
    distances = behind >> 16
    firsts = np.concatenate([[0], np.flatnonzero(np.diff(distances)) + 1])
    together = np.bitwise_xor.reduceat(moved, firsts)
    return _gathered(together.tolist(), distances[firsts].tolist(), pagewise[_STEPS].tolist())


def _paired(values: Words, size: int) -> int:
    """The same for pieces of one size. A zero before them changes nothing."""
    while len(values) > 1:
        if len(values) % 2:
            values = np.concatenate([np.zeros(1, dtype=np.uint32), values])
        values = _looked_up(_one_distance(size), values[::2]) ^ values[1::2]
        size *= 2
    return int(values[0])


def _looked_up(table: Words, values: Words) -> Words:
    """Each value moved by the distance of the table."""
    parts = np.ascontiguousarray(values, dtype="<u4").view(np.uint8).reshape(-1, 4)
    moved: Words = table[:256].take(parts[:, 0])
    for place in range(1, 4):
        moved ^= table[256 * place : 256 * (place + 1)].take(parts[:, place])
    return moved


@lru_cache(_KEPT_DISTANCES)
def _one_distance(nbytes: int) -> Words:
    """Column 256 * j + v: what value v of byte j of a checksum becomes, moved by so many bytes."""
    if nbytes < _STEPS:
        row: Words = _tables()[0][nbytes]
        return row
    half = _one_distance(nbytes // 2)
    table = _looked_up(half, half)
    return _looked_up(_one_distance(1), table) if nbytes % 2 else table


def _moved(tables: Words, steps: Sizes, values: Words) -> Words:
    """Each value moved by so many steps."""
    flat, starts = tables.reshape(-1), steps * tables.shape[1]
    parts = values.astype("<u4").view(np.uint8).reshape(-1, 4)
    moved: Words = flat.take(starts + parts[:, 0])
    for place in range(1, 4):
        moved ^= flat.take(starts + (parts[:, place] + np.int64(256 * place)))
    return moved


def _gathered(values: list[int], behind: list[int], table: list[int]) -> int:
    """Values moved by ``behind`` (descending) times what ``table`` moves by, together."""
    result, place = 0, behind[0]
    for value, distance in zip([*values, 0], [*behind, 0], strict=True):
        for _ in range(place - distance):
            result = (
                table[result & 255]
                ^ table[256 + (result >> 8 & 255)]
                ^ table[512 + (result >> 16 & 255)]
                ^ table[768 + (result >> 24)]
            )
        result, place = result ^ value, distance
    return result


@cache
def _tables() -> tuple[Words, Words]:
    """Row k, column 256 * j + v: what value v of byte j of a checksum becomes, moved by k bytes; by 256 * k bytes."""
    bytewise = _powers(one_byte_further)
    row = bytewise[_STEPS].reshape(1, -1)
    one = np.zeros(row.size, dtype=np.int64)
    return bytewise, _powers(lambda values: _moved(row, one, values))


def _powers(step: Callable[[Words], Words]) -> Words:
    rows = [(np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32))[:, np.newaxis]).reshape(-1)]
    for _ in range(_STEPS):
        rows.append(step(rows[-1]))
    return np.stack(rows)
