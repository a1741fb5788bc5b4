"""Bytes per second of background work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_spark.bookie.pace import MIN_PAUSE_S, RateLimiter


class Clock:
    """Moves only when somebody pauses, or works."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _limiter(clock: Clock, bytes_per_s: int = 1_000) -> RateLimiter:
    return RateLimiter(bytes_per_s, lambda: clock.now_s, clock.pause)


def test_the_first_amount_is_free_and_the_next_one_pays_for_it(clock: Clock) -> None:
    limiter = _limiter(clock)
    limiter.take(500)
    assert clock.pauses == []
    limiter.take(100)
    assert clock.pauses == [pytest.approx(0.5)]
    limiter.take(1)
    assert clock.pauses[1:] == [pytest.approx(0.1)]


def test_time_that_was_not_used_is_not_saved_up(clock: Clock) -> None:
    limiter = _limiter(clock)
    clock.now_s += 1_000
    limiter.take(1_000)
    limiter.take(1_000)
    assert clock.pauses == [pytest.approx(1.0)]


def test_time_that_the_work_itself_took_counts(clock: Clock) -> None:
    limiter = _limiter(clock)
    limiter.take(1_000)
    clock.now_s += 0.75
    limiter.take(1)
    assert clock.pauses == [pytest.approx(0.25)]


def test_a_pause_that_took_too_long_gives_no_credit() -> None:
    clock = Clock()
    limiter = RateLimiter(1_000, lambda: clock.now_s, lambda seconds: clock.pause(10 * seconds))
    for _ in range(3):
        limiter.take(1_000)
    assert clock.now_s == pytest.approx(120.0)


def test_short_pauses_are_put_together(clock: Clock) -> None:
    limiter = _limiter(clock, 1_000_000)
    for _ in range(1_000):
        limiter.take(100)
    assert len(clock.pauses) <= 0.1 / MIN_PAUSE_S
    assert clock.now_s == pytest.approx(100.1, abs=MIN_PAUSE_S)


def test_a_pause_that_was_cut_short_is_still_owed() -> None:
    clock = Clock()
    limiter = RateLimiter(1_000, lambda: clock.now_s, lambda _: None)
    limiter.take(1_000)
    limiter.take(0)
    limiter = RateLimiter(1_000, lambda: clock.now_s, clock.pause)
    limiter.take(1_000)
    limiter.take(1_000)
    limiter.take(0)
    assert clock.now_s == pytest.approx(102.0)


@given(st.lists(st.tuples(st.integers(1, 10_000), st.floats(0, 3)), min_size=1, max_size=50))
def test_no_stretch_of_time_takes_more_than_its_rate_and_one_amount(amounts: list[tuple[int, float]]) -> None:
    clock = Clock()
    limiter = _limiter(clock)
    taken: list[tuple[float, int]] = []
    for nbytes, idle_s in amounts:
        clock.now_s += idle_s
        limiter.take(nbytes)
        taken.append((clock.now_s, nbytes))
    for start in range(len(taken)):
        total = 0
        for at_s, nbytes in taken[start:]:
            assert total <= 1_000 * (at_s - taken[start][0] + MIN_PAUSE_S) + 1e-6
            total += nbytes
