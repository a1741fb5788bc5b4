"""The reader's state machine against simulated replicas, without threads, clocks or sockets."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.state_machine import (
    CancelRead,
    Consumed,
    Deliver,
    Finish,
    MetadataRead,
    ReadArrived,
    ReadEnded,
    SendRead,
    Start,
)
from bk_spark.client.protocol.stripe_reads import MOST_GROWTH, QUICK_MS
from bk_spark.entries.batch import seal
from bk_spark.errors import (
    BookieUnavailableError,
    DigestMismatchError,
    NoSuchEntryError,
)
from bk_spark.metadata.ledger_metadata import Fragment
from bk_spark.wire.messages import Status
from tests.unit.client.protocol.reader_model import (
    DIGESTER,
    LEDGER,
    LIMITS,
    SILENT,
    Answer,
    Late,
    Reader,
    Replica,
    Waiting,
    damaged_from,
    encoded_of,
    ending_before,
    entries,
    failing,
    healthy,
    joined,
    ledger,
    reader_of,
    small_answers,
    without,
)

SHAPES = [(1, 1), (3, 3), (3, 2), (4, 2), (5, 3), (6, 3)]


@pytest.mark.parametrize(("e", "w"), SHAPES)
@pytest.mark.parametrize("replica", [healthy, small_answers, joined])
def test_every_entry_of_the_range_is_delivered_once_and_in_order(e: int, w: int, replica: Replica) -> None:
    assert reader_of(*[replica] * e, e=e, w=w).read(3, 40) == list(range(3, 41))


@pytest.mark.parametrize(("e", "w"), [(3, 3), (3, 2), (4, 2), (5, 3)])
@pytest.mark.parametrize(
    "broken",
    [
        failing(Status.UNKNOWN),
        failing(Status.NO_SUCH_LEDGER),
        failing(Status.OK),
        SILENT,
        damaged_from(17),
        without(20),
        ending_before(20, Status.NO_SUCH_ENTRY),
        ending_before(20, Status.DAMAGED),
    ],
)
def test_one_replica_that_is_down_slow_or_damaged_is_left_for_the_next(e: int, w: int, broken: Replica | Late) -> None:
    for slot in range(e):
        replicas: list[Replica | Late] = [small_answers] * e
        replicas[slot] = broken
        assert reader_of(*replicas, e=e, w=w).read(0, 40) == list(range(41))


@pytest.mark.parametrize(("e", "w"), SHAPES)
def test_the_entries_of_joined_batches_are_delivered_with_their_own_lacs(e: int, w: int) -> None:
    reader = reader_of(*[joined] * e, e=e, w=w)
    reader.read(3, 40)
    delivered = [command.batch for command in reader.log if isinstance(command, Deliver)]
    assert [lac for batch in delivered for lac in batch.last_add_confirmed.tolist()] == list(range(2, 40))


def test_an_entry_is_missing_only_if_every_replica_says_so() -> None:
    """Ref: BP-46, "A note on Quorums", read entry."""
    missing = ending_before(20, Status.NO_SUCH_ENTRY)
    with pytest.raises(NoSuchEntryError, match="no entry 20"):
        reader_of(missing, missing, missing).read(0, 40)
    for unknown in (failing(Status.UNKNOWN), SILENT, ending_before(20, Status.DAMAGED), damaged_from(20)):
        with pytest.raises(BookieUnavailableError, match="entry 20"):
            reader_of(missing, unknown, missing).read(0, 40)


def test_damage_in_the_middle_of_a_batch_costs_its_good_entries_nothing() -> None:
    """Those before it are delivered, and the rest comes from another replica. Ref: protocol rule 58; situation 49."""
    reader = reader_of(damaged_from(20), damaged_from(20), damaged_from(20))
    reader.replicas["b2"] = healthy
    assert reader.read(0, 40, avoid=frozenset({"b2"})) == list(range(41))
    sends = [c for c in reader.log if isinstance(c, SendRead)]
    assert [(c.bookie_id == "b2", c.first) for c in sends] == [(False, 0), (False, 20), (True, 20)]


def test_with_damage_on_every_replica_the_good_entries_before_it_are_delivered() -> None:
    """Protocol rule 58, without a replica left for the rest."""
    reader = reader_of(*[damaged_from(20)] * 3)
    with pytest.raises(DigestMismatchError, match="entry 20"):
        reader.read(0, 40)
    assert reader.delivered == list(range(20))


def test_without_another_replica_too_the_good_entries_before_the_damage_are_delivered() -> None:
    reader = reader_of(damaged_from(20), e=1, w=1)
    with pytest.raises(DigestMismatchError, match="entry 20"):
        reader.read(0, 40)
    assert reader.delivered == list(range(20))


def test_a_read_that_fails_waits_for_nobody_any_more() -> None:
    reader = reader_of(failing(Status.UNKNOWN), SILENT, e=2, w=1)
    with pytest.raises(BookieUnavailableError, match="entry 0"):
        reader.read(0, 9)
    assert reader.cancelled == ["b1"]


def test_answers_cut_by_the_bookies_own_bounds_are_continued_where_they_ended() -> None:
    """Situation 49: cut by count, size or the server's cap, which all look alike here."""
    reader = reader_of(*[small_answers] * 3)
    assert reader.read(0, 22) == list(range(23))
    assert [c.first for c in reader.log if isinstance(c, SendRead)] == [0, 5, 10, 15, 20]


def test_a_bookie_that_was_not_sent_the_read_yet_is_not_given_up_and_another_one_is_asked_beside_it() -> None:
    reader = reader_of(SILENT, Waiting(2 * LIMITS.timeout_ms, healthy), SILENT)
    assert reader.read(0, 9) == list(range(10))
    assert reader.now_ms == 2 * LIMITS.timeout_ms
    assert reader.asked[0] == "b1"
    assert len(reader.asked) > 1


def test_a_bookie_that_stays_silent_once_the_read_was_sent_is_left() -> None:
    reader = reader_of(SILENT, Waiting(3 * LIMITS.timeout_ms, SILENT), e=2, w=2)
    with pytest.raises(BookieUnavailableError, match="b1: no answer for 1 s"):
        reader.read(0, 9)
    assert reader.now_ms == 4 * LIMITS.timeout_ms


@pytest.mark.parametrize("waits_ms", [1, LIMITS.timeout_ms, 100 * LIMITS.timeout_ms])
def test_a_bookie_has_its_whole_time_to_answer_from_when_the_read_was_sent(waits_ms: int) -> None:
    reader = reader_of(Waiting(waits_ms, Late(LIMITS.timeout_ms - 1, healthy)), e=1, w=1)
    assert reader.read(0, 9) == list(range(10))
    assert reader.now_ms == waits_ms + LIMITS.timeout_ms - 1
    assert reader.asked == ["b0"]


def test_an_answer_whose_last_entry_came_is_not_waited_for_to_its_end() -> None:
    """It would keep a place at its bookie as long as the bookie likes, while the read goes on elsewhere."""
    metadata = dataclasses.replace(ledger(1, 1, 1), fragments=(Fragment(0, ("b0",)), Fragment(10, ("b1",))))
    machine = ReadEntries(metadata, 0, 19, LIMITS)
    machine.handle(Start(), 0)
    (send,) = machine.take_commands()
    assert isinstance(send, SendRead)
    (batch,) = encoded_of(entries(0, 9), send.pattern)
    machine.handle(ReadArrived(send.request_id, batch), 0)
    commands = machine.take_commands()
    assert CancelRead(send.request_id) in commands
    assert [one.bookie_id for one in commands if isinstance(one, SendRead)] == ["b1"]


def test_a_slow_bookie_that_nothing_more_is_wanted_of_is_told_so_where_the_other_one_lacks_its_next_entry() -> None:
    """Striped, b0 does not hold entry 1, which b1 would be left for; but entry 0 is the last one wanted."""
    reader = reader_of(healthy, SILENT, SILENT, e=3, w=2)
    assert reader.read(0, 0) == [0]
    assert reader.asked == ["b1", "b0"]
    assert sorted(reader.cancelled) == ["b0", "b1"]


def test_requests_ask_for_more_while_answers_come_quickly_and_for_less_when_they_do_not() -> None:
    machine, now_ms = ReadEntries(ledger(1, 1, 1), 0, 99, LIMITS), 0
    machine.handle(Start(), now_ms)
    asked = []
    for taken_ms in (QUICK_MS, 0, 0, QUICK_MS + 1, QUICK_MS + 1, QUICK_MS + 1, 0):
        (send,) = (command for command in machine.take_commands() if isinstance(command, SendRead))
        asked.append(send.maximum_bytes // LIMITS.request_bytes)
        now_ms += taken_ms
        (batch,) = encoded_of(entries(send.first, send.first), send.pattern)
        machine.handle(ReadArrived(send.request_id, batch), now_ms)
        machine.handle(ReadEnded(send.request_id, Status.OK, "", send.first + 1), now_ms)
    assert asked == [1, 2, 4, MOST_GROWTH, 2, 1, 1]


def test_an_explicit_no_about_another_entry_says_nothing_of_the_one_that_is_due() -> None:
    machine = ReadEntries(ledger(1, 1, 1), 0, 9, LIMITS)
    machine.handle(Start(), 0)
    machine.handle(ReadEnded(1, Status.NO_SUCH_ENTRY, "", 5), 0)
    machine.handle(MetadataRead(machine.metadata, 1), 0)
    finish = machine.take_commands()[-1]
    assert isinstance(finish, Finish)
    assert isinstance(finish.error, BookieUnavailableError)


def test_damage_on_every_replica_is_called_damage() -> None:
    with pytest.raises(DigestMismatchError, match="entry 20"):
        reader_of(*[damaged_from(20)] * 3).read(0, 40)


def test_an_unanswered_read_names_every_replica_and_its_reason() -> None:
    with pytest.raises(BookieUnavailableError, match=r"b0: .*b1: no answer for 1 s.*b2: "):
        reader_of(failing(Status.UNKNOWN), SILENT, failing(Status.IO_ERROR)).read(0, 5)


@pytest.mark.parametrize("foreign", [0, 1, 2])
def test_a_bookie_with_a_foreign_key_is_one_bad_replica(foreign: int) -> None:
    """Protocol rule 24."""
    reader = reader_of(*[failing(Status.UNAUTHORIZED) if slot == foreign else healthy for slot in range(3)])
    assert len(reader.read(0, 5)) == 6
    with pytest.raises(BookieUnavailableError, match="b0: UNAUTHORIZED"):
        reader_of(*[failing(Status.UNAUTHORIZED)] * 3).read(0, 5)


def test_entries_of_another_ledger_are_not_believed_though_their_digests_are_right() -> None:
    def foreign(request: SendRead) -> Answer:
        payloads = pa.array([b"foreign"] * (request.last - request.first + 1), pa.binary())
        last_add_confirmed = request.first - 1
        sealed = seal(DIGESTER, 8, request.first, payloads, length_before=0, last_add_confirmed=last_add_confirmed)
        return encoded_of(sealed, request.pattern), Status.OK

    for slot in range(3):
        replicas: list[Replica | Late] = [foreign] * 3
        replicas[slot] = healthy
        reader = reader_of(*replicas)
        assert reader.read(0, 9) == list(range(10))
        assert all(c.batch.ledger_id == LEDGER for c in reader.log if isinstance(c, Deliver))


def test_a_replica_that_failed_gets_another_chance_when_the_reader_has_moved_on() -> None:
    """Each of two replicas fails once, at different entries; neither is given up for good."""
    failed: set[int] = set()

    def failing_once(entry_id: int) -> Replica:
        def answer(request: SendRead) -> Answer:
            if entry_id in failed or request.first > entry_id:
                return healthy(request)
            batches, status = ending_before(entry_id, Status.IO_ERROR)(request)
            if request.first == entry_id or request.last >= entry_id:
                failed.add(entry_id)
            return batches, status

        return answer

    down = failing(Status.UNKNOWN)
    reader = reader_of(down, failing_once(10), failing_once(20))
    assert reader.read(0, 40) == list(range(41))
    assert failed == {10, 20}


def test_bookies_that_lately_did_not_answer_are_asked_last() -> None:
    reader = reader_of(healthy, healthy, healthy)
    reader.read(0, 9, avoid=frozenset({"b0", "b2"}))
    assert reader.asked == ["b1"]


def test_with_striping_too_a_bookie_that_lately_did_not_answer_is_asked_last() -> None:
    """E=4, Qw=2: two bookies hold everything; any of them may be the one to avoid."""
    for slot in range(4):
        reader = reader_of(*[healthy] * 4, e=4, w=2)
        assert reader.read(0, 20, avoid=frozenset({f"b{slot}"})) == list(range(21))
        assert f"b{slot}" not in reader.asked


def test_fragments_are_read_from_their_own_ensembles() -> None:
    metadata = dataclasses.replace(ledger(), fragments=(Fragment(0, ("b0", "b1", "b2")), Fragment(12, ("b3", "b4", "b5"))))
    reader = Reader(metadata, {f"b{i}": ending_before(12, Status.NO_SUCH_ENTRY) if i < 3 else healthy for i in range(6)})
    assert reader.read(5, 20) == list(range(5, 21))
    assert reader.asked[0] in ("b0", "b1", "b2")
    assert reader.asked[-1] in ("b3", "b4", "b5")


def test_no_more_is_asked_for_while_the_consumer_does_not_take_what_came() -> None:
    limits = dataclasses.replace(LIMITS, ahead_bytes=1)
    machine = ReadEntries(ledger(), 0, 40, limits)
    machine.handle(Start(), 0)
    [send] = machine.take_commands()
    assert isinstance(send, SendRead)
    batches, _ = small_answers(send)
    machine.handle(ReadArrived(send.request_id, batches[0]), 0)
    machine.handle(ReadEnded(send.request_id, Status.OK), 0)
    [deliver] = machine.take_commands()
    assert isinstance(deliver, Deliver)
    machine.handle(Consumed(deliver.batch.nbytes), 0)
    assert [type(c) for c in machine.take_commands()] == [SendRead]


def test_a_replica_that_is_left_is_told_so() -> None:
    reader = reader_of(*[damaged_from(2)] * 2, healthy)
    reader.read(0, 9)
    assert reader.cancelled == ["b1", "b0", "b2"], "the last one once its last entry is there"
    assert reader.cancelled == reader.asked
