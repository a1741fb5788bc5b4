"""CRC32C, the only checksum of this package: on the wire, in files, in digests.

**Many digests at once** (``verify_together``). A digest is the CRC32C of a payload, continued over the entry's header. Instead
of one checksum for each entry, a few checksums of long messages tell whether all digests are right: a CRC is linear over GF(2),
so what a piece adds to the checksum of a long message is the piece's own checksum, moved by its distance from the message's
end. So the digests of all entries, each moved by the size of the payloads behind its own, give the checksum that all payloads
in a row must have. The moving needs no arithmetic: the checksum of a word in an otherwise empty message is that word, moved. In
that message each entry has its header where its payload ends, and its digest right behind the header.

A checksum's register starts with all ones, and all ones are added to its last state. For each entry but the last both stand
beside its digest: all ones, and all ones moved over a header, which together are the checksum of an empty header.

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


def crc32c_each(pieces: Iterable[bytes | memoryview]) -> Words:
    """The checksum of each piece. Pieces are short: only from 32 KiB on is Python's lock released."""
    return np.array(array("I", map(_crc32c, pieces)), dtype=np.uint32)


def crc32c_continued(values: Words, blocks: Blocks) -> Words:
    """For each row the checksum that continues ``values`` with that row of ``blocks`` (n rows of 8, 16, 24… bytes)."""
    if len(values) < _VECTOR_ROWS:
        return np.array([_crc32c(row, value) for row, value in zip(blocks, values.tolist(), strict=True)], dtype=np.uint32)
    return _by_linearity(values, blocks)


def _by_linearity(values: Words, blocks: Blocks) -> Words:
    """A CRC is linear over GF(2): crc(a + b) is crc(a), shifted past b, exclusive-or crc(b).

    So bytes that are the same in all rows are computed once, and only columns that differ are looked up, each in its table.
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
_NO_HEADER = bytes(_HEADER_BYTES)
_BESIDE_DIGEST = np.uint32(crc32c(_NO_HEADER))

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
    """Whether each digest is the CRC32C of its payload continued over its header, for at least one entry.

    ``payloads`` has all payloads in a row, of ``sizes`` that ``can_verify_together``; each header has _HEADER_BYTES. One wrong
    entry is found as surely as by its own digest. Several can hide each other: a bit flipped in a digest is moved as far as
    the payload byte that is _HEADER_BYTES behind the entry, so the same bit flipped there cancels it out.
    """
    ends = np.cumsum(sizes)
    behind = digests ^ _BESIDE_DIGEST
    messages, expected = _messages(sizes), int(digests[-1])
    for first in range(messages):
        every = slice(first, None, messages)
        expected ^= _register(headers[every], behind[every], ends[every], len(payloads))
    return bool(crc32c(_NO_HEADER, crc32c(payloads)) == expected)


def _messages(sizes: Sizes) -> int:
    """How many messages are needed: headers and digests in one message must not overlap, so short neighbours go apart."""
    return -(-(_HEADER_BYTES + _WORD_BYTES) // int(sizes.min()))


def _register(headers: npt.NDArray[np.void], behind: Words, ends: npt.NDArray[np.int64], nbytes: int) -> int:
    """The register, from zero, after a message of zeros with these headers, and with ``behind`` right behind the headers.

    The last word is left out if its header ends the message.
    """
    message = _zeros(_HEADER_BYTES + nbytes)  # with room before the first entry, for the header of a short one
    np.ndarray((nbytes + 1,), _HEADER, message, strides=(1,))[ends] = headers.view(_HEADER)
    words = np.ndarray((nbytes - _WORD_BYTES + 1,), "<u4", message, offset=_HEADER_BYTES, strides=(1,))
    count = len(ends) - (len(ends) > 0 and int(ends[-1]) == nbytes)
    words[ends[:count]] = behind[:count]
    return int(crc32c(message, _ONES)) ^ _ONES


def _zeros(nbytes: int) -> npt.NDArray[np.uint8]:
    """In Arrow's memory, which is kept for the next message: fresh memory costs a page fault for every 4 KiB."""
    zeros = np.frombuffer(pa.allocate_buffer(nbytes), dtype=np.uint8)
    zeros.fill(0)
    return zeros
