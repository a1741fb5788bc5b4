"""Which cached stored batches become one. Ref: docs/rules.md, storage rule 1."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.bookie.index.look_up import newest_holding
from bk_spark.bookie.index.values import StoredBatch, stored_batch
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.bookie.storage.checkpoint import JOINED_BELOW_BYTES, MAX_JOINED_BYTES, joined, runs
from bk_spark.config import MAX_BATCH_ENTRIES, DigestType
from bk_spark.entries.batch import BatchHeader, decode
from bk_spark.quorum import DENSE, IdPattern
from tests.budget import examples

IDS = 40


@pytest.fixture
def stored(harness):
    def make(first, last, sequence, *, size=10, pattern=DENSE, location=None):
        return stored_batch(harness.batch(1, first, last, size=size, tag=sequence, pattern=pattern), sequence, location)

    return make


def _shape(batches):
    return [[(one.first_entry_id, one.last_entry_id, one.sequence) for one in run] for run in runs(batches)]


def test_rows_that_follow_each_other_are_one_run(stored):
    assert _shape([stored(0, 4, 1), stored(5, 5, 2), stored(6, 9, 3)]) == [[(0, 4, 1), (5, 5, 2), (6, 9, 3)]]


def test_a_gap_ends_a_run(stored):
    assert _shape([stored(0, 4, 1), stored(6, 9, 2)]) == [[(0, 4, 1)], [(6, 9, 2)]]


def test_rows_whose_ids_another_row_may_hold_stay_alone(stored):
    """The worked example: joined, 0-4 (5) would hide what 7 says of these ids."""
    batches = [stored(0, 4, 5), stored(0, 99, 7, location=EntryLocation(1, 4096, 500)), stored(5, 9, 9)]
    assert _shape(batches) == [[(0, 4, 5)], [(0, 99, 7)], [(5, 9, 9)]]
    assert _shape([stored(0, 4, 1), stored(5, 9, 2), stored(9, 12, 3), stored(13, 14, 4), stored(15, 16, 5)]) == [
        [(0, 4, 1)],
        [(5, 9, 2)],
        [(9, 12, 3)],
        [(13, 14, 4), (15, 16, 5)],
    ]


def test_large_rows_and_rows_in_a_log_stay_as_they_are(stored):
    large = stored(5, 9, 2, size=JOINED_BELOW_BYTES)
    logged = stored(10, 14, 3, location=EntryLocation(1, 4096, 500))
    assert [len(run) for run in runs([stored(0, 4, 1), large, logged, stored(15, 19, 4), stored(20, 24, 5)])] == [1, 1, 1, 2]


def test_striped_rows_of_one_slot_are_joined_and_others_are_not(stored):
    one, other = IdPattern(4, 3, 2), IdPattern(4, 3, 1)
    batches = [stored(0, 3, 1, pattern=one), stored(4, 7, 2, pattern=one), stored(8, 11, 3, pattern=other)]
    assert [len(run) for run in runs(batches)] == [2, 1]


def test_a_run_ends_before_it_spans_more_ids_or_bytes_than_one_batch_may(stored):
    batches = [stored(place * 700, place * 700 + 699, place + 1, size=1) for place in range(100)]
    assert all(run[-1].last_entry_id - run[0].first_entry_id < MAX_BATCH_ENTRIES for run in runs(batches))
    assert [len(run) for run in runs(batches)] == [93, 7]
    batches = [stored(place, place, place + 1, size=7000) for place in range(300)]
    sizes = [sum(one.size_bytes for one in run) for run in runs(batches)]
    assert len(sizes) == 3
    assert max(sizes) < MAX_JOINED_BYTES + JOINED_BELOW_BYTES


def test_a_joined_batch_has_every_entry_as_it_was_and_the_highest_sequence(stored):
    run = [stored(0, 4, 3), stored(5, 5, 7), stored(6, 9, 5)]
    ((batch, sequence),) = joined(run)
    assert sequence == 7
    entries, parts = decode(batch), [decode(one.batch) for one in run]
    assert entries.entry_ids.tolist() == list(range(10))
    assert entries.payloads.to_pylist() == [one for part in parts for one in part.payloads.to_pylist()]
    assert entries.last_add_confirmed.tolist() == [one for part in parts for one in part.last_add_confirmed.tolist()]


def test_batches_that_nobody_can_join_are_stored_as_they_came(stored):
    """Bodies are not looked into when they come."""
    run = [stored(0, 4, 1), stored(5, 9, 2)]
    broken = replace(run[1], batch=stored(5, 9, 2, size=12).batch)  # its lengths begin elsewhere
    assert [sequence for _, sequence in joined([run[0], broken])] == [1, 2]


_spans = st.lists(st.tuples(st.integers(0, IDS), st.integers(1, 8), st.booleans()), max_size=12)


@examples(200)
@given(spans=_spans)
def test_joining_hides_nothing_that_is_newer(spans):
    """For every id the newest stored batch that holds it is, or is joined into, the same stored batch as before."""
    batches = [
        StoredBatch(1, first, first + count - 1, sequence, DENSE, 0, None, _Batch(first, first + count - 1))
        for sequence, (first, count, _) in enumerate(spans, 1)
    ]
    batches.sort(key=lambda one: (one.first_entry_id, one.sequence))
    found = list(runs(batches))
    assert [one for run in found for one in run] == batches
    after = [
        (StoredBatch(1, run[0].first_entry_id, run[-1].last_entry_id, max(one.sequence for one in run), DENSE, 0, None), run)
        for run in found
    ]
    for entry_id in range(IDS + 10):
        before = newest_holding(batches, entry_id)
        now = max((pair for pair in after if pair[0].holds(entry_id)), key=lambda pair: pair[0].sequence, default=None)
        assert (before is None) == (now is None)
        assert before is None or before in now[1]


class _Batch:
    """As much of an EncodedBatch as ``runs`` looks at."""

    def __init__(self, first, last):
        self.body = b"x" * 100
        self.header = BatchHeader(1, first, last, DENSE, -1, 0, DigestType.CRC32C)
