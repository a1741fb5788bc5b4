from __future__ import annotations

import dataclasses

import pytest

from bk_spark.bookie.log_files.record import (
    RECORD_HEADER_BYTES,
    RECORD_VERSION,
    LedgerNote,
    Place,
    RecordKind,
    batch_of,
    may_begin_record,
    pack_batch,
    pack_mark,
    pack_note,
    unpack,
)
from bk_spark.entries.crc import crc32c
from bk_spark.entries.recut import coalesce
from bk_spark.errors import CorruptionError, FormatVersionError
from bk_spark.quorum import IdPattern

PLACE = Place(salt=2**63 + 5, offset=4096, synced_through=4000)
KEY = bytes(range(24))
NOTES = [
    LedgerNote(RecordKind.FENCE, 7),
    LedgerNote(RecordKind.CONFIRMED, 7, 2**40),
    LedgerNote(RecordKind.DELETED, 7, deleted_ms=1_763_692_800_000),
]


@pytest.fixture
def striped(harness):
    return harness.batch(7, 0, 20, pattern=IdPattern(4, 3, 2))


def test_a_batch_comes_back_from_its_record(striped):
    header = unpack(pack_batch(PLACE, 12, striped, KEY), "here", PLACE.salt, PLACE.offset)
    assert (header.place, header.kind, header.sequence, header.master_key_hash) == (PLACE, RecordKind.BATCH, 12, KEY)
    assert header.end == PLACE.offset + RECORD_HEADER_BYTES + len(striped.body)
    assert batch_of(header, striped.body, "here") == striped


def test_a_joined_batch_comes_back_from_its_record(harness):
    joined = coalesce([harness.batch(7, one, one) for one in range(5)])
    header = unpack(pack_batch(PLACE, 12, joined, KEY), "here", PLACE.salt, PLACE.offset)
    assert joined.header.mixed_lac
    assert batch_of(header, joined.body, "here") == joined


@pytest.mark.parametrize(("zeros", "noted"), [(0, 0), (1, 1), (254, 254), (255, 255), (256, 255), (9000, 255)])
def test_a_record_says_in_how_many_zeros_its_body_ends(striped, zeros, noted):
    batch = dataclasses.replace(striped, body=b"\x01" + bytes(zeros))
    header = unpack(pack_batch(PLACE, 12, batch, KEY), "here", PLACE.salt, PLACE.offset)
    assert header.trailing_zeros == noted


@pytest.mark.parametrize(("kind", "flags"), [(RecordKind.BATCH, 2), (RecordKind.SEAL, 1)])
def test_flags_of_a_record_that_are_not_known_are_damage(striped, kind, flags):
    whole = pack_batch(PLACE, 3, striped, KEY) if kind is RecordKind.BATCH else pack_mark(PLACE, 3, kind)
    packed = bytearray(whole)
    packed[10] = flags
    packed[-4:] = crc32c(bytes(packed[:-4])).to_bytes(4, "little")
    with pytest.raises(CorruptionError, match="flags"):
        unpack(bytes(packed), "here", PLACE.salt, PLACE.offset)


@pytest.mark.parametrize("kind", [RecordKind.IDLE, RecordKind.SEAL])
def test_idle_and_seal_have_no_body(kind):
    packed = pack_mark(PLACE, 3, kind)
    header = unpack(packed, "here", PLACE.salt, PLACE.offset)
    assert (header.kind, header.sequence, header.batch, header.end) == (kind, 3, None, PLACE.offset + len(packed))
    assert header.note is None


@pytest.mark.parametrize("note", NOTES)
def test_a_note_of_a_ledger_comes_back_from_its_record_with_the_master_key(note):
    packed = pack_note(PLACE, 3, note, KEY)
    header = unpack(packed, "here", PLACE.salt, PLACE.offset)
    assert (header.kind, header.sequence, header.batch, header.note) == (note.kind, 3, None, note)
    assert (header.master_key_hash, header.end) == (KEY, PLACE.offset + len(packed))


def test_a_kind_of_record_that_is_not_known_is_damage():
    packed = bytearray(pack_mark(PLACE, 3, RecordKind.SEAL))
    packed[5] = 7
    packed[-4:] = crc32c(bytes(packed[:-4])).to_bytes(4, "little")
    with pytest.raises(CorruptionError, match="wrong fields"):
        unpack(bytes(packed), "here", PLACE.salt, PLACE.offset)


def test_any_part_of_a_beginning_may_begin_a_record_and_that_of_another_place_does_not(striped):
    packed = pack_batch(PLACE, 12, striped, KEY)
    assert all(may_begin_record(packed[:length], PLACE.salt, PLACE.offset) for length in range(len(packed)))
    assert not any(may_begin_record(packed[:length], PLACE.salt + 1, PLACE.offset) for length in range(17, len(packed)))
    assert not any(may_begin_record(packed[:length], PLACE.salt, PLACE.offset + 1) for length in range(25, len(packed)))
    assert not any(may_begin_record(b"x" + packed[1:length], PLACE.salt, PLACE.offset) for length in range(1, len(packed)))


def test_every_flipped_bit_of_a_header_is_found(striped):
    packed = pack_batch(PLACE, 12, striped, KEY)
    for bit in range(8 * len(packed)):
        flipped = bytearray(packed)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError, match="here"):
            unpack(bytes(flipped), "here", PLACE.salt, PLACE.offset)


def test_a_record_counts_only_in_its_file_and_at_its_offset(striped):
    packed = pack_batch(PLACE, 12, striped, KEY)
    with pytest.raises(CorruptionError, match="another place"):
        unpack(packed, "here", PLACE.salt + 1, PLACE.offset)
    with pytest.raises(CorruptionError, match="another place"):
        unpack(packed, "here", PLACE.salt, PLACE.offset + 4096)


def test_a_newer_record_is_refused_by_name(striped):
    packed = bytearray(pack_batch(PLACE, 12, striped, KEY))
    packed[4] = RECORD_VERSION + 1
    packed[-4:] = crc32c(bytes(packed[:-4])).to_bytes(4, "little")
    with pytest.raises(FormatVersionError, match=f"journal 3 has format version {RECORD_VERSION + 1}"):
        unpack(bytes(packed), "journal 3", PLACE.salt, PLACE.offset)


def test_another_body_is_damage(striped):
    header = unpack(pack_batch(PLACE, 12, striped, KEY), "here", PLACE.salt, PLACE.offset)
    for body in (striped.body[:-1], striped.body[:-1] + b"\xff"):
        with pytest.raises(CorruptionError, match="body"):
            batch_of(header, body, "here")
