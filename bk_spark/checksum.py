"""CRC32C, the one checksum of this package: on the wire, in files, in digests."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import cache, partial

import numpy as np
import numpy.typing as npt
from crc32c import crc32c as _crc32c

crc32c = partial(_crc32c, gil_release_mode=0)
"""``crc32c(data, value=0)``: the checksum of ``data`` (anything with a buffer) that continues ``value``.

It keeps Python's lock: at over 10 GB/s it is done long before a lock that was given away would come back, which beside
one busy thread takes a switch interval of 5 ms (benchmarks/crc32c_libraries.py).
"""

Words = npt.NDArray[np.uint32]
Blocks = npt.NDArray[np.uint8]

_VECTOR_ROWS = 128
"""From this many rows on, table look-ups with numpy beat one C call a row (benchmarks/crc32c_libraries.py)."""

_REFLECTED_POLYNOMIAL = np.uint32(0x82F63B78)


def crc32c_each(pieces: Iterable[bytes | memoryview]) -> Words:
    """The checksum of each piece. Pieces are short: Python's lock is given away from 32 KiB on only."""
    return np.array(array("I", map(_crc32c, pieces)), dtype=np.uint32)


def crc32c_continued(values: Words, blocks: Blocks) -> Words:
    """For each row the checksum that continues ``values`` with that row of ``blocks`` (n rows of 8, 16, 24… bytes)."""
    if len(values) < _VECTOR_ROWS:
        return np.array([_crc32c(row, value) for row, value in zip(blocks, values.tolist(), strict=True)], dtype=np.uint32)
    return _by_linearity(values, blocks)


def _by_linearity(values: Words, blocks: Blocks) -> Words:
    """A CRC is linear over GF(2): crc(a + b) is crc(a), shifted past b, exclusive-or crc(b).

    What is the same in all rows is therefore computed once; only the columns that differ are looked up, a table each.
    """
    tables = _tables(blocks.shape[1])
    result = np.full(len(values), _crc32c(blocks[0]), np.uint32)
    if values.any():
        for table, column in zip(tables, values.astype("<u4").view(np.uint8).reshape(-1, 4).T, strict=False):
            result ^= table.take(column)
    for number, column in enumerate(blocks.view(np.uint64).T):
        differences = column ^ column[0]
        for byte in np.flatnonzero(np.bitwise_or.reduce(differences, keepdims=True).view(np.uint8)):
            result ^= tables[8 * number + byte].take(differences.view(np.uint8)[byte::8])
    return result


def _one_byte_further(states: Words) -> Words:
    """The states of the register after one more byte, which is zero."""
    further: Words = _one_byte()[states & np.uint32(0xFF)] ^ (states >> np.uint32(8))
    return further


@cache
def _tables(length: int) -> Words:
    """Row i, column v: what value v of byte i of a block of ``length`` bytes adds to the state after the block."""
    rows = [_one_byte()]
    for _ in range(length - 1):
        rows.append(_one_byte_further(rows[-1]))
    return np.stack(rows[::-1])


@cache
def _one_byte() -> Words:
    """What each value of the register's lowest byte becomes, one byte further."""
    state = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        state = (state >> np.uint32(1)) ^ (state & np.uint32(1)) * _REFLECTED_POLYNOMIAL
    return state
