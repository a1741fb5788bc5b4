"""An idle writer tells how far its ledger is confirmed, until readers learn it. Ref: situation 23; protocol rule 62."""

from __future__ import annotations

import itertools

import pytest

from bk_spark.client.protocol.last_add_confirmed import LONGEST_PAUSE_MS, ExplicitLac
from bk_spark.client.protocol.state_machine import (
    CloseRequested,
    ForceAnswered,
    ForceRequested,
    SendForce,
    SendStoreLastAddConfirmed,
    StoreLastAddConfirmedAnswered,
)
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.writer_model import Writer, limits

IDLE_MS = 100


def _writer() -> Writer:
    return Writer(limits=limits(explicit_lac_ms=IDLE_MS))


def _last_told(writer: Writer) -> dict[str, SendStoreLastAddConfirmed]:
    """The last request to each bookie."""
    return {c.bookie_id: c for c in writer.log if isinstance(c, SendStoreLastAddConfirmed)}


def _answer(writer: Writer, bookies: str, status: Status = Status.OK) -> None:
    last = _last_told(writer)
    for bookie_id in bookies.split():
        writer.do(StoreLastAddConfirmedAnswered(last[bookie_id].request_id, status))


def _idle_writer(**shape: int) -> Writer:
    """Entry 0 is confirmed by all bookies, who were just told so."""
    writer = Writer(limits=limits(explicit_lac_ms=IDLE_MS), **shape)
    writer.ack(*writer.append(b"a").values())
    writer.tick(IDLE_MS)
    return writer


def _told(writer: Writer) -> list[tuple[str, int]]:
    return [(c.bookie_id, c.last_add_confirmed) for c in writer.log if isinstance(c, SendStoreLastAddConfirmed)]


def test_an_idle_writer_tells_every_bookie_once_how_far_it_is_confirmed() -> None:
    writer = _writer()
    sent = writer.append(b"a")
    writer.ack(*sent.values())
    writer.tick(IDLE_MS - 1)
    assert _told(writer) == []
    assert writer.machine.deadline_ms() == IDLE_MS
    writer.tick(1)
    assert _told(writer) == [("b0", 0), ("b1", 0), ("b2", 0)]
    _answer(writer, "b0 b1 b2")
    assert writer.machine.deadline_ms() is None
    writer.tick(10 * IDLE_MS)
    assert len(_told(writer)) == 3


def test_a_writer_whose_next_entry_told_it_already_tells_nothing() -> None:
    writer = _writer()
    writer.ack(*writer.append(b"a").values())
    writer.append(b"b")
    writer.tick(IDLE_MS)
    assert _told(writer) == []


def test_what_is_confirmed_after_the_pause_is_told_together_after_the_next_one() -> None:
    """Slow bookies with many entries to confirm are not told of each."""
    writer = _writer()
    sent = [writer.append(b"x") for _ in range(10)]
    writer.tick(IDLE_MS)
    for one in sent:
        writer.ack(*one.values())
        writer.tick(1)
    assert _told(writer) == [("b0", 0), ("b1", 0), ("b2", 0)]
    writer.tick(IDLE_MS)
    assert _told(writer)[3:] == [("b0", 9), ("b1", 9), ("b2", 9)]


def test_a_bookie_that_failed_is_told_nothing() -> None:
    writer = _writer()
    sent = writer.append(b"a")
    writer.ack(sent["b0"], sent["b1"])
    writer.fail(sent["b2"])
    writer.tick(IDLE_MS)
    assert _told(writer) == [("b0", 0), ("b1", 0)]


def test_a_writer_that_failed_tells_nothing() -> None:
    writer = _writer()
    writer.ack(*writer.append(b"a").values())
    writer.ack(writer.append(b"b")["b0"], status=Status.FENCED)
    writer.tick(10 * IDLE_MS)
    assert _told(writer) == []


@pytest.mark.parametrize("refusal", [Status.UNKNOWN, Status.READ_ONLY, Status.IO_ERROR, Status.FENCED])
def test_bookies_that_did_not_take_it_are_told_again_until_a_quorum_has_it(refusal: Status) -> None:
    """Protocol rule 62."""
    writer = _idle_writer()
    _answer(writer, "b0 b1", refusal)
    _answer(writer, "b2")
    writer.tick(2 * IDLE_MS - 1)
    assert len(_told(writer)) == 3
    writer.tick(1)
    assert _told(writer)[3:] == [("b0", 0), ("b1", 0)]
    _answer(writer, "b0")
    assert writer.machine.deadline_ms() is None
    assert writer.machine.error is None


def test_the_pauses_double_up_to_a_bound_and_go_on_as_long_as_the_writer_lives() -> None:
    writer = _idle_writer()
    times = []
    for _ in range(20):
        _answer(writer, "b0 b1 b2", Status.UNKNOWN)
        due_ms = writer.machine.deadline_ms()
        assert due_ms is not None
        times.append(due_ms - writer.now_ms)
        writer.tick(due_ms - writer.now_ms)
    assert times[:4] == [2 * IDLE_MS, 4 * IDLE_MS, 8 * IDLE_MS, 16 * IDLE_MS]
    assert max(times) == times[-1] == LONGEST_PAUSE_MS
    assert len(_told(writer)) == 3 * 21
    writer.do(CloseRequested())
    assert writer.machine.deadline_ms() is None


def test_a_bookie_that_has_not_answered_yet_is_not_told_the_same_once_more() -> None:
    writer = _idle_writer()
    _answer(writer, "b0", Status.UNKNOWN)
    writer.tick(2 * IDLE_MS)
    assert _told(writer)[3:] == [("b0", 0)]


def test_with_striping_it_is_enough_that_qa_slots_of_one_write_set_have_it() -> None:
    """E = 4, Qw = 2, Qa = 2: slots 0 and 2 share no write set, so a reader may do without both; slots 2 and 3 do."""
    writer = Writer(limits=limits(explicit_lac_ms=IDLE_MS), e=4, w=2, a=2)
    for sent in [writer.append(b"%d" % entry) for entry in range(4)]:
        writer.ack(*sent.values())
    writer.tick(IDLE_MS)
    _answer(writer, "b0 b2")
    _answer(writer, "b1 b3", Status.UNKNOWN)
    assert writer.machine.deadline_ms() is not None
    writer.tick(2 * IDLE_MS)
    assert _told(writer)[4:] == [("b1", 3), ("b3", 3)]
    _answer(writer, "b3")
    assert writer.machine.deadline_ms() is None


def test_a_bookie_without_entries_is_told_nothing() -> None:
    """Apache's answers questions with an I/O error from then on: ReadLacProcessorV3."""
    writer = _idle_writer(e=4, w=2, a=2)
    assert _told(writer) == [("b0", 0), ("b1", 0)]
    _answer(writer, "b0 b1")
    assert writer.machine.deadline_ms() is None


def test_a_bookie_that_replaces_another_is_told_nothing_before_it_is_sent_an_entry() -> None:
    told = ExplicitLac(Writer().stored, IDLE_MS, itertools.count(1))
    for slot in range(3):
        told.sent_to(slot)
    told.replaced([1])
    assert [one.bookie_id for one in told.tell(5, ("b0", "s0", "b2"), (), 0) if isinstance(one, SendStoreLastAddConfirmed)] == [
        "b0",
        "b2",
    ]


def test_what_a_replaced_bookie_took_does_not_count_for_its_successor() -> None:
    """It would count here, as the new fragment says how far the ledger is confirmed; what is told later must not rely on it."""
    writer = _idle_writer()
    writer.spares.append("b3")
    late = _last_told(writer)["b0"]
    writer.fail(writer.append(b"b")["b0"])
    writer.answer_write()
    writer.ack(*(c for c in writer.log if getattr(c, "batch", None) is not None and c.bookie_id != "b0"))
    writer.tick(IDLE_MS)
    assert _told(writer)[3:] == [("b3", 1), ("b1", 1), ("b2", 1)]
    writer.do(StoreLastAddConfirmedAnswered(late.request_id, Status.OK))
    _answer(writer, "b1")
    assert writer.machine.deadline_ms() is not None


def test_a_force_has_it_told_once_more_though_a_quorum_took_it() -> None:
    """Bookies may have lost it since then, with their disks."""
    writer = _idle_writer()
    _answer(writer, "b0 b1 b2")
    writer.do(ForceRequested("force"))
    writer.tick(IDLE_MS)
    assert _told(writer)[3:] == [("b0", 0), ("b1", 0), ("b2", 0)]


def test_with_deferred_sync_an_add_that_carries_it_is_not_enough() -> None:
    """Its bookies may have taken it into memory alone."""
    writer = Writer(limits=limits(explicit_lac_ms=IDLE_MS), deferred_sync=True)
    writer.ack(*writer.append(b"a").values())
    writer.do(ForceRequested("force"))
    for command in [c for c in writer.log if isinstance(c, SendForce)]:
        writer.do(ForceAnswered(command.request_id, Status.OK))
    assert writer.machine.last_add_confirmed == 0
    writer.ack(*writer.append(b"b").values())
    writer.tick(IDLE_MS)
    assert _told(writer) == [("b0", 0), ("b1", 0), ("b2", 0)]


def test_a_bookie_that_takes_a_slot_is_told_what_its_predecessor_took() -> None:
    told = ExplicitLac(Writer().stored, IDLE_MS, itertools.count(1))
    for slot in range(3):
        told.sent_to(slot)
    first, *others = told.tell(5, ("b0", "b1", "b2"), (), 0)
    assert isinstance(first, SendStoreLastAddConfirmed)
    told.answered(StoreLastAddConfirmedAnswered(first.request_id, Status.OK))
    for one in others:
        assert isinstance(one, SendStoreLastAddConfirmed)
        told.answered(StoreLastAddConfirmedAnswered(one.request_id, Status.IO_ERROR))
    told.replaced([0])
    told.sent_to(0)
    again = told.tell(5, ("s0", "b1", "b2"), (), IDLE_MS)
    assert [one.bookie_id for one in again if isinstance(one, SendStoreLastAddConfirmed)] == ["s0", "b1", "b2"]
