"""Payloads that are kept: those used last, within a bound, and in memory of their own."""

from __future__ import annotations

import pyarrow as pa

from bk_spark.log.lookup.kept_payloads import KeptPayloads


def test_those_used_last_stay_within_the_bound() -> None:
    kept = KeptPayloads(limit_bytes=1000)
    for entry_id in range(10):
        kept.put(1, entry_id, pa.py_buffer(bytes([entry_id]) * 300))
        assert kept.get(1, 0) is not None
        assert kept.nbytes <= 1000
    assert [entry_id for entry_id in range(10) if kept.get(1, entry_id)] == [0, 8, 9]
    assert kept.get(1, 9) == pa.py_buffer(bytes([9]) * 300)


def test_one_that_is_larger_than_all_is_not_kept_and_one_that_is_kept_is_not_counted_twice() -> None:
    kept = KeptPayloads(limit_bytes=1000)
    kept.put(1, 1, pa.py_buffer(bytes(500)))
    kept.put(1, 2, pa.py_buffer(bytes(1001)))
    kept.put(1, 1, pa.py_buffer(bytes(500)))
    assert (kept.nbytes, kept.get(1, 2)) == (500, None)


def test_a_payload_does_not_keep_what_it_was_read_with() -> None:
    read = pa.py_buffer(bytes(10_000))
    kept = KeptPayloads()
    kept.put(1, 1, read[100:200])
    found = kept.get(1, 1)
    assert found is not None
    assert not read.address <= found.address < read.address + read.size
