"""Snapshots: one read for all who ask, and what is known while reads fail."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from bk_spark.dashboard.snapshots import BUSY, BUSY_SHARE, FRESH_S, SLOW_S, Snapshots, UnansweredError


class _Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def snapshots(clock: _Clock) -> Iterator[Snapshots[int]]:
    snapshots: Snapshots[int] = Snapshots(2, 3, clock)
    yield snapshots
    snapshots.close()


def test_fifty_who_ask_at_once_cost_one_read(snapshots: Snapshots[int]) -> None:
    reads: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def read() -> int:
        reads.append(1)
        begun.set()
        go_on.wait(10)
        return 7

    found: list[int | None] = []
    threads = [threading.Thread(target=lambda: found.append(snapshots.look("x", read, 10).value)) for _ in range(50)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    go_on.set()
    for thread in threads:
        thread.join()
    assert (len(reads), found) == (1, [7] * 50)


def test_a_value_is_not_read_again_while_it_is_fresh(snapshots: Snapshots[int], clock: _Clock) -> None:
    values = iter(range(10))
    assert snapshots.look("x", lambda: next(values), 10).value == 0
    clock.now_s += FRESH_S * 0.9
    again = snapshots.look("x", lambda: next(values), 10)
    assert (again.value, again.age_s) == (0, pytest.approx(FRESH_S * 0.9))
    clock.now_s += FRESH_S
    assert snapshots.look("x", lambda: next(values), 10).value == 1


def test_what_takes_long_is_read_seldom(snapshots: Snapshots[int], clock: _Clock) -> None:
    reads: list[float] = []

    def read() -> int:
        reads.append(clock.now_s)
        clock.now_s += 1.0
        return 1

    for _ in range(100):
        snapshots.look("x", read, 10)
        clock.now_s += 1.0
    assert all(late - early >= 1.0 * BUSY_SHARE for early, late in itertools.pairwise(reads))
    assert len(reads) > 3


def test_a_failure_keeps_the_last_value_and_tells_since_when(snapshots: Snapshots[int], clock: _Clock) -> None:
    failures: list[float] = []

    def fail() -> int:
        failures.append(clock.now_s)
        raise UnansweredError("nobody there")

    snapshots.look("x", lambda: 7, 10)
    clock.now_s += 5
    snapshots.look("x", fail, 10)
    deadline = time.monotonic() + 10
    while len(failures) < 3:  # one after the other: nobody waits for what fails
        clock.now_s += 1
        snapshots.look("x", fail, 10)
        assert time.monotonic() < deadline
    failed = snapshots.look("x", fail, 10)
    assert (failed.value, failed.problem) == (7, "nobody there")
    assert (failed.age_s, failed.failing_s) == (clock.now_s - 100, clock.now_s - 105)
    deadline = time.monotonic() + 10
    while snapshots.look("x", lambda: 8, 10).problem:  # nobody waits for what fails: the value comes with a later look
        assert time.monotonic() < deadline
        clock.now_s += 1
    assert snapshots.look("x", lambda: 9, 10).value == 8


def test_a_broken_view_is_shown_as_such_and_not_hidden(snapshots: Snapshots[int]) -> None:
    assert snapshots.look("x", lambda: 1 // 0, 10).problem == "ZeroDivisionError: integer division or modulo by zero"


def test_nobody_waits_for_a_read_that_hangs_and_its_age_is_told(snapshots: Snapshots[int], clock: _Clock) -> None:
    go_on = threading.Event()
    snapshots.look("x", lambda: 7, 10)
    clock.now_s += 10

    def hang() -> int:
        go_on.wait(10)
        return 8

    assert snapshots.look("x", hang, 0.01).value == 7
    clock.now_s += SLOW_S + 1
    hung = snapshots.look("x", hang, 1000)
    assert (hung.value, hung.age_s, hung.problem, hung.failing_s) == (7, 10 + SLOW_S + 1, "no answer yet", SLOW_S + 1)
    go_on.set()


def test_what_was_not_looked_at_for_longest_makes_room_and_never_what_is_being_read(snapshots: Snapshots[int]) -> None:
    go_on = threading.Event()
    for key in "abc":
        snapshots.look(key, lambda: 1, 10)
    snapshots.look("a", lambda: 2, 10)
    snapshots.look("d", lambda: 1, 10)
    assert snapshots.look("b", lambda: 2, 10).value == 2  # it had gone, for d
    for key in "xyz":
        snapshots.look(key, lambda: int(go_on.wait(10)), 0.0)
    assert snapshots.look("more", lambda: 1, 10).problem == BUSY
    go_on.set()
