from __future__ import annotations

import pytest

from bk_spark.bookie.record import (
    RECORD_HEADER_BYTES,
    LedgerNote,
    Place,
    RecordKind,
    batch_of,
    pack_batch,
    pack_mark,
    pack_note,
    unpack,
)
from bk_spark.checksum import crc32c
from bk_spark.errors import CorruptionError, FormatVersionError
from bk_spark.quorum import IdPattern

PLACE = Place(salt=2**63 + 5, offset=4096, synced_through=4000)
KEY = bytes(range(16))


@pytest.fixture
def striped(harness):
    return harness.batch(7, 0, 20, pattern=IdPattern(4, 3, 2))


def test_a_batch_comes_back_from_its_record(striped):
    header = unpack(pack_batch(PLACE, 12, striped, KEY), "here", PLACE.salt, PLACE.offset)
    assert (header.place, header.kind, header.sequence, header.master_key_hash) == (PLACE, RecordKind.BATCH, 12, KEY)
    assert header.end == PLACE.offset + RECORD_HEADER_BYTES + len(striped.body)
    assert batch_of(header, striped.body, "here") == striped


@pytest.mark.parametrize("kind", [RecordKind.IDLE, RecordKind.SEAL])
def test_idle_and_seal_have_no_body(kind):
    packed = pack_mark(PLACE, 3, kind)
    header = unpack(packed, "here", PLACE.salt, PLACE.offset)
    assert (header.kind, header.sequence, header.batch, header.end) == (kind, 3, None, PLACE.offset + len(packed))
    assert header.note is None


@pytest.mark.parametrize("note", [LedgerNote(RecordKind.FENCE, 7), LedgerNote(RecordKind.CONFIRMED, 7, 2**40)])
def test_a_note_of_a_ledger_comes_back_from_its_record_with_the_master_key(note):
    packed = pack_note(PLACE, 3, note, KEY)
    header = unpack(packed, "here", PLACE.salt, PLACE.offset)
    assert (header.kind, header.sequence, header.batch, header.note) == (note.kind, 3, None, note)
    assert (header.master_key_hash, header.end) == (KEY, PLACE.offset + len(packed))


def test_a_kind_of_record_that_is_not_known_is_damage():
    packed = bytearray(pack_mark(PLACE, 3, RecordKind.SEAL))
    packed[5] = 6
    packed[-4:] = crc32c(bytes(packed[:-4])).to_bytes(4, "little")
    with pytest.raises(CorruptionError, match="wrong fields"):
        unpack(bytes(packed), "here", PLACE.salt, PLACE.offset)


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
    packed[4] = 2
    packed[-4:] = crc32c(bytes(packed[:-4])).to_bytes(4, "little")
    with pytest.raises(FormatVersionError, match="journal 3 has format version 2"):
        unpack(bytes(packed), "journal 3", PLACE.salt, PLACE.offset)


def test_another_body_is_damage(striped):
    header = unpack(pack_batch(PLACE, 12, striped, KEY), "here", PLACE.salt, PLACE.offset)
    for body in (striped.body[:-1], striped.body[:-1] + b"\xff"):
        with pytest.raises(CorruptionError, match="body"):
            batch_of(header, body, "here")
