"""CRC32C: the checksum of this package's messages and files, and of most entries.

**Many digests at once** (``verify_together``). A digest is the CRC32C of an entry's header followed by its payload. Instead of
one checksum for each entry, a few checksums of long messages tell whether all digests are right: a CRC is linear over GF(2), so
what a piece adds to the checksum of a long message is the piece's own checksum, moved by its distance from the message's end.
So the digests of all entries, each moved by the size of the payloads behind its own, give the checksum of all payloads in a row
and of all headers, each moved by its own payload and those behind it. The moving needs no arithmetic: what a header or a word
adds is the checksum of a message that is otherwise empty. In that message each entry's header ends where its payload begins,
and right behind the header is the digest of the entry before.

A checksum's register starts with all ones, and all ones are added to its last state. The first ones are added to the first word
of the header, the last ones to the digest.

Ref: zlib's ``crc32_combine`` uses the same identity.
"""

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

It keeps Python's lock. At over 10 GB/s it finishes long before a released lock would come back, which takes a switch interval
of 5 ms beside one busy thread (benchmarks/crc32c_libraries.py).
"""

Words: TypeAlias = npt.NDArray[np.uint32]
Blocks: TypeAlias = npt.NDArray[np.uint8]
Sizes: TypeAlias = npt.NDArray[np.int64]

_VECTOR_ROWS = 128
"""From this many rows on, table look-ups with numpy are faster than one C call a row (benchmarks/crc32c_libraries.py)."""

_REFLECTED_POLYNOMIAL = np.uint32(0x82F63B78)


def crc32c_each(pieces: Iterable[bytes | memoryview], values: Iterable[int] | None = None) -> Words:
    """The checksum of each piece, which continues that of ``values``. Pieces are short: Python's lock is kept below 32 KiB."""
    found = map(_crc32c, pieces) if values is None else map(_crc32c, pieces, values)
    return np.array(array("I", found), dtype=np.uint32)


def crc32c_of_rows(blocks: Blocks) -> Words:
    """The checksum of each row of ``blocks`` (n rows of 8, 16, 24… bytes).

    A CRC is linear over GF(2): crc(a + b) is crc(a), shifted past b, exclusive-or crc(b). So bytes that are the same in all
    rows are computed once, and only columns that differ are looked up, each in its table.
    """
    if len(blocks) < _VECTOR_ROWS:
        return crc32c_each(map(bytes, blocks))
    tables = _tables(blocks.shape[1])
    result = np.full(len(blocks), _crc32c(blocks[0]), np.uint32)
    for number, column in enumerate(blocks.view(np.uint64).T):
        differences = column ^ column[0]
        for byte in np.flatnonzero(np.bitwise_or.reduce(differences, keepdims=True).view(np.uint8)):
            result ^= tables[8 * number + byte].take(differences.view(np.uint8)[byte::8])
    return result


@cache
def _tables(length: int) -> Words:
    """Row i, column v: what value v of byte i in a block of ``length`` bytes adds to the state after the block."""
    rows = [_one_byte()]
    for _ in range(length - 1):  # each row is the one before it after one more zero byte
        rows.append(rows[0][rows[-1] & np.uint32(0xFF)] ^ (rows[-1] >> np.uint32(8)))
    return np.stack(rows[::-1])


@cache
def _one_byte() -> Words:
    """What each value of the register's lowest byte becomes after one more byte."""
    state = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        state = (state >> np.uint32(1)) ^ (state & np.uint32(1)) * _REFLECTED_POLYNOMIAL
    return state


_HEADER_BYTES = 32
_WORD_BYTES = 4
_ONES = 0xFFFFFFFF
_HEADER = np.dtype(f"V{_HEADER_BYTES}")
_LEAST_ROWS = 128
"""From this many entries on, verifying them together is faster than one by one."""

_MOST_BYTES = 4096
"""The most bytes of messages for each entry: with more, verifying entries one by one is as fast."""


def can_verify_together(sizes: Sizes) -> bool:
    """Whether payloads of these sizes can be verified together, and faster than one by one."""
    # If the last entry were shorter than a word, the digest before it would reach beyond the end of the message.
    if len(sizes) < _LEAST_ROWS or sizes.min() < _WORD_BYTES:
        return False
    return int(sizes.sum()) * _messages(sizes) <= _MOST_BYTES * len(sizes)


def verify_together(digests: Words, headers: npt.NDArray[np.void], payloads: memoryview, sizes: Sizes) -> bool:
    """Whether each digest is the CRC32C of its header followed by its payload, for at least one entry.

    ``payloads`` has all payloads in a row, of ``sizes`` that ``can_verify_together``; each header has _HEADER_BYTES. One wrong
    entry is found as surely as by its own digest. Several can hide each other: a bit flipped in a digest counts as much as one
    in the first word of the next entry's payload, so the two cancel each other out.
    """
    begun = headers.copy()
    begun.view(np.uint32)[:: _HEADER_BYTES // _WORD_BYTES] ^= _ONES
    starts = np.cumsum(sizes) - sizes
    before = np.concatenate([np.zeros(1, np.uint32), digests[:-1] ^ np.uint32(_ONES)])  # nothing is before the first entry
    messages, expected = _messages(sizes), int(digests[-1]) ^ _ONES
    for first in range(messages):
        every = slice(first, None, messages)
        expected ^= _register(begun[every], before[every], starts[every], len(payloads))
    return _from_zero(payloads) == expected


def _messages(sizes: Sizes) -> int:
    """How many messages are needed: headers and digests in one message must not overlap, so short neighbours go apart."""
    return -(-(_HEADER_BYTES + _WORD_BYTES) // int(sizes.min()))


def _register(headers: npt.NDArray[np.void], before: Words, starts: npt.NDArray[np.int64], nbytes: int) -> int:
    """The register, from zero, after a message of zeros in which a header ends at each of ``starts``, with a word behind it."""
    message = _zeros(_HEADER_BYTES + nbytes)
    np.ndarray((nbytes + 1,), _HEADER, message, strides=(1,))[starts] = headers.view(_HEADER)
    np.ndarray((nbytes - _WORD_BYTES + 1,), "<u4", message, offset=_HEADER_BYTES, strides=(1,))[starts] = before
    return _from_zero(message)


def _from_zero(message: memoryview | npt.NDArray[np.uint8]) -> int:
    """The register after a message if it starts from zero, without the last all ones."""
    return int(crc32c(message, _ONES)) ^ _ONES


def _zeros(nbytes: int) -> npt.NDArray[np.uint8]:
    """In Arrow's memory, which is kept for the next message: fresh memory costs a page fault for every 4 KiB."""
    zeros = np.frombuffer(pa.allocate_buffer(nbytes), dtype=np.uint8)
    zeros.fill(0)
    return zeros
