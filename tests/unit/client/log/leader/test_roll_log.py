"""Which ledger an append goes to while a log rolls: decisions alone."""

from __future__ import annotations

import pytest

from bk_spark.client.log.leader.roll_log import RETRY_PART, RollLimits, RollLog, RollState
from bk_spark.errors import ConfigError, LedgerClosedError, LedgerFencedError

LIMITS = RollLimits(roll_bytes=100, window_bytes=10)
FENCED = LedgerFencedError(5)


def rolling(unconfirmed: int = 1) -> RollLog[int, str]:
    """Ledger 6 is listed, while appends to ledger 5 are not confirmed."""
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    for number in range(unconfirmed):
        assert rolls.append(f"a{number}", 1) == 5
    rolls.begin_roll()
    rolls.opened(6)
    return rolls


def test_appends_go_to_the_old_ledger_until_the_log_lists_the_next_one() -> None:
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    assert rolls.append("a", 1) == 5
    rolls.begin_roll()
    assert rolls.append("b", 1) == 5
    assert not rolls.is_drained


def test_appends_are_queued_until_every_append_to_the_old_ledger_is_confirmed_and_then_go_in_order() -> None:
    """Log rule 3."""
    rolls = rolling(unconfirmed=2)
    assert [rolls.append(one, 1) for one in "bc"] == [None, None]
    rolls.confirmed()
    assert not rolls.is_drained
    rolls.confirmed()
    assert rolls.is_drained
    assert rolls.append("d", 1) is None
    assert rolls.release() == "b"
    assert rolls.append("e", 1) is None, "it would overtake c"
    assert [rolls.release() for _ in range(4)] == ["c", "d", "e", None]
    assert rolls.append("f", 1) == 6


def test_a_queue_is_not_released_before_the_old_ledger_is_drained() -> None:
    """Log rule 3."""
    with pytest.raises(AssertionError):
        rolling().release()


def test_the_old_ledger_is_closed_before_the_next_roll() -> None:
    """Log rule 3."""
    rolls = rolling(unconfirmed=0)
    assert rolls.release() is None
    rolls.append("b", 200)
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
    rolls.append("b", 1)
    rolls.append("c", 1)
    assert rolls.fail(FENCED) == ["b", "c"]
    assert rolls.refusal is FENCED
    assert rolls.fail(LedgerFencedError(6)) == []
    assert rolls.refusal is FENCED, "the first failure counts"
    assert rolls.admits(1000), "nobody waits for room that never comes"


def test_what_is_queued_is_bounded_and_one_append_of_any_size_is_let_in() -> None:
    rolls = rolling()
    assert rolls.admits(1000)
    rolls.append("b", 9)
    assert rolls.admits(1)
    assert not rolls.admits(2)
    rolls.confirmed()
    assert rolls.release() == "b"
    assert rolls.admits(1000)
    rolls.append("c", 1)
    assert rolls.admits(9)
    assert not rolls.admits(10)


def test_a_roll_is_due_once_the_ledger_is_full_and_then_counts_the_next_one_from_zero() -> None:
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    rolls.append("a", 99)
    assert not rolls.is_roll_due
    rolls.append("b", 1)
    assert rolls.is_roll_due
    rolls.begin_roll()
    assert not rolls.is_roll_due
    rolls.opened(6)
    for _ in range(2):
        rolls.confirmed()
    assert rolls.release() is None
    rolls.closed()
    assert rolls.is_empty
    rolls.append("c", 99)
    assert not rolls.is_roll_due


def test_queued_bytes_count_for_the_next_ledger() -> None:
    rolls = rolling(unconfirmed=0)
    rolls.append("b", 100)
    assert [rolls.release(), rolls.release()] == ["b", None]
    rolls.closed()
    assert rolls.is_roll_due


def test_after_a_roll_was_called_off_the_next_is_due_a_part_later() -> None:
    rolls: RollLog[int, str] = RollLog(5, LIMITS)
    rolls.append("a", 100)
    rolls.begin_roll()
    rolls.call_off()
    assert not rolls.is_roll_due
    assert rolls.append("b", LIMITS.roll_bytes // RETRY_PART) == 5
    assert rolls.is_roll_due
    rolls.begin_roll()
    rolls.opened(6)
    for _ in range(2):
        rolls.confirmed()
    rolls.release()
    rolls.closed()
    rolls.append("c", LIMITS.roll_bytes)
    assert rolls.is_roll_due, "the next ledger is counted from its own beginning"


def test_a_leader_that_is_being_closed_takes_no_appends_rolls_no_more_and_still_sends_what_is_queued() -> None:
    rolls = rolling(unconfirmed=0)
    rolls.append("b", 200)
    rolls.refuse(LedgerClosedError(5))
    assert isinstance(rolls.refusal, LedgerClosedError)
    assert [rolls.release(), rolls.release()] == ["b", None]
    rolls.closed()
    assert not rolls.is_roll_due
    rolls.fail(FENCED)
    assert rolls.refusal is FENCED, "that it failed says more than that it was closed"


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "1"])
def test_a_bound_that_is_no_number_of_bytes_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="roll_bytes"):
        RollLimits(given, 1)  # type: ignore[arg-type]
