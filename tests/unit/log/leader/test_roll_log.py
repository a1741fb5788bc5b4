"""Which ledger an append goes to while a log rolls: decisions alone."""

from __future__ import annotations

import pytest

from bk_spark.errors import ConfigError, LedgerClosedError, LedgerFencedError
from bk_spark.log.leader.roll_log import RETRY_PART, RollLimits, RollLog, RollState

LIMITS = RollLimits(roll_bytes=100, window_bytes=10)
FENCED = LedgerFencedError(5)


def send(rolls: RollLog[int, str], *appends: tuple[str, int]) -> list[str]:
    """Queue appends, and give all that may be sent by now."""
    for append, nbytes in appends:
        rolls.append(append, nbytes)
    return list(iter(rolls.next, None))


def rolling(unconfirmed: int = 1) -> RollLog[int, str]:
    """Ledger 6 is listed, while appends to ledger 5 are not confirmed."""
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    for number in range(unconfirmed):
        assert send(rolls, (f"a{number}", 1)) == [f"a{number}"]
    rolls.begin_roll()
    rolls.opened(6)
    return rolls


def steady_after(rolls: RollLog[int, str], unconfirmed: int) -> None:
    for _ in range(unconfirmed):
        rolls.confirmed(1)
    rolls.drained()
    rolls.closed()


def test_appends_go_to_the_old_ledger_until_the_log_lists_the_next_one() -> None:
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    assert send(rolls, ("a", 1)) == ["a"]
    rolls.begin_roll()
    assert send(rolls, ("b", 1)) == ["b"]
    assert rolls.ledger == 5
    assert not rolls.is_drained


def test_appends_are_queued_until_every_append_to_the_old_ledger_is_confirmed_and_then_go_in_order() -> None:
    """Log rule 3."""
    rolls = rolling(unconfirmed=2)
    assert send(rolls, ("b", 1), ("c", 1)) == []
    rolls.confirmed(1)
    assert not rolls.is_drained
    rolls.confirmed(1)
    assert rolls.is_drained
    assert send(rolls, ("d", 1)) == []
    rolls.drained()
    assert send(rolls, ("e", 1)) == ["b", "c", "d", "e"]
    assert rolls.ledger == 6


def test_a_queue_is_not_released_before_the_old_ledger_is_drained() -> None:
    """Log rule 3."""
    with pytest.raises(AssertionError):
        rolling().drained()


def test_the_old_ledger_is_closed_before_the_next_roll() -> None:
    """Log rule 3."""
    rolls = rolling(unconfirmed=0)
    rolls.drained()
    send(rolls, ("b", 200))
    assert not rolls.is_roll_due
    with pytest.raises(AssertionError):
        rolls.begin_roll()
    rolls.closed()
    assert rolls.is_roll_due
    rolls.begin_roll()
    assert rolls.state is RollState.OPENING


def test_a_failed_append_ends_the_leader_with_all_that_is_queued() -> None:
    """Log rule 3."""
    rolls = rolling()
    send(rolls, ("b", 1), ("c", 1))
    assert rolls.fail(FENCED) == ["b", "c"]
    assert rolls.refusal is FENCED
    assert rolls.fail(LedgerFencedError(6)) == []
    assert rolls.refusal is FENCED, "the first failure counts"


def test_what_is_unconfirmed_is_bounded_and_one_append_of_any_size_is_sent_alone() -> None:
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    assert send(rolls, ("a", 1000)) == ["a"]
    assert send(rolls, ("b", 9), ("c", 1), ("d", 1)) == []
    rolls.confirmed(1000)
    assert send(rolls) == ["b", "c"]
    rolls.confirmed(9)
    assert send(rolls) == ["d"]


def test_what_takes_no_room_does_not_wait_for_it_but_for_what_was_queued_before() -> None:
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    assert send(rolls, ("a", 1000), ("a roll", 0)) == ["a", "a roll"]
    assert send(rolls, ("b", 1), ("another roll", 0)) == []


def test_an_append_that_is_withdrawn_from_the_queue_was_never_made() -> None:
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    send(rolls, ("a", 10), ("b", 1), ("c", 1))
    assert rolls.withdraw("b", 1)
    assert not rolls.withdraw("a", 10), "it was sent"
    rolls.confirmed(10)
    assert send(rolls) == ["c"]


def test_a_roll_is_due_once_the_ledger_is_full_and_then_counts_the_next_one_from_zero() -> None:
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    send(rolls, ("a", 99))
    rolls.confirmed(99)
    assert not rolls.is_roll_due
    send(rolls, ("b", 1))
    assert rolls.is_roll_due
    rolls.begin_roll()
    assert not rolls.is_roll_due
    rolls.opened(6)
    steady_after(rolls, 1)
    assert rolls.is_empty
    send(rolls, ("c", 99))
    assert not rolls.is_roll_due


def test_queued_bytes_count_for_the_next_ledger() -> None:
    rolls = rolling(unconfirmed=0)
    assert send(rolls, ("b", 100)) == []
    rolls.drained()
    assert send(rolls) == ["b"]
    rolls.closed()
    assert rolls.is_roll_due


def test_after_a_roll_was_called_off_the_next_is_due_a_part_later() -> None:
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    send(rolls, ("a", 100))
    rolls.confirmed(100)
    rolls.begin_roll()
    rolls.call_off()
    assert not rolls.is_roll_due
    send(rolls, ("b", LIMITS.roll_bytes // RETRY_PART))
    assert rolls.is_roll_due
    rolls.begin_roll()
    rolls.opened(6)
    rolls.confirmed(LIMITS.roll_bytes // RETRY_PART)
    steady_after(rolls, 0)
    send(rolls, ("c", LIMITS.roll_bytes))
    assert rolls.is_roll_due, "the next ledger is counted from its own beginning"


def test_a_leader_that_is_being_closed_rolls_no_more_and_still_sends_what_is_queued() -> None:
    rolls = rolling(unconfirmed=0)
    rolls.append("b", 200)
    rolls.refuse(LedgerClosedError(5))
    assert isinstance(rolls.refusal, LedgerClosedError)
    rolls.drained()
    assert send(rolls) == ["b"]
    rolls.closed()
    assert not rolls.is_roll_due
    rolls.fail(FENCED)
    assert rolls.refusal is FENCED, "that it failed says more than that it was closed"


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "1"])
def test_a_bound_that_is_no_number_of_bytes_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="roll_bytes"):
        RollLimits(given, 1)  # type: ignore[arg-type]
