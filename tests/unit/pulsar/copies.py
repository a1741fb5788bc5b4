"""Builds the copy of a ledger as Pulsar's offloader lays it out, for tests; it shares no code with what reads it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from bk_spark.proto.ledger_metadata_pb2 import LedgerMetadataFormat

HEAD_BYTES = 128
FILLING = b"\xfe\xdc\xde\xad"


@dataclass(frozen=True)
class WrittenCopy:
    """The two objects of a copy, and where each entry begins in the first one."""

    data: bytes
    index: bytes
    begins: list[int] = field(default_factory=list)
    blocks: list[tuple[int, int, int]] = field(default_factory=list)
    """First entry, part, and where it begins, of each block."""


def written_copy(entries: Sequence[bytes], block_bytes: int = 5 << 20) -> WrittenCopy:
    """``block_bytes``: of all blocks but the last, which is as long as its entries and a head at most."""
    data, begins, blocks = b"", [], []
    waiting = list(enumerate(entries))
    while waiting:
        rest = sum(12 + len(entry) for _, entry in waiting)
        size = min(block_bytes, HEAD_BYTES + rest)
        first = waiting[0][0]
        blocks.append((first, len(blocks) + 1, len(data)))
        block = struct.pack(">Iqqq", 0xFBDBABCB, HEAD_BYTES, size, first).ljust(HEAD_BYTES, b"\0")
        while waiting and len(block) + 12 + len(waiting[0][1]) <= size:
            entry_id, entry = waiting.pop(0)
            begins.append(len(data) + len(block))
            block += struct.pack(">iq", len(entry), entry_id) + entry
        assert waiting == [] or waiting[0][0] > first, "a block takes an entry at least"
        data += block + (FILLING * (size // 4 + 1))[: size - len(block)]
    return WrittenCopy(data, written_index(entries, len(data), blocks), begins, blocks)


def written_index(entries: Sequence[bytes], data_bytes: int, blocks: Sequence[tuple[int, int, int]]) -> bytes:
    metadata = LedgerMetadataFormat(
        quorumSize=2,
        ensembleSize=3,
        ackQuorumSize=2,
        length=sum(map(len, entries)),
        lastEntryId=len(entries) - 1,
        state=LedgerMetadataFormat.CLOSED,
        digestType=LedgerMetadataFormat.CRC32C,
    ).SerializeToString()
    listed = b"".join(struct.pack(">qiq", *block) for block in blocks)
    size = 32 + len(metadata) + len(listed)
    return struct.pack(">IiqqiI", 0xDE47DE47, size, data_bytes, HEAD_BYTES, len(blocks), len(metadata)) + metadata + listed
