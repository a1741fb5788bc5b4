"""The reader's state machine against simulated replicas, without threads, clocks or sockets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bk_spark.client.operation import (
    CancelRead,
    Command,
    Consumed,
    Deliver,
    Event,
    Finish,
    ReadArrived,
    ReadEnded,
    SendRead,
    Start,
    Tick,
)
from bk_spark.client.read_entries import ReadEntries, ReadLimits
from bk_spark.config import DigestType, LedgerOptions
from bk_spark.digest import Digester
from bk_spark.entry import EncodedBatch, EntryBatch, encode, seal
from bk_spark.errors import (
    BookieUnavailableError,
    BookKeeperError,
    DigestMismatchError,
    NoSuchEntryError,
    UnauthorizedAccessError,
)
from bk_spark.ledger_metadata import Fragment, LedgerMetadata, new_ledger
from bk_spark.quorum import IdPattern
from bk_spark.wire import Status

LEDGER = 7
LIMITS = ReadLimits(timeout_ms=1000, request_bytes=1 << 20, ahead_bytes=1 << 30)
DIGESTER = Digester(DigestType.CRC32C, b"")

Answer = tuple[list[EncodedBatch], Status]
Replica = Callable[[SendRead], Answer]


def _entries(first: int, last: int) -> EntryBatch:
    payloads = pa.array([b"%d" % i for i in range(first, last + 1)], pa.binary())
    return seal(DIGESTER, LEDGER, first, payloads, length_before=first, last_add_confirmed=first - 1)


def _encoded(batch: EntryBatch, pattern: IdPattern) -> list[EncodedBatch]:
    encoded = encode(batch, DigestType.CRC32C, pattern)
    return [] if encoded is None else [encoded]


def healthy(request: SendRead) -> Answer:
    return _encoded(_entries(request.first, request.last), request.pattern), Status.OK


def small_answers(request: SendRead) -> Answer:
    """Ends early, as a bookie does whose byte budget is spent."""
    return _encoded(_entries(request.first, min(request.first + 4, request.last)), request.pattern), Status.OK


def failing(status: Status) -> Replica:
    return lambda request: ([], status)


def damaged_from(entry_id: int) -> Replica:
    """Its entries from ``entry_id`` on carry another payload than the one that was digested."""

    def answer(request: SendRead) -> Answer:
        batch = _entries(request.first, request.last)
        texts = [b"X" * len(b"%d" % i) if i >= entry_id else b"%d" % i for i in batch.entry_ids.tolist()]
        return _encoded(dataclasses.replace(batch, payloads=pa.array(texts, pa.binary())), request.pattern), Status.OK

    return answer


def without(entry_id: int) -> Replica:
    """Skips an entry as if it were nothing."""

    def answer(request: SendRead) -> Answer:
        batch = _entries(request.first, request.last)
        before, after = batch.select(batch.entry_ids < entry_id), batch.select(batch.entry_ids > entry_id)
        return _encoded(before, request.pattern) + _encoded(after, request.pattern), Status.OK

    return answer


def ending_before(entry_id: int, status: Status) -> Replica:
    def answer(request: SendRead) -> Answer:
        if request.first >= entry_id:
            return [], status
        return _encoded(_entries(request.first, min(request.last, entry_id - 1)), request.pattern), status

    return answer


SILENT = "silent"


@dataclass
class Reader:
    """Runs the state machine against replicas by bookie id."""

    metadata: LedgerMetadata
    replicas: dict[str, Replica | str]
    now_ms: int = 0
    asked: list[str] = field(default_factory=list)
    log: list[Command] = field(default_factory=list)

    def read(self, first: int, last: int, avoid: frozenset[str] = frozenset()) -> list[int]:
        """The ids that were delivered; raises what the read failed with."""
        self.machine = ReadEntries(self.metadata, first, last, LIMITS, avoid=avoid)
        events: list[Event] = [Start()]
        for _ in range(1000):
            event = events.pop(0) if events else self._wait()
            self.machine.handle(event, self.now_ms)
            for command in self.machine.take_commands():
                self.log.append(command)
                if isinstance(command, SendRead):
                    events += self._answer(command)
                elif isinstance(command, Finish):
                    return self._result(command)
        raise AssertionError("the read does not end")

    def _wait(self) -> Event:
        deadline = self.machine.deadline_ms()
        assert deadline is not None, "nothing is under way and no deadline is set"
        self.now_ms = deadline
        return Tick()

    def _answer(self, command: SendRead) -> list[Event]:
        self.asked.append(command.bookie_id)
        replica = self.replicas[command.bookie_id]
        if isinstance(replica, str):
            return []
        batches, status = replica(command)
        return [*(ReadArrived(command.request_id, b) for b in batches), ReadEnded(command.request_id, status)]

    def _result(self, finish: Finish) -> list[int]:
        if finish.error is not None:
            raise finish.error
        return [i for c in self.log if isinstance(c, Deliver) for i in c.batch.entry_ids.tolist()]


def _metadata(e: int = 3, w: int = 3, a: int = 2) -> LedgerMetadata:
    ensemble = tuple(f"b{slot}" for slot in range(e))
    options = LedgerOptions(ensemble_size=e, write_quorum=w, ack_quorum=a)
    return new_ledger(LEDGER, options, ensemble, created_ms=0, creator_token=0)


def _reader(*replicas: Replica | str, e: int = 3, w: int = 3) -> Reader:
    return Reader(_metadata(e, w, 1), {f"b{slot}": replica for slot, replica in enumerate(replicas)})


SHAPES = [(1, 1), (3, 3), (3, 2), (4, 2), (5, 3), (6, 3)]


@pytest.mark.parametrize(("e", "w"), SHAPES)
@pytest.mark.parametrize("replica", [healthy, small_answers])
def test_every_entry_of_the_range_is_delivered_once_and_in_order(e: int, w: int, replica: Replica) -> None:
    assert _reader(*[replica] * e, e=e, w=w).read(3, 40) == list(range(3, 41))


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
def test_one_replica_that_is_down_slow_or_damaged_is_left_for_the_next(e: int, w: int, broken: Replica | str) -> None:
    for slot in range(e):
        replicas: list[Replica | str] = [small_answers] * e
        replicas[slot] = broken
        assert _reader(*replicas, e=e, w=w).read(0, 40) == list(range(41))


def test_an_entry_is_missing_only_if_every_replica_says_so() -> None:
    """Ref: BP-46, "A note on Quorums", read entry."""
    missing = ending_before(20, Status.NO_SUCH_ENTRY)
    with pytest.raises(NoSuchEntryError, match="no entry 20"):
        _reader(missing, missing, missing).read(0, 40)
    for unknown in (failing(Status.UNKNOWN), SILENT, ending_before(20, Status.DAMAGED), damaged_from(20)):
        with pytest.raises(BookieUnavailableError, match="entry 20"):
            _reader(missing, unknown, missing).read(0, 40)


def test_damage_on_every_replica_is_called_damage() -> None:
    with pytest.raises(DigestMismatchError, match="entry 20"):
        _reader(*[damaged_from(20)] * 3).read(0, 40)


def test_an_unanswered_read_names_every_replica_and_its_reason() -> None:
    with pytest.raises(BookieUnavailableError, match=r"b0: .*b1: no answer for 1 s.*b2: "):
        _reader(failing(Status.UNKNOWN), SILENT, failing(Status.IO_ERROR)).read(0, 5)


def test_a_wrong_password_ends_the_read_at_once() -> None:
    reader = _reader(*[failing(Status.UNAUTHORIZED)] * 3)
    with pytest.raises(UnauthorizedAccessError):
        reader.read(0, 5)
    assert len(reader.asked) == 1


def test_entries_of_another_ledger_are_not_believed_though_their_digests_are_right() -> None:
    def foreign(request: SendRead) -> Answer:
        payloads = pa.array([b"foreign"] * (request.last - request.first + 1), pa.binary())
        last_add_confirmed = request.first - 1
        sealed = seal(DIGESTER, 8, request.first, payloads, length_before=0, last_add_confirmed=last_add_confirmed)
        return _encoded(sealed, request.pattern), Status.OK

    for slot in range(3):
        replicas: list[Replica | str] = [foreign] * 3
        replicas[slot] = healthy
        reader = _reader(*replicas)
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
    reader = _reader(down, failing_once(10), failing_once(20))
    assert reader.read(0, 40) == list(range(41))
    assert failed == {10, 20}


def test_bookies_that_lately_did_not_answer_are_asked_last() -> None:
    reader = _reader(healthy, healthy, healthy)
    reader.read(0, 9, avoid=frozenset({"b0", "b2"}))
    assert reader.asked == ["b1"]


def test_with_striping_too_a_bookie_that_lately_did_not_answer_is_asked_last() -> None:
    """E=4, Qw=2: two bookies hold everything; any of them may be the one to avoid."""
    for slot in range(4):
        reader = _reader(*[healthy] * 4, e=4, w=2)
        assert reader.read(0, 20, avoid=frozenset({f"b{slot}"})) == list(range(21))
        assert f"b{slot}" not in reader.asked


def test_fragments_are_read_from_their_own_ensembles() -> None:
    metadata = dataclasses.replace(_metadata(), fragments=(Fragment(0, ("b0", "b1", "b2")), Fragment(12, ("b3", "b4", "b5"))))
    reader = Reader(metadata, {f"b{i}": ending_before(12, Status.NO_SUCH_ENTRY) if i < 3 else healthy for i in range(6)})
    assert reader.read(5, 20) == list(range(5, 21))
    assert reader.asked[0] in ("b0", "b1", "b2")
    assert reader.asked[-1] in ("b3", "b4", "b5")


def test_no_more_is_asked_for_while_the_consumer_does_not_take_what_came() -> None:
    limits = dataclasses.replace(LIMITS, ahead_bytes=1)
    machine = ReadEntries(_metadata(), 0, 40, limits)
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
    reader = _reader(*[damaged_from(2)] * 2, healthy)
    reader.read(0, 9)
    moves = len(reader.asked) - 1
    assert sum(isinstance(c, CancelRead) for c in reader.log) == moves


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_with_one_good_replica_in_every_write_set_everything_is_read(data: st.DataObject) -> None:
    e, w = data.draw(st.sampled_from([(3, 3), (3, 2), (4, 2), (5, 3), (4, 3)]))
    kinds = [
        failing(Status.UNKNOWN),
        small_answers,
        SILENT,
        damaged_from(11),
        without(7),
        ending_before(9, Status.NO_SUCH_ENTRY),
    ]
    replicas = [data.draw(st.sampled_from([healthy, small_answers, *kinds])) for _ in range(e)]
    good = [replica in (healthy, small_answers) for replica in replicas]
    readable = all(any(good[(r + k) % e] for k in range(w)) for r in range(e))
    reader = _reader(*replicas, e=e, w=w)
    if readable:
        assert reader.read(0, 30) == list(range(31))
    else:
        try:
            assert reader.read(0, 30) == list(range(31))
        except BookKeeperError:
            delivered = [i for c in reader.log if isinstance(c, Deliver) for i in c.batch.entry_ids.tolist()]
            assert delivered == list(range(len(delivered)))
