"""The copy of a ledger in an object store, as Pulsar's offloader of blobs lays it out, from bytes to values. Pure.

Two objects, ``<uuid>-ledger-<ledger id>`` with the entries and the same name with ``-index``. All numbers are big-endian. The
index, 4-byte magic 0xDE47DE47 first::

    u32 magic, i32 bytes of the index, i64 bytes of the data object, i64 bytes of a block's head, i32 blocks,
    i32 N, N bytes of LedgerMetadataFormat, for each block: i64 its first entry, i32 its number from 1 on, i64 where it begins

The data object is blocks, one behind the other. Each begins with a head, which zeros fill up::

    u32 magic 0xFBDBABCB, i64 bytes of the head, i64 bytes of the block, i64 its first entry

Entries follow, ``i32 N, i64 entry id, N bytes``, each whole in its block, and 0xFEDCDEAD again and again to the block's end.

No object has a checksum of its own. An entry may have Pulsar's CRC-32C over its message, which ``entry_problem`` checks.

Ref: tiered-storage/jcloud of Pulsar; DESIGN.md, "Topics of Pulsar".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from bk_spark.entries.crc import crc32c
from bk_spark.proto.ledger_metadata_pb2 import LedgerMetadataFormat

HEAD_BYTES: Final = 28
"""Of a block's head: what is read of it."""

ENTRY_HEAD_BYTES: Final = 12

MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
"""Three million blocks of 5 MiB, the smallest that Pulsar takes, or 15 TiB in one ledger: no index is that large."""

_INDEX: Final = struct.Struct(">IiqqiI")
_BLOCK: Final = struct.Struct(">qiq")
_HEAD: Final = struct.Struct(">Iqqq")
_ENTRY: Final = struct.Struct(">iq")
_INDEX_MAGIC, _STREAMED_INDEX_MAGIC, _BLOCK_MAGIC = 0xDE47DE47, 0x3D1FB0BC, 0xFBDBABCB
_FILLING: Final = bytes.fromhex("FEDCDEAD")
_BROKER_METADATA, _CHECKSUM = b"\x0e\x02", b"\x0e\x01"


class DamagedCopyError(Exception):
    """Bytes are not what Pulsar writes. Its text says what is wrong with them."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the data object; ``end`` is where the next one begins, ``last_entry_id`` is inclusive."""

    first_entry_id: int
    last_entry_id: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class CopyIndex:
    """What the index says. The blocks follow each other without a gap, and so do their entries from 0 on."""

    data_bytes: int
    head_bytes: int
    last_entry_id: int
    length: int
    """Payload bytes of all entries."""
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries that follow each other: where their payloads are in the bytes that were looked at, and the bytes used up."""

    first_entry_id: int
    places: tuple[tuple[int, int], ...]
    used: int
    wanted: int
    """How many bytes from ``used`` on the next entry takes as far as is known; 0 at the end of the block."""

    @property
    def behind(self) -> int:
        """The entry id behind the last one."""
        return self.first_entry_id + len(self.places)


def parse_index(data: bytes) -> CopyIndex:
    """Raises DamagedCopyError."""
    if len(data) < _INDEX.size:
        raise DamagedCopyError(f"{len(data)} bytes are less than the {_INDEX.size} that it begins with")
    magic, size, data_bytes, head_bytes, count, metadata_bytes = _INDEX.unpack_from(data)
    if magic == _STREAMED_INDEX_MAGIC:
        raise DamagedCopyError("it is of Pulsar's streaming offload, which is not understood: a broker can read it")
    if magic != _INDEX_MAGIC:
        raise DamagedCopyError(f"it begins with {magic:#010x}, not {_INDEX_MAGIC:#010x}")
    needed = _INDEX.size + metadata_bytes + count * _BLOCK.size
    if not size == needed == len(data) or count < 1:
        raise DamagedCopyError(f"{len(data)} bytes do not hold {count} blocks and {metadata_bytes} bytes of metadata")
    if head_bytes < HEAD_BYTES:
        raise DamagedCopyError(f"a block's head of {head_bytes} bytes is less than {HEAD_BYTES}")
    last, length = _ledger(data[_INDEX.size : _INDEX.size + metadata_bytes])
    listed = list(_BLOCK.iter_unpack(data[_INDEX.size + metadata_bytes :]))
    return CopyIndex(data_bytes, head_bytes, last, length, _blocks(listed, data_bytes, head_bytes, last))


def check_head(data: bytes, index: CopyIndex, block: Block) -> None:
    """Raise DamagedCopyError unless a block begins with the head that the index says."""
    found = _HEAD.unpack(data)
    wanted = (_BLOCK_MAGIC, index.head_bytes, block.end - block.begin, block.first_entry_id)
    if found != wanted:
        names = ("magic", "bytes of the head", "bytes of the block", "first entry")
        wrong = ", ".join(
            f"{name} {one}, not {other}" for name, one, other in zip(names, found, wanted, strict=True) if one != other
        )
        raise DamagedCopyError(f"the block at byte {block.begin} begins with {wrong}")


def parse_entries(data: bytes, at: int, entry_id: int, block: Block) -> Entries:
    """The whole entries in ``data``, the bytes of the data object from ``at`` on, where ``entry_id`` begins.

    Raises DamagedCopyError.
    """
    places: list[tuple[int, int]] = []
    used = 0
    for expected in range(entry_id, block.last_entry_id + 1):
        left = block.end - at - used
        if left < ENTRY_HEAD_BYTES or data[used : used + 4] == _FILLING:
            raise DamagedCopyError(f"the block at byte {block.begin} ends before its entry {expected}")
        if len(data) - used < ENTRY_HEAD_BYTES:
            return Entries(entry_id, tuple(places), used, ENTRY_HEAD_BYTES)
        size, found = _ENTRY.unpack_from(data, used)
        if found != expected or not 0 <= size <= left - ENTRY_HEAD_BYTES:
            raise DamagedCopyError(f"at byte {at + used} is entry {found} of {size} bytes, where entry {expected} should be")
        wanted = ENTRY_HEAD_BYTES + size
        if len(data) - used < wanted:
            return Entries(entry_id, tuple(places), used, wanted)
        places.append((used + ENTRY_HEAD_BYTES, used + wanted))
        used += wanted
    filling = data[used : min(used + len(_FILLING), block.end - at)]
    if not _FILLING.startswith(filling):
        raise DamagedCopyError(f"at byte {at + used}, behind the last entry of its block, is {filling.hex()}")
    return Entries(entry_id, tuple(places), used, 0)


def entry_problem(entry: bytes | memoryview) -> str | None:
    """Why an entry is not the one that was written, by the checksum that Pulsar's producers put into it; None if it may be."""
    at = 0
    if entry[:2] == _BROKER_METADATA:
        at = 6 + int.from_bytes(entry[2:6], "big")
    if entry[at : at + 2] != _CHECKSUM:
        return None
    told, found = int.from_bytes(entry[at + 2 : at + 6], "big"), crc32c(entry[at + 6 :])
    return None if told == found else f"its message has the CRC-32C {found:#010x}, and says {told:#010x}"


def _ledger(encoded: bytes) -> tuple[int, int]:
    """The last entry and the length of the ledger that was copied."""
    metadata = LedgerMetadataFormat()
    try:
        metadata.ParseFromString(encoded)
    except DecodeError as problem:
        raise DamagedCopyError(f"its metadata of the ledger are no protobuf message ({problem})") from None
    last = metadata.lastEntryId if metadata.HasField("lastEntryId") else -1
    if metadata.state != LedgerMetadataFormat.CLOSED or last < 0 or metadata.length < 0:
        raise DamagedCopyError("its metadata are not those of a closed ledger with entries")
    return last, metadata.length


def _blocks(listed: list[tuple[int, int, int]], data_bytes: int, head_bytes: int, last: int) -> tuple[Block, ...]:
    behind = [*listed[1:], (last + 1, 0, data_bytes)]
    blocks = [
        Block(first, next_first - 1, begin, end) for (first, _, begin), (next_first, _, end) in zip(listed, behind, strict=True)
    ]
    for number, (block, (_, part, _)) in enumerate(zip(blocks, listed, strict=True), start=1):
        entries = block.last_entry_id - block.first_entry_id + 1
        if entries < 1 or block.end - block.begin < head_bytes + entries * ENTRY_HEAD_BYTES or part != number:
            raise DamagedCopyError(
                f"its block {number} has entries {block.first_entry_id} to {block.last_entry_id}, part {part}"
            )
    if blocks[0].first_entry_id != 0 or blocks[0].begin != 0:
        raise DamagedCopyError(f"its first block begins at byte {blocks[0].begin} with entry {blocks[0].first_entry_id}")
    return tuple(blocks)
