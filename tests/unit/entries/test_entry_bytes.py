"""Entries on Apache's wire, made from batches and back, against the plain way with ``struct``."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.config import DigestType
from bk_spark.entries.batch import EntryBatch, seal
from bk_spark.entries.digest import Digester
from bk_spark.entries.entry_bytes import Places, entries_of, framed
from bk_spark.errors import CorruptionError
from bk_spark.wire.apache import version_2

LEDGER = 7 << 40


def sealed(digest_type: DigestType, payloads: list[bytes]) -> EntryBatch:
    digester = Digester(digest_type, b"secret")
    return seal(digester, LEDGER, 5, pa.array(payloads, pa.binary()), length_before=100, last_add_confirmed=4)


def plain(batch: EntryBatch) -> list[bytes]:
    numbers = zip(batch.entry_ids.tolist(), batch.last_add_confirmed.tolist(), batch.lengths.tolist(), strict=True)
    heads = [struct.pack(">4q", LEDGER, *three) for three in numbers]
    return [b"".join(parts) for parts in zip(heads, batch.digests.to_pylist(), batch.payloads.to_pylist(), strict=True)]


def whole(entry: bytes) -> Places:
    return np.array([[0, len(entry)]])


PAYLOADS = st.one_of(
    st.lists(st.binary(max_size=40), min_size=1, max_size=30),
    st.builds(lambda count, size: [bytes([n]) * size for n in range(count)], st.integers(1, 30), st.integers(0, 50)),
)


@pytest.mark.parametrize("digest_type", DigestType)
@given(payloads=PAYLOADS, skipped=st.integers(0, 3))
def test_a_batch_becomes_frames_and_its_entries_become_the_batch(
    digest_type: DigestType, payloads: list[bytes], skipped: int
) -> None:
    batch = sealed(digest_type, payloads)
    batch = batch.slice(min(skipped, len(batch) - 1), len(batch) - min(skipped, len(batch) - 1))
    entries = plain(batch)
    frames = framed(batch, digest_type, b"before")
    assert frames == b"".join(struct.pack(">I", 6 + len(entry)) + b"before" + entry for entry in entries)
    answer = version_2.unpack(struct.pack(">BBHiqqq", 2, 7, 0, 0, LEDGER, 5, 1) + framed(batch, digest_type, b""))
    assert [answer.data[begin:end] for begin, end in answer.places.tolist()] == entries
    back = entries_of(LEDGER, digest_type, answer.data, answer.places)
    assert back.entry_ids.tolist() == batch.entry_ids.tolist()
    assert back.last_add_confirmed.tolist() == batch.last_add_confirmed.tolist()
    assert back.lengths.tolist() == batch.lengths.tolist()
    assert back.payloads.to_pylist() == batch.payloads.to_pylist()
    assert back.matching(Digester(digest_type, b"secret")).all()


@pytest.mark.parametrize("digest_type", DigestType)
def test_an_entry_that_ends_within_its_header_or_digest_is_damaged(digest_type: DigestType) -> None:
    (entry,) = plain(sealed(digest_type, [b""]))
    assert len(entries_of(LEDGER, digest_type, entry, whole(entry))) == 1
    for size in (0, 31, len(entry) - 1):
        with pytest.raises(CorruptionError, match="shorter than its header"):
            entries_of(LEDGER, digest_type, entry, np.array([[0, size]]))


def test_an_entry_of_another_ledger_is_refused() -> None:
    (entry,) = plain(sealed(DigestType.CRC32C, [b"x"]))
    with pytest.raises(CorruptionError, match="another ledger"):
        entries_of(LEDGER + 1, DigestType.CRC32C, entry, whole(entry))
