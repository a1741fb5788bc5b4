"""What applications may append."""

from __future__ import annotations

import pytest

from bk_spark.client.ledger.write_handle import checked_payloads
from bk_spark.entries import batch
from bk_spark.errors import ConfigError


def test_a_batch_takes_all_kinds_of_bytes_as_they_are() -> None:
    payloads = [b"a", bytearray(b"bc"), memoryview(b"d" * 8).cast("q"), b""]
    assert checked_payloads(payloads).to_pylist() == [b"a", b"bc", b"d" * 8, b""]


def test_a_list_larger_than_an_array_of_arrow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MAX_BINARY_BYTES", 3)
    assert len(checked_payloads([b"abc"])) == 1
    with pytest.raises(ConfigError, match="payloads is '4 bytes': at most 3 bytes go into one call"):
        checked_payloads([b"ab", b"cd"])
