"""The key filter of a row payload: tells of most keys that the payload does not hold them, without decoding a row.

Statistics (statistics.py) exclude a key only where a payload's keys lie close together. Keys that arrive in any order lie
between the bounds of every payload. So writers of a log with keys put a split block Bloom filter of the keys into the header:

====== ====== ==================================================================
offset type   block, little endian
====== ====== ==================================================================
0      u8     n, the number of key columns
1      n·u16  index of each in the payload's schema, in the order of the key
1+2n   …      blocks of 32 bytes, one at least
====== ====== ==================================================================

A key's checksum is that of its lane (lanes.py), mixed to 64 bits with MurmurHash3's last step. The upper 32 bits, times the
number of blocks, shifted right by 32, choose the block. The lower 32 bits choose a bit in each of its eight words of 32 bits:
in word i the one with the number (lower · SALTS[i] mod 2^32) >> 27. All eight bits are set of each key that the payload holds.

Worked example: the key 8 of one column has the checksum 0x7C2544BF. Alone in a filter of one block it sets the bits that
test_key_filter.py computes one by one.

Ref: docs/formats.md, "Row payloads"; Apache Parquet, "Bloom Filter", whose layout this is, with another hash.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.entries.crc import Words
from bk_spark.errors import CorruptionError
from bk_spark.rows.lanes import key_checksums
from bk_spark.rows.statistics import MIN_ROWS

BITS_PER_KEY = 12
"""One key of 200 that a payload does not hold is not excluded. With 10 bits it is one of 80, with 16 one of 1,000."""

MAX_FILTER_BYTES = 2**16
"""Of a filter that is made of decoded rows. In a header there is less room: a payload of 65,536 keys has 8 bits for each, and
one key of 35 is not excluded."""

BLOCK_BYTES = 32
_WORDS = 8
SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_SALTS = np.array(SALTS, np.uint32)
_MIX = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
_COLUMN = struct.Struct("<H")

_FEW = 24
"""Up to so many keys are looked up one by one, in half a microsecond each; numpy takes 12 for any number."""

Places: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]


def encode_key_filter(batch: pa.RecordBatch, columns: Sequence[str], max_bytes: int) -> bytes:
    """The block for the rows of ``batch``; empty where it has few rows, or ``max_bytes`` leave no room."""
    head = bytes([len(columns)]) + b"".join(_COLUMN.pack(batch.schema.get_field_index(name)) for name in columns)
    if batch.num_rows < MIN_ROWS or max_bytes < len(head) + BLOCK_BYTES:
        return b""
    return head + made_filter([batch.column(name) for name in columns], batch.num_rows, max_bytes - len(head))


def decode_key_filter(block: bytes, schema: pa.Schema, columns: Sequence[str], what: str) -> bytes | None:
    """The filter's blocks; None if it is none of the keys in ``columns``. Raises CorruptionError; ``what`` is the payload."""
    count = block[0] if block else 0
    start = 1 + count * _COLUMN.size
    if not count or len(block) < start + BLOCK_BYTES or (len(block) - start) % BLOCK_BYTES:
        raise CorruptionError(what, f"its key filter of {len(block)} bytes is none of {count} columns")
    places = [place for (place,) in _COLUMN.iter_unpack(block[1:start])]
    if max(places) >= len(schema):
        raise CorruptionError(what, f"its key filter is of column {max(places)}, it has {len(schema)}")
    return block[start:] if [schema.field(place).name for place in places] == list(columns) else None


def made_filter(columns: Sequence[pa.Array], rows: int, max_bytes: int = MAX_FILTER_BYTES) -> bytes:
    """The blocks of the filter of the keys in ``columns``, at most ``max_bytes``."""
    mixed = np.sort(_mixed(key_checksums(columns, rows)))  # in the order of their blocks
    keys = mixed[np.append(True, mixed[1:] != mixed[:-1])]
    count = max(1, min(-(-len(keys) * BITS_PER_KEY // (8 * BLOCK_BYTES)), max_bytes // BLOCK_BYTES))
    blocks = _blocks(keys, count)
    starts = np.flatnonzero(np.append(True, blocks[1:] != blocks[:-1]))
    table = np.zeros((count, _WORDS), "<u4")
    table[blocks[starts]] = np.bitwise_or.reduceat(_masks(keys), starts, axis=0)
    return table.tobytes()


class KeyProbes:
    """Keys to ask filters for, by their checksums."""

    def __init__(self, checksums: Words) -> None:
        self._mixed = _mixed(checksums)

    def held(self, blocks: bytes, among: Places) -> Places:
        """Those of ``among``, places of keys, that the payload with this filter may hold."""
        count = len(blocks) // BLOCK_BYTES
        if len(among) > _FEW:
            table = np.frombuffer(blocks, "<u4").reshape(count, _WORDS)
            masks = self._masks[among]
            passed: Places = among[((table[_blocks(self._mixed[among], count)] & masks) == masks).all(axis=1)]
            return passed
        found = [place for place in among.tolist() if _has(blocks, count, *self._single[place])]
        return among if len(found) == len(among) else np.array(found, np.int64)

    @cached_property
    def _masks(self) -> Words:
        return _masks(self._mixed)

    @cached_property
    def _single(self) -> list[tuple[int, int]]:
        """Of each key the upper half, and its eight words as one number."""
        numbers = [int.from_bytes(mask.tobytes(), "little") for mask in self._masks]
        return list(zip((self._mixed >> np.uint64(32)).tolist(), numbers, strict=True))


def _has(blocks: bytes, count: int, upper: int, mask: int) -> bool:
    at = (upper * count >> 32) * BLOCK_BYTES
    return int.from_bytes(blocks[at : at + BLOCK_BYTES], "little") & mask == mask


def _mixed(checksums: Words) -> Hashes:
    """64 bits of each checksum. Of one lane's checksums the lowest bits are all the same."""
    mixed = checksums.astype(np.uint64)
    for factor in _MIX:
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(factor)
    return mixed ^ mixed >> np.uint64(33)


def _blocks(mixed: Hashes, count: int) -> Places:
    """The number of each key's block."""
    return ((mixed >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)


def _masks(mixed: Hashes) -> Words:
    """The eight words of each key, with a bit set in each."""
    products = (mixed & np.uint64(0xFFFFFFFF)).astype(np.uint32)[:, None] * _SALTS
    masks: Words = (np.uint32(1) << (products >> np.uint32(27))).astype("<u4")
    return masks
