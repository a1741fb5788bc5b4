"""The number of under-replicated ledgers over a day, in bounded memory."""

from __future__ import annotations

from bk_spark.dashboard.mark_history import KEPT, STEP_S, MarkHistory


def test_each_step_keeps_its_highest_count() -> None:
    history = MarkHistory()
    for at_s, count in ((0.0, 3), (10.0, 9), (20.0, 0), (STEP_S, 1)):
        history.add(count, at_s)
    assert history.rows(STEP_S + 1) == [(1, 9), (0, 1)]


def test_a_step_in_which_nothing_was_read_is_missing_and_is_no_zero() -> None:
    history = MarkHistory()
    history.add(0, 0.0)
    history.add(2, 3 * STEP_S)
    assert history.rows(4 * STEP_S) == [(4, 0), (1, 2)]


def test_a_day_is_kept_and_no_more() -> None:
    history = MarkHistory()
    for step in range(3 * KEPT):
        history.add(step, step * STEP_S)
    now_s = (3 * KEPT - 1) * STEP_S
    rows = history.rows(now_s)
    assert (len(rows), rows[0], rows[-1]) == (KEPT, (KEPT - 1, 2 * KEPT), (0, 3 * KEPT - 1))
    assert history.rows(now_s + KEPT * STEP_S) == []
    assert len(history._steps) == KEPT


def test_it_tells_since_when_it_knows() -> None:
    history = MarkHistory()
    assert history.known_s(5.0) is None
    history.add(0, 100.0)
    history.add(0, 400.0)
    assert history.known_s(460.0) == 360.0
