"""A writer marks its ledger for bookies that are named for confirmed entries that they did not take. Ref: protocol rule 63."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bk_spark.client.protocol.pending_adds import (
    MARK_PATIENCE_MS,
    MARK_RETRY_MS,
    MARK_TRIES,
    OWED_PATIENCE_MS,
    KnownGaps,
)
from bk_spark.client.protocol.state_machine import (
    CloseRequested,
    Finish,
    ForceAnswered,
    ForceRequested,
    MarkAnswered,
    MarkUnderReplicated,
    ReplacementsChosen,
    SendAdd,
    SendForce,
)
from bk_spark.errors import LedgerFencedError
from bk_spark.metadata.ledger_metadata import LedgerState
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.writer_model import RETRY_MS, Writer, limits


def _with_a_gap(writer: Writer) -> None:
    """Entry 0 is everywhere; b1 fails, nobody takes its slot, and entries 1 and 2 are confirmed without it."""
    writer.ack(*writer.append(b"0", token=0).values())
    sent = writer.append(b"1", token=1)
    writer.fail(sent["b1"])
    writer.ack(sent["b0"], sent["b2"])
    writer.ack(*writer.append(b"2", token=2).values())
    assert writer.confirmed() == [0, 1, 2]


def _b1_is_chosen(writer: Writer) -> None:
    writer.chooses_at_once = False
    writer.tick(RETRY_MS)
    writer.do(ReplacementsChosen(writer.choosing.pop().request_id, ((1, "b1"),)))
    writer.chooses_at_once = True


def _b1_returns(writer: Writer) -> None:
    _b1_is_chosen(writer)
    writer.answer_write()
    writer.ack(*writer.append(b"3", token=3).values())
    assert writer.fragments() == [(0, ("b0", "b1", "b2")), (3, ("b0", "b1", "b2"))]


def _closed(writer: Writer) -> list[Finish]:
    return [one for one in writer.log if isinstance(one, Finish)]


def test_a_bookie_that_returns_in_a_new_fragment_is_marked_once_that_is_in_the_metadata_and_it_acks() -> None:
    """Before, nobody would look for its gap, or the open tail would be fenced because it names a bookie that is gone."""
    writer = Writer()
    _with_a_gap(writer)
    _b1_is_chosen(writer)
    writer.answer_write()
    sent = writer.append(b"3")
    writer.ack(sent["b0"], sent["b2"])
    writer.tick(999)
    assert writer.marks == []
    writer.ack(sent["b1"])
    assert writer.marks == [("b1",)]


def test_a_bookie_that_is_chosen_again_and_still_away_is_not_marked_while_the_open_tail_names_it() -> None:
    writer = Writer()
    _with_a_gap(writer)
    _b1_is_chosen(writer)
    writer.answer_write()
    sent = writer.append(b"3")
    writer.fail(sent["b1"])
    writer.ack(sent["b0"], sent["b2"])
    writer.tick(2 * MARK_PATIENCE_MS)
    assert writer.marks == []
    assert writer.machine.lacking == {"b1"}


def test_a_gap_is_marked_once() -> None:
    writer = Writer()
    _with_a_gap(writer)
    _b1_returns(writer)
    writer.ack(*writer.append(b"3").values())
    writer.tick(MARK_PATIENCE_MS)
    writer.do(CloseRequested())
    writer.answer_write()
    assert writer.marks == [("b1",)]


def test_a_bookie_that_took_all_that_was_confirmed_before_it_failed_is_not_marked() -> None:
    writer = Writer(spares=["b9"])
    writer.ack(*writer.append(b"0").values())
    sent = writer.append(b"1")
    writer.fail(sent["b1"])  # entry 1 is not confirmed: the new bookie gets it
    writer.answer_write()
    writer.ack(*(one for one in writer.log if getattr(one, "bookie_id", "") == "b9" and hasattr(one, "batch")))  # type: ignore[arg-type]
    writer.ack(sent["b0"], sent["b2"])
    writer.do(CloseRequested())
    writer.answer_write()
    assert writer.stored.is_closed
    assert writer.marks == []


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_bookie_that_was_replaced_gets_some_time_to_come_back_before_its_gap_is_marked(is_refused: bool) -> None:
    """Entry 0 is confirmed while b1 owes its answer, which it refuses, or never gives."""
    writer = Writer(spares=["b9"])
    sent = writer.append(b"0")
    writer.ack(sent["b0"], sent["b2"])
    if is_refused:
        writer.fail(sent["b1"])
    else:
        writer.tick(1000)
    writer.answer_write()
    assert writer.fragments()[-1] == (1, ("b0", "b9", "b2"))
    assert writer.marks == []
    writer.tick(MARK_PATIENCE_MS - 1)
    assert writer.marks == []
    writer.tick(1)
    assert writer.marks == [("b1",)]


def test_what_is_not_marked_yet_is_marked_when_the_ledger_is_closed_and_before_close_returns() -> None:
    writer = Writer(marks_wait=True)
    _with_a_gap(writer)
    writer.do(CloseRequested())
    assert not any(isinstance(one, MarkUnderReplicated) for one in writer.log)
    writer.answer_write()
    assert writer.stored.is_closed
    mark = writer.log[-1]
    assert mark == MarkUnderReplicated(("b1",))
    assert not _closed(writer)
    assert isinstance(mark, MarkUnderReplicated)
    writer.answer_mark(mark)
    assert _closed(writer) == [Finish()]


def test_a_mark_that_fails_is_tried_again_and_the_writer_goes_on_meanwhile() -> None:
    writer = Writer(marks_fail=2)
    _with_a_gap(writer)
    _b1_returns(writer)
    assert writer.marks == [("b1",)]
    writer.ack(*writer.append(b"4", token=4).values())
    assert writer.confirmed()[-1] == 4
    writer.tick(MARK_RETRY_MS)
    writer.tick(2 * MARK_RETRY_MS)
    assert writer.marks == [("b1",)] * 3
    assert writer.machine.lacking == frozenset()


def test_close_does_not_wait_for_ever_for_a_store_that_takes_no_marks() -> None:
    writer = Writer(marks_fail=100)
    _with_a_gap(writer)
    writer.do(CloseRequested())
    writer.answer_write()
    for _ in range(MARK_TRIES):
        assert not _closed(writer)
        assert len(writer.marks) < MARK_TRIES
        deadline = writer.machine.deadline_ms()
        assert deadline is not None
        writer.tick(deadline - writer.now_ms)
        if len(writer.marks) == MARK_TRIES:
            break
    assert _closed(writer) == [Finish()]  # what is confirmed stays confirmed, and the close succeeds
    assert writer.machine.deadline_ms() is None


def test_what_could_not_be_marked_is_reported_again_at_the_close() -> None:
    writer = Writer(marks_fail=MARK_TRIES)
    _with_a_gap(writer)
    _b1_returns(writer)
    while len(writer.marks) < MARK_TRIES:
        writer.tick(MARK_RETRY_MS << MARK_TRIES)
    assert writer.machine.lacking == {"b1"}
    writer.do(CloseRequested())
    writer.answer_write()
    assert writer.machine.lacking == frozenset()
    assert _closed(writer) == [Finish()]


def test_a_writer_that_was_fenced_marks_what_it_knows_when_it_is_closed() -> None:
    writer = Writer()
    _with_a_gap(writer)
    sent = writer.append(b"3")
    writer.store(replace(writer.stored, state=LedgerState.IN_RECOVERY))
    writer.ack(sent["b0"], status=Status.FENCED)
    writer.do(CloseRequested())
    writer.answer_write()
    [end] = _closed(writer)
    assert isinstance(end.error, LedgerFencedError)
    assert writer.marks == [("b1",)]


def test_with_striping_only_bookies_of_an_entrys_own_write_set_lack_it() -> None:
    writer = Writer(e=3, w=2, a=1)
    sent = writer.append(b"0")  # b0 and b1
    writer.fail(sent["b1"])
    writer.ack(sent["b0"])
    writer.do(CloseRequested())
    writer.answer_write()
    assert writer.marks == [("b1",)]
    other = Writer(e=3, w=2, a=1)
    sent = other.append(b"0")
    other.ack(*sent.values())
    other.fail(other.append(b"1")["b2"])  # b1 and b2; it is not confirmed yet
    other.do(CloseRequested())
    other.answer_write()
    assert other.marks == []


def test_with_deferred_sync_nothing_is_marked_because_the_ledger_ends_before_every_gap() -> None:
    writer = Writer(deferred_sync=True)
    sent = writer.append(b"0")
    writer.fail(sent["b1"])
    writer.ack(sent["b0"], sent["b2"])
    writer.do(CloseRequested())
    writer.answer_write()
    assert writer.stored.last_entry_id == -1
    assert writer.marks == []


def test_a_delayed_ensemble_change_leaves_a_gap_that_is_marked() -> None:
    writer = Writer(limits=limits(delay_ensemble_change=True))
    _with_a_gap(writer)
    writer.do(CloseRequested())
    writer.answer_write()
    assert writer.marks == [("b1",)]


@pytest.mark.parametrize("end", ["fenced", "no ack quorum in time"])
def test_a_writer_that_fails_marks_the_bookies_whose_adds_of_confirmed_entries_it_gave_up(end: str) -> None:
    writer = Writer()
    owed = writer.append(b"0", token=0)
    writer.ack(owed["b0"], owed["b1"])
    sent = writer.append(b"1", token=1)
    if end == "fenced":
        writer.ack(sent["b0"], status=Status.FENCED)
    else:
        while writer.machine.error is None:
            writer.tick(RETRY_MS)
    assert writer.machine.last_add_confirmed == 0
    assert writer.machine.lacking == {"b2"}
    writer.do(CloseRequested())
    writer.answer_write()
    assert writer.stored.last_entry_id == 0
    assert writer.marks == [("b2",)]


def test_with_deferred_sync_an_entry_that_was_forced_is_marked_for_a_bookie_that_refuses_it_afterwards() -> None:
    """A force may overtake an add that waits for a slow bookie."""
    writer = Writer(deferred_sync=True)
    sent = writer.append(b"0")
    writer.ack(sent["b0"], sent["b1"], boot=1)
    for force in writer.do(ForceRequested("all")):
        if isinstance(force, SendForce):
            writer.do(ForceAnswered(force.request_id, Status.OK, boot=1))
    assert writer.machine.last_add_confirmed == 0
    writer.fail(sent["b2"])
    writer.do(CloseRequested())
    writer.answer_write()
    assert (writer.stored.last_entry_id, writer.marks) == (0, [("b2",)])


def _owing_at_the_close(writer: Writer) -> SendAdd:
    """Entry 0 is confirmed and the ledger is closed while b2 owes its answer."""
    sent = writer.append(b"0")
    writer.ack(sent["b0"], sent["b1"])
    writer.do(CloseRequested())
    writer.answer_write()
    assert writer.stored.is_closed
    assert not _closed(writer)
    return sent["b2"]


def test_a_close_waits_for_the_answers_about_confirmed_entries() -> None:
    writer = Writer()
    writer.ack(_owing_at_the_close(writer))
    assert _closed(writer) == [Finish()]
    assert writer.marks == []


def test_a_bookie_that_does_not_answer_about_confirmed_entries_is_marked_a_moment_after_the_close() -> None:
    writer = Writer()
    _owing_at_the_close(writer)
    assert writer.machine.deadline_ms() == OWED_PATIENCE_MS
    writer.tick(OWED_PATIENCE_MS - 1)
    assert not _closed(writer)
    writer.tick(1)
    assert writer.marks == [("b2",)]
    assert _closed(writer) == [Finish()]


def test_a_bookie_that_refuses_a_confirmed_entry_during_the_close_is_marked() -> None:
    writer = Writer()
    writer.fail(_owing_at_the_close(writer))
    assert writer.marks == [("b2",)]
    assert _closed(writer) == [Finish()]


def test_answers_about_entries_that_the_close_cuts_off_are_not_waited_for() -> None:
    writer = Writer()
    sent = writer.append(b"0")
    writer.ack(sent["b0"])
    writer.do(CloseRequested())
    writer.answer_write()
    assert writer.stored.last_entry_id == -1
    assert _closed(writer) == [Finish()]
    assert writer.marks == []


def test_an_idle_writer_wakes_up_to_mark_a_gap() -> None:
    writer = Writer(spares=["s0"])
    sent = writer.append(b"0")
    writer.ack(sent["b0"], sent["b2"])
    writer.fail(sent["b1"])
    writer.answer_write()
    assert writer.fragments() == [(0, ("b0", "b1", "b2")), (1, ("b0", "s0", "b2"))]
    assert writer.machine.deadline_ms() == MARK_PATIENCE_MS


def test_a_gap_that_a_failed_writer_has_marked_is_not_marked_again_at_its_close() -> None:
    gaps = KnownGaps()
    gaps.note("b1")
    gaps.fragment_ended(["b0", "b1", "b2"], 0)
    gaps.writer_failed()
    assert gaps.go_on(0) == [MarkUnderReplicated(("b1",))]
    gaps.answered(MarkAnswered(None), 0)
    gaps.ledger_closed()
    assert gaps.is_reported
    assert gaps.go_on(0) == []
