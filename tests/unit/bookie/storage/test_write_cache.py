"""What is cached of a ledger. Ref: docs/rules.md, storage rules 1 and 14, protocol rule 36."""

from __future__ import annotations

import itertools

import pytest

from bk_spark.bookie.index.values import DELETED, FENCED, NO_TALLY, LedgerSummary, StoredBatch, stored_batch
from bk_spark.bookie.storage.write_cache import CachedLedger, CacheLayers, WriteCache
from bk_spark.quorum import DENSE

KEY = bytes(16)


def _stored(first, last, sequence):
    return StoredBatch(1, first, last, sequence, DENSE, 0, None)


def _ledger(*steps):
    ledger = CachedLedger(KEY)
    for step in steps:
        step(ledger)
    return ledger


STEPS = [
    lambda one: one.add(_stored(0, 4, 1), -1),
    lambda one: one.add(_stored(5, 9, 2), 4),
    lambda one: one.delete(3, 77),
    lambda one: one.add(_stored(0, 2, 5), -1),
    lambda one: one.fence(4),
]


@pytest.mark.parametrize("count", [3, 5], ids=["deleted", "revived"])
def test_records_come_in_any_order_and_their_sequences_decide(count):
    """Storage rule 14."""
    found = [_ledger(*order) for order in itertools.permutations(STEPS[:count])]
    for one in found:
        assert [stored.sequence for stored in one.batches] == [stored.sequence for stored in found[0].batches]
        assert (one.is_deleted, one.deleted_at, one.deleted_ms) == (count == 3, 3, 77)
        assert one.fenced_at in (3, 4)
        assert one.is_deletion_new
    assert [stored.sequence for stored in found[0].batches] == ([] if count == 3 else [5])


def test_an_older_deletion_takes_nothing_that_came_behind_it_and_changes_nothing():
    ledger = _ledger(lambda one: one.delete(8, 99), lambda one: one.delete(3, 77), lambda one: one.add(_stored(0, 4, 9), -1))
    assert (ledger.deleted_at, ledger.deleted_ms, ledger.is_deleted, len(ledger.batches)) == (8, 99, False, 1)


def test_a_deletion_that_the_index_knows_is_not_new_when_its_record_is_replayed():
    ledger = CachedLedger(KEY, fenced_at=0, deleted_at=8, deleted_ms=99, is_deleted=True)
    ledger.delete(8, 99)
    assert not ledger.is_deletion_new


def test_a_ledger_takes_over_what_the_index_says_of_it():
    summary = LedgerSummary(1, 3, NO_TALLY, 5, 17, 12, KEY, FENCED | DELETED, 6, 55)
    layers = CacheLayers(WriteCache())
    ledger = layers.begin(1, b"x" * 16, summary)
    assert (ledger.master_key_hash, ledger.highest_below, ledger.last_add_confirmed) == (KEY, 17, 12)
    assert (ledger.fenced_at, ledger.deleted_at, ledger.deleted_ms, ledger.is_deleted) == (0, 6, 55, True)
    assert not ledger.is_deletion_new


def test_a_ledger_takes_over_what_the_frozen_cache_says_of_it():
    layers = CacheLayers(WriteCache())
    ledger = layers.begin(1, KEY, None)
    for step in STEPS:
        step(ledger)
    layers.freeze()
    above = layers.begin(1, b"x" * 16, None)
    assert layers.ledger(1) is above
    assert (above.master_key_hash, above.highest_below, above.last_add_confirmed) == (KEY, 9, 4)
    assert (above.fenced_at, above.deleted_at, above.is_deleted, above.is_deletion_new) == (3, 3, False, False)
    assert above.batches == []


def test_rows_of_both_caches_come_by_first_id():
    layers = CacheLayers(WriteCache())
    for sequence, first in enumerate((6, 0), 1):
        layers.active.add(layers.begin(1, KEY, None), _stored(first, first + 2, sequence), -1)
        if sequence == 1:
            layers.freeze()
    layers.active.add(layers.active.ledger(1), _stored(9, 11, 3), -1)
    assert [stored.first_entry_id for stored in layers.overlapping(1, 0, 100)] == [0, 6, 9]
    assert layers.has_batches(1)
    assert not layers.has_batches(2)
    layers.drop_frozen()
    assert [stored.first_entry_id for stored in layers.overlapping(1, 0, 100)] == [0, 9]


def test_the_size_counts_bodies_rows_and_ledgers(harness):
    cache = WriteCache()
    assert not cache
    ledger = cache.begin(1, CachedLedger(KEY))
    before = cache.size_bytes
    batch = harness.batch(1, 0, 4)
    cache.add(ledger, stored_batch(batch, 1, None), -1)
    assert before > 0
    assert cache.size_bytes - before > len(batch.body)
