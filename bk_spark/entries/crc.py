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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c as _crc32c

crc32c = partial(_crc32c, gil_release_mode=0)
"""``crc32c(data, value=0)``: the checksum of ``data`` (anything with a buffer) that continues ``value``.

It keeps Python's lock. At over 10 GB/s it finishes long before a released lock would come back, which takes a switch interval
of 5 ms beside one busy thread. Ref: DESIGN.md, "Digests and keys".
"""

Words: TypeAlias = npt.NDArray[np.uint32]
Blocks: TypeAlias = npt.NDArray[np.uint8]
Sizes: TypeAlias = npt.NDArray[np.int64]

_VECTOR_ROWS = 128
"""From this many rows on, table look-ups with numpy are faster than one C call a row."""

_JOINED_ROWS = 512
"""From this many rows on, it pays to join checksums by tables. To make those of a new size takes 150 us, and as long as 32
checksums of such a row."""

_REFLECTED_POLYNOMIAL = np.uint32(0x82F63B78)


def crc32c_each(pieces: Iterable[bytes | memoryview], values: Iterable[int] | None = None) -> Words:
    """The checksum of each piece, which continues that of ``values``. Pieces are short: Python's lock is kept below 32 KiB."""
    found = map(_crc32c, pieces) if values is None else map(_crc32c, pieces, values)
    return np.array(array("I", found), dtype=np.uint32)


def crc32c_of_rows(blocks: Blocks, values: Words | None = None) -> Words:
    """The checksum of each row of ``blocks`` (n rows of 8, 16, 24… bytes), which continues that of ``values``.

    A CRC is linear over GF(2): crc(a + b) is crc(a), shifted past b, exclusive-or crc(b). So bytes that are the same in all
    rows are computed once, and only columns that differ are looked up, each in its table.
    """
    if len(blocks) < _VECTOR_ROWS:
        return crc32c_each(map(bytes, blocks), None if values is None else values.tolist())
    tables = _tables(blocks.shape[1])
    result = np.full(len(blocks), _crc32c(blocks[0]), np.uint32)
    for number, column in enumerate(blocks.view(np.uint64).T):
        differences = column ^ column[0]
        for byte in np.flatnonzero(np.bitwise_or.reduce(differences, keepdims=True).view(np.uint8)):
            result ^= tables[8 * number + byte].take(differences.view(np.uint8)[byte::8])
    return result if values is None else _joined(result, values, blocks.shape[1])


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


def crc32c_continued(values: Words, pieces: Iterable[bytes | memoryview], sizes: Sizes) -> Words:
    """The checksum of each piece, of ``sizes``, which continues that of ``values``: many of one size at once."""
    if len(sizes) < _JOINED_ROWS or sizes.min() != sizes.max():
        return crc32c_each(pieces, values.tolist())
    return _joined(crc32c_each(pieces), values, int(sizes[0]))


def _joined(checksums: Words, values: Words, size: int) -> Words:
    """``checksums`` of pieces of ``size`` bytes, so that each continues that of ``values``."""
    for byte, table in enumerate(_moved(size)):
        checksums ^= table.take(values.view(np.uint8)[byte::4])
    return checksums


@lru_cache(maxsize=64)
def _moved(size: int) -> Words:
    """Row i, column v: what value v of byte i of a checksum adds to the checksum of a message that is ``size`` bytes longer."""
    zeros = bytes(size)
    bits = [np.uint32(_from_zero(zeros, 1 << bit)) for bit in range(32)]
    values, tables = np.arange(256, dtype=np.uint32), np.zeros((4, 256), np.uint32)
    for bit, moved in enumerate(bits):
        tables[bit // 8] ^= moved * (values >> np.uint32(bit % 8) & np.uint32(1))
    return tables


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


def verify_together(digests: Words, headers: Headers, payloads: memoryview, sizes: Sizes) -> bool:
    """Whether each digest is the CRC32C of its header followed by its payload, for at least one entry.

    ``payloads`` has all payloads in a row, of ``sizes`` that ``can_verify_together``. ``digests`` may have any byte order. One
    wrong entry is found as surely as by its own digest. Several can hide each other: a bit flipped in a digest counts as much
    as one in the first word of the next entry's payload, so the two cancel each other out.
    """
    messages, expected = _messages(sizes), int(digests[-1]) ^ _ONES
    places = _places(sizes)
    for first in range(messages):
        message = _zeros(_HEADER_BYTES + len(payloads))
        _write_headers(message, headers, places, slice(first, None, messages))
        _write_digests(message, digests, places, first, messages)
        expected ^= _from_zero(message)
    return _from_zero(payloads) == expected


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of all entries. ``write`` puts those of a slice of the entries into rows of ``dtype``, of _HEADER_BYTES."""

    dtype: np.dtype[np.void]
    write: Callable[[npt.NDArray[np.void], slice], None]


def _messages(sizes: Sizes) -> int:
    """How many messages are needed: headers and digests in one message must not overlap, so short neighbours go apart."""
    return -(-(_HEADER_BYTES + _WORD_BYTES) // int(sizes.min()))


def _places(sizes: Sizes) -> Sizes | range:
    """Where each payload begins among all. A range if they have one size: numpy writes with strides then, not with indexes."""
    size = int(sizes[0])
    return range(0, size * len(sizes), size) if size == sizes.max() == sizes.min() else np.cumsum(sizes) - sizes


def _write_headers(message: Blocks, headers: Headers, places: Sizes | range, every: slice) -> None:
    """A header ends where its payload begins; _HEADER_BYTES are before the first payload."""
    chosen = places[every]
    if isinstance(chosen, range):
        rows = np.ndarray((len(chosen),), headers.dtype, message, offset=chosen.start, strides=(chosen.step,))
        headers.write(rows, every)
        np.ndarray((len(chosen),), "<u4", message, offset=chosen.start, strides=(chosen.step,))[:] ^= np.uint32(_ONES)
    else:
        rows = np.empty(len(chosen), headers.dtype)
        headers.write(rows, every)
        rows.view(np.uint32)[:: _HEADER_BYTES // _WORD_BYTES] ^= _ONES
        np.ndarray((len(message) - _HEADER_BYTES + 1,), _HEADER, message, strides=(1,))[chosen] = rows.view(_HEADER)


def _write_digests(message: Blocks, digests: Words, places: Sizes | range, first: int, step: int) -> None:
    """Behind the header of an entry is the digest of the entry before it; before the first entry is none."""
    own = first or step
    chosen, before = places[own::step], digests[own - 1 : -1 : step]
    if not len(chosen):
        return
    if isinstance(chosen, range):
        words = np.ndarray((len(chosen),), "<u4", message, offset=_HEADER_BYTES + chosen.start, strides=(chosen.step,))
        words[:] = before
        words ^= np.uint32(_ONES)
    else:
        count = len(message) - _HEADER_BYTES - _WORD_BYTES + 1
        every = np.ndarray((count,), "<u4", message, offset=_HEADER_BYTES, strides=(1,))
        every[chosen] = before.astype(np.uint32) ^ np.uint32(_ONES)


def _from_zero(message: bytes | memoryview | Blocks, register: int = 0) -> int:
    """The register after a message if it starts from ``register``, without the first and the last all ones."""
    return int(crc32c(message, register ^ _ONES)) ^ _ONES


def _zeros(nbytes: int) -> npt.NDArray[np.uint8]:
    """In Arrow's memory, which is kept for the next message: fresh memory costs a page fault for every 4 KiB."""
    zeros = np.frombuffer(pa.allocate_buffer(nbytes), dtype=np.uint8)
    zeros.fill(0)
    return zeros
