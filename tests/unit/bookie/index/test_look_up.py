"""Look-ups against a dict. Ref: docs/rules.md, storage rule 1."""

from __future__ import annotations

import pytest

from bk_spark.bookie.index.look_up import PAGE_ROWS, RowWindow, newest_holding, next_asked, stretch_end
from bk_spark.bookie.index.rows import BatchRow
from bk_spark.quorum import DENSE, IdPattern

PATTERNS = [DENSE, IdPattern(3, 2, 0), IdPattern(3, 2, 1), IdPattern(4, 1, 2), IdPattern(5, 3, 4)]


def _row(first, last, sequence, pattern=DENSE):
    return BatchRow(1, first, last, sequence, pattern, 0, None)


def test_the_newest_row_that_holds_an_id_answers_for_it():
    rows = [_row(0, 99, 1), _row(10, 19, 2), _row(0, 98, 3, IdPattern(4, 3, 0))]
    assert newest_holding(rows, 50) is rows[2] or not rows[2].holds(50)
    assert newest_holding(rows, 1) is rows[0]
    assert newest_holding(rows, 13) is rows[1]
    assert newest_holding(rows, 100) is None


def test_a_stretch_ends_before_the_first_id_of_a_newer_row():
    rows = [_row(0, 99, 1), _row(10, 19, 2), _row(15, 30, 0)]
    assert stretch_end(rows[0], rows, DENSE, 0, 200) == 9
    assert stretch_end(rows[1], rows, DENSE, 10, 200) == 19
    assert stretch_end(rows[0], rows, DENSE, 20, 50) == 50


def test_a_stretch_ends_before_the_first_asked_id_that_a_striped_row_does_not_hold():
    pattern = IdPattern(4, 3, 2)
    row = _row(4, 20, 1, pattern)
    assert stretch_end(row, [row], pattern, 4, 20) == 20
    assert not pattern.holds(7)
    assert stretch_end(row, [row], DENSE, 4, 20) == 6


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_next_asked_id_is_the_lowest_that_the_pattern_holds(pattern):
    for start in range(20):
        expected = next(one for one in range(start, 100) if pattern.holds(one))
        assert next_asked(pattern, start) == expected


def test_a_window_reads_pages_only_as_far_as_it_is_asked():
    stored = [_row(first, first + 4, first + 1) for first in range(0, 5 * PAGE_ROWS * 4, 5)]
    fetched = []

    def fetch(after, limit):
        fetched.append(after)
        return [row for row in stored if (row.first_entry_id, row.sequence) > after][:limit]

    window = RowWindow([], fetch, 7, 5)
    assert len(stored) == 4 * PAGE_ROWS
    assert window.overlapping(7, 12) == stored[1:3]
    assert len(fetched) == 1
    last = stored[-1].last_entry_id
    assert window.overlapping(last, last) == stored[-1:]
    assert len(fetched) == 9  # of 8, 16, 32, 64, 128 rows, and four of 256
    assert window.overlapping(last + 1, last + 100) == []
