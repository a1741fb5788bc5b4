"""The number of under-replicated ledgers over a day, in bounded memory."""

from __future__ import annotations

from bk_spark.dashboard.mark_history import KEPT, STEP_S, MarkHistory


def test_each_step_keeps_its_highest_count() -> None:
    history = MarkHistory()
    for at_s, count in ((0.0, 3), (10.0, 9), (20.0, 0), (STEP_S, 1)):
        history.add(count, at_s, are_all=True)
    assert history.rows(STEP_S + 1) == [(1, 9, True), (0, 1, True)]


def test_a_step_in_which_nothing_was_read_is_missing_and_is_no_zero() -> None:
    history = MarkHistory()
    history.add(0, 0.0, are_all=True)
    history.add(2, 3 * STEP_S, are_all=True)
    assert history.rows(4 * STEP_S) == [(4, 0, True), (1, 2, True)]


def test_a_day_is_kept_and_no_more() -> None:
    history = MarkHistory()
    for step in range(3 * KEPT):
        history.add(step, step * STEP_S, are_all=True)
    now_s = (3 * KEPT - 1) * STEP_S
    rows = history.rows(now_s)
    assert (len(rows), rows[0], rows[-1]) == (KEPT, (KEPT - 1, 2 * KEPT, True), (0, 3 * KEPT - 1, True))
    assert history.rows(now_s + KEPT * STEP_S) == []
    assert len(history._steps) == KEPT


def test_it_tells_since_when_it_knows() -> None:
    history = MarkHistory()
    assert history.known_s(5.0) is None
    history.add(0, 100.0, are_all=True)
    history.add(0, 400.0, are_all=True)
    assert history.known_s(460.0) == 360.0


def test_a_step_in_which_nobody_had_looked_for_a_while_says_so() -> None:
    history = MarkHistory()
    for at_s, are_all in ((0.0, True), (10.0, False), (20.0, True), (STEP_S, True)):
        history.add(0, at_s, are_all=are_all)
    assert history.rows(STEP_S + 1) == [(1, 0, False), (0, 0, True)]
