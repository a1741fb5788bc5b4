"""Whole entries: kept byte for byte, joined across stripes, taken apart for those who know the digest type."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.config import DigestType
from bk_spark.entries.apache_entries import (
    LEAST_BYTES,
    ApacheEntries,
    apache_entries,
    encode_apache,
    encode_stretches,
    own_batches,
    stretches,
)
from bk_spark.entries.batch import EncodedBatch, binaries, decode, encode, seal
from bk_spark.entries.digest import Digester
from bk_spark.entries.recut import coalesce_whole, cut
from bk_spark.errors import CorruptionError
from bk_spark.quorum import DENSE, IdPattern

LEDGER = 7 << 40

IDS = st.lists(st.integers(0, 500), min_size=1, max_size=80, unique=True).map(sorted)
PATTERNS = st.integers(1, 7).flatmap(lambda e: st.tuples(st.just(e), st.integers(1, e), st.integers(0, e - 1)))
PAYLOADS = st.lists(st.binary(max_size=40), min_size=1, max_size=30)


def ids_of(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def raw(entry_id: int, confirmed: int = -1, rest: bytes = b"") -> bytes:
    return struct.pack(">3q", LEDGER, entry_id, confirmed) + rest


def some(ids: list[int], rest: bytes = b"rest") -> ApacheEntries:
    return ApacheEntries(LEDGER, ids_of(ids), binaries([raw(one, one - 1, rest) for one in ids]))


def content(batches: list[EncodedBatch]) -> list[tuple[int, bytes]]:
    parts = [apache_entries(batch) for batch in batches]
    return [pair for part in parts for pair in zip(part.entry_ids.tolist(), part.entries.to_pylist(), strict=True)]


@given(ids=IDS)
def test_stretches_cover_all_ids_in_order_and_each_holds_just_those_of_its_pattern(ids: list[int]) -> None:
    every = ids_of(ids)
    at = 0
    for rows, pattern in stretches(every):
        assert rows.start == at
        at = rows.stop
        found = every[rows]
        assert pattern.ids(int(found[0]), int(found[-1])).tolist() == found.tolist()
    assert at == len(ids)


@given(shape=PATTERNS, first=st.integers(0, 1_000), count=st.integers(1, 300))
def test_what_one_slot_of_an_ensemble_holds_is_one_stretch(shape: tuple[int, int, int], first: int, count: int) -> None:
    every = IdPattern(*shape).ids(first, first + 7 * count)[:count]
    if len(every):
        assert len(list(stretches(every))) == 1


def test_a_stretch_ends_where_the_slot_changes() -> None:
    before, after = IdPattern(3, 2, 0).ids(0, 30), IdPattern(3, 2, 1).ids(31, 60)
    found = list(stretches(np.concatenate([before, after])))
    assert len(found) == 2
    assert content(encode_stretches(some([*before.tolist(), *after.tolist()])))[0][0] == 0


@given(ids=IDS, rest=st.binary(max_size=60))
def test_single_entries_that_are_joined_stay_what_they_were_byte_for_byte(ids: list[int], rest: bytes) -> None:
    single = [encode_apache(some([one], rest)) for one in ids]
    runs: list[list[EncodedBatch]] = []
    for batch in single:
        if runs and runs[-1][-1].header.is_followed_by(batch.header):
            runs[-1].append(batch)
        else:
            runs.append([batch])
    joined = [batch for run in runs for batch in coalesce_whole(run)]
    assert content(joined) == [(one, raw(one, one - 1, rest)) for one in ids]
    assert max(batch.header.last_add_confirmed for batch in joined) == ids[-1] - 1


@pytest.mark.parametrize("digest_type", DigestType)
@given(payloads=PAYLOADS)
def test_a_writers_batch_and_the_same_entries_whole_are_made_from_each_other(
    digest_type: DigestType, payloads: list[bytes]
) -> None:
    digester = Digester(digest_type, b"secret")
    sealed = seal(digester, LEDGER, 5, pa.array(payloads, pa.binary()), length_before=100, last_add_confirmed=4)
    encoded = encode(sealed, digest_type)
    assert encoded is not None
    whole = encode_apache(apache_entries(encoded))
    assert whole.header.is_apache
    assert whole.header.last_add_confirmed == 4
    [back] = own_batches(whole, digest_type)
    assert back == encoded
    assert list(own_batches(encoded, digest_type)) == [encoded]


def test_entries_whose_lengths_do_not_add_up_are_taken_apart_into_several_batches() -> None:
    digester = Digester(DigestType.CRC32C, b"")
    parts = [
        seal(digester, LEDGER, first, pa.array([b"ab"], pa.binary()), length_before=before, last_add_confirmed=-1)
        for first, before in ((0, 4), (1, 0), (2, 2))
    ]
    whole = [apache_entries(batch) for batch in (encode(part, DigestType.CRC32C) for part in parts) if batch is not None]
    entries = pa.concat_arrays([one.entries for one in whole])
    found = list(own_batches(encode_apache(ApacheEntries(LEDGER, ids_of([0, 1, 2]), entries)), DigestType.CRC32C))
    assert [batch.header.count for batch in found] == [1, 2]
    assert [decode(batch).lengths.tolist() for batch in found] == [[6], [2, 4]]


def test_a_part_of_whole_entries_can_be_cut_out() -> None:
    pattern = IdPattern(3, 2, 0)
    batch = encode_apache(some(pattern.ids(0, 20).tolist()), pattern)
    part = cut(batch, 4, 9)
    assert part is not None
    assert [one for one, _ in content([part])] == pattern.ids(4, 9).tolist()
    assert cut(batch, 0, 20) is batch
    assert cut(batch, 1, 1) is None


def test_whole_entries_of_another_id_or_too_short_for_their_digest_are_damage() -> None:
    other = encode_apache(ApacheEntries(LEDGER, ids_of([4]), binaries([raw(5, 3, bytes(20))])))
    with pytest.raises(CorruptionError, match="they are others"):
        list(own_batches(other, DigestType.CRC32C))
    short = encode_apache(ApacheEntries(LEDGER, ids_of([4]), binaries([raw(4, 3)])))
    with pytest.raises(CorruptionError, match="shorter than its header"):
        list(own_batches(short, DigestType.CRC32C))
    with pytest.raises(CorruptionError, match="their digest type is not known here"):
        decode(short)


@pytest.mark.parametrize("confirmed", [-2, 1 << 62 | 1])
def test_a_last_add_confirmed_that_no_ledger_can_have_is_refused(confirmed: int) -> None:
    with pytest.raises(CorruptionError, match="last add confirmed"):
        encode_apache(ApacheEntries(LEDGER, ids_of([4]), binaries([raw(4, confirmed)])), DENSE)


def test_a_stored_entry_below_the_least_size_is_damage() -> None:
    body = encode_apache(some([1, 2], b"")).body
    assert len(raw(1)) == LEAST_BYTES
    short = ApacheEntries(LEDGER, ids_of([1]), binaries([raw(1)]))
    batch = encode_apache(short)
    assert content([batch]) == [(1, raw(1))]
    assert len(body) > len(batch.body) - LEAST_BYTES
