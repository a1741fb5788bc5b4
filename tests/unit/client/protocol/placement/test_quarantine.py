"""Which bookies new ensembles do without for a while. Situation 21."""

from __future__ import annotations

import pytest

from bk_spark.client.protocol.placement import quarantine
from bk_spark.client.protocol.placement.quarantine import Quarantine

PERIOD_MS = 60_000


@pytest.fixture
def three_failures() -> Quarantine:
    return Quarantine(3, PERIOD_MS)


def fail(subject: Quarantine, *times_ms: int, bookie_id: str = "b") -> list[bool]:
    return [subject.report(bookie_id, now_ms) for now_ms in times_ms]


def test_a_bookie_with_many_errors_is_out_and_returns_after_the_period(three_failures: Quarantine) -> None:
    assert fail(three_failures, 0, 30_000) == [False, False]
    assert three_failures.bookies(30_000) == frozenset()
    assert fail(three_failures, 50_000) == [True]
    assert three_failures.bookies(50_000) == three_failures.bookies(109_999) == {"b"}
    assert three_failures.bookies(110_000) == frozenset()


def test_errors_that_lie_further_apart_than_the_period_do_not_add_up(three_failures: Quarantine) -> None:
    assert not any(fail(three_failures, *range(0, 10 * PERIOD_MS, PERIOD_MS // 2)))
    assert three_failures.bookies(10 * PERIOD_MS) == frozenset()


def test_errors_of_one_bookie_are_not_those_of_another_one(three_failures: Quarantine) -> None:
    fail(three_failures, 0, 1, bookie_id="a")
    fail(three_failures, 2, bookie_id="b")
    assert three_failures.bookies(2) == frozenset()


def test_what_fails_while_the_bookie_is_out_does_not_keep_it_out_longer(three_failures: Quarantine) -> None:
    fail(three_failures, 0, 1, 2)
    assert not any(fail(three_failures, *range(3, PERIOD_MS, 1000)))
    assert three_failures.bookies(PERIOD_MS + 2) == frozenset()
    assert fail(three_failures, PERIOD_MS + 3, PERIOD_MS + 4) == [False, False]
    assert fail(three_failures, PERIOD_MS + 5) == [True]


def test_no_more_than_a_bounded_number_of_bookies_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "MAX_BOOKIES", 2)
    first_error = Quarantine(1, PERIOD_MS)
    for now_ms, bookie_id in enumerate("abac"):
        first_error.report(bookie_id, now_ms)
    assert first_error.bookies(10) == {"a", "c"}
