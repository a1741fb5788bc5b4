"""The leader of a log: over ledgers that a test moves by hand."""

from __future__ import annotations

import threading

import pytest

from bk_spark.client.driver.event_loop import EventLoop
from bk_spark.config import MAX_ENTRY_BYTES
from bk_spark.errors import (
    BookKeeperError,
    ConfigError,
    EntryTooLargeError,
    InternalError,
    LedgerClosedError,
    LedgerFencedError,
    NotEnoughBookiesError,
)
from bk_spark.log.entry_range import LogPosition
from tests.unit.log.leader.leader_model import DEADLINE_S, Calls, HandLeadership, eventually, on_loop

TOO_FEW = NotEnoughBookiesError(3, 2, "a ledger")


@pytest.fixture
def leader() -> HandLeadership:
    return HandLeadership()


def sent(leader: HandLeadership) -> list[list[bytes]]:
    return [ledger.sent for ledger in leader.ledgers]


def test_futures_hold_places_once_the_ledger_has_confirmed(leader: HandLeadership) -> None:
    writer = leader.lead()
    one, many = writer.append_async(b"a"), writer.append_batch_async([b"b", b"c"])
    assert not one.done()
    leader.ledgers[0].confirm()
    assert one.result(0) == LogPosition(5, 0)
    assert many.result(0) == (LogPosition(5, 1), LogPosition(5, 2))
    assert (writer.ledger_id, writer.epoch) == (5, 3)


@pytest.mark.parametrize("error", [LedgerFencedError(5), LedgerClosedError(5)], ids=["fenced", "closed by who fenced it"])
def test_a_displaced_leader_s_appends_roll_and_close_all_say_so_and_how_to_go_on(
    leader: HandLeadership, error: BookKeeperError
) -> None:
    writer = leader.lead()
    waiting = writer.append_async(b"a")
    leader.ledgers[0].fail(error)
    for call in (waiting.result, lambda: writer.append(b"b"), writer.roll, writer.close, writer.close):
        with pytest.raises(LedgerFencedError, match=r"writer of log 'orders' was displaced .* open_writer\(\) takes it over"):
            call()
    assert leader.recorded == []


def test_a_leader_that_learns_at_a_roll_that_it_was_displaced_appends_nothing_more(leader: HandLeadership) -> None:
    writer = leader.lead()
    writer.append_async(b"a")
    leader.ledgers[0].confirm()
    leader.commit_error = LedgerFencedError(5)
    with pytest.raises(LedgerFencedError):
        writer.roll()
    with pytest.raises(LedgerFencedError):
        writer.append(b"b")
    assert leader.ledgers[0].sent == [b"a"]


def test_a_leader_that_learns_at_its_close_that_it_was_displaced_says_so(leader: HandLeadership) -> None:
    leader.ledgers[0].close_error = LedgerFencedError(5)
    with pytest.raises(LedgerFencedError):
        leader.lead().close()


def test_a_bug_ends_the_leader_and_is_told_to_all_who_wait(leader: HandLeadership, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = leader.lead()
    sent_before = writer.append_async(b"a")
    assert sent(leader) == [[b"a"]]

    def broken() -> None:
        raise AssertionError

    monkeypatch.setattr(writer._rolls, "next", broken)
    waiting = writer.append_async(b"b")
    leader.ledgers[0].beat()
    assert isinstance(waiting.exception(0), InternalError)
    with pytest.raises(InternalError, match="AssertionError"):
        writer.close()
    leader.ledgers[0].confirm()
    assert sent_before.result(0) == LogPosition(5, 0), "the ledger has it"


def test_close_waits_for_all_that_was_appended_also_what_a_roll_has_queued(leader: HandLeadership) -> None:
    writer = leader.lead()
    first = writer.append_async(b"a")
    rolling = Calls(writer.roll)
    eventually(lambda: writer.ledger_id == 6)
    queued = writer.append_async(b"b")
    closing = Calls(writer.close)
    leader.ledgers[0].confirm()
    rolling.result()
    eventually(lambda: leader.ledgers[1].sent == [b"b"])
    assert not closing.is_done
    leader.ledgers[1].confirm()
    closing.result()
    assert (first.result(0), queued.result(0)) == (LogPosition(5, 0), LogPosition(6, 0))
    assert [one.ledger_id for one in leader.recorded] == [5, 6]


def test_when_close_returns_the_futures_of_all_appends_are_done(leader: HandLeadership) -> None:
    writer = leader.lead()
    future = writer.append_async(b"a")
    closing = Calls(writer.close)
    was_closed: list[bool] = []
    tick = threading.Event()

    def look(_: object) -> None:
        tick.wait(0.05)  # for a close that does not wait
        was_closed.append(leader.ledgers[0].is_closed)

    future.add_done_callback(look)
    leader.ledgers[0].confirm()
    closing.result()
    assert was_closed == [False]


def test_after_close_appends_and_rolls_are_refused_and_a_second_close_gives_the_result_of_the_first(
    leader: HandLeadership,
) -> None:
    with leader.lead() as writer:
        pass
    writer.close()
    for call in (lambda: writer.append(b"a"), writer.roll):
        with pytest.raises(LedgerClosedError, match=r"writer of log 'orders' is closed: open another one with open_writer\(\)"):
            call()
    assert len(leader.recorded) == 1


def test_an_error_in_the_block_is_the_one_that_is_raised_with_a_note_of_what_close_makes_of_it(leader: HandLeadership) -> None:
    leader.ledgers[0].close_error = LedgerFencedError(5)
    with pytest.raises(ValueError, match="mine") as raised, leader.lead():
        raise ValueError("mine")
    assert "closing the writer of log 'orders' failed as well" in raised.value.__notes__[0]


def test_what_cannot_be_an_entry_is_refused_at_the_call_and_harms_nothing(leader: HandLeadership) -> None:
    writer = leader.lead()
    with pytest.raises(EntryTooLargeError):
        writer.append_async(b"x" * (MAX_ENTRY_BYTES + 1))
    for wrong in (lambda: writer.append_async("text"), lambda: writer.append_batch_async([])):  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            wrong()
    writer.append_async(b"a")
    leader.ledgers[0].confirm()
    writer.close()


def test_calls_that_wait_are_refused_in_callbacks(leader: HandLeadership) -> None:
    writer = leader.lead(window_bytes=200)
    writer.append_async(b"a")
    rolling = Calls(writer.roll)
    eventually(lambda: writer.ledger_id == 6)
    writer.append_async(b"x" * 100)
    problems: list[BaseException] = []

    def refused() -> None:
        waiting = (writer.roll, writer.close, lambda: writer.append(b"y"), lambda: writer.append_batch([b"y"]))
        for call in (*waiting, lambda: writer.append_async(b"y" * 100)):
            with pytest.raises(ConfigError, match="callback") as raised:
                call()
            problems.append(raised.value)

    EventLoop.get().call_soon_threadsafe(refused)
    eventually(lambda: len(problems) == 5)
    leader.ledgers[0].confirm()
    rolling.result()
    leader.ledgers[1].confirm()
    writer.close()


def test_the_end_of_the_client_fails_what_the_leader_has_not_sent_and_a_roll_that_waits(leader: HandLeadership) -> None:
    writer = leader.lead(window_bytes=200)
    writer.append_async(b"a")
    rolling = Calls(writer.roll)
    eventually(lambda: writer.ledger_id == 6)
    queued = writer.append_async(b"b")
    on_loop(writer._client_closed)
    for call in (lambda: queued.result(DEADLINE_S), rolling.result, lambda: writer.append(b"c"), writer.roll, writer.close):
        with pytest.raises(ConfigError, match="a new BookKeeper"):
            call()


def test_in_a_forked_process_all_futures_of_the_leader_fail(leader: HandLeadership) -> None:
    writer = leader.lead(window_bytes=200)
    writer.append_async(b"a")
    rolling = Calls(writer.roll)
    eventually(lambda: writer.ledger_id == 6)
    queued = writer.append_async(b"b")
    closing = Calls(writer.close)
    eventually(lambda: bool(writer._closings))
    writer._forked()
    for call in (lambda: queued.result(DEADLINE_S), rolling.result, closing.result):
        with pytest.raises(ConfigError, match="spawn or forkserver"):
            call()
