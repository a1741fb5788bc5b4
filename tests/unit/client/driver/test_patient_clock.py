"""Deadlines and stalls of one's own process."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bk_spark.client.driver.event_loop import BEAT_MS, STALL_MS, PatientClock


@given(st.lists(st.integers(0, STALL_MS - 1), max_size=30))
def test_without_a_stall_the_time_is_the_time(gaps: list[int]) -> None:
    clock = PatientClock(100)
    for number in range(len(gaps)):
        now_ms = 100 + sum(gaps[: number + 1])
        assert clock.look(now_ms) == now_ms


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=30))
def test_it_never_goes_back_and_a_stall_counts_as_one_beat(gaps: list[int]) -> None:
    clock, now_ms, before = PatientClock(0), 0, 0
    for gap in gaps:
        now_ms += gap
        shown = clock.look(now_ms)
        assert shown - before == (gap if gap < STALL_MS else BEAT_MS)
        before = shown
