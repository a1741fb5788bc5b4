"""What is remembered of entries: within a bound, of the newest ledgers, and it excludes no key that an entry holds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bk_spark.log.lookup.asked_keys import many_keys
from bk_spark.log.lookup.known_entries import NO_PAYLOAD, KnownEntries, KnownEntry
from bk_spark.rows.keys.key_filter import made_filter
from bk_spark.rows.statistics import ColumnStatistics

FIELDS = [pa.field("k", pa.int64())]


def held(known: KnownEntry, keys: list[int | None]) -> list[int | None]:
    asked = many_keys("orders", FIELDS, keys)
    return [keys[place] for place in known.held(asked, np.arange(len(keys)), ("k",))]


def test_bounds_and_nulls_exclude_keys_where_there_is_no_filter() -> None:
    assert held(KnownEntry(10, {"k": ColumnStatistics(0, 5, 9)}), [4, 5, 7, 9, 10, None]) == [5, 7, 9]
    assert held(KnownEntry(10, {"k": ColumnStatistics(2, 5, 9)}), [4, 5, None]) == [5, None]
    assert held(KnownEntry(10, {"k": ColumnStatistics(10)}), [4, None]) == [None]
    assert held(KnownEntry(10), [4, None]) == [4, None]


def test_a_filter_excludes_keys_between_the_bounds() -> None:
    filter_ = made_filter([pa.array(list(range(0, 2000, 2)))], 1000)
    known = KnownEntry(1000, {"k": ColumnStatistics(0, 0, 1998)}, filter_)
    assert held(known, [4, 1998, 2000]) == [4, 1998]
    assert len(held(known, list(range(1, 2000, 2)))) < 30
    assert held(known, list(range(0, 2000, 2))) == list(range(0, 2000, 2))


def test_an_entry_without_a_payload_holds_no_key() -> None:
    assert held(NO_PAYLOAD, [1, None]) == []


def test_the_entries_of_the_lowest_ledgers_are_forgotten_above_the_bound() -> None:
    known = KnownEntries(limit_bytes=100_000)
    for ledger_id in (7, 3, 9, 5, 8):
        for entry_id in range(10):
            known.put(ledger_id, entry_id, KnownEntry(5, {}, bytes(3_000)))
            assert known.nbytes <= 100_000
    assert known.get(3, 0) is None
    assert all(known.get(9, entry_id) is not None for entry_id in range(10))
    assert known.nbytes >= 50_000


def test_an_entry_that_is_known_better_replaces_what_was_known() -> None:
    known = KnownEntries()
    known.put(1, 1, KnownEntry(5))
    known.put(1, 1, KnownEntry(5, {}, bytes(320)))
    other = KnownEntries()
    other.put(1, 1, KnownEntry(5, {}, bytes(320)))
    assert known.nbytes == other.nbytes
    assert known.get(1, 1) == other.get(1, 1)
