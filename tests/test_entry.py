"""Batches of entries: sealed, encoded, decoded, cut, verified."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.checksum import crc32c
from bk_spark.config import MAX_BATCH_ENTRIES, DigestType
from bk_spark.digest import Digester
from bk_spark.entry import READ_SCHEMA, BatchHeader, EncodedBatch, EntryBatch, cut, decode, encode, seal
from bk_spark.errors import CorruptionError
from bk_spark.quorum import DENSE, IdPattern, pattern_of_slot

PAYLOADS = [b"a", b"", b"ccc", b"d" * 100]


def _sealed(digester: Digester, payloads: list[bytes], first: int = 100) -> EntryBatch:
    array = pa.array(payloads, pa.binary())
    return seal(digester, 7, first, array, length_before=1000, last_add_confirmed=first - 1)


def _encoded(batch: EntryBatch, digest_type: DigestType, pattern: IdPattern = DENSE) -> EncodedBatch:
    encoded = encode(batch, digest_type, pattern)
    assert encoded is not None
    return encoded


@pytest.mark.parametrize("digest_type", DigestType)
@given(payloads=st.lists(st.binary(max_size=20), min_size=1, max_size=30), first=st.integers(0, 2**40))
def test_what_is_encoded_is_decoded_and_verifies(digest_type: DigestType, payloads: list[bytes], first: int) -> None:
    digester = Digester(digest_type, b"secret")
    back = decode(_encoded(_sealed(digester, payloads, first), digest_type))
    assert back.payloads.to_pylist() == payloads
    assert back.entry_ids.tolist() == list(range(first, first + len(payloads)))
    assert back.lengths.tolist() == (1000 + np.cumsum([len(p) for p in payloads])).tolist()
    assert back.last_add_confirmed.tolist() == [first - 1] * len(payloads)
    assert back.matching(digester).all()
    assert back.to_arrow().schema == READ_SCHEMA


@pytest.mark.parametrize("slot", range(4))
def test_a_striped_batch_holds_the_entries_of_its_slot_with_their_own_lengths(slot: int) -> None:
    digester = Digester(DigestType.CRC32C, b"")
    whole = _sealed(digester, PAYLOADS)
    pattern = pattern_of_slot(4, 2, slot)
    back = decode(_encoded(whole, DigestType.CRC32C, pattern))
    kept = [i for i in range(4) if pattern.holds(100 + i)]
    assert back.payloads.to_pylist() == [PAYLOADS[i] for i in kept]
    assert back.lengths.tolist() == whole.lengths[kept].tolist()
    assert back.matching(digester).all()


def test_a_slot_that_holds_nothing_of_a_batch_is_sent_nothing() -> None:
    sealed = _sealed(Digester(DigestType.CRC32C, b""), [b"x"], first=0)
    assert encode(sealed, DigestType.CRC32C, pattern_of_slot(4, 2, 2)) is None


@pytest.mark.parametrize("field", ["ledger_id", "entry_ids", "last_add_confirmed", "lengths", "payloads"])
@pytest.mark.parametrize("digest_type", DigestType)
def test_a_digest_covers_ledger_id_entry_id_lac_length_and_payload(digest_type: DigestType, field: str) -> None:
    digester = Digester(digest_type, b"secret")
    batch = _sealed(digester, PAYLOADS)
    changed = {
        "ledger_id": 8,
        "entry_ids": batch.entry_ids + 1,
        "last_add_confirmed": batch.last_add_confirmed - 1,
        "lengths": batch.lengths + 1,
        "payloads": pa.array([b"b", b"x", b"ccC", b"e" * 100], pa.binary()),
    }[field]
    altered = dataclasses.replace(batch, **{field: changed})  # type: ignore[arg-type]
    assert not altered.matching(digester).any()


def test_an_hmac_digest_depends_on_the_password_and_a_crc_does_not() -> None:
    hmac = _sealed(Digester(DigestType.HMAC, b"right"), PAYLOADS)
    assert not hmac.matching(Digester(DigestType.HMAC, b"wrong")).any()
    crc = _sealed(Digester(DigestType.CRC32C, b"right"), PAYLOADS)
    assert crc.matching(Digester(DigestType.CRC32C, b"wrong")).all()


def test_only_the_damaged_entry_fails_its_digest() -> None:
    digester = Digester(DigestType.CRC32C, b"")
    batch = _sealed(digester, PAYLOADS)
    damaged = dataclasses.replace(batch, payloads=pa.array([b"a", b"", b"cXc", b"d" * 100], pa.binary()))
    assert damaged.matching(digester).tolist() == [True, True, False, True]


@given(st.data())
def test_cutting_keeps_exactly_the_asked_entries(data: st.DataObject) -> None:
    digester = Digester(DigestType.CRC32C, b"")
    whole = _sealed(digester, [b"%d" % i for i in range(20)])
    pattern = data.draw(st.sampled_from([DENSE, *(pattern_of_slot(4, 2, s) for s in range(4))]))
    first = data.draw(st.integers(90, 125))
    last = data.draw(st.integers(first, 130))
    piece = cut(_encoded(whole, DigestType.CRC32C, pattern), first, last)
    expected = [i for i in pattern.ids(100, 119).tolist() if first <= i <= last]
    if piece is None:
        assert expected == []
    else:
        back = decode(piece)
        assert back.entry_ids.tolist() == expected
        assert back.matching(digester).all()


def test_every_flipped_bit_of_a_body_is_an_error_and_never_other_data() -> None:
    encoded = _encoded(_sealed(Digester(DigestType.CRC32C, b""), PAYLOADS), DigestType.CRC32C)
    for bit in range(len(encoded.body) * 8):
        body = bytearray(encoded.body)
        body[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            decode(dataclasses.replace(encoded, body=bytes(body)))


@given(st.binary(max_size=400))
def test_bytes_that_are_no_batch_are_refused_even_with_a_right_checksum(body: bytes) -> None:
    header = BatchHeader(7, 0, 3, DENSE, -1, 0, DigestType.CRC32C)
    with pytest.raises(CorruptionError):
        decode(EncodedBatch(header, body, crc32c(body)))


def test_a_garbled_body_with_a_right_checksum_never_crashes() -> None:
    """A hostile sender makes its own checksums: offsets that point outside must be refused, not followed."""
    encoded = _encoded(_sealed(Digester(DigestType.CRC32C, b""), PAYLOADS), DigestType.CRC32C)
    for index in range(len(encoded.body)):
        body = bytearray(encoded.body)
        body[index] ^= 0xFF
        try:
            batch = decode(EncodedBatch(encoded.header, bytes(body), crc32c(bytes(body))))
        except CorruptionError:
            continue
        batch.matching(Digester(DigestType.CRC32C, b""))


def test_payload_offsets_that_point_outside_are_refused_even_with_a_right_checksum() -> None:
    encoded = _encoded(_sealed(Digester(DigestType.CRC32C, b""), PAYLOADS), DigestType.CRC32C)
    offsets = np.cumsum([0, *map(len, PAYLOADS)], dtype="<i4").tobytes()
    assert encoded.body.count(offsets) == 1
    outside = offsets[:-4] + np.int32(10**6).tobytes()
    body = encoded.body.replace(offsets, outside)
    with pytest.raises(CorruptionError, match="not an Arrow record batch"):
        decode(EncodedBatch(encoded.header, body, crc32c(body)))


@pytest.mark.parametrize("pattern", [DENSE, IdPattern(3, 2, 1)])
def test_whichever_bit_of_a_batch_flips_behind_its_checksum_it_is_damaged_or_does_not_verify(pattern: IdPattern) -> None:
    digester = Digester(DigestType.CRC32C, b"")
    encoded = _encoded(_sealed(digester, PAYLOADS), DigestType.CRC32C, pattern)
    right = decode(encoded).payloads
    for place in range(8 * len(encoded.body)):
        body = bytearray(encoded.body)
        body[place // 8] ^= 1 << place % 8
        try:
            batch = decode(EncodedBatch(encoded.header, bytes(body), crc32c(bytes(body))))
        except CorruptionError:
            continue
        assert not batch.matching(digester).all() or batch.payloads.equals(right), f"bit {place}"


@pytest.mark.parametrize(
    "change",
    [
        {"first_entry_id": -1},
        {"last_entry_id": 4},
        {"last_entry_id": 5 + MAX_BATCH_ENTRIES},
        {"last_add_confirmed": 5},
        {"last_add_confirmed": -2},
        {"length_before": -1},
        {"ledger_id": -1},
        {"pattern": IdPattern(4, 2, 3)},
    ],
)
def test_a_header_that_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    header = BatchHeader(7, 5, 8, DENSE, 4, 0, DigestType.CRC32C)
    with pytest.raises(CorruptionError):
        dataclasses.replace(header, **change)  # type: ignore[arg-type]


def test_a_batch_costs_the_same_memory_however_it_is_cut() -> None:
    whole = _sealed(Digester(DigestType.CRC32C, b""), PAYLOADS)
    assert sum(whole.slice(i, 1).nbytes for i in range(4)) == whole.nbytes
