"""Digests of many entries verified at once: right ones pass, and wrong ones are found."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bk_spark.config import DigestType
from bk_spark.entries.batch import EntryBatch, seal
from bk_spark.entries.digest import Digester

DIGESTER = Digester(DigestType.CRC32C, b"")
LEDGER = 7 << 56
"""Its highest byte is the first of each header: what overwrites that shows."""


def _batch(sizes: list[int], seed: int = 1) -> EntryBatch:
    random = np.random.default_rng(seed)
    payloads = pa.array([random.bytes(size) for size in sizes], pa.binary())
    return seal(DIGESTER, LEDGER, 1000, payloads, length_before=5_000_000_000, last_add_confirmed=999)


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 700), min_size=128, max_size=200), seed=st.integers(0, 2**32))
def test_entries_of_many_sizes_are_right_together(sizes: list[int], seed: int) -> None:
    assert _are_right(_batch(sizes, seed))


@settings(deadline=None)
@given(size=st.integers(0, 120), count=st.integers(1, 300), seed=st.integers(0, 2**32))
def test_entries_of_one_size_are_right_together(size: int, count: int, seed: int) -> None:
    assert _are_right(_batch([size] * count, seed))


@pytest.mark.parametrize("sizes", [[4] * 40_000, [65_535, *[36] * 200, 70_000], [4, *[3_001] * 130, 5], [1_000_000]])
def test_large_and_many_entries_are_right(sizes: list[int]) -> None:
    batch = _batch(sizes)
    assert _are_right(batch)
    for entry in {0, len(sizes) // 2, len(sizes) - 1}:
        assert not _are_right(_flipped(batch, entry, 3, "digest"))


def _are_right(batch: EntryBatch) -> bool:
    columns = (batch.entry_ids, batch.last_add_confirmed, batch.lengths, batch.payloads, batch.digests)
    return DIGESTER.are_right(LEDGER, *columns)


@settings(deadline=None)
@given(st.integers(0, 299), st.integers(0, 7), st.sampled_from([4, 35, 100]), st.sampled_from(["payload", "digest"]))
def test_a_flipped_bit_of_one_entry_among_many_is_found(entry: int, bit: int, size: int, part: str) -> None:
    batch = _batch([size] * 300)
    found = _flipped(batch, entry, bit, part).matching(DIGESTER)
    assert np.flatnonzero(~found).tolist() == [entry]


@pytest.mark.parametrize("column", ["entry_ids", "last_add_confirmed", "lengths"])
@pytest.mark.parametrize("entries", [[0], [299], [10, 11], [5, 200]])
def test_a_header_that_was_not_the_writers_is_found(column: str, entries: list[int]) -> None:
    batch = _batch([100] * 300)
    values = getattr(batch, column).copy()
    values[entries] += 1
    parts = {name: getattr(batch, name) for name in ("entry_ids", "last_add_confirmed", "lengths", "digests", "payloads")}
    changed = EntryBatch(LEDGER, **{**parts, column: values})
    assert np.flatnonzero(~changed.matching(DIGESTER)).tolist() == entries


@pytest.mark.parametrize("sizes", [[100] * 300, [4] * 300, [9, 5, 36] * 100, list(range(1, 301)), [0] * 300])
@pytest.mark.parametrize(("one", "other"), [(3, 4), (0, 299), (100, 102)])
def test_digests_that_changed_places_are_found(sizes: list[int], one: int, other: int) -> None:
    batch = _batch(sizes)
    order = list(range(300))
    order[one], order[other] = other, one
    parts = (batch.entry_ids, batch.last_add_confirmed, batch.lengths)
    changed = EntryBatch(LEDGER, *parts, batch.digests.take(pa.array(order)), batch.payloads)
    assert np.flatnonzero(~changed.matching(DIGESTER)).tolist() == [one, other]


def test_a_slice_of_a_batch_is_verified_by_itself() -> None:
    batch = _batch(list(range(1, 401)))
    assert batch.slice(100, 250).matching(DIGESTER).all()
    assert not _flipped(batch, 200, 3, "payload").slice(100, 250).matching(DIGESTER).all()
    assert _flipped(batch, 20, 3, "payload").slice(100, 250).matching(DIGESTER).all()


def test_digests_of_another_ledger_or_of_another_type_are_wrong() -> None:
    batch = _batch([100] * 300)
    parts = (batch.entry_ids, batch.last_add_confirmed, batch.lengths)
    assert not EntryBatch(LEDGER + 1, *parts, batch.digests, batch.payloads).matching(DIGESTER).any()
    assert not batch.matching(Digester(DigestType.HMAC, b"")).any()
    long = pa.array([bytes(32)] * 300, pa.binary(32))
    assert not EntryBatch(LEDGER, *parts, long, batch.payloads).matching(DIGESTER).any()


def _flipped(batch: EntryBatch, entry: int, bit: int, part: str) -> EntryBatch:
    payloads, digests = batch.payloads.to_pylist(), batch.digests.to_pylist()
    changed = payloads if part == "payload" else digests
    data = bytearray(changed[entry])
    data[-1] ^= 1 << bit
    changed[entry] = bytes(data)
    parts = (batch.entry_ids, batch.last_add_confirmed, batch.lengths)
    return EntryBatch(LEDGER, *parts, pa.array(digests, pa.binary(4)), pa.array(payloads, pa.binary()))
