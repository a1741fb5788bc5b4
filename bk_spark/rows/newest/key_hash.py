"""A hash of keys with 64 bits, by which they are put into parts. It is kept nowhere, and has nothing to do with lanes.

A lane's keys have something in common under the hash that chose the lane, so parts need another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes: TypeAlias = npt.NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x2545F4914F6CDD1D)
_BYTE = 0x100000001B3
"""Odd, so that each place of a byte has a power of it that loses nothing."""

_END_BYTES = 128
"""So many at the start and at the end of a value count, and its size."""

_ROWS_AT_ONCE = 8192
"""Each of these bytes takes some forty bytes of memory for a moment: 40 MiB at most."""


def hashes_of(columns: Iterable[pa.Array], rows: int) -> Hashes:
    """The hash of each row by its values in ``columns``, which have the forms of ``newest_rows.py``: one for equal keys."""
    found = np.zeros(rows, np.uint64)
    for column in columns:
        words = _words(column)
        if column.null_count:
            words = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, words)
        found = _mixed((found * _ODD) ^ words)
    return found


def _words(column: pa.Array) -> Hashes:
    """A number for each value; for a null any."""
    if pa.types.is_binary(column.type):
        return _of_bytes(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    kind = np.dtype(f"i{min(width, 8)}")
    values = np.frombuffer(column.buffers()[1], kind, len(column) * width // kind.itemsize, column.offset * width)
    words = values.reshape(len(column), -1).astype(np.uint64)
    found: Hashes = words[:, 0]
    for further in words.T[1:]:
        found = _mixed(found) ^ further
    return found


def _of_bytes(column: pa.BinaryArray) -> Hashes:
    pieces = [column.slice(start, _ROWS_AT_ONCE) for start in range(0, len(column), _ROWS_AT_ONCE)]
    return np.concatenate([np.zeros(0, np.uint64), *map(_of_some_bytes, pieces)])


def _of_some_bytes(column: pa.BinaryArray) -> Hashes:
    sizes = _sizes(column)
    first = last = _polynomials(pc.binary_slice(column, 0, _END_BYTES))
    if sizes.max(initial=0) > _END_BYTES:  # all others are their own last bytes
        last = _polynomials(pc.binary_slice(column, -_END_BYTES, None))
    return _mixed(first) ^ last ^ sizes.astype(np.uint64)


def _polynomials(column: pa.BinaryArray) -> Hashes:
    """A polynomial in the bytes of each value: sums over all bytes, of which each value's are a difference."""
    offsets, sizes = _offsets(column), _sizes(column)
    first, data = int(offsets[0]), column.buffers()[2]
    every = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[first : int(offsets[-1])]
    places = np.arange(len(every)) - np.repeat(offsets[:-1] - first, sizes)
    terms = _powers(int(sizes.max(initial=0)))[places] * (every.astype(np.uint64) + np.uint64(1))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    found: Hashes = sums[offsets[1:] - first] - sums[offsets[:-1] - first]
    return found


def _offsets(column: pa.BinaryArray) -> npt.NDArray[np.int64]:
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4).astype(np.int64)


def _sizes(column: pa.BinaryArray) -> npt.NDArray[np.int64]:
    return np.diff(_offsets(column))


def _powers(count: int) -> Hashes:
    return np.cumprod(np.full(count, _BYTE, np.uint64), dtype=np.uint64)


def _mixed(words: Hashes) -> Hashes:
    """Every bit of a word changes half of the bits of the result. Ref: Steele et al., SplitMix."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
