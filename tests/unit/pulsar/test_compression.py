"""Payloads are what they were before they were compressed, or damage; a lie about their size allocates nothing."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.pulsar.compression import LZ4, MAX_INFLATED_BYTES, NONE, SNAPPY, ZLIB, ZSTD, DamagedPayloadError, decompress
from tests.unit.pulsar.entries import compressed

COMPRESSED = [LZ4, ZLIB, ZSTD, SNAPPY]


@given(st.sampled_from([NONE, *COMPRESSED]), st.binary(max_size=300))
def test_what_was_compressed_comes_back(compression: int, data: bytes) -> None:
    assert decompress(compressed(data, compression), compression, len(data)) == data


@given(st.sampled_from(COMPRESSED), st.binary(max_size=300), st.integers(0, 600))
def test_another_size_than_the_datas_is_damage(compression: int, data: bytes, size: int) -> None:
    if size != len(data):
        with pytest.raises(DamagedPayloadError):
            decompress(compressed(data, compression), compression, size)


@pytest.mark.parametrize("compression", COMPRESSED)
def test_data_that_is_cut_is_damage(compression: int) -> None:
    data = bytes(range(256)) * 3
    with pytest.raises(DamagedPayloadError):
        decompress(compressed(data, compression)[:-9], compression, len(data))


def test_a_stream_of_zlib_need_not_be_ended() -> None:
    """Pulsar's Java client flushes it and does not end it."""
    deflater = zlib.compressobj()
    data = bytes(range(256))
    stored = deflater.compress(data) + deflater.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(stored, ZLIB, len(data)) == data


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("size", [-1, 2**31 - 1, MAX_INFLATED_BYTES])
def test_a_size_that_the_data_cannot_have_is_damage_at_once(compression: int, size: int) -> None:
    with pytest.raises(DamagedPayloadError, match="more than it can have"):
        decompress(compressed(b"a", compression), compression, size)


def test_an_unknown_compression_is_named() -> None:
    with pytest.raises(DamagedPayloadError, match="compression 9, which is none of Pulsar's"):
        decompress(b"", 9, 0)


@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_long_run_of_one_byte_is_within_what_its_compression_can_do(compression: int) -> None:
    data = bytes(4_000_000)
    assert decompress(compressed(data, compression), compression, len(data)) == data
