"""Ensemble changes of a writer: who is replaced, from which entry on, and what may be confirmed meanwhile."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from bk_spark.client.protocol.state_machine import (
    AddAnswered,
    CancelAdd,
    ChooseReplacements,
    CloseRequested,
    Finish,
    MetadataRead,
    MetadataUnknown,
    ReplacementsChosen,
    ReportFailure,
    SendAdd,
    WriteMetadata,
)
from bk_spark.errors import (
    EnsembleChangesExceededError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from bk_spark.metadata.ledger_metadata import Fragment, LedgerState
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.writer_model import RETRY_MS, TIMEOUT_MS, Writer, limits, sends


def _changes(writer: Writer) -> list[ChooseReplacements]:
    return [c for c in writer.log if isinstance(c, ChooseReplacements)]


def _writes(writer: Writer) -> list[WriteMetadata]:
    return [c for c in writer.log if isinstance(c, WriteMetadata)]


def test_a_failed_bookie_is_replaced_from_the_first_unconfirmed_entry_on() -> None:
    """Ref: protocol rule 20, situation 1."""
    writer = Writer(spares=["s0"])
    first = writer.append(b"a", b"b")
    writer.ack(*first.values())
    second = writer.append(b"c")
    writer.fail(second["b1"])
    writer.answer_write()
    assert writer.fragments() == [(0, ("b0", "b1", "b2")), (2, ("b0", "s0", "b2"))]
    assert ReportFailure("b1") in writer.log


def test_a_fragment_without_a_confirmed_entry_is_overwritten_not_followed() -> None:
    """Ref: protocol rule 20 (#1591): first ids of fragments strictly increase."""
    writer = Writer(spares=["s0", "s1"])
    sent = writer.append(b"a")
    writer.fail(sent["b1"])
    sent = sends(writer.answer_write())
    writer.fail(sent["s0"])
    writer.answer_write()
    assert writer.fragments() == [(0, ("b0", "s1", "b2"))]


def test_the_replacement_is_sent_every_unconfirmed_entry_and_nothing_else() -> None:
    """Ref: situation 2."""
    writer = Writer(spares=["s0"])
    confirmed = writer.append(b"a", token="a")
    writer.ack(confirmed["b0"], confirmed["b1"])
    pending = [writer.append(b"%d" % n, token=n) for n in range(3)]
    writer.fail(pending[0]["b2"])
    resent = [c for c in writer.answer_write() if isinstance(c, SendAdd)]
    assert [(c.bookie_id, c.batch.header.first_entry_id) for c in resent] == [("s0", 1), ("s0", 2), ("s0", 3)]
    assert all(new.batch is old["b0"].batch for new, old in zip(resent, pending, strict=True))


def test_no_entry_is_confirmed_while_the_ensemble_changes() -> None:
    """Ref: protocol rules 16 and 20, situation 9."""
    writer = Writer(spares=["s0"])
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b2"])
    writer.ack(sent["b0"], sent["b1"])
    assert writer.confirmed() == []
    writer.answer_write()
    assert writer.confirmed() == ["a"]


def test_all_acks_of_a_replaced_bookie_are_taken_back_before_any_entry_is_confirmed() -> None:
    """3/3/2: a has only b2's ack, b and c have b1's and b2's; b2 fails, b1 has not answered for a.

    When b1 answers, a is confirmed, but b and c, which only b1 backs in the new ensemble, are not.
    Ref: protocol rules 17 and 18 (BOOKKEEPER-826, #3005).
    """
    writer = Writer(spares=["s0"])
    a, b, c = (writer.append(name.encode(), token=name) for name in "abc")
    writer.ack(a["b2"], b["b1"], b["b2"], c["b1"])
    writer.fail(c["b2"])
    writer.ack(a["b0"], a["b1"])
    assert writer.confirmed() == []
    resent = [command for command in writer.answer_write() if isinstance(command, SendAdd)]
    assert writer.confirmed() == ["a"]
    writer.ack(resent[1])
    assert writer.confirmed() == ["a", "b"]
    writer.ack(resent[2])
    assert writer.confirmed() == ["a", "b", "c"]


def test_an_entry_outside_of_the_replaced_bookies_write_set_is_confirmed_after_the_change() -> None:
    """E=4, Qw=2: entry 0 stands on b0 and b1, b3 fails. Ref: protocol rule 19 (#1857), situation 8."""
    writer = Writer(e=4, w=2, a=2, spares=["s0"])
    entries = [writer.append(b"%d" % n, token=n) for n in range(4)]
    writer.fail(entries[2]["b3"])
    writer.ack(entries[0]["b0"], entries[0]["b1"])
    assert writer.confirmed() == []
    writer.answer_write()
    assert writer.confirmed() == [0]


def test_a_late_failure_replaces_the_bookie_although_its_entries_were_confirmed() -> None:
    """Ref: situation 10: a sleeping bookie runs into the add timeout."""
    writer = Writer(spares=["s0"])
    sent = writer.append(b"a", token="a")
    writer.ack(sent["b0"], sent["b1"])
    assert writer.confirmed() == ["a"]
    writer.tick(TIMEOUT_MS)
    assert not sends(writer.answer_write())
    assert writer.fragments() == [(0, ("b0", "b1", "b2")), (1, ("b0", "b1", "s0"))]
    assert writer.released() == ["a"]


def test_an_entry_that_falls_below_its_ack_quorum_waits_for_the_new_bookie() -> None:
    """Ref: protocol rule 17, situation 10: b has its quorum, a does not; b2's replacement takes b's second ack away."""
    writer = Writer(spares=["s0"])
    writer.append(b"a", token="a")
    b = writer.append(b"b", token="b")
    writer.ack(b["b1"], b["b2"])
    writer.tick(0)
    a_again = writer.do(AddAnswered(1, Status.OK))  # a on b0
    assert a_again == []
    writer.fail(SendAdd(3, "b2", b["b2"].batch))  # a on b2
    resent = [c for c in writer.answer_write() if isinstance(c, SendAdd)]
    writer.do(AddAnswered(2, Status.OK))  # a on b1
    assert writer.confirmed() == ["a"]
    writer.ack(resent[1])
    assert writer.confirmed() == ["a", "b"]


def test_answers_of_a_replaced_bookie_are_ignored() -> None:
    """Ref: protocol rule 20."""
    writer = Writer(spares=["s0"])
    a = writer.append(b"a", token="a")
    b = writer.append(b"b", token="b")
    writer.fail(a["b2"])
    assert CancelAdd(b["b2"].request_id) in writer.log
    writer.answer_write()
    writer.ack(a["b0"], b["b0"], b["b2"], a["b2"])
    assert writer.confirmed() == []


def test_a_second_failure_during_the_choice_is_merged_into_one_change() -> None:
    """Ref: protocol rule 21 (#1886), situation 3."""
    writer = Writer(e=3, w=3, a=1, spares=["s0", "s1"], chooses_at_once=False)
    sent = writer.append(b"a")
    writer.fail(sent["b0"])
    writer.fail(sent["b1"])
    assert len(_changes(writer)) == 1
    writer.choose()
    assert _changes(writer)[1].slots == (1,)
    assert _changes(writer)[1].excluded == {"b0", "b1", "s0"}
    writer.choose()
    writer.answer_write()
    assert len(_writes(writer)) == 1
    assert writer.fragments() == [(0, ("s0", "s1", "b2"))]


def test_a_failure_while_the_metadata_is_written_starts_the_next_change_after_it() -> None:
    """Ref: protocol rule 21: never two at once."""
    writer = Writer(spares=["s0", "s1"])
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    writer.fail(sent["b1"])
    assert len(_changes(writer)) == len(_writes(writer)) == 1
    writer.answer_write()
    writer.ack(sent["b2"])
    assert writer.confirmed() == []
    writer.answer_write()
    assert writer.fragments() == [(0, ("s0", "s1", "b2"))]


def test_a_replacement_that_fails_at_once_is_replaced_in_turn() -> None:
    writer = Writer(spares=["s0", "s1"])
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    resent = sends(writer.answer_write())
    writer.fail(resent["s0"])
    assert _changes(writer)[-1].excluded == {"b0", "s0"}
    resent = sends(writer.answer_write())
    writer.ack(resent["s1"], sent["b1"])
    assert writer.confirmed() == ["a"]


def test_edits_of_older_fragments_by_others_survive_an_ensemble_change() -> None:
    """Ref: protocol rule 22 (BOOKKEEPER-667), situations 6 and 43."""
    writer = Writer(spares=["s0", "s1"])
    a = writer.append(b"a")
    writer.fail(a["b0"])
    resent = sends(writer.answer_write())
    writer.ack(resent["s0"], a["b1"])
    b = writer.append(b"b")
    writer.fail(b["b2"])
    writer.answer_write()
    older = Fragment(0, ("r0", "b1", "b2"))
    edited = replace(writer.stored, fragments=(older, *writer.stored.fragments[1:]))
    writer.store(edited)
    c = writer.append(b"c")
    writer.ack(b["s0"], b["b1"])
    writer.spares = ["s2"]
    writer.fail(c["b1"])
    writer.answer_write()
    writer.answer_write()
    assert writer.fragments() == [(0, ("r0", "b1", "b2")), (1, ("s0", "b1", "s1")), (2, ("s0", "s2", "s1"))]


@pytest.mark.parametrize(
    ("state", "error"), [(LedgerState.IN_RECOVERY, LedgerFencedError), (LedgerState.CLOSED, LedgerClosedError)]
)
def test_a_change_that_finds_the_ledger_in_recovery_or_closed_ends_the_writer(
    state: LedgerState, error: type[Exception]
) -> None:
    """Ref: protocol rule 12, situations 4 and 5: no fragment is added."""
    writer = Writer(spares=["s0"])
    sent = writer.append(b"a", token="a")
    found = writer.stored.closed_at(-1, 0) if state is LedgerState.CLOSED else replace(writer.stored, state=state)
    writer.store(found)
    writer.fail(sent["b0"])
    writer.answer_write()
    assert isinstance(writer.rejected()["a"], error)
    assert writer.stored == found
    writer.append(b"b", token="b")
    assert isinstance(writer.rejected()["b"], error)


def test_a_change_that_finds_a_foreign_last_fragment_ends_the_writer() -> None:
    writer = Writer(spares=["s0"])
    sent = writer.append(b"a", token="a")
    writer.store(writer.stored.with_ensemble(0, ("x0", "x1", "x2")))
    writer.fail(sent["b0"])
    writer.answer_write()
    assert isinstance(writer.rejected()["a"], MetadataConflictError)


@pytest.mark.parametrize("applied", [True, False])
def test_a_change_whose_reply_is_lost_is_read_again_and_neither_believed_nor_doubted(applied: bool) -> None:
    writer = Writer(spares=["s0"])
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    writer.lose_reply(applied=applied)
    if not applied:
        writer.answer_write()
    assert writer.fragments() == [(0, ("s0", "b1", "b2"))]
    writer.ack(sent["b1"], sent["b2"])
    assert writer.confirmed() == ["a"]


def test_a_bookie_with_a_foreign_key_is_replaced_at_once() -> None:
    """Protocol rule 24."""
    writer = Writer(spares=["s0"])
    sent = writer.append(b"a", token="a")
    writer.ack(sent["b1"], status=Status.UNAUTHORIZED)
    writer.answer_write()
    assert writer.fragments() == [(0, ("b0", "s0", "b2"))]


def test_a_fenced_add_ends_the_writer_without_an_ensemble_change() -> None:
    """Ref: protocol rule 24."""
    writer = Writer(spares=["s0"])
    sent = writer.append(b"a", token="a")
    writer.ack(sent["b1"], status=Status.FENCED)
    assert not _changes(writer)
    assert writer.rejected().keys() == {"a"}
    writer.ack(sent["b0"], sent["b2"])
    assert writer.confirmed() == []


def test_without_a_spare_bookie_the_writer_goes_on_and_tries_again_later() -> None:
    writer = Writer()
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    writer.ack(sent["b1"], sent["b2"])
    assert writer.confirmed() == ["a"]
    writer.spares = ["b0"]
    writer.tick(RETRY_MS - 1)
    assert len(_changes(writer)) == 1
    writer.chooses_at_once = False
    writer.tick(1)
    assert _changes(writer)[1].excluded == frozenset()
    writer.do(ReplacementsChosen(_changes(writer)[1].request_id, ((0, "b0"),)))
    writer.answer_write()
    assert set(writer.append(b"b")) == {"b0", "b1", "b2"}
    assert writer.fragments() == [(0, ("b0", "b1", "b2")), (1, ("b0", "b1", "b2"))]


def test_two_registered_bookies_that_refuse_every_add_do_not_take_turns() -> None:
    """b0 and s0 never take an add, b1 and b2 do: no more than two changes in each pause, and the pauses grow."""
    writer = Writer()
    starts: list[int] = []
    for n in range(100):
        sent = writer.append(b"%d" % n, token=n)
        writer.ack(sent["b1"], sent["b2"])
        while bad := sent.keys() & {"b0", "s0"}:
            writer.spares = ["b0", "s0"]
            writer.fail(sent[bad.pop()])
            sent = sends(writer.answer_write()) if writer.machine._ensemble.is_changing else {}
        writer.spares = ["b0", "s0"]
        if writer.tick(RETRY_MS):
            starts.append(writer.now_ms)
            for add in sends(writer.answer_write()).values():
                writer.fail(add)
            if writer.machine._ensemble.is_changing:
                for add in sends(writer.answer_write()).values():
                    writer.fail(add)
    assert len(writer.confirmed()) == 100
    assert len(writer.stored.fragments) < 20
    pauses = [after - before for before, after in pairwise(starts)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 16 * RETRY_MS


def test_a_bookie_that_was_replaced_long_ago_is_as_good_as_any_other() -> None:
    writer = Writer(spares=["s0"])
    writer.fail(writer.append(b"a")["b0"])
    sent = sends(writer.answer_write())
    writer.now_ms += RETRY_MS + 1
    writer.fail(sent["s0"])
    assert _changes(writer)[-1].excluded == {"s0"}


def test_where_an_ack_quorum_is_at_stake_a_bookie_that_was_just_replaced_may_come_back() -> None:
    writer = Writer(a=3, spares=["s0"])
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    resent = sends(writer.answer_write())
    writer.spares = ["b0"]
    writer.fail(sent["b1"])
    resent |= sends(writer.answer_write())
    assert writer.fragments() == [(0, ("s0", "b0", "b2"))]
    writer.ack(resent["s0"], resent["b0"], sent["b2"])
    assert writer.confirmed() == ["a"]


def test_looking_for_a_spare_again_and_again_slows_down() -> None:
    writer = Writer()
    sent = writer.append(b"a")
    writer.fail(sent["b0"])
    writer.ack(sent["b1"], sent["b2"])
    waits = []
    for _ in range(9):
        due = writer.machine.deadline_ms()
        assert due is not None
        waits.append(due - writer.now_ms)
        writer.tick(due - writer.now_ms)
    assert waits == [RETRY_MS << min(n, 6) for n in range(9)]


def test_below_the_ack_quorum_without_a_spare_the_error_names_the_numbers_and_the_reasons() -> None:
    writer = Writer()
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    writer.fail(sent["b2"], Status.READ_ONLY)
    error = writer.rejected()["a"]
    assert isinstance(error, NotEnoughBookiesError)
    assert (error.needed, error.available) == (2, 1)
    assert "b0: IO_ERROR" in str(error)
    assert "b2: READ_ONLY" in str(error)


def test_a_delayed_change_waits_until_a_write_set_would_fall_below_its_ack_quorum() -> None:
    """Ref: protocol rule 23, situation 11."""
    writer = Writer(e=5, w=5, a=3, spares=["s0", "s1", "s2"], limits=limits(delay_ensemble_change=True))
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    writer.fail(sent["b1"])
    assert not _changes(writer)
    writer.ack(sent["b2"], sent["b3"])
    writer.fail(sent["b4"])
    assert _changes(writer)[0].slots == (0, 1, 4)
    writer.answer_write()
    assert writer.fragments() == [(0, ("s0", "s1", "b2", "b3", "s2"))]


def test_a_bookie_that_became_read_only_is_replaced_at_once_also_with_delayed_changes() -> None:
    """Ref: protocol rule 23."""
    writer = Writer(e=5, w=5, a=3, spares=["s0"], limits=limits(delay_ensemble_change=True))
    writer.fail(writer.append(b"a")["b3"], Status.READ_ONLY)
    assert _changes(writer)[0].slots == (3,)


def test_a_bookie_that_became_read_only_during_a_delayed_change_is_replaced_after_it() -> None:
    """Ref: protocol rule 23."""
    writer = Writer(e=5, w=5, a=3, spares=["s0", "s1", "s2", "s3"], limits=limits(delay_ensemble_change=True))
    sent = writer.append(b"a")
    for bookie in ("b0", "b1", "b2"):
        writer.fail(sent[bookie])
    writer.fail(sent["b4"], Status.READ_ONLY)
    writer.answer_write()
    assert [change.slots for change in _changes(writer)] == [(0, 1, 2), (4,)]
    writer.fail(sent["b3"])
    writer.answer_write()
    assert len(_changes(writer)) == 2


def test_more_changes_than_allowed_end_the_writer() -> None:
    """Ref: situation 13."""
    writer = Writer(spares=["s0", "s1", "s2"], limits=limits(max_ensemble_changes=2))
    sent = writer.append(b"a", token="a")
    for bookie in ("b0", "s0"):
        writer.fail(sent[bookie])
        sent = sends(writer.answer_write())
    writer.fail(sent["s1"])
    error = writer.rejected()["a"]
    assert isinstance(error, EnsembleChangesExceededError)
    assert error.maximum == 2


def test_close_waits_for_a_metadata_write_under_way() -> None:
    """Ref: protocol rule 25."""
    writer = Writer(spares=["s0"])
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    writer.do(CloseRequested())
    assert len(_writes(writer)) == 1
    writer.answer_write()
    writer.answer_write()
    assert writer.stored.is_closed
    assert writer.stored.last_entry_id == -1
    assert isinstance(writer.rejected()["a"], LedgerClosedError)
    assert Finish() in writer.log


def test_close_after_a_change_of_unknown_outcome_accepts_either_outcome() -> None:
    writer = Writer(spares=["s0"])
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    wanted = writer.written().metadata
    for _ in range(4):
        writer.do(MetadataUnknown(MetadataUnavailableError("zk://x/y", "lost")))
    assert "a" in writer.rejected()
    writer.store(wanted)
    writer.do(CloseRequested())
    writer.answer_write()
    writer.answer_write()
    assert writer.stored.is_closed
    assert writer.stored.fragments == wanted.fragments


def test_close_during_the_choice_of_a_bookie_does_not_wait_for_it() -> None:
    writer = Writer(spares=["s0"], chooses_at_once=False)
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    writer.do(CloseRequested())
    writer.choose()
    writer.answer_write()
    assert writer.stored.is_closed
    assert len(writer.stored.fragments) == 1


def test_a_failed_writer_starts_no_change_when_its_last_metadata_write_is_answered() -> None:
    writer = Writer(spares=["s0", "s1"])
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b0"])
    writer.fail(sent["b1"])
    writer.ack(sent["b2"], status=Status.FENCED)
    writer.answer_write()
    assert len(_changes(writer)) == 1
    writer.do(CloseRequested())
    assert len(_writes(writer)) == 2


def test_the_new_fragment_of_a_striped_ledger_holds_what_its_slots_hold() -> None:
    writer = Writer(e=4, w=3, a=2, spares=["s0"])
    sent = writer.append(*(b"%d" % n for n in range(8)), token="batch")
    writer.fail(sent["b2"])
    resent = sends(writer.answer_write())
    assert resent["s0"].batch is sent["b2"].batch
    writer.ack(sent["b0"], sent["b1"], sent["b3"])
    assert writer.confirmed() == ["batch"]


def test_a_metadata_event_that_nobody_waits_for_is_ignored() -> None:
    writer = Writer()
    assert writer.do(MetadataRead(writer.stored, 7)) == []


def test_a_bookie_that_takes_its_slot_again_before_anything_was_confirmed_needs_no_write() -> None:
    """The fragment is what it was, and the metadata has it already."""
    writer = Writer()
    sent = writer.append(b"a", token="a")
    writer.fail(sent["b1"])
    writer.chooses_at_once = False
    writer.tick(RETRY_MS)
    again = sends(writer.do(ReplacementsChosen(writer.choosing.pop().request_id, ((1, "b1"),))))
    assert list(again) == ["b1"]
    assert _writes(writer) == []
    writer.ack(again["b1"], sent["b2"])
    assert writer.confirmed() == ["a"]
    assert sorted(writer.append(b"b")) == ["b0", "b1", "b2"]


def test_an_answer_to_a_question_that_is_not_asked_any_more_chooses_nobody() -> None:
    writer = Writer(chooses_at_once=False)
    writer.do(ReplacementsChosen(99, ((0, "s9"),)))
    writer.fail(writer.append(b"a")["b0"])
    writer.do(ReplacementsChosen(99, ((0, "s9"),)))
    assert _writes(writer) == []
    writer.do(ReplacementsChosen(writer.choosing.pop().request_id, ((0, "s0"),)))
    writer.answer_write()
    assert writer.fragments() == [(0, ("s0", "b1", "b2"))]


def test_one_that_breaks_off_after_one_that_became_read_only_during_a_change_delays_nothing() -> None:
    """Ref: protocol rule 23."""
    writer = Writer(e=5, w=5, a=2, spares=["s0", "s1", "s2"], limits=limits(delay_ensemble_change=True))
    sent = writer.append(b"a")
    writer.fail(sent["b0"], Status.READ_ONLY)
    writer.fail(sent["b1"], Status.READ_ONLY)
    writer.fail(sent["b2"])
    writer.answer_write()
    assert [change.slots for change in _changes(writer)] == [(0,), (1, 2)]
