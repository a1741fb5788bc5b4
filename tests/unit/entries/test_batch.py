"""Batches of entries: sealed, encoded, decoded, cut, verified."""

import dataclasses
import hashlib
import hmac
import struct
import zlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.config import MAX_BATCH_ENTRIES, DigestType
from bk_spark.entries.batch import MAX_ENTRY_ID, READ_SCHEMA, BatchHeader, EncodedBatch, EntryBatch, decode, encode, seal
from bk_spark.entries.crc import crc32c
from bk_spark.entries.digest import Digester, master_key
from bk_spark.entries.recut import coalesce, cut
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


@pytest.mark.parametrize("rows", [10, 300])
@pytest.mark.parametrize("name", ["digest", "payload"])
def test_a_batch_with_a_null_is_damaged_though_its_bytes_are_those_that_were_summed(rows: int, name: str) -> None:
    """A null has bytes, with which digests agree, and no value."""
    whole = _encoded(_sealed(Digester(DigestType.CRC32C, b""), [b"x" * 100] * rows), DigestType.CRC32C)
    schema = pa.schema([pa.field("digest", pa.binary(4)), pa.field("payload", pa.binary())])
    columns = {one: pa.ipc.read_record_batch(pa.py_buffer(whole.body), schema).column(one) for one in schema.names}
    values = columns[name]
    valid = pa.py_buffer(np.packbits(np.arange(rows) < rows - 1, bitorder="little").tobytes())
    columns[name] = pa.Array.from_buffers(values.type, rows, [valid, *values.buffers()[1:]])
    body = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema).serialize().to_pybytes()
    with pytest.raises(CorruptionError, match="there are nulls in it"):
        decode(EncodedBatch(whole.header, body, crc32c(body)))


def test_a_slot_that_holds_nothing_of_a_batch_is_sent_nothing() -> None:
    sealed = _sealed(Digester(DigestType.CRC32C, b""), [b"x"], first=0)
    assert encode(sealed, DigestType.CRC32C, pattern_of_slot(4, 2, 2)) is None


@pytest.mark.parametrize("field", ["ledger_id", "entry_ids", "last_add_confirmed", "lengths", "payloads"])
@pytest.mark.parametrize("digest_type", [one for one in DigestType if one is not DigestType.DUMMY])
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
    keyed = _sealed(Digester(DigestType.HMAC, b"right"), PAYLOADS)
    assert not keyed.matching(Digester(DigestType.HMAC, b"wrong")).any()
    for digest_type in (DigestType.CRC32C, DigestType.CRC32, DigestType.DUMMY):
        other = _sealed(Digester(digest_type, b"right"), PAYLOADS)
        assert other.matching(Digester(digest_type, b"wrong")).all()


def test_digests_are_those_of_apache_bookkeeper() -> None:
    """Header, then payload, big-endian; as Apache's DigestManager makes them."""
    for number, payload in enumerate(PAYLOADS):
        covered = struct.pack(">4q", 7, 100 + number, 99, 1000 + sum(map(len, PAYLOADS[: number + 1]))) + payload
        expected = {
            DigestType.CRC32C: struct.pack(">I", crc32c(covered)),
            DigestType.CRC32: struct.pack(">q", zlib.crc32(covered)),
            DigestType.HMAC: hmac.digest(hashlib.sha1(b"macsecret").digest(), covered, "sha1"),
            DigestType.DUMMY: b"",
        }
        for digest_type, digest in expected.items():
            assert _sealed(Digester(digest_type, b"secret"), PAYLOADS).digests[number].as_py() == digest


def test_a_master_key_is_apache_bookkeepers_followed_by_the_creators_token() -> None:
    assert master_key(b"", 0).hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f" + 16 * "0"
    assert master_key(b"secret", -1) == hashlib.sha1(b"ledgersecret").digest() + 8 * b"\xff"


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


def test_a_body_that_stands_for_more_than_its_own_bytes_is_refused() -> None:
    """A few of them, joined by a bookie's checkpoint, would take its memory, or more than one Arrow array can hold."""
    sealed = _sealed(Digester(DigestType.CRC32C, b""), [bytes(1_000_000)])
    encoded = _encoded(sealed, DigestType.CRC32C)
    batch = pa.record_batch([sealed.digests, sealed.payloads], names=["digest", "payload"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    body = messages.read_next_message().serialize().to_pybytes()
    assert len(body) < 1000
    with pytest.raises(CorruptionError, match="not compressed"):
        decode(EncodedBatch(encoded.header, body, crc32c(body)))


def test_payload_offsets_that_point_outside_are_refused_even_with_a_right_checksum() -> None:
    encoded = _encoded(_sealed(Digester(DigestType.CRC32C, b""), PAYLOADS), DigestType.CRC32C)
    offsets = np.cumsum([0, *map(len, PAYLOADS)], dtype="<i4").tobytes()
    assert encoded.body.count(offsets) == 1
    outside = offsets[:-4] + np.int32(10**6).tobytes()
    body = encoded.body.replace(offsets, outside)
    with pytest.raises(CorruptionError, match="not an Arrow record batch"):
        decode(EncodedBatch(encoded.header, body, crc32c(body)))


@pytest.mark.parametrize("is_joined", [False, True])
@pytest.mark.parametrize("pattern", [DENSE, IdPattern(3, 2, 1)])
def test_whichever_bit_of_a_batch_flips_behind_its_checksum_it_is_damaged_or_does_not_verify(
    pattern: IdPattern, is_joined: bool
) -> None:
    digester = Digester(DigestType.CRC32C, b"")
    encoded = _encoded(_sealed(digester, PAYLOADS), DigestType.CRC32C, pattern)
    if is_joined:
        encoded = coalesce(_run(digester, [1, 1, 2], [0, 0, 0], pattern))
        assert encoded.header.mixed_lac
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
        {"last_add_confirmed": MAX_ENTRY_ID + 1},
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


def _run(digester: Digester, counts: list[int], lags: list[int], pattern: IdPattern = DENSE) -> list[EncodedBatch]:
    """Batches of so many entries, one after the other from entry 100 on, each with a LAC so far below its first entry."""
    batches, first, length = [], 100, 1000
    for count, lag in zip(counts, lags, strict=True):
        payloads = pa.array([b"%d" % one * (one % 4) for one in range(first, first + count)], pa.binary())
        sealed = seal(digester, 7, first, payloads, length_before=length, last_add_confirmed=first - 1 - lag)
        encoded = encode(sealed, digester.digest_type, pattern)
        batches += [] if encoded is None else [encoded]
        first, length = first + count, int(sealed.lengths[-1])
    return batches


def _rows(batches: list[EncodedBatch]) -> list[tuple[object, ...]]:
    decoded = [decode(one) for one in batches]
    columns = ("entry_ids", "last_add_confirmed", "lengths", "digests", "payloads")
    return [row for one in decoded for row in zip(*(getattr(one, name).tolist() for name in columns), strict=True)]


@pytest.mark.parametrize("digest_type", DigestType)
@given(st.data())
def test_joined_batches_hold_the_same_entries_with_their_own_lacs_and_digests(
    digest_type: DigestType, data: st.DataObject
) -> None:
    digester = Digester(digest_type, b"secret")
    counts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    lags = data.draw(st.lists(st.integers(0, 20), min_size=len(counts), max_size=len(counts)))
    pattern = data.draw(st.sampled_from([DENSE, pattern_of_slot(3, 2, 1), pattern_of_slot(5, 2, 4)]))
    batches = _run(digester, counts, lags, pattern)
    if batches:
        joined = coalesce(batches)
        assert _rows([joined]) == _rows(batches)
        assert decode(joined).matching(digester).all()
        assert joined.header.last_add_confirmed == max(one.header.last_add_confirmed for one in batches)
        assert joined.header.mixed_lac == (len({one.header.last_add_confirmed for one in batches}) > 1)
        assert coalesce([joined]) is joined


@given(st.data())
def test_a_joined_batch_is_cut_striped_and_joined_again_like_any_other(data: st.DataObject) -> None:
    digester = Digester(DigestType.CRC32C, b"")
    joined = coalesce(_run(digester, [1, 2, 3, 1, 1], [0, 1, 0, 9, 9]))
    middle = data.draw(st.integers(100, 106))
    halves = [cut(joined, 0, middle), cut(joined, middle + 1, 200)]
    assert halves[0] is not None
    assert halves[1] is not None
    assert _rows([halves[0], halves[1]]) == _rows([joined])
    assert coalesce([halves[0], halves[1]]) == joined
    pattern = pattern_of_slot(3, 2, data.draw(st.integers(0, 2)))
    striped = _encoded(decode(joined), DigestType.CRC32C, pattern)
    assert _rows([striped]) == [row for row in _rows([joined]) if pattern.holds(int(str(row[0])))]
    assert decode(striped).matching(digester).all()


def test_batches_of_one_lac_are_joined_without_a_column_for_it() -> None:
    batches = _run(Digester(DigestType.CRC32C, b""), [2, 2], [0, 2])
    joined = coalesce(batches)
    assert not joined.header.mixed_lac
    assert joined.body == _encoded(decode(joined), DigestType.CRC32C).body
    pieces = [cut(coalesce(_run(Digester(DigestType.CRC32C, b""), [2, 2], [0, 0])), *one) for one in ((100, 101), (102, 103))]
    assert [one is not None and one.header.mixed_lac for one in pieces] == [False, False]


def test_what_does_not_go_on_where_the_batch_before_it_ended_is_not_joined() -> None:
    digester = Digester(DigestType.CRC32C, b"")
    first, second, third = _run(digester, [2, 2, 2], [0, 0, 0])
    for pair in ((first, third), (second, first), (first, first)):
        assert not pair[0].header.is_followed_by(pair[1].header)
        with pytest.raises(CorruptionError, match="does not go on"):
            coalesce(pair)
    for change in ({"ledger_id": 8}, {"digest_type": DigestType.HMAC}, {"pattern": IdPattern(3, 2, 1)}):
        assert not first.header.is_followed_by(dataclasses.replace(second.header, **change))  # type: ignore[arg-type]
    striped = _run(digester, [1] * 6, [0] * 6, pattern_of_slot(5, 3, 4))
    assert [one.header.is_followed_by(other.header) for one, other in pairwise(striped)] == [True] * 2
    assert not striped[0].header.is_followed_by(striped[2].header)
    with pytest.raises(CorruptionError, match="does not go on"):
        coalesce([striped[0], striped[2]])
    longer = dataclasses.replace(second, header=dataclasses.replace(second.header, length_before=2000))
    with pytest.raises(CorruptionError, match="does not go on"):
        coalesce([first, longer])


def test_more_than_a_batch_may_hold_is_not_joined() -> None:
    digester = Digester(DigestType.CRC32C, b"")
    payloads = pa.array([bytes(9 << 20)], pa.binary())
    large = [seal(digester, 7, i, payloads, length_before=i * (9 << 20), last_add_confirmed=-1) for i in range(2)]
    with pytest.raises(CorruptionError, match="the maximum"):
        coalesce([_encoded(one, DigestType.CRC32C) for one in large])


def test_a_lac_of_its_own_that_no_entry_can_have_or_not_as_the_header_says_is_refused() -> None:
    """A body comes from a bookie: what it says of an entry's LAC is checked before anybody acts on it."""
    *batches, after = _run(Digester(DigestType.CRC32C, b""), [1, 1, 1, 1, 1], [0, 0, 0, 0, 0])
    joined = coalesce(batches)
    right = np.array([99, 100, 101, 102], dtype="<i8").tobytes()
    assert joined.body.count(right) == 1
    for wrong in ([99, 100, 101, 101], [-2, 100, 101, 102], [99, 100, 101, 103]):
        body = joined.body.replace(right, np.array(wrong, dtype="<i8").tobytes())
        with pytest.raises(CorruptionError, match="last add confirmed"):
            decode(EncodedBatch(joined.header, body, crc32c(body)))
        with pytest.raises(CorruptionError, match="last add confirmed"):
            coalesce([EncodedBatch(joined.header, body, crc32c(body)), after])
    for others in ([99, -1, 98, 102], [102, 102, 101, 99]):
        body = joined.body.replace(right, np.array(others, dtype="<i8").tobytes())
        assert decode(EncodedBatch(joined.header, body, crc32c(body))).last_add_confirmed.tolist() == others


def test_a_copy_whose_lac_is_from_the_time_of_copying_is_kept_as_it_is() -> None:
    """Apache's AutoRecovery gives each copy the ledger's last entry as its LAC, and a digest that covers it."""
    payloads = pa.array(PAYLOADS, pa.binary())
    copied = seal(Digester(DigestType.CRC32C, b""), 7, 0, payloads, length_before=0, last_add_confirmed=10**6)
    found = decode(_encoded(copied, DigestType.CRC32C))
    assert found.last_add_confirmed.tolist() == [10**6] * len(PAYLOADS)
    assert found.matching(Digester(DigestType.CRC32C, b"")).all()


@pytest.mark.parametrize("confirmed", [-2, MAX_ENTRY_ID + 1])
def test_the_highest_of_mixed_lacs_is_an_entry_id_or_none(confirmed: int) -> None:
    header = BatchHeader(7, 5, 8, DENSE, 7, 0, DigestType.CRC32C, mixed_lac=True)
    with pytest.raises(CorruptionError, match="last add confirmed"):
        dataclasses.replace(header, last_add_confirmed=confirmed)


@pytest.mark.parametrize("pattern", [DENSE, IdPattern(5, 4, 1)])
def test_a_body_with_more_or_fewer_rows_than_its_header_has_ids_is_refused(pattern: IdPattern) -> None:
    encoded = _encoded(_sealed(Digester(DigestType.CRC32C, b""), PAYLOADS), DigestType.CRC32C, pattern)
    for last in (101, 105):
        header = dataclasses.replace(encoded.header, last_entry_id=last)
        with pytest.raises(CorruptionError, match="rows for"):
            decode(dataclasses.replace(encoded, header=header))


def test_a_header_without_the_column_does_not_fit_a_body_that_has_it_nor_the_other_way_round() -> None:
    batches = _run(Digester(DigestType.CRC32C, b""), [2, 2], [0, 0])
    joined = coalesce(batches)
    plain = dataclasses.replace(joined.header, mixed_lac=False, last_add_confirmed=99)
    mixed = dataclasses.replace(batches[0].header, mixed_lac=True)
    for encoded in (dataclasses.replace(joined, header=plain), dataclasses.replace(batches[0], header=mixed)):
        with pytest.raises(CorruptionError):
            decode(encoded)
