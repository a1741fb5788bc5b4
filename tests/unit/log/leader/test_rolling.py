"""A leader that rolls from one ledger to the next, over ledgers that a test moves by hand."""

from __future__ import annotations

import logging

import pytest

from bk_spark.errors import (
    AddQuorumTimeoutError,
    AppendTimeoutError,
    BookKeeperError,
    ConfigError,
    LedgerFencedError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.leader import log_write_handle
from bk_spark.log.leader.roll_log import RollLog, RollState
from bk_spark.log.stored.values import CommittedLedger
from tests.unit.log.leader.leader_model import DEADLINE_S, Calls, HandLeadership, HandLedger, eventually

TOO_FEW = NotEnoughBookiesError(3, 2, "a ledger")


@pytest.fixture
def leader() -> HandLeadership:
    return HandLeadership()


def sent(leader: HandLeadership) -> list[list[bytes]]:
    return [ledger.sent for ledger in leader.ledgers]


def test_while_the_next_ledger_is_being_listed_appends_go_to_the_old_one(leader: HandLeadership) -> None:
    writer = leader.lead()
    writer.append_async(b"a0")
    leader.may_list.clear()
    rolling = Calls(writer.roll)
    eventually(lambda: len(leader.created) == 1)
    writer.append_async(b"a1")
    assert sent(leader) == [[b"a0", b"a1"]]
    leader.ledgers[0].confirm()
    assert not rolling.is_done
    leader.may_list.set()
    rolling.result()
    assert leader.ledgers[0].is_closed


def test_appends_after_the_roll_s_commit_wait_for_every_add_to_the_old_ledger_and_then_keep_their_order(
    leader: HandLeadership,
) -> None:
    """Log rule 3."""
    writer = leader.lead()
    for payload in (b"a0", b"a1"):
        writer.append_async(payload)
    rolling = Calls(writer.roll)
    eventually(lambda: len(leader.ledgers) == 2)
    eventually(lambda: writer.ledger_id == 6)
    queued = [writer.append_async(payload) for payload in (b"b0", b"b1")]
    leader.ledgers[0].confirm(1)
    assert sent(leader)[1] == []
    leader.ledgers[0].confirm(1)
    rolling.result()
    assert sent(leader) == [[b"a0", b"a1"], [b"b0", b"b1"]]
    leader.ledgers[1].confirm()
    assert [one.result(0) for one in queued] == [LogPosition(6, 0), LogPosition(6, 1)]


class WithoutQueue(RollLog[HandLedger, object]):
    """Log rule 3 without its first half: appends go to the next ledger as soon as it is listed."""

    is_queueing = False  # type: ignore[assignment]


class WithoutFailure(RollLog[HandLedger, object]):
    """Log rule 3 without its second half: an append that failed is taken for answered, and the leader goes on."""

    def fail(self, error: BookKeeperError) -> list[object]:
        self.confirmed(self._unconfirmed_bytes)
        return []


@pytest.mark.parametrize(
    ("machine", "holds"), [(RollLog, True), (WithoutQueue, False)], ids=["as shipped", "without the queue"]
)
def test_an_entry_is_not_confirmed_before_its_predecessor_in_the_former_ledger(
    leader: HandLeadership, monkeypatch: pytest.MonkeyPatch, machine: type, holds: bool
) -> None:
    """Log rule 3: a leader pipelines into ledger 5, lists ledger 6, sends to it, and ledger 5 is recovered short."""
    monkeypatch.setattr(log_write_handle, "RollLog", machine)
    writer = leader.lead()
    writer.append_async(b"0")
    writer.append_async(b"1")
    leader.ledgers[0].confirm(1)
    Calls(writer.roll)
    eventually(lambda: writer.ledger_id == 6)
    writer.append_async(b"2")
    leader.ledgers[1].confirm()
    assert (leader.taken_over() == [b"0", b"1", b"2"][: len(leader.taken_over())]) == holds
    leader.ledgers[0].fail(LedgerFencedError(5))


@pytest.mark.parametrize(
    ("machine", "holds"), [(RollLog, True), (WithoutFailure, False)], ids=["as shipped", "without failing"]
)
def test_nothing_is_confirmed_behind_an_entry_that_failed_in_the_former_ledger(
    leader: HandLeadership, monkeypatch: pytest.MonkeyPatch, machine: type, holds: bool
) -> None:
    """Log rule 3: one failed add fails the handle, with what is queued."""
    monkeypatch.setattr(log_write_handle, "RollLog", machine)
    writer = leader.lead()
    failed = writer.append_async(b"0")
    rolling = Calls(writer.roll)
    eventually(lambda: writer.ledger_id == 6)
    queued = writer.append_async(b"1")
    leader.ledgers[0].fail(AddQuorumTimeoutError(5, 0, 30.0))
    assert isinstance(failed.exception(0), AddQuorumTimeoutError)
    if holds:
        with pytest.raises(AddQuorumTimeoutError):
            rolling.result()
        assert isinstance(queued.exception(DEADLINE_S), AddQuorumTimeoutError)
    else:
        rolling.result()
    leader.ledgers[1].confirm()
    assert (leader.taken_over() == []) == holds


class WithoutDeferredClose(RollLog[HandLedger, object]):
    """Log rule 3 without its last part: the next roll does not wait until the former ledger is closed."""

    def drained(self) -> None:
        super().drained()
        self.state = RollState.STEADY

    def closed(self) -> None:
        return None


@pytest.mark.parametrize(
    ("machine", "most_open"), [(RollLog, 2), (WithoutDeferredClose, 3)], ids=["as shipped", "without the close before"]
)
def test_no_more_than_two_ledgers_of_a_leader_are_open(
    leader: HandLeadership, monkeypatch: pytest.MonkeyPatch, machine: type, most_open: int
) -> None:
    """Log rule 3: who takes over fences the last two."""
    monkeypatch.setattr(log_write_handle, "RollLog", machine)
    writer = leader.lead()
    rolls = []
    for number in range(2):
        leader.ledgers[-1].may_close.clear()
        writer.append_async(b"%d" % number)
        leader.ledgers[-1].confirm()
        rolls.append(Calls(writer.roll))
        if number == 0 or most_open == 3:
            eventually(lambda: writer.ledger_id == 6 + number)  # noqa: B023
    for ledger in list(leader.ledgers):
        ledger.may_close.set()
    for roll in rolls:
        roll.result()
    assert (leader.most_open, len(leader.ledgers)) == (most_open, 3)


def test_each_roll_records_the_end_of_the_ledger_before_and_close_that_of_the_last(leader: HandLeadership) -> None:
    writer = leader.lead()
    recorded = []
    for payload in (b"a", b"bb", b"ccc"):
        future = writer.append_async(payload)
        leader.ledgers[-1].confirm()
        future.result(0)
        recorded.append(len(leader.recorded))
        writer.roll()
    assert recorded == [0, 1, 2]
    writer.close()
    ends = [(5, 0, 1), (6, 0, 2), (7, 0, 3), (8, -1, 0)]
    assert leader.recorded == [CommittedLedger(one, last, length, last + 1) for one, last, length in ends]
    assert all(ledger.is_closed for ledger in leader.ledgers)


def test_a_roll_of_an_empty_ledger_does_nothing(leader: HandLeadership) -> None:
    writer = leader.lead()
    writer.roll()
    assert len(leader.ledgers) == 1


def test_a_full_ledger_rolls_by_itself(leader: HandLeadership) -> None:
    writer = leader.lead(roll_bytes=100)
    writer.append_async(b"x" * 67)
    assert sent(leader) == [[b"x" * 67]]
    assert leader.created == []
    writer.append_async(b"")
    leader.ledgers[0].confirm()
    eventually(lambda: len(leader.ledgers) == 2 and leader.ledgers[0].is_closed)
    writer.append_async(b"y")
    eventually(lambda: leader.ledgers[1].sent == [b"y"])


def test_an_append_waits_while_a_window_is_unconfirmed_in_all_ledgers_together(leader: HandLeadership) -> None:
    writer = leader.lead(window_bytes=200)
    writer.append_async(b"a")
    rolling = Calls(writer.roll)
    eventually(lambda: writer.ledger_id == 6)
    writer.append_async(b"x" * 60)
    late = Calls(lambda: writer.append_async(b"y" * 60))
    assert sent(leader)[1] == []
    assert not late.is_done
    leader.ledgers[0].confirm()
    late.result()
    rolling.result()
    assert leader.ledgers[1].sent == [b"x" * 60, b"y" * 60]


def test_an_append_of_any_size_is_made_alone_and_waits_for_all_before_it(leader: HandLeadership) -> None:
    writer = leader.lead(window_bytes=100)
    writer.append_async(b"a")
    large = Calls(lambda: writer.append_async(b"x" * 500))
    assert sent(leader) == [[b"a"]]
    assert not large.is_done
    leader.ledgers[0].confirm()
    large.result()
    assert sent(leader) == [[b"a", b"x" * 500]]


def test_an_append_without_room_is_refused_after_its_longest_wait_and_the_leader_goes_on(leader: HandLeadership) -> None:
    writer = leader.lead(window_bytes=100, append_wait_s=0.01)
    first = writer.append_async(b"x" * 60)
    with pytest.raises(AppendTimeoutError, match=r"had no room for an append for 0\.01 s"):
        writer.append_async(b"y" * 60)
    leader.ledgers[0].confirm()
    writer.append_async(b"z" * 60)
    assert sent(leader) == [[b"x" * 60, b"z" * 60]]
    assert first.result(0) == LogPosition(5, 0)
    leader.ledgers[0].confirm()
    writer.close()


def test_a_roll_waits_for_an_append_without_room_that_was_made_before_it(leader: HandLeadership) -> None:
    writer = leader.lead(window_bytes=100)
    writer.append_async(b"x" * 60)
    late = Calls(lambda: writer.append_async(b"y" * 60))
    eventually(lambda: len(writer._rolls.queued) == 1)
    rolling = Calls(writer.roll)
    eventually(lambda: len(writer._rolls.queued) == 2)
    assert leader.created == []
    leader.ledgers[0].confirm()
    late.result()
    eventually(lambda: writer.ledger_id == 6)
    leader.ledgers[0].confirm()
    rolling.result()
    assert sent(leader) == [[b"x" * 60, b"y" * 60], []]


def test_a_failure_wakes_those_who_wait_for_room(leader: HandLeadership) -> None:
    writer = leader.lead(window_bytes=200)
    writer.append_async(b"a")
    rolling = Calls(writer.roll)
    eventually(lambda: writer.ledger_id == 6)
    writer.append_async(b"x" * 130)
    late = Calls(lambda: writer.append(b"y"))
    leader.ledgers[0].fail(LedgerFencedError(5))
    for call in (late, rolling):
        with pytest.raises(LedgerFencedError):
            call.result()


def test_where_no_ledger_can_be_created_a_roll_says_so_and_the_leader_goes_on(leader: HandLeadership) -> None:
    writer = leader.lead()
    writer.append_async(b"a")
    leader.creation_error = TOO_FEW
    with pytest.raises(NotEnoughBookiesError):
        writer.roll()
    writer.append_async(b"b")
    assert sent(leader) == [[b"a", b"b"]]
    leader.creation_error = None
    leader.ledgers[0].confirm()
    writer.roll()
    assert len(leader.ledgers) == 2


def test_a_roll_of_a_full_ledger_that_fails_is_logged_and_tried_again_later(
    leader: HandLeadership, caplog: pytest.LogCaptureFixture
) -> None:
    writer = leader.lead(roll_bytes=1600)
    leader.creation_error = TOO_FEW
    with caplog.at_level(logging.WARNING):
        writer.append_async(b"x" * 1600)
        eventually(lambda: bool(caplog.records))
    assert "'orders' could not roll ledger 5 and goes on in it, and tries again later: a ledger needs 3" in caplog.text
    leader.creation_error = None
    writer.append_async(b"x" * 50)
    assert leader.created == []
    writer.append_async(b"x" * 50)
    leader.ledgers[0].confirm()
    eventually(lambda: len(leader.ledgers) == 2)


def test_a_roll_whose_commit_fails_ends_the_leader_for_its_outcome_may_be_unknown(leader: HandLeadership) -> None:
    writer = leader.lead()
    writer.append_async(b"a")
    leader.commit_error = MetadataUnavailableError("zk://x", "no answer")
    with pytest.raises(MetadataUnavailableError):
        writer.roll()
    with pytest.raises(MetadataUnavailableError):
        writer.append(b"b")


def test_an_append_that_the_ledger_does_not_take_is_raised_and_a_roll_does_not_wait_for_it(leader: HandLeadership) -> None:
    writer = leader.lead()
    writer.append_async(b"a")
    leader.ledgers[0].refuses = ConfigError("this client", "closed", "open a new one")
    with pytest.raises(ConfigError):
        writer.append_async(b"b")
    leader.ledgers[0].confirm()
    writer.roll()
    assert len(leader.ledgers) == 2


def test_an_append_that_its_ledger_does_not_take_once_it_is_sent_ends_the_leader(leader: HandLeadership) -> None:
    """Nothing may be confirmed behind an entry that is missing."""
    writer = leader.lead()
    leader.ledgers[0].send_error = ConfigError("this client", "closed", "open a new one")
    first = writer.append_async(b"a")
    with pytest.raises(ConfigError):
        first.result(DEADLINE_S)
    leader.ledgers[0].send_error = None
    with pytest.raises(ConfigError):
        writer.append(b"b")


def test_a_roll_for_which_there_is_no_thread_is_tried_again_later(
    leader: HandLeadership, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = leader.lead(roll_bytes=10)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(log_write_handle, "in_thread", no_thread)
        writer.append_async(b"a")
        eventually(lambda: bool(caplog.records))
    assert "goes on in it, and tries again later: can't start new thread" in caplog.text
    writer.append_async(b"b")
    leader.ledgers[0].confirm()
    eventually(lambda: len(leader.ledgers) == 2)
    writer.close()


def no_thread(call: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_queued_append_that_the_next_ledger_does_not_take_fails_its_caller_and_the_leader(leader: HandLeadership) -> None:
    writer = leader.lead()
    writer.append_async(b"a")
    rolling = Calls(writer.roll)
    eventually(lambda: writer.ledger_id == 6)
    queued = [writer.append_async(b"b"), writer.append_async(b"c")]
    leader.ledgers[1].send_error = ConfigError("this client", "closed", "open a new one")
    leader.ledgers[0].confirm()
    rolling.result()
    assert [type(one.exception(DEADLINE_S)) for one in queued] == [ConfigError, ConfigError]
