"""Look-ups against a dict. Ref: docs/rules.md, storage rule 1."""

from __future__ import annotations

import pytest

from bk_spark.bookie.index.look_up import PAGE_BATCHES, BatchWindow, newest_holding, next_asked, stretch_end
from bk_spark.bookie.index.values import StoredBatch
from bk_spark.quorum import DENSE, IdPattern

PATTERNS = [DENSE, IdPattern(3, 2, 0), IdPattern(3, 2, 1), IdPattern(4, 1, 2), IdPattern(5, 3, 4)]


def _stored(first, last, sequence, pattern=DENSE):
    return StoredBatch(1, first, last, sequence, pattern, 0, None)


def test_the_newest_row_that_holds_an_id_answers_for_it():
    batches = [_stored(0, 99, 1), _stored(10, 19, 2), _stored(0, 98, 3, IdPattern(4, 3, 0))]
    assert newest_holding(batches, 50) is batches[2] or not batches[2].holds(50)
    assert newest_holding(batches, 1) is batches[0]
    assert newest_holding(batches, 13) is batches[1]
    assert newest_holding(batches, 100) is None


def test_a_stretch_ends_before_the_first_id_of_a_newer_row():
    batches = [_stored(0, 99, 1), _stored(10, 19, 2), _stored(15, 30, 0)]
    assert stretch_end(batches[0], batches, DENSE, 0, 200) == 9
    assert stretch_end(batches[1], batches, DENSE, 10, 200) == 19
    assert stretch_end(batches[0], batches, DENSE, 20, 50) == 50


def test_a_stretch_ends_before_the_first_asked_id_that_a_striped_row_does_not_hold():
    pattern = IdPattern(4, 3, 2)
    stored = _stored(4, 20, 1, pattern)
    assert stretch_end(stored, [stored], pattern, 4, 20) == 20
    assert not pattern.holds(7)
    assert stretch_end(stored, [stored], DENSE, 4, 20) == 6


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_next_asked_id_is_the_lowest_that_the_pattern_holds(pattern):
    for start in range(20):
        expected = next(one for one in range(start, 100) if pattern.holds(one))
        assert next_asked(pattern, start) == expected


def test_a_window_reads_pages_only_as_far_as_it_is_asked():
    kept = [_stored(first, first + 4, first + 1) for first in range(0, 5 * PAGE_BATCHES * 4, 5)]
    fetched = []

    def fetch(after, limit):
        fetched.append(after)
        return [stored for stored in kept if (stored.first_entry_id, stored.sequence) > after][:limit]

    window = BatchWindow([], fetch, 7, 5)
    assert len(kept) == 4 * PAGE_BATCHES
    assert window.overlapping(7, 12) == kept[1:3]
    assert len(fetched) == 1
    last = kept[-1].last_entry_id
    assert window.overlapping(last, last) == kept[-1:]
    assert len(fetched) == 9  # of 8, 16, 32, 64, 128 stored batches, and four of 256
    assert window.overlapping(last + 1, last + 100) == []
