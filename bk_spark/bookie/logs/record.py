"""The record: what journal files and entry log files consist of, one format for both.

::

    offset  size
         0     4  magic "bkRC"
         4     1  version
         5     1  kind: 1 BATCH, 2 IDLE, 3 SEAL, 4 FENCE, 5 CONFIRMED, 6 DELETED
         6     1  digest type             0 unless BATCH
         7     3  E, Qw, slot             the ids held: quorum.IdPattern; 1, 1, 0 is dense
        10     1  flags                  1: the body has a last add confirmed for each entry (BATCH); else 0
        11     1  trailing zeros         bytes of zeros that the body ends in, 255 if it is more; 0 without a body
        12     4  body length
        16     8  file salt               as in the header of the file
        24     8  own offset              of this record in its file
        32     8  sequence                one counter for all files of the bookie; a copy keeps the number of the original
        40     8  synced_through          bytes of this file known durable when this record was written
        48     8  ledger id               0 in IDLE and SEAL, as all that follows
        56     8  first entry id          0 unless BATCH
        64     8  last entry id           inclusive; 0 unless BATCH
        72     8  last add confirmed      the highest of the batch; -1 in FENCE; in DELETED the time, ms since 1970
        80     8  length before           payload bytes of the ledger before the first entry
        88    16  master key hash
       104     4  count of entries
       108     4  body CRC32C
       112     4  CRC32C of the bytes 0 to 111
       116        body: the encoded batch as it came over the wire

All numbers are little-endian. A record counts only with its file's salt and at its own offset: bookie files that a user
stored as payload are never taken for records. Successors of version 1 keep the magic, the version and the length of the
header with its CRC in their places, so that a newer record is told from a damaged one.

IDLE says nothing but ``synced_through``: it follows a sync, so that the end of a quiet file is known to be durable. SEAL ends a
file: its own offset plus its header is the file's sealed length, its sequence is the file's last. FENCE says that a ledger
takes adds of its recovery only, CONFIRMED how far it is confirmed where no entry says so, DELETED that everything of it with a
lower sequence is gone; these three stand in the journal. None of the five has a body.

Ref: docs/rules.md, "Record header" and storage rule 2; docs/formats.md, "Files of a bookie".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from bk_spark.config import MAX_BATCH_BYTES, DigestType
from bk_spark.entries.batch import NO_ENTRY, BatchHeader, EncodedBatch
from bk_spark.entries.crc import crc32c
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.quorum import DENSE, IdPattern

RECORD_VERSION = 1
RECORD_MAGIC = b"bkRC"
_FIELDS = struct.Struct("<4s8BI4Q5q16sII")
_MIXED_LAC = 1
_CRC = struct.Struct("<I")
_OWN_PLACE = struct.Struct("<2Q")
RECORD_HEADER_BYTES = _FIELDS.size + _CRC.size
HEADER_CRC_BYTES = _CRC.size
MANY_ZEROS = 255
"""Trailing zeros of a body are counted up to this."""
NO_KEY = bytes(16)


class RecordKind(IntEnum):
    BATCH = 1
    IDLE = 2
    SEAL = 3
    FENCE = 4
    CONFIRMED = 5
    DELETED = 6


NOTES = frozenset({RecordKind.FENCE, RecordKind.CONFIRMED, RecordKind.DELETED})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands, and what of its file was durable when it was written."""

    salt: int
    offset: int
    synced_through: int


@dataclass(frozen=True, slots=True)
class LedgerNote:
    """What a record says of a ledger as a whole: FENCE, CONFIRMED or DELETED."""

    kind: RecordKind
    ledger_id: int
    last_add_confirmed: int = NO_ENTRY
    deleted_ms: int = 0
    """When it was deleted, milliseconds since 1970; 0 unless DELETED."""


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """A verified header."""

    place: Place
    kind: RecordKind
    sequence: int
    batch: BatchHeader | None
    """What a BATCH holds, None for the other kinds."""
    note: LedgerNote | None
    """What a FENCE or CONFIRMED says, None for the other kinds."""
    master_key_hash: bytes
    trailing_zeros: int
    """Bytes of zeros that the body ends in, at most MANY_ZEROS."""
    body_length: int
    body_crc32c: int

    @property
    def end(self) -> int:
        """The offset after the record."""
        return self.place.offset + RECORD_HEADER_BYTES + self.body_length


def pack_batch(place: Place, sequence: int, batch: EncodedBatch, master_key_hash: bytes) -> bytes:
    """The header of a record for ``batch``; the body follows it in the file."""
    header = batch.header
    pattern = header.pattern
    packed = _FIELDS.pack(
        RECORD_MAGIC,
        RECORD_VERSION,
        RecordKind.BATCH,
        header.digest_type.value,
        pattern.ensemble_size,
        pattern.write_quorum,
        pattern.slot,
        _MIXED_LAC if header.mixed_lac else 0,
        _trailing_zeros(batch.body),
        len(batch.body),
        place.salt,
        place.offset,
        sequence,
        place.synced_through,
        header.ledger_id,
        header.first_entry_id,
        header.last_entry_id,
        header.last_add_confirmed,
        header.length_before,
        master_key_hash,
        header.count,
        batch.body_crc32c,
    )
    return packed + _CRC.pack(crc32c(packed))


def pack_mark(place: Place, sequence: int, kind: RecordKind) -> bytes:
    """A whole IDLE or SEAL record."""
    return _pack_bare(place, sequence, kind, (0, 0, 0, 0, 0, NO_KEY))


def pack_note(place: Place, sequence: int, note: LedgerNote, master_key_hash: bytes) -> bytes:
    """A whole FENCE, CONFIRMED or DELETED record."""
    value = note.deleted_ms if note.kind is RecordKind.DELETED else note.last_add_confirmed
    return _pack_bare(place, sequence, note.kind, (note.ledger_id, 0, 0, value, 0, master_key_hash))


def may_begin_record(data: bytes, salt: int, offset: int) -> bool:
    """Whether ``data``, of any length, can be the beginning of a record of this file at this offset."""
    wanted = _OWN_PLACE.pack(salt, offset)
    return RECORD_MAGIC.startswith(data[:4]) and wanted.startswith(data[16:32])


def unpack(data: bytes, what: str, salt: int, offset: int) -> RecordHeader:
    """The header that ``data`` begins with. ``what`` names the place for the error.

    Raises CorruptionError unless it is the record of this file at this offset, FormatVersionError if it is of a newer version.
    """
    packed = data[: _FIELDS.size]
    if len(data) < RECORD_HEADER_BYTES or crc32c(packed) != _CRC.unpack_from(data, _FIELDS.size)[0]:
        raise CorruptionError(what, "the checksum of a record header is wrong")
    if packed[:4] != RECORD_MAGIC:
        raise CorruptionError(what, "there is no record")
    if packed[4] > RECORD_VERSION:
        raise FormatVersionError(what, packed[4], RECORD_VERSION)
    header = _header(what, _FIELDS.unpack(packed))
    if (header.place.salt, header.place.offset) != (salt, offset):
        raise CorruptionError(what, f"a record of another place, {header.place}")
    return header


def batch_of(header: RecordHeader, body: bytes, what: str) -> EncodedBatch:
    """The batch of a BATCH record. Raises CorruptionError if ``body`` is not its body."""
    if header.batch is None or len(body) != header.body_length or crc32c(body) != header.body_crc32c:
        raise CorruptionError(what, "the checksum of a record's body is wrong")
    return EncodedBatch(header.batch, body, header.body_crc32c)


def _trailing_zeros(body: bytes | memoryview) -> int:
    tail = bytes(body[-MANY_ZEROS:])
    return len(tail) - len(tail.rstrip(b"\0"))


def _pack_bare(place: Place, sequence: int, kind: RecordKind, ledger: tuple[Any, ...]) -> bytes:
    """A record without a body; ``ledger`` is its header from the ledger id to the master key hash."""
    numbers = (0, place.salt, place.offset, sequence, place.synced_through)
    packed = _FIELDS.pack(RECORD_MAGIC, RECORD_VERSION, kind, 0, 1, 1, 0, 0, 0, *numbers, *ledger, 0, 0)
    return packed + _CRC.pack(crc32c(packed))


def _header(what: str, fields: tuple[Any, ...]) -> RecordHeader:
    try:
        kind = RecordKind(fields[2])
        body_length, salt, offset, sequence, synced_through = fields[9:14]
        if fields[7] not in ((0, _MIXED_LAC) if kind is RecordKind.BATCH else (0,)):
            raise CorruptionError(what, f"unknown flags in a record, {fields[7]}")
        batch = _batch_header(what, fields) if kind is RecordKind.BATCH else None
        note = _note(kind, fields[14], fields[17]) if kind in NOTES else None
        if batch is None and body_length:
            raise CorruptionError(what, f"a {kind.name} record with a body")
    except (ValueError, ConfigError) as problem:
        raise CorruptionError(what, f"a record with a right checksum and wrong fields ({problem})") from problem
    place = Place(salt, offset, synced_through)
    return RecordHeader(place, kind, sequence, batch, note, fields[19], fields[8], body_length, fields[21])


def _note(kind: RecordKind, ledger_id: int, value: int) -> LedgerNote:
    if kind is RecordKind.DELETED:
        return LedgerNote(kind, ledger_id, deleted_ms=value)
    return LedgerNote(kind, ledger_id, value)


def _batch_header(what: str, fields: tuple[Any, ...]) -> BatchHeader:
    ledger_id, first, last, confirmed, length_before = fields[14:19]
    pattern = DENSE if fields[4:7] == (1, 1, 0) else IdPattern(*fields[4:7])
    batch = BatchHeader(ledger_id, first, last, pattern, confirmed, length_before, DigestType(fields[3]), bool(fields[7]))
    if fields[20] != batch.count or fields[9] > MAX_BATCH_BYTES:
        raise CorruptionError(what, f"a record of {fields[20]} entries in {fields[9]} bytes")
    return batch
