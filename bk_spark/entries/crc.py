"""CRC32C, the one checksum of this package: on the wire, in files, in digests."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import cache, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
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


# --- Whether many CRC32C digests are right, found out with a few checksums of long runs of bytes instead of one for each entry
#
# A CRC is linear over GF(2): what a piece adds to the checksum of a long message is the piece's own, moved by the distance to
# the message's end. So the digests of all entries, each moved by the bytes of the payloads behind its own, give what the
# checksum of all payloads in a row has to be. Nothing needs moving by calculation: a word that stands in an otherwise empty
# message is moved by the checksum of that message. There every entry has its header where its payload ends, and its digest
# right behind it.
#
# A checksum's register starts with all ones, and all ones are added to what it ends with. For each entry but the last the one
# and the other stand beside its digest: all ones, and all ones moved over a header, together the checksum of an empty header.
#
# Ref: the same identity is behind zlib's ``crc32_combine``.

Sizes: TypeAlias = npt.NDArray[np.int64]

_HEADER_BYTES = 32
_WORD_BYTES = 4
_ONES = 0xFFFFFFFF
_HEADER = np.dtype(f"V{_HEADER_BYTES}")
_NO_HEADER = bytes(_HEADER_BYTES)
_BESIDE_DIGEST = np.uint32(crc32c(_NO_HEADER))

_LEAST_ROWS = 128
"""From this many entries on one look at all of them is cheaper than one at each."""

_MOST_BYTES = 4096
"""Of messages for each entry: from there on a checksum of its own takes an entry no longer."""


def pays(sizes: Sizes) -> bool:
    """Whether payloads of these sizes can be verified at once, and more quickly than one by one."""
    # What stands behind an entry of less than a word would not end before the last one does.
    if len(sizes) < _LEAST_ROWS or sizes.min() < _WORD_BYTES:
        return False
    return int(sizes.sum()) * _messages(sizes) <= _MOST_BYTES * len(sizes)


def are_right(digests: Words, headers: npt.NDArray[np.void], payloads: memoryview, sizes: Sizes) -> bool:
    """Whether each digest is the CRC32C of its payload continued over its header, for all entries, at least one, at once.

    ``payloads`` has them in a row, each of its size, for which this ``pays``; headers have _HEADER_BYTES. One wrong entry is
    found as by its own digest. Several may hide each other: what is flipped in a digest is moved as far as the payload
    _HEADER_BYTES behind its entry is, so that the same bits flipped there cancel out.
    """
    ends = np.cumsum(sizes)
    behind = digests ^ _BESIDE_DIGEST
    messages, expected = _messages(sizes), int(digests[-1])
    for first in range(messages):
        every = slice(first, None, messages)
        expected ^= _register(headers[every], behind[every], ends[every], len(payloads))
    return bool(crc32c(_NO_HEADER, crc32c(payloads)) == expected)


def _messages(sizes: Sizes) -> int:
    """Headers and words of neighbours may not overlap: where entries are short only those far enough apart share a message."""
    return -(-(_HEADER_BYTES + _WORD_BYTES) // int(sizes.min()))


def _register(headers: npt.NDArray[np.void], behind: Words, ends: npt.NDArray[np.int64], nbytes: int) -> int:
    """From zero on, over a message that is empty but for these headers, and words right behind them, none at its end."""
    message = _zeros(_HEADER_BYTES + nbytes)  # the first entry's header begins before it where that is short
    np.ndarray((nbytes + 1,), _HEADER, message, strides=(1,))[ends] = headers.view(_HEADER)
    words = np.ndarray((nbytes - _WORD_BYTES + 1,), "<u4", message, offset=_HEADER_BYTES, strides=(1,))
    count = len(ends) - (len(ends) > 0 and int(ends[-1]) == nbytes)
    words[ends[:count]] = behind[:count]
    return int(crc32c(message, _ONES)) ^ _ONES


def _zeros(nbytes: int) -> npt.NDArray[np.uint8]:
    """In memory of Arrow's, which keeps it for the next message: memory taken from the system costs a page fault for 4 KiB."""
    zeros = np.frombuffer(pa.allocate_buffer(nbytes), dtype=np.uint8)
    zeros.fill(0)
    return zeros
