"""The record. Journals and entry logs consist of records, in one format for both.

::

    offset  size
         0     4  magic "bkRC"
         4     1  version
         5     1  kind: 1 BATCH, 2 IDLE, 3 SEAL, 4 FENCE, 5 CONFIRMED, 6 DELETED
     6     1  digest type             0 of a batch of whole entries; in CONFIRMED 1 + the size of the proof, if any; else 0
         7     3  E, Qw, slot             the ids held: quorum.IdPattern; 1, 1, 0 is dense
        10     1  flags                  1: the body has a last add confirmed for each entry (BATCH); else 0
        11     1  trailing zeros         bytes of zeros that the body ends in, 255 if it is more; 0 without a body
        12     4  body length
        16     8  file salt               as in the header of the file
        24     8  own offset              of this record in its file
        32     8  sequence                one counter for all files of the bookie; a copy keeps the number of the original
        40     8  synced_through          bytes of this file known durable when this record was written
        48     8  ledger id               0 in IDLE and SEAL, as all that follows
        56     8  first entry id          0 unless BATCH; in CONFIRMED the proof begins here, without the number at 72
        64     8  last entry id           inclusive; 0 unless BATCH
        72     8  last add confirmed      the highest of the batch; -1 in FENCE; in DELETED the time, ms since 1970
        80     8  length before           payload bytes of the ledger before the first entry
        88    24  master key hash        with the token of the ledger's creator
       112     4  count of entries
       116     4  body CRC32C
       120     4  CRC32C of the bytes 0 to 119
       124        body: the encoded batch as it came over the wire

All numbers are little-endian. A record counts only with its file's salt and at its own offset, so a bookie file that a user
stored as payload is never taken for records. Later versions keep the magic, the version and the length of the header with its
CRC in their places, so that a newer record is told from a damaged one. All kinds but BATCH have no body:

- IDLE carries only ``synced_through``. It follows a sync, so that the end of a quiet file is known to be durable.
- SEAL ends a file. Its own offset plus its header is the file's sealed length, its sequence is the file's last.
- FENCE, in journals: from now on the ledger takes adds of its recovery only.
- CONFIRMED, in journals: the ledger's last add confirmed, where no entry carries it.
- DELETED, in journals: everything of the ledger with a lower sequence is gone.

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

RECORD_VERSION = 4
_SINCE_BEFORE_WHOLE = 3
"""The version of records without whole entries and proofs: a bookie that has none can go back to the release before these."""
RECORD_MAGIC = b"bkRC"
_FIELDS = struct.Struct("<4s8BI4Q5q24sII")
_MIXED_LAC = 1
_WHOLE = 0
"""In place of a digest type."""
_CRC = struct.Struct("<I")
_OWN_PLACE = struct.Struct("<2Q")
RECORD_HEADER_BYTES = _FIELDS.size + _CRC.size
HEADER_CRC_BYTES = _CRC.size
MANY_ZEROS = 255
"""The trailing zeros of a body are counted up to this number."""
NO_KEY = bytes(24)
_PROOF = struct.Struct("<3q")
"""A proof stands where a batch has its ids and length. The widest digest has 20 bytes."""


class RecordKind(IntEnum):
    BATCH = 1
    IDLE = 2
    SEAL = 3
    FENCE = 4
    CONFIRMED = 5
    DELETED = 6


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands, and how much of its file was durable when it was written."""

    salt: int
    offset: int
    synced_through: int


@dataclass(frozen=True, slots=True)
class LedgerNote:
    """A FENCE, CONFIRMED or DELETED of a ledger."""

    kind: RecordKind
    ledger_id: int
    last_add_confirmed: int = NO_ENTRY
    deleted_ms: int = 0
    """The time of the deletion, in milliseconds since 1970; 0 unless DELETED."""
    proof: bytes | None = None
    """The digest that proves a CONFIRMED to readers, as many bytes at most as _PROOF has; None if its writer gave none."""


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """A verified header."""

    place: Place
    kind: RecordKind
    sequence: int
    batch: BatchHeader | None
    """Of a BATCH, else None."""
    note: LedgerNote | None
    """Of a FENCE, CONFIRMED or DELETED, else None."""
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
    header, pattern = batch.header, batch.header.pattern
    version = _SINCE_BEFORE_WHOLE if header.digest_type else RECORD_VERSION
    digest = header.digest_type.value if header.digest_type else _WHOLE
    kind = (RecordKind.BATCH, digest, pattern.ensemble_size, pattern.write_quorum, pattern.slot)
    body = (_MIXED_LAC if header.mixed_lac else 0, _trailing_zeros(batch.body), len(batch.body))
    own = (place.salt, place.offset, sequence, place.synced_through)
    ids = (header.ledger_id, header.first_entry_id, header.last_entry_id, header.last_add_confirmed, header.length_before)
    return _packed(version, *kind, *body, *own, *ids, master_key_hash, header.count, batch.body_crc32c)


def pack_mark(place: Place, sequence: int, kind: RecordKind) -> bytes:
    """A whole IDLE or SEAL record."""
    return _pack_bare(place, sequence, kind, (0, 0, 0, 0, 0), NO_KEY)


def pack_note(place: Place, sequence: int, note: LedgerNote, master_key_hash: bytes) -> bytes:
    """A whole FENCE, CONFIRMED or DELETED record."""
    first, last, length = _PROOF.unpack((note.proof or b"").ljust(_PROOF.size, b"\0"))
    value = note.deleted_ms if note.kind is RecordKind.DELETED else note.last_add_confirmed
    numbers = (note.ledger_id, first, last, value, length)
    return _pack_bare(place, sequence, note.kind, numbers, master_key_hash, 0 if note.proof is None else 1 + len(note.proof))


def may_begin_record(data: bytes, salt: int, offset: int) -> bool:
    """Whether ``data``, of any length, can be the beginning of the record of this file at this offset."""
    wanted = _OWN_PLACE.pack(salt, offset)
    return RECORD_MAGIC.startswith(data[:4]) and wanted.startswith(data[16:32])


def unpack(data: bytes, what: str, salt: int, offset: int) -> RecordHeader:
    """The header at the beginning of ``data``. ``what`` names the place in errors.

    Raises CorruptionError unless it is the record of this file at this offset, FormatVersionError if its version is newer.
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


def _pack_bare(place: Place, sequence: int, kind: RecordKind, numbers: tuple[int, ...], key: bytes, proof: int = 0) -> bytes:
    """A record without a body. ``numbers``: from the ledger id to the length. ``proof``: 1 + its size, 0 without one."""
    version = RECORD_VERSION if proof else _SINCE_BEFORE_WHOLE
    own = (place.salt, place.offset, sequence, place.synced_through)
    return _packed(version, kind, proof, 1, 1, 0, 0, 0, 0, *own, *numbers, key, 0, 0)


def _packed(*fields: Any) -> bytes:
    """A record header with these ``fields``, from the version on."""
    packed = _FIELDS.pack(RECORD_MAGIC, *fields)
    return packed + _CRC.pack(crc32c(packed))


def _header(what: str, fields: tuple[Any, ...]) -> RecordHeader:
    _, _, number, digest, *slot, flags, trailing_zeros, body_length, salt, offset, sequence, synced_through = fields[:14]
    ledger_id, first, last, value, length_before, master_key_hash, count, body_crc32c = fields[14:]
    batch = note = None
    try:
        kind = RecordKind(number)
        if flags not in ((0, _MIXED_LAC) if kind is RecordKind.BATCH else (0,)):
            raise CorruptionError(what, f"unknown flags in a record, {flags}")
        if kind is RecordKind.BATCH:
            pattern = DENSE if slot == [1, 1, 0] else IdPattern(*slot)
            batch = BatchHeader(ledger_id, first, last, pattern, value, length_before, _digest_type(digest), bool(flags))
            if count != batch.count or body_length > MAX_BATCH_BYTES:
                raise CorruptionError(what, f"a record of {count} entries in {body_length} bytes")
        elif body_length:
            raise CorruptionError(what, f"a {kind.name} record with a body")
        elif kind is RecordKind.DELETED:
            note = LedgerNote(kind, ledger_id, deleted_ms=value)
        elif kind in (RecordKind.FENCE, RecordKind.CONFIRMED):
            proof = _PROOF.pack(first, last, length_before)[: digest - 1] if digest else None
            note = LedgerNote(kind, ledger_id, value, proof=proof)
    except (ValueError, ConfigError) as problem:
        raise CorruptionError(what, f"a record with a right checksum and wrong fields ({problem})") from problem
    place = Place(salt, offset, synced_through)
    return RecordHeader(place, kind, sequence, batch, note, master_key_hash, trailing_zeros, body_length, body_crc32c)


def _digest_type(number: int) -> DigestType | None:
    return None if number == _WHOLE else DigestType(number)
