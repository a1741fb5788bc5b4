"""Look-ups against a dict. Ref: docs/rules.md, storage rule 1."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bk_spark.bookie.index.look_up import PAGE_ROWS, RowWindow, newest_holding, next_asked, stretch_end
from bk_spark.bookie.index.rows import BatchRow
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.messages import Status

PATTERNS = [DENSE, IdPattern(3, 2, 0), IdPattern(3, 2, 1), IdPattern(4, 1, 2), IdPattern(5, 3, 4)]
IDS = 60

_adds = st.tuples(
    st.just("add"), st.integers(0, IDS - 1), st.integers(1, 25), st.sampled_from(PATTERNS), st.sampled_from([5, 400])
)
_steps = st.one_of(_adds, _adds, _adds, st.sampled_from([("checkpoint",), ("restart",), ("kill",)]))
_reads = st.tuples(st.integers(0, IDS), st.integers(0, 30), st.sampled_from(PATTERNS))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=st.lists(_steps, max_size=14), reads=st.lists(_reads, min_size=1, max_size=12))
def test_overlapping_striped_and_re_added_batches_answer_as_a_dict_would(new_harness, expected_payload, steps, reads):
    with tempfile.TemporaryDirectory() as directory:
        harness = new_harness(Path(directory))
        harness.start()
        model = {}
        for tag, (verb, *arguments) in enumerate(steps):
            if verb == "add":
                model |= _add(harness, expected_payload, tag, *arguments)
            elif verb == "checkpoint":
                harness.bookie.storage.checkpoint()
            else:
                getattr(harness, "kill" if verb == "kill" else "stop")()
                harness.start()
        for first, extent, pattern in reads:
            _check_read(harness, model, first, first + extent, pattern)
        harness.stop()


def _add(harness, expected_payload, tag, first, extent, pattern, size):
    held = [one for one in range(first, first + extent) if pattern.holds(one)]
    if not held:
        return {}
    harness.stage(harness.batch(1, first, first + extent - 1, size=size, tag=tag, pattern=pattern))
    assert [reply.status for reply in harness.sync()] == [Status.OK]
    return {one: expected_payload(1, one, size, tag) for one in held}


def _check_read(harness, model, first, last, pattern):
    found, end = harness.payloads(1, first, last, pattern=pattern)
    asked = [one for one in range(first, last + 1) if pattern.holds(one)]
    missing = next((one for one in asked if one not in model), None)
    assert all(model[one] == found[one] for one in asked if one in found)
    if not model:
        assert end.status is Status.NO_SUCH_LEDGER
    elif missing is None:
        assert (end.status, end.next_entry_id) == (Status.OK, last + 1)
        assert set(asked) <= set(found)
    else:
        assert (end.status, end.next_entry_id) == (Status.NO_SUCH_ENTRY, missing)
        assert {one for one in asked if one < missing} <= set(found)


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
    assert len(fetched) == 4
    assert window.overlapping(last + 1, last + 100) == []
