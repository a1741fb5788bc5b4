"""CRC32C: the known value, and the vectorised checksum of rows against the C function."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.entries.crc import _moved, crc32c, crc32c_continued, crc32c_each, crc32c_of_rows


def test_the_checksum_is_castagnolis() -> None:
    """The check value of CRC-32C: RFC 3720, appendix B.4, has 32 zero bytes as well."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"6789", crc32c(b"12345")) == crc32c(b"123456789")


@pytest.mark.parametrize("rows", [1, 127, 128, 1000])
@given(seed=st.integers(0, 2**32), constant_columns=st.integers(0, 32))
def test_the_checksums_of_rows_are_those_one_by_one_and_may_be_continued(rows: int, seed: int, constant_columns: int) -> None:
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (rows, 32), dtype=np.uint8)
    blocks[:, :constant_columns] = 7
    found = crc32c_of_rows(blocks)
    assert found.tolist() == [crc32c(row.tobytes()) for row in blocks]
    payloads = [memoryview(random.bytes(5)) for _ in range(rows)]
    expected = [crc32c(row.tobytes() + bytes(p)) for p, row in zip(payloads, blocks, strict=True)]
    assert crc32c_each(payloads, found.tolist()).tolist() == expected


@pytest.mark.parametrize(("count", "size", "tables"), [(1, 1009, 0), (511, 1013, 0), (512, 1019, 1), (513, 0, 1)])
def test_checksums_that_are_continued_at_once_are_those_of_one_by_one(count: int, size: int, tables: int) -> None:
    """Tables are made for many rows of one size: for a single entry they would cost seven times its sealing."""
    _moved.cache_clear()
    pieces = [bytes([row % 251]) * size for row in range(count)]
    begun = crc32c_each([b"%d" % row for row in range(count)])
    found = crc32c_continued(begun, pieces, np.full(count, size))
    assert found.tolist() == [crc32c(b"%d" % row + piece) for row, piece in enumerate(pieces)]
    assert _moved.cache_info().misses == tables
