"""Bytes that are stored as a batch hold the entries that their header names."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from bk_spark.config import DigestType
from bk_spark.entries import batch as batches
from bk_spark.entries.batch import EncodedBatch, binaries, decode, draft_of, encode, read_body, seal
from bk_spark.entries.crc import crc32c
from bk_spark.entries.digest import Digester
from bk_spark.errors import CorruptionError
from bk_spark.quorum import DENSE, IdPattern

SHAPES = [
    (digest_type, pattern, count, size)
    for digest_type in DigestType
    for pattern in (DENSE, IdPattern(3, 2, 1))
    for count, size in ((1, 0), (3, 1), (1, 400), (20, 33), (500, 10))
]


def encoded_of(digest_type, pattern, count, size) -> EncodedBatch:
    payloads = binaries([bytes([number % 251]) * (size + number % 2) for number in range(count)])
    sealed = seal(Digester(digest_type, b""), 7, 0, payloads, length_before=0, last_add_confirmed=-1)
    encoded = encode(sealed, digest_type, pattern)
    assert encoded is not None
    return encoded


def with_body(encoded: EncodedBatch, body: bytes) -> EncodedBatch:
    return replace(encoded, body=body, body_crc32c=crc32c(body))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_client_encodes_is_taken_without_decoding_it(monkeypatch, shape):
    encoded = encoded_of(*shape)
    monkeypatch.setattr(batches, "decode", lambda _: pytest.fail("it was decoded"))
    encoded.check_entries()
    with_body(encoded, encoded.body).check_entries()


@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_passes_can_be_decoded(shape):
    """Bodies with some bytes changed, most of them in the numbers in front."""
    encoded, choose = encoded_of(*shape), random.Random(5)
    for _ in range(60):
        encoded.check_entries()  # what passed before makes nothing else pass
        body = bytearray(encoded.body)
        for _ in range(choose.randint(1, 3)):
            body[choose.randrange(min(len(body), 420))] = choose.choice([0, 1, 2, 7, 8, 16, 64, 127, 255])
        spoilt = with_body(encoded, bytes(body[: choose.choice([len(body), len(body), choose.randrange(len(body))])]))
        try:
            spoilt.check_entries()
        except CorruptionError:
            continue
        assert len(decode(spoilt)) == encoded.header.count


@pytest.mark.parametrize("body", [b"", b"x", b"no batch at all" * 40, bytes(624)])
def test_bytes_that_are_no_batch_are_refused(body):
    with pytest.raises(CorruptionError):
        with_body(encoded_of(DigestType.CRC32C, DENSE, 1, 400), body).check_entries()


def test_a_batch_of_another_number_of_entries_than_its_header_says_is_refused():
    one, three = (encoded_of(DigestType.CRC32C, DENSE, count, 10) for count in (1, 3))
    with pytest.raises(CorruptionError, match="3 rows for 1 ids"):
        replace(three, header=one.header).check_entries()


@pytest.mark.parametrize(
    "shape", [*SHAPES, (DigestType.CRC32C, DENSE, 90, 1000), (DigestType.HMAC, IdPattern(3, 2, 1), 90, 2000)]
)
def test_a_body_is_what_arrow_writes_byte_for_byte(shape):
    encoded = encoded_of(*shape)
    read = read_body(encoded)
    assert read.serialize().to_pybytes() == encoded.body


def test_entries_that_are_cut_out_bring_no_bytes_of_their_neighbours():
    payloads = binaries([b"before", *[b"within"] * 30, b"behind"]).slice(1, 30)
    encoded = encode(
        seal(Digester(DigestType.CRC32C, b""), 7, 0, payloads, length_before=0, last_add_confirmed=-1), DigestType.CRC32C
    )
    assert encoded is not None
    assert decode(encoded).payloads.to_pylist() == [b"within"] * 30
    assert b"before" not in bytes(encoded.body)
    assert b"behind" not in bytes(encoded.body)


@pytest.mark.parametrize("digest_type", DigestType)
@pytest.mark.parametrize(("count", "size"), [(1, 0), (1, 7), (3, 50_000), (2_000, 100)])
def test_payloads_that_were_copied_into_a_body_are_those_of_the_batch_and_are_not_copied_again(digest_type, count, size):
    memory = np.frombuffer(bytearray(b"A" * size * count), np.uint8)
    offsets = np.arange(0, size * count + 1, size, dtype=np.int32) if size else np.zeros(count + 1, np.int32)
    given = pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(memory)])
    draft = draft_of(given, digest_type)
    memory[:] = ord("B")
    sealed = seal(Digester(digest_type, b""), 7, 0, draft.payloads, length_before=0, last_add_confirmed=-1)
    encoded = encode(sealed, digest_type, draft=draft)
    assert encoded is not None
    assert encoded.body == encode(sealed, digest_type).body
    back = decode(encoded)
    assert back.payloads.to_pylist() == [b"A" * size] * count
    assert back.matching(Digester(digest_type, b"")).all()
    assert not size or back.payloads.buffers()[2].address == draft.payloads.buffers()[2].address
