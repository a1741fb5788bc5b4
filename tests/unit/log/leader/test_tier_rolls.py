"""When a leader's ledger is rolled for the tier of its log, on timers that a test moves by hand."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest

from bk_spark.errors import MetadataUnavailableError, NotEnoughBookiesError
from bk_spark.log.leader.tier_rolls import LEAST_S, LOOK_S, TierRolls, TierWait
from tests.unit.log.leader.leader_model import HandLeadership, eventually, on_loop


class HandTimers:
    """An event loop whose time a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._timers: list[tuple[float, int, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        heapq.heappush(self._timers, (self.now_s + delay, len(self._timers), callback))

    def move_to(self, second: float) -> None:
        while self._timers and self._timers[0][0] <= second:
            self.now_s, _, callback = heapq.heappop(self._timers)
            callback()
        self.now_s = second


class Asking:
    """A tier's settings, and when a leader looked at them, or was to roll."""

    def __init__(self) -> None:
        self.wait: TierWait | None = None
        self.timers = HandTimers()
        self.looks: list[float] = []
        self.rolls: list[float] = []
        self.nbytes = 0
        self.tier = TierRolls(self.timers, self._look)

    def _look(self, ledger: int) -> None:
        self.looks.append(self.timers.now_s)
        if self.tier.told(ledger, self.wait, self.nbytes):
            self.rolls.append(self.timers.now_s)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_without_a_tier_a_leader_looks_now_and_then_and_never_rolls(asking: Asking) -> None:
    asking.tier.began()
    asking.timers.move_to(10 * LOOK_S)
    assert len(asking.looks) == 10  # soon, and then each LOOK_S
    assert asking.rolls == []


def test_the_first_entry_waits_for_as_long_as_the_tier_says_and_no_longer(asking: Asking) -> None:
    asking.wait = TierWait(150)
    asking.tier.began()
    asking.timers.move_to(1000)
    assert asking.rolls == [150]


def test_a_tier_that_is_set_later_is_followed(asking: Asking) -> None:
    asking.tier.began()
    asking.timers.move_to(3.5 * LOOK_S)
    asking.wait = TierWait(30)
    asking.timers.move_to(1000)
    assert asking.rolls == [LEAST_S + 4 * LOOK_S]


def test_the_timer_of_a_ledger_that_was_rolled_does_nothing(asking: Asking) -> None:
    asking.wait = TierWait(50)
    asking.tier.began()
    asking.timers.move_to(55)
    asking.tier.began()
    asking.timers.move_to(104)
    assert asking.rolls == [50]
    asking.timers.move_to(105)
    assert asking.rolls == [50, 105]


def test_a_leader_does_not_roll_for_each_entry_where_rows_are_to_be_tiered_at_once(asking: Asking) -> None:
    asking.wait = TierWait(0)
    for second in range(60):
        asking.timers.move_to(second)
        if not second % LEAST_S:
            asking.tier.began()
    assert len(asking.rolls) <= 6


def test_bytes_are_looked_at_now_and_then_and_no_ledger_is_rolled_sooner(asking: Asking) -> None:
    asking.wait, asking.nbytes = TierWait(10_000, nbytes=100), 99
    asking.tier.began()
    asking.timers.move_to(3 * LEAST_S)
    assert (len(asking.looks), asking.rolls) == (3, [])
    asking.nbytes = 100
    asking.timers.move_to(10 * LEAST_S)
    assert asking.rolls == [4 * LEAST_S]


def test_an_answer_that_comes_once_the_ledger_was_rolled_rolls_no_other_one(asking: Asking) -> None:
    asking.tier.began()
    asking.timers.move_to(LEAST_S)
    asking.tier.began()
    assert not asking.tier.told(1, TierWait(0), 0)
    assert not asking.tier.told(2, TierWait(50), 0)


def test_after_a_roll_that_failed_another_one_is_asked_for_later(asking: Asking) -> None:
    asking.wait = TierWait(20)
    asking.tier.began()
    asking.timers.move_to(20)
    asking.tier.failed()
    asking.timers.move_to(20 + LOOK_S)
    assert asking.rolls == [20, 20 + LOOK_S]


def test_however_often_a_roll_fails_a_leader_looks_once_at_a_time(asking: Asking) -> None:
    asking.wait = TierWait(10_000)
    asking.tier.began()
    for _ in range(20):
        asking.tier.failed()
    asking.timers.move_to(5 * LOOK_S)
    assert len(asking.looks) == 5


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> HandTimers:
    """Those of a writer that leads."""
    timers = HandTimers()

    def made(_: object, look: Callable[[int], None]) -> TierRolls:
        return TierRolls(timers, look)

    monkeypatch.setattr("bk_spark.log.leader.log_write_handle.TierRolls", made)
    return timers


def test_a_writer_goes_on_in_a_new_ledger_once_its_rows_have_waited(timers: HandTimers) -> None:
    leader = HandLeadership(wait=TierWait(50))
    writer = leader.lead()
    appended = writer.append_async(b"a")
    leader.ledgers[0].confirm()
    appended.result()
    on_loop(lambda: timers.move_to(LOOK_S))
    eventually(lambda: leader.ledgers[0].is_closed)
    assert writer.ledger_id == 6
    eventually(lambda: len(leader.recorded) == 1)


def test_a_writer_goes_on_in_a_new_ledger_once_it_has_as_many_bytes_as_the_tier_says(timers: HandTimers) -> None:
    leader = HandLeadership(wait=TierWait(10_000, nbytes=1000))
    writer = leader.lead()
    writer.append_async(b"x" * 500)
    leader.ledgers[0].confirm()
    on_loop(lambda: timers.move_to(LEAST_S))
    eventually(lambda: leader.looks == 1)
    writer.append_async(b"x" * 500)
    leader.ledgers[0].confirm()
    eventually(lambda: on_loop(lambda: timers.move_to(timers.now_s + LEAST_S)) or leader.ledgers[0].is_closed)


def test_a_writer_that_cannot_see_the_tier_goes_on_and_looks_again(timers: HandTimers) -> None:
    leader = HandLeadership(wait=TierWait(50), wait_error=MetadataUnavailableError("zk://nowhere", "closed"))
    writer = leader.lead()
    writer.append_async(b"a")
    leader.ledgers[0].confirm()
    on_loop(lambda: timers.move_to(LOOK_S))
    eventually(lambda: leader.looks == 1)
    leader.wait_error = None
    eventually(lambda: on_loop(lambda: timers.move_to(timers.now_s + LOOK_S)) or leader.ledgers[0].is_closed)


def test_a_roll_for_a_tier_that_failed_is_tried_again(timers: HandTimers) -> None:
    leader = HandLeadership(wait=TierWait(50), creation_error=NotEnoughBookiesError(3, 2, "a ledger"))
    writer = leader.lead()
    writer.append_async(b"a")
    leader.ledgers[0].confirm()
    on_loop(lambda: timers.move_to(LOOK_S))
    eventually(lambda: leader.tries == 1)
    leader.creation_error = None
    eventually(lambda: on_loop(lambda: timers.move_to(timers.now_s + LOOK_S)) or leader.ledgers[0].is_closed)
