"""The checksum of pieces put together, and what of a batch's digests it finds wrong."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bk_spark.checksum import crc32c, crc32c_each
from bk_spark.config import DigestType
from bk_spark.digest import Digester
from bk_spark.entry import EntryBatch, seal
from bk_spark.joined_checksum import crc32c_joined

DIGESTER = Digester(DigestType.CRC32C, b"")


def _batch(sizes: list[int], seed: int = 1) -> EntryBatch:
    random = np.random.default_rng(seed)
    payloads = pa.array([random.bytes(size) for size in sizes], pa.binary())
    return seal(DIGESTER, 7, 1000, payloads, length_before=5_000_000_000, last_add_confirmed=999)


@given(sizes=st.lists(st.integers(0, 700), min_size=1, max_size=40), seed=st.integers(0, 2**32))
def test_pieces_have_the_checksum_of_all_of_them(sizes: list[int], seed: int) -> None:
    data = np.random.default_rng(seed).bytes(sum(sizes))
    ends = np.cumsum(sizes).tolist()
    values = crc32c_each((memoryview(data)[end - size : end] for size, end in zip(sizes, ends, strict=True)), len(sizes))
    assert crc32c_joined(values, np.array(sizes, dtype=np.int64)) == crc32c(data)


@given(size=st.integers(0, 300), count=st.integers(1, 300), seed=st.integers(0, 2**32))
def test_pieces_of_one_size_have_the_checksum_of_all_of_them(size: int, count: int, seed: int) -> None:
    _check_equal(size, count, seed)


@pytest.mark.parametrize(("size", "count"), [(65_535, 9), (65_536, 8), (65_537, 7), (300_001, 11), (1, 70_000)])
def test_large_and_many_pieces_of_one_size_have_the_checksum_of_all_of_them(size: int, count: int) -> None:
    _check_equal(size, count, seed=1)


def _check_equal(size: int, count: int, seed: int) -> None:
    data = np.random.default_rng(seed).bytes(size * count)
    values = crc32c_each((memoryview(data)[place * size : (place + 1) * size] for place in range(count)), count)
    assert crc32c_joined(values, np.full(count, size)) == crc32c(data)


@pytest.mark.parametrize("size", [255, 256, 65_535, 65_536, 200_000, 3_000_000])
def test_distances_are_split_into_bytes(size: int) -> None:
    first, second = b"before", np.random.default_rng(size).bytes(size)
    values = np.array([crc32c(first), crc32c(second)], dtype=np.uint32)
    assert crc32c_joined(values, np.array([len(first), size])) == crc32c(first + second)


@settings(deadline=None)
@given(st.integers(0, 299), st.integers(0, 7), st.sampled_from(["payload", "digest"]))
def test_a_flipped_bit_of_one_entry_among_many_is_found(entry: int, bit: int, part: str) -> None:
    batch = _batch([100] * 300)
    assert batch.matching(DIGESTER).all()
    found = _flipped(batch, entry, bit, part).matching(DIGESTER)
    assert np.flatnonzero(~found).tolist() == [entry]


@pytest.mark.parametrize("column", ["entry_ids", "last_add_confirmed", "lengths"])
@pytest.mark.parametrize("entries", [[0], [299], [10, 11], [5, 200]])
def test_a_header_that_was_not_the_writers_is_found(column: str, entries: list[int]) -> None:
    batch = _batch([100] * 300)
    values = getattr(batch, column).copy()
    values[entries] += 1
    parts = {name: getattr(batch, name) for name in ("entry_ids", "last_add_confirmed", "lengths", "digests", "payloads")}
    changed = EntryBatch(7, **{**parts, column: values})
    assert np.flatnonzero(~changed.matching(DIGESTER)).tolist() == entries


@pytest.mark.parametrize("sizes", [[100] * 300, list(range(1, 301)), [0] * 300, [0, 5] * 150])
@pytest.mark.parametrize(("one", "other"), [(3, 4), (0, 299), (100, 102)])
def test_digests_that_changed_places_are_found(sizes: list[int], one: int, other: int) -> None:
    batch = _batch(sizes)
    order = list(range(300))
    order[one], order[other] = other, one
    parts = (batch.entry_ids, batch.last_add_confirmed, batch.lengths)
    changed = EntryBatch(7, *parts, batch.digests.take(pa.array(order)), batch.payloads)
    assert np.flatnonzero(~changed.matching(DIGESTER)).tolist() == [one, other]


def test_a_slice_of_a_batch_is_verified_by_itself() -> None:
    batch = _batch(list(range(1, 401)))
    assert batch.slice(100, 250).matching(DIGESTER).all()
    assert not _flipped(batch, 200, 3, "payload").slice(100, 250).matching(DIGESTER).all()
    assert _flipped(batch, 20, 3, "payload").slice(100, 250).matching(DIGESTER).all()


def test_digests_of_another_ledger_or_of_another_type_are_wrong() -> None:
    batch = _batch([100] * 300)
    parts = (batch.entry_ids, batch.last_add_confirmed, batch.lengths)
    assert not EntryBatch(8, *parts, batch.digests, batch.payloads).matching(DIGESTER).any()
    assert not batch.matching(Digester(DigestType.HMAC, b"")).any()
    long = pa.array([bytes(32)] * 300, pa.binary(32))
    assert not EntryBatch(7, *parts, long, batch.payloads).matching(DIGESTER).any()


def _flipped(batch: EntryBatch, entry: int, bit: int, part: str) -> EntryBatch:
    payloads, digests = batch.payloads.to_pylist(), batch.digests.to_pylist()
    changed = payloads if part == "payload" else digests
    data = bytearray(changed[entry])
    data[-1] ^= 1 << bit
    changed[entry] = bytes(data)
    parts = (batch.entry_ids, batch.last_add_confirmed, batch.lengths)
    return EntryBatch(7, *parts, pa.array(digests, pa.binary(4)), pa.array(payloads, pa.binary()))
