"""Bookies that are not registered, and the bounds of since when."""

from __future__ import annotations

from typing import Any

import pytest

from bk_spark.metadata.cookies import CookieFacts
from bk_spark.metadata.under_replication import Mark
from bk_spark.replication.absent_bookies import AbsentBookie, absent_bookies


def _cookie(name: str, changed_ms: int, boot: int | None = 1) -> dict[str, CookieFacts]:
    return {name: CookieFacts(name, boot, boot, 1, changed_ms)}


def _mark(ledger_id: int, marked_ms: int, *missing: str) -> Mark:
    return Mark(ledger_id, missing, marked_ms, 0)


def _one(**given: Any) -> AbsentBookie:
    [found] = absent_bookies(**{"registered": {"here"}, "cookies": _cookie("b", 5000), "marks": [], "report": None, **given})
    return found


def test_a_bookie_went_after_its_last_sign_of_life_and_before_its_first_mark() -> None:
    found = _one(
        marks=[_mark(1, 9000, "b", "c", "here"), _mark(2, 8000, "b")],
        cookies={**_cookie("b", 5000), **_cookie("here", 1)},
        registered={"here", "c"},
    )
    assert (found.bookie_id, found.last_seen_ms, found.marked_ms, found.has_cookie) == ("b", 5000, 8000, True)


def test_a_mark_from_before_the_last_sign_of_life_is_of_an_earlier_absence() -> None:
    assert _one(marks=[_mark(1, 4000, "b")]).marked_ms is None
    assert _one(marks=[_mark(1, 4000, "b"), _mark(2, 6000, "b")]).marked_ms == 6000


def test_where_nothing_tells_since_when_it_is_unknown() -> None:
    found = _one(cookies=_cookie("b", 5000, boot=None))
    assert (found.last_seen_ms, found.marked_ms, found.is_lost, found.lost_at_ms) == (None, None, None, None)


def test_a_bookie_that_only_a_mark_names_has_no_cookie() -> None:
    found = _one(cookies={}, marks=[_mark(1, 4000, "b")])
    assert (found.has_cookie, found.marked_ms) == (False, 4000)


def test_a_bookie_that_was_never_started_is_new() -> None:
    assert _one(cookies=_cookie("b", 5000, boot=0)).is_new


def test_the_auditor_tells_whether_it_is_lost_or_waited_for() -> None:
    assert _one(report={"lost": ["b"], "waiting": {}}).is_lost is True
    waited = _one(report={"lost": [], "waiting": {"b": 7000}})
    assert (waited.is_lost, waited.lost_at_ms) == (False, 7000)


@pytest.mark.parametrize("report", [{}, {"lost": 3, "waiting": []}, {"lost": None, "waiting": {"b": "soon"}}])
def test_a_report_in_another_form_tells_nothing(report: dict[str, Any]) -> None:
    found = _one(report=report)
    assert (found.is_lost, found.lost_at_ms) == (None, None)


def test_registered_bookies_are_not_absent() -> None:
    assert absent_bookies({"b"}, _cookie("b", 1), [_mark(1, 2, "b")], None) == ()
