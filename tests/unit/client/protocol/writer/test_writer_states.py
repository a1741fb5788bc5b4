"""The table of a writer's life, and a writer that lives by it."""

from __future__ import annotations

from itertools import product

import pytest

from bk_spark.client.protocol.pending_adds import OWED_PATIENCE_MS
from bk_spark.client.protocol.state_machine import CloseRequested, Finish, MarkUnderReplicated, WriteMetadata
from bk_spark.client.protocol.writer.writer_states import NEXT, Life, Step, state_after
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.writer_model import Writer

ALLOWED = {
    Life.WRITING: {Step.APPEND, Step.CONFIRM, Step.CHANGE, Step.FAIL, Step.CLOSE},
    Life.CHANGING: {Step.APPEND, Step.CHANGED, Step.FAIL, Step.CLOSE},
    Life.FAILING: {Step.CHANGED, Step.CLOSE},
    Life.FAILED: {Step.CLOSE},
    Life.HELD_UP: {Step.CHANGED},
    Life.CLOSING: {Step.ANSWERED},
    Life.COLLECTING: {Step.COLLECTED},
    Life.MARKING: {Step.MARKED},
    Life.CLOSED: set(),
}

OVER = set(Life) - {Life.WRITING, Life.CHANGING}


def _reachable(first: Life) -> set[Life]:
    """All states after ``first``, itself only if a way leads back to it."""
    found: set[Life] = set()
    waiting = [first]
    while waiting:
        for state in NEXT[waiting.pop()].values():
            if state not in found:
                found.add(state)
                waiting.append(state)
    return found


def test_every_state_says_what_may_happen_in_it() -> None:
    assert {state: set(steps) for state, steps in NEXT.items()} == ALLOWED
    assert set(NEXT) == set(Life)


@pytest.mark.parametrize(("state", "step"), list(product(Life, Step)), ids=lambda one: one.name)
def test_a_step_that_the_state_does_not_allow_raises_and_any_other_leads_on(state: Life, step: Step) -> None:
    if step in ALLOWED[state]:
        assert state_after(state, step) is NEXT[state][step]
    else:
        with pytest.raises(AssertionError, match=f"{state.name}, {step.name}"):
            state_after(state, step)


def test_every_state_is_reached_from_the_first_one_and_reaches_the_last_one() -> None:
    assert _reachable(Life.WRITING) == set(Life)
    assert {state for state in Life if Life.CLOSED not in _reachable(state)} == {Life.CLOSED}


def test_a_writer_that_is_closed_never_leaves_that_state() -> None:
    assert [state for state, steps in NEXT.items() if not steps] == [Life.CLOSED]


def test_a_writer_that_takes_no_more_appends_never_takes_one_again() -> None:
    assert {state for state in Life if Step.APPEND not in NEXT[state]} == OVER
    assert all(_reachable(state) <= OVER for state in OVER)


def test_a_writer_confirms_only_where_no_change_and_no_failure_is_under_way() -> None:
    """Ref: protocol rules 16 and 24."""
    assert [state for state in Life if Step.CONFIRM in NEXT[state]] == [Life.WRITING]


def test_a_writer_that_writes_its_end_has_no_other_metadata_write_under_way() -> None:
    """Ref: protocol rule 25. Whoever may wait for the write of a change leaves that state by its end, before the close."""
    changing = {Life.CHANGING, Life.FAILING, Life.HELD_UP}
    assert {state for state in Life if Step.CHANGED in NEXT[state]} == changing
    assert {state for state, steps in NEXT.items() if Life.CLOSING in steps.values()} == {
        Life.WRITING,
        Life.FAILED,
        Life.HELD_UP,
    }
    assert NEXT[Life.HELD_UP] == {Step.CHANGED: Life.CLOSING}


def _state(writer: Writer) -> Life:
    return writer.machine._state


def _with_a_change_in_the_store(writer: Writer) -> None:
    """b0 has failed; the write that names b9 in its place is not answered."""
    writer.fail(writer.append(b"x", token="x")["b0"])
    assert _state(writer) is Life.CHANGING
    assert writer.fragments() == [(0, ("b0", "b1", "b2"))]


def test_a_writer_that_changes_its_ensemble_goes_back_to_writing_with_the_stores_answer() -> None:
    writer = Writer(spares=["b9"])
    _with_a_change_in_the_store(writer)
    writer.answer_write()
    assert _state(writer) is Life.WRITING


def test_a_writer_that_found_nobody_for_a_failed_bookie_goes_on_writing() -> None:
    writer = Writer()
    writer.fail(writer.append(b"x")["b0"])
    assert _state(writer) is Life.WRITING


def test_a_writer_that_is_fenced_while_it_looks_for_bookies_has_failed_at_once() -> None:
    writer = Writer(chooses_at_once=False)
    sent = writer.append(b"x")
    writer.fail(sent["b0"])
    assert _state(writer) is Life.CHANGING
    writer.fail(sent["b1"], Status.FENCED)
    assert _state(writer) is Life.FAILED


def test_a_writer_that_fails_during_the_write_of_a_change_awaits_its_answer_before_it_closes() -> None:
    writer = Writer(spares=["b9"])
    _with_a_change_in_the_store(writer)
    change = writer.written()
    writer.tick(writer.limits.add_quorum_timeout_ms)
    assert _state(writer) is Life.FAILING
    assert not any(isinstance(one, WriteMetadata) for one in writer.do(CloseRequested()))
    assert _state(writer) is Life.HELD_UP
    writer.answer_write()
    assert _state(writer) is Life.CLOSING
    assert writer.written() is not change
    writer.answer_write()
    assert (_state(writer), writer.stored.is_closed) == (Life.CLOSED, True)


def test_a_writer_that_failed_during_the_write_of_a_change_has_only_failed_once_that_is_answered() -> None:
    writer = Writer(spares=["b9"])
    _with_a_change_in_the_store(writer)
    writer.tick(writer.limits.add_quorum_timeout_ms)
    writer.answer_write()
    assert _state(writer) is Life.FAILED


def test_a_writer_that_closes_collects_answers_and_marks_gaps_before_it_ends() -> None:
    writer = Writer(marks_wait=True)
    sent = writer.append(b"x", token="x")
    writer.ack(sent["b0"], sent["b2"])
    writer.do(CloseRequested())
    assert _state(writer) is Life.CLOSING
    writer.answer_write()
    assert _state(writer) is Life.COLLECTING
    [mark] = [one for one in writer.tick(OWED_PATIENCE_MS) if isinstance(one, MarkUnderReplicated)]
    assert _state(writer) is Life.MARKING
    assert Finish() in writer.answer_mark(mark)
    assert _state(writer) is Life.CLOSED


def test_a_writer_that_is_asked_to_close_again_still_collects_what_bookies_owe() -> None:
    """Ref: protocol rule 25: the second close waits for the first."""
    writer = Writer()
    sent = writer.append(b"x", token="x")
    writer.ack(sent["b0"], sent["b2"])
    writer.do(CloseRequested())
    writer.do(CloseRequested())
    writer.answer_write()
    assert _state(writer) is Life.COLLECTING
    writer.tick(OWED_PATIENCE_MS)
    assert (_state(writer), writer.marks) == (Life.CLOSED, [("b1",)])


@pytest.mark.parametrize("state", sorted(OVER, key=lambda one: one.name), ids=lambda one: one.name)
def test_a_writer_that_takes_no_more_appends_says_why(state: Life) -> None:
    writer = Writer(spares=["b9"], marks_wait=True)
    sent = writer.append(b"x", token="x")
    writer.ack(sent["b0"], sent["b2"])
    ways = {
        Life.FAILING: ("change", "fail"),
        Life.FAILED: ("fail",),
        Life.HELD_UP: ("change", "close"),
        Life.CLOSING: ("close",),
        Life.COLLECTING: ("close", "answer"),
        Life.MARKING: ("close", "answer", "patience"),
        Life.CLOSED: ("close", "answer", "patience", "mark"),
    }
    acts = {
        "change": lambda: writer.fail(writer.append(b"y")["b0"]),
        "fail": lambda: writer.fail(writer.append(b"z")["b2"], Status.FENCED),
        "close": lambda: writer.do(CloseRequested()),
        "answer": writer.answer_write,
        "patience": lambda: writer.tick(OWED_PATIENCE_MS),
        "mark": lambda: writer.answer_mark(MarkUnderReplicated(("b1",))),
    }
    for act in ways[state]:
        acts[act]()
    assert _state(writer) is state
    writer.append(b"late", token="late")
    assert writer.rejected()["late"] is writer.machine.error
    assert "late" in writer.released()
