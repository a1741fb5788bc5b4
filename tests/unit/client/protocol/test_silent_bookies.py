"""A bookie that is silent may be overloaded, and all others with it: it is not taken for dead where nobody can do its work.

Ref: protocol rule 68; situations 14 and 20.
"""

from __future__ import annotations

from bk_spark.client.protocol.state_machine import CancelAdd, ChooseReplacements, ReplacementsChosen, ReportFailure, SendAdd
from bk_spark.errors import AddQuorumTimeoutError, NotEnoughBookiesError
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.writer_model import QUORUM_TIMEOUT_MS, RETRY_MS, TIMEOUT_MS, Writer


def _silent_writer(**options: object) -> tuple[Writer, dict[str, SendAdd]]:
    """All three bookies have owed an answer for the add timeout."""
    writer = Writer(**options)  # type: ignore[arg-type]
    sent = writer.append(b"a", token="a")
    writer.tick(TIMEOUT_MS)
    return writer, sent


def test_bookies_that_are_all_silent_are_waited_for_if_no_others_can_take_their_places() -> None:
    writer, sent = _silent_writer()
    assert writer.machine.error is None
    assert not any(isinstance(c, CancelAdd) for c in writer.log)
    assert [c.bookie_id for c in writer.log if isinstance(c, ReportFailure)] == ["b0", "b1", "b2"]
    writer.tick(RETRY_MS)
    writer.ack(sent["b1"], sent["b2"])
    assert writer.confirmed() == ["a"]
    assert writer.fragments() == [(0, ("b0", "b1", "b2"))]


def test_what_is_appended_meanwhile_goes_to_the_silent_bookies_too() -> None:
    writer, first = _silent_writer()
    second = writer.append(b"b", token="b")
    assert sorted(second) == ["b0", "b1", "b2"]
    writer.ack(*first.values(), *second.values())
    assert writer.confirmed() == ["a", "b"]


def test_others_are_looked_for_at_a_bounded_rate_and_only_such_that_have_not_failed_lately() -> None:
    writer, _ = _silent_writer()
    writer.tick(RETRY_MS - 1)
    assert len([c for c in writer.log if isinstance(c, ChooseReplacements)]) == 1
    writer.tick(1)
    questions = [c for c in writer.log if isinstance(c, ChooseReplacements)]
    assert [(c.slots, c.must_be_sound, c.is_patient) for c in questions] == [((0, 1, 2), True, True)] * 2
    assert all({"b0", "b1", "b2"} <= c.excluded for c in questions)


def test_the_quorum_timeout_bounds_the_wait() -> None:
    """Situation 14."""
    writer, _ = _silent_writer()
    for _ in range(QUORUM_TIMEOUT_MS // RETRY_MS):
        writer.tick(RETRY_MS)
    assert isinstance(writer.rejected()["a"], AddQuorumTimeoutError)


def test_silent_bookies_are_replaced_by_as_many_others_as_there_are() -> None:
    writer, sent = _silent_writer(spares=["b3"])
    writer.answer_write()
    assert writer.fragments() == [(0, ("b3", "b1", "b2"))]
    moved = [c for c in writer.log if isinstance(c, SendAdd) and c.bookie_id == "b3"]
    writer.ack(*moved)
    assert writer.confirmed() == []
    writer.ack(sent["b0"])
    assert writer.confirmed() == [], "b0 has lost its place"
    writer.ack(sent["b2"])
    assert writer.confirmed() == ["a"]


def test_a_bookie_that_answers_while_another_is_looked_for_keeps_its_place() -> None:
    writer, sent = _silent_writer(chooses_at_once=False)
    writer.ack(*sent.values())
    (question,) = writer.choosing
    writer.do(ReplacementsChosen(question.request_id, ((0, "b3"), (1, "b4"))))
    assert writer.fragments() == [(0, ("b0", "b1", "b2"))]
    assert writer.machine.error is None


def test_a_bookie_that_took_another_slot_meanwhile_is_not_taken_twice() -> None:
    """b0 broke off while others were sought, and b3 replaced it."""
    writer, sent = _silent_writer(chooses_at_once=False)
    seeking = writer.choosing.pop()
    writer.fail(sent["b0"])
    (question,) = writer.choosing
    writer.do(ReplacementsChosen(question.request_id, ((0, "b3"),)))
    writer.do(ReplacementsChosen(seeking.request_id, ((1, "b4"),)))
    assert writer.machine.error is None, "a change is running: what was found waits for the next look"
    writer.answer_write()
    writer.tick(RETRY_MS)
    seeking = writer.choosing.pop()
    writer.do(ReplacementsChosen(seeking.request_id, ((1, "b3"),)))
    assert writer.fragments() == [(0, ("b3", "b1", "b2"))]
    assert writer.machine.error is None


def test_a_silent_bookie_that_its_write_sets_can_do_without_counts_as_failed() -> None:
    """Situation 20: otherwise it would hold up its writer, whose window it fills."""
    writer = Writer()
    sent = writer.append(b"a", token="a")
    writer.ack(sent["b1"], sent["b2"])
    writer.tick(TIMEOUT_MS)
    assert [c.request_id for c in writer.log if isinstance(c, CancelAdd)] == [sent["b0"].request_id]
    assert writer.released() == ["a"]


def test_its_slot_is_not_given_to_one_that_failed_lately_until_the_first_retry() -> None:
    """Such a bookie is perhaps as slow, and would be sent everything once more."""
    writer = Writer()
    sent = writer.append(b"a")
    writer.ack(sent["b1"], sent["b2"])
    writer.tick(TIMEOUT_MS)
    writer.tick(RETRY_MS)
    assert [c.must_be_sound for c in writer.log if isinstance(c, ChooseReplacements)] == [True, False]


def test_nor_if_it_falls_silent_while_another_slot_is_changed() -> None:
    writer = Writer(e=4, w=4, a=2, chooses_at_once=False)
    sent = writer.append(b"a")
    writer.ack(sent["b2"], sent["b3"])
    writer.tick(TIMEOUT_MS - 1)
    writer.fail(sent["b0"])
    writer.tick(1)
    first = writer.choosing.pop()
    writer.do(ReplacementsChosen(first.request_id, ()))
    [second] = writer.choosing
    assert [(c.slots, c.must_be_sound) for c in (first, second)] == [((0,), False), ((1,), True)]


def test_bookies_that_refuse_or_break_off_are_not_waited_for() -> None:
    """They are not slow: below an ack quorum the writer fails."""
    writer, sent = _silent_writer()
    writer.fail(sent["b0"])
    assert writer.machine.error is None
    writer.fail(sent["b1"], Status.UNKNOWN)
    assert isinstance(writer.rejected()["a"], NotEnoughBookiesError)


def test_no_writer_waits_for_silent_bookies_while_every_entry_is_confirmed() -> None:
    """No quorum timeout bounds that wait, and with striping too few bookies may be left to go on with."""
    writer = Writer(e=4, w=3, a=2)
    for acked in (("b0", "b1"), ("b1", "b3"), ("b3", "b0")):
        sent = writer.append(b"x")
        writer.ack(*(sent[bookie] for bookie in acked))
    last = writer.append(b"x")
    writer.ack(last["b0"], last["b1"])
    assert writer.machine.last_add_confirmed == 3
    writer.fail(last["b3"])
    writer.tick(TIMEOUT_MS)
    assert isinstance(writer.machine.error, NotEnoughBookiesError)


def test_nobody_is_looked_for_while_a_change_of_the_ensemble_is_written() -> None:
    """What was found would have to wait for its end, and may be taken by then."""
    writer = Writer(spares=["b3", "b4"])
    sent = writer.append(b"a")
    writer.fail(sent["b0"])
    assert len([c for c in writer.log if isinstance(c, ChooseReplacements)]) == 1
    writer.tick(TIMEOUT_MS)
    assert len([c for c in writer.log if isinstance(c, ChooseReplacements)]) == 1


def test_a_silent_bookie_that_others_can_spare_is_given_up_while_entries_wait_for_these() -> None:
    """Exactly an ack quorum is left, and that is enough."""
    writer = Writer()
    first = writer.append(b"a", token="a")
    writer.ack(first["b1"], first["b2"])
    writer.tick(TIMEOUT_MS - 1)
    writer.append(b"b")
    writer.tick(1)
    assert first["b0"].request_id in [c.request_id for c in writer.log if isinstance(c, CancelAdd)]
