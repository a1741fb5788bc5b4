"""The driver of the state machines: what their commands become on the wire, in the metadata store and in later choices."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import pyarrow as pa
import pytest

from bk_spark.client.driver import connections
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.runner import Runner
from bk_spark.client.protocol.state_machine import (
    CancelRead,
    ChooseReplacements,
    Command,
    Event,
    Finish,
    ForceAnswered,
    LastAddConfirmedAnswered,
    MetadataGone,
    MetadataRead,
    MetadataUnknown,
    ReadEnded,
    ReadMetadata,
    ReadSent,
    ReadWaits,
    ReplacementsChosen,
    ReportFailure,
    SendAdd,
    SendForce,
    SendRead,
    SendReadLastAddConfirmed,
    SendStoreLastAddConfirmed,
    Start,
    StoreLastAddConfirmedAnswered,
    Tick,
    WriteMetadata,
)
from bk_spark.config import ClientConfig, DigestType, LedgerOptions
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.errors import ConfigError, MetadataUnavailableError, NotEnoughBookiesError
from bk_spark.metadata.ledger_metadata import Fragment, new_ledger
from bk_spark.metadata.registration import BookieAddress, initialise_cluster, list_bookies, register, unregister
from bk_spark.metadata.store import ANY_VERSION, MAX_VALUE_BYTES, NoNodeError, Versioned
from bk_spark.metadata.znodes import Znodes
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieServicer, add_BookieServicer_to_server
from bk_spark.quorum import DENSE
from bk_spark.wire.messages import Status
from tests.memory_store import MemoryStore, MemoryTree

ZNODES = Znodes("/ledgers")
METADATA = new_ledger(7, LedgerOptions(), ("b1", "b2", "b3"), created_ms=0, creator_token=1)
HURRIED = ClientConfig(read_timeout_s=0.3, add_timeout_s=0.3, speculative_read_s=0.05)


class Session(MemoryStore):
    """A session that can be cut off, and whose server may lag behind until a sync."""

    is_cut_off = False
    looks = 0
    """Calls of ``get_many``: a look-up of a bookie is one."""
    stale: dict[str, Versioned | None] | None = None
    """What the server still shows; None for what it does not show yet."""

    def get_many(self, paths):
        self.looks += 1
        if self.is_cut_off:
            raise MetadataUnavailableError("memory://", "cut off")
        return super().get_many(paths)

    def get(self, path):
        shown = self.stale[path] if self.stale and path in self.stale else super().get(path)
        if shown is None:
            raise NoNodeError(path)
        return shown

    def sync(self, path):
        self.stale = None


class Scripted:
    """An operation that wants ``commands`` at its start, and ends with all events once ``is_enough`` says so."""

    def __init__(self, commands: list[Command], is_enough: Callable[[list[Event]], bool]) -> None:
        self._commands, self._is_enough = commands, is_enough
        self.seen: list[Event] = []
        self.tick_after_ms: int | None = None
        self.on_tick: list[Command] = []
        self._deadline_ms: int | None = None
        self._out: list[Command] = []

    def handle(self, event: Event, now_ms: int) -> None:
        if isinstance(event, Start):
            self._out += self._commands
            self._deadline_ms = None if self.tick_after_ms is None else now_ms + self.tick_after_ms
            return
        self.seen.append(event)
        if isinstance(event, Tick):
            self._deadline_ms = None
            self._out += self.on_tick
        if self._is_enough(self.seen):
            self._out.append(Finish(self.seen))

    def take_commands(self) -> list[Command]:
        out, self._out = self._out, []
        return out

    def deadline_ms(self) -> int | None:
        return self._deadline_ms


class RecordingBookie(BookieServicer):
    """A real gRPC server that notes each request and answers OK."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.arrived = threading.Event()
        self.never = threading.Event()

    def Add(self, requests, context):
        for request in requests:
            self.requests.append(request)
            yield pb.AddReply(request_id=request.request_id, status=pb.OK)

    def Read(self, request, context):
        self.requests.append(request)
        yield pb.ReadReply(status=pb.NO_SUCH_ENTRY, entry_id=request.first_entry_id)

    def ReadLastAddConfirmed(self, request, context):
        self.requests.append(request)
        self.never.wait(request.wait_ms / 1000)
        return pb.ReadLastAddConfirmedReply(status=pb.OK, last_add_confirmed=5, fenced=True)

    def StoreLastAddConfirmed(self, request, context):
        self.requests.append(request)
        self.arrived.set()
        return pb.StoreLastAddConfirmedReply(status=pb.OK)

    def Force(self, request, context):
        self.requests.append(request)
        return pb.ForceReply(status=pb.OK, detail="done")


class OtherBookie(BookieServicer):
    """Says to everything that it is not the one that is meant."""

    def Add(self, requests, context):
        for request in requests:
            yield pb.AddReply(request_id=request.request_id, status=pb.WRONG_BOOKIE)

    def Read(self, request, context):
        yield pb.ReadReply(status=pb.WRONG_BOOKIE, entry_id=request.first_entry_id)

    def ReadLastAddConfirmed(self, request, context):
        return pb.ReadLastAddConfirmedReply(status=pb.WRONG_BOOKIE)

    def StoreLastAddConfirmed(self, request, context):
        return pb.StoreLastAddConfirmedReply(status=pb.WRONG_BOOKIE)

    def Force(self, request, context):
        return pb.ForceReply(status=pb.WRONG_BOOKIE)


@pytest.fixture
def session() -> Session:
    tree = MemoryTree(lambda: 0)
    store = Session(tree)
    initialise_cluster(store, ZNODES)
    for number, rack in enumerate(("/a", "/a", "/b", "/b"), start=1):
        register(store, ZNODES, BookieAddress(f"b{number}", "127.0.0.1", 1, rack))
    return store


@pytest.fixture
def context(session: Session) -> Iterator[ClientContext]:
    made = ClientContext(session, ZNODES, HURRIED)
    yield made
    made.close()


@pytest.fixture
def bookie(session: Session) -> Iterator[RecordingBookie]:
    """Serves as b1."""
    recording = RecordingBookie()
    with served(recording) as port:
        move(session, "b1", port)
        yield recording


@contextmanager
def served(servicer: BookieServicer) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(8))
    add_BookieServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


def move(session: Session, bookie_id: str, port: int) -> None:
    unregister(session, ZNODES, bookie_id)
    register(session, ZNODES, BookieAddress(bookie_id, "127.0.0.1", port))


@contextmanager
def silent_bookie(session: Session, bookie_id: str) -> Iterator[None]:
    """A port that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        move(session, bookie_id, listener.getsockname()[1])
        yield


def run(context: ClientContext, operation: Scripted) -> list[Event]:
    finished: Future[list[Event]] = Future()

    def on_command(command: Command) -> None:
        assert isinstance(command, Finish)
        finished.set_exception(command.error) if command.error else finished.set_result(command.result)

    runner = Runner(context, METADATA, operation, on_command)
    context.loop.call_soon_threadsafe(runner.post, Start())
    return finished.result(timeout=10)


def answer(context: ClientContext, command: Command) -> Event:
    (event,) = run(context, Scripted([command], lambda seen: True))
    return event


def status_of(event: Event) -> Status:
    status = getattr(event, "status", None)
    assert isinstance(status, Status)
    return status


def batch() -> EncodedBatch:
    sealed = seal(Digester(DigestType.CRC32C, b""), 7, 0, pa.array([b"x"], pa.binary()), length_before=0, last_add_confirmed=-1)
    encoded = encode(sealed, DigestType.CRC32C, DENSE)
    assert encoded is not None
    return encoded


# --- requests to bookies


def test_an_add_says_that_it_is_a_recoverys_and_that_its_sync_may_wait(context: ClientContext, bookie: RecordingBookie) -> None:
    answer(context, SendAdd(1, "b1", batch()))
    answer(context, SendAdd(2, "b1", batch(), recovery=True))
    answer(context, SendAdd(3, "b1", batch(), deferred_sync=True))
    assert [(one.recovery, one.deferred_sync) for one in bookie.requests] == [(False, False), (True, False), (False, True)]


def test_every_request_names_its_ledger_by_the_password_and_the_creator_s_token(
    context: ClientContext, bookie: RecordingBookie
) -> None:
    """Protocol rule 64."""
    answer(context, SendAdd(1, "b1", batch()))
    answer(context, SendRead(1, "b1", 3, 4, DENSE, 100))
    answer(context, SendReadLastAddConfirmed(1, "b1"))
    answer(context, SendForce(1, "b1"))
    assert [one.master_key for one in bookie.requests] == 4 * [master_key(METADATA.password, METADATA.creator_token)]


def test_a_read_says_that_it_fences(context: ClientContext, bookie: RecordingBookie) -> None:
    for fence in (False, True):
        event = answer(context, SendRead(1, "b1", 3, 4, DENSE, 100, fence))
        assert event == ReadEnded(1, Status.NO_SUCH_ENTRY, "", 3)
    assert [one.fence for one in bookie.requests] == [False, True]


def test_a_read_of_the_last_add_confirmed_says_that_it_fences_and_tells_whether_it_is_fenced(
    context: ClientContext, bookie: RecordingBookie
) -> None:
    event = answer(context, SendReadLastAddConfirmed(1, "b1", fence=True))
    assert event == LastAddConfirmedAnswered(1, Status.OK, 5, "", True)
    assert [one.fence for one in bookie.requests] == [True]


def test_a_long_poll_may_take_its_wait_and_the_read_timeout(context: ClientContext, bookie: RecordingBookie) -> None:
    assert HURRIED.read_timeout_s < 0.4
    event = answer(context, SendReadLastAddConfirmed(1, "b1", beyond=4, wait_ms=400))
    assert event == LastAddConfirmedAnswered(1, Status.OK, 5, "", True)
    assert [(one.beyond, one.wait_ms) for one in bookie.requests] == [(4, 400)]


def test_a_force_is_answered_with_what_the_bookie_says(context: ClientContext, bookie: RecordingBookie) -> None:
    assert answer(context, SendForce(1, "b1")) == ForceAnswered(1, Status.OK, "done")
    assert [one.ledger_id for one in bookie.requests] == [7]


def test_the_last_add_confirmed_of_an_idle_writer_is_answered_with_what_the_bookie_says(
    context: ClientContext, bookie: RecordingBookie
) -> None:
    assert answer(context, SendStoreLastAddConfirmed(3, "b1", 9)) == StoreLastAddConfirmedAnswered(3, Status.OK)
    assert [(one.ledger_id, one.last_add_confirmed) for one in bookie.requests] == [(7, 9)]


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (SendAdd(1, "b1", batch()), Status.OK),
        (SendRead(1, "b1", 0, 0, DENSE, 1), Status.NO_SUCH_ENTRY),
        (SendReadLastAddConfirmed(1, "b1"), Status.OK),
        (SendStoreLastAddConfirmed(1, "b1", 9), Status.OK),
        (SendForce(1, "b1"), Status.OK),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Command) else "",
)
def test_a_bookie_is_found_where_it_is_although_another_one_answers_where_it_was(
    session: Session, context: ClientContext, command: Command, status: Status
) -> None:
    """Protocol rule 67: the connection to the other one stays up, so nothing else would have the address looked up."""
    with served(OtherBookie()) as wrong, served(RecordingBookie()) as right:
        move(session, "b1", wrong)
        assert status_of(answer(context, command)) is Status.WRONG_BOOKIE
        move(session, "b1", right)
        deadline_s = time.monotonic() + 30
        while (found := status_of(answer(context, command))) is not status:
            assert time.monotonic() < deadline_s, found


def test_a_bookie_that_another_one_answers_for_is_looked_up_at_a_bounded_rate(session: Session, context: ClientContext) -> None:
    """Protocol rule 67."""
    with served(OtherBookie()) as wrong:
        move(session, "b1", wrong)
        began_s, before = time.monotonic(), session.looks
        for number in range(100):
            assert status_of(answer(context, SendForce(number, "b1"))) is Status.WRONG_BOOKIE
        assert session.looks - before <= 2 + (time.monotonic() - began_s) / connections.LOOK_AGAIN_S


def test_metadata_can_be_read_so_that_a_lagging_server_hides_nothing(session: Session, context: ClientContext) -> None:
    path = ZNODES.ledger(METADATA.ledger_id)
    session.create(path, METADATA.encode(), make_parents=True)
    session.stale = {path: session.get(path)}
    session.set(path, METADATA.closed_at(3, 9).encode(), 0)
    assert answer(context, ReadMetadata()) == MetadataRead(METADATA, 0)
    assert answer(context, ReadMetadata(is_synced=True)) == MetadataRead(METADATA.closed_at(3, 9), 1)


def test_a_ledger_that_a_lagging_server_does_not_show_yet_is_not_gone(session: Session, context: ClientContext) -> None:
    path = ZNODES.ledger(METADATA.ledger_id)
    session.create(path, METADATA.encode(), make_parents=True)
    session.stale = {path: None}
    assert answer(context, ReadMetadata()) == MetadataRead(METADATA, 0)
    session.delete(path, ANY_VERSION)
    assert answer(context, ReadMetadata()) == MetadataGone()


def test_a_bookie_that_cannot_be_reached_has_an_unknown_answer_to_everything(session: Session, context: ClientContext) -> None:
    unregister(session, ZNODES, "b1")
    reason = "it is not registered as available"
    assert answer(context, SendForce(1, "b1")) == ForceAnswered(1, Status.UNKNOWN, reason)
    polled = answer(context, SendReadLastAddConfirmed(1, "b1", fence=True))
    assert polled == LastAddConfirmedAnswered(1, Status.UNKNOWN, NO_ENTRY, reason)
    assert answer(context, SendRead(1, "b1", 0, 0, DENSE, 1)) == ReadEnded(1, Status.UNKNOWN, reason)
    told = answer(context, SendStoreLastAddConfirmed(1, "b1", 9))
    assert told == StoreLastAddConfirmedAnswered(1, Status.UNKNOWN, reason)


def test_a_bookie_that_does_not_answer_in_time_has_an_unknown_answer(session: Session, context: ClientContext) -> None:
    with silent_bookie(session, "b1"):
        events = run(context, Scripted([SendForce(1, "b1"), SendReadLastAddConfirmed(2, "b1")], lambda seen: len(seen) == 2))
    assert [event.status for event in events] == [Status.UNKNOWN, Status.UNKNOWN]


def test_a_read_only_bookie_is_found_for_reads(session: Session, context: ClientContext, bookie: RecordingBookie) -> None:
    address = next(one.address for one in list_bookies(session, ZNODES) if one.bookie_id == "b1")
    register(session, ZNODES, address, read_only=True)
    assert answer(context, SendRead(1, "b1", 0, 0, DENSE, 1)) == ReadEnded(1, Status.NO_SUCH_ENTRY, "", 0)


# --- bookies that are asked last


def cancelled_read(after_ms: int) -> Scripted:
    operation = Scripted([SendRead(1, "b1", 0, 0, DENSE, 1)], lambda seen: isinstance(seen[-1], Tick))
    operation.tick_after_ms, operation.on_tick = after_ms, [CancelRead(1)]
    return operation


def test_a_bookie_that_was_silent_until_another_one_was_asked_is_asked_last(session: Session, context: ClientContext) -> None:
    with silent_bookie(session, "b1"):
        run(context, cancelled_read(after_ms=60))
    assert context.avoided() == {"b1"}


def test_a_bookie_that_lost_a_race_keeps_its_place(session: Session) -> None:
    context = ClientContext(session, ZNODES, ClientConfig())
    with silent_bookie(session, "b1"):
        run(context, cancelled_read(after_ms=1))
    assert context.avoided() == frozenset()
    context.close()


def test_a_bookie_that_was_not_sent_the_read_yet_keeps_its_place(context: ClientContext, bookie, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MOST_READS", 0)
    events = run(context, cancelled_read(after_ms=200))
    assert ReadWaits(1) in events
    assert context.avoided() == frozenset()
    assert bookie.requests == []


def test_a_bookie_whose_read_waited_for_others_until_the_end_keeps_its_place(
    context: ClientContext, bookie, monkeypatch
) -> None:
    monkeypatch.setattr(connections, "MOST_READS", 0)
    monkeypatch.setattr(connections, "MOST_WAITING_S", 0.01)
    operation = Scripted([SendRead(1, "b1", 0, 0, DENSE, 1)], lambda seen: isinstance(seen[-1], ReadEnded))
    waits, end = run(context, operation)
    assert waits == ReadWaits(1)
    assert end == ReadEnded(1, Status.UNKNOWN, "for 0.01 s 0 other reads were under way there")
    assert context.avoided() == frozenset()
    assert bookie.requests == []


class SentLate(Scripted):
    """A read that is sent long after it began to wait, and is cancelled ``silent_ms`` later."""

    def __init__(self, context: ClientContext, monkeypatch, silent_ms: int) -> None:
        super().__init__([SendRead(1, "b1", 0, 0, DENSE, 1)], lambda seen: isinstance(seen[-1], Tick))
        self.on_tick = [CancelRead(1)]
        self._context, self._silent_ms, self._clock_ms = context, silent_ms, 0
        monkeypatch.setattr(context, "now_ms", lambda: self._clock_ms)

    def handle(self, event: Event, now_ms: int) -> None:
        super().handle(event, now_ms)
        if isinstance(event, ReadWaits):
            self._clock_ms += 3_600_000
            self._context.bookies.bookie("b1")._known._reads.release()
        elif isinstance(event, ReadSent):
            self._clock_ms += self._silent_ms
            self._deadline_ms = self._clock_ms


@pytest.mark.parametrize(("silent_ms", "avoided"), [(0, frozenset()), (60, frozenset({"b1"}))])
def test_a_bookie_is_silent_only_from_when_the_read_was_sent(
    session: Session, context: ClientContext, monkeypatch, silent_ms: int, avoided: frozenset[str]
) -> None:
    monkeypatch.setattr(connections, "MOST_READS", 0)
    with silent_bookie(session, "b1"):
        run(context, SentLate(context, monkeypatch, silent_ms))
    assert context.avoided() == avoided


def test_a_read_that_waited_says_when_it_is_sent(context: ClientContext, bookie, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MOST_READS", 1)
    reads = [SendRead(number, "b1", 0, 0, DENSE, 1) for number in (1, 2)]
    events = run(context, Scripted(reads, lambda seen: sum(isinstance(one, ReadEnded) for one in seen) == 2))
    assert [one for one in events if isinstance(one, ReadWaits | ReadSent)] == [ReadWaits(2), ReadSent(2)]


# --- the ledger's metadata


def test_metadata_that_the_store_has_no_room_for_is_an_answer_to_the_operation(context: ClientContext) -> None:
    """Otherwise a ledger with too many fragments could not even be closed."""
    fragments = tuple(Fragment(first, METADATA.last_fragment.ensemble) for first in range(MAX_VALUE_BYTES // 10))
    event = answer(context, WriteMetadata(replace(METADATA, fragments=fragments), 0))
    assert isinstance(event, MetadataUnknown)
    assert "the size in bytes" in str(event.error)


def test_metadata_of_another_creator_is_of_another_ledger(session: Session, context: ClientContext) -> None:
    """Protocol rule 64: the id was given out again, and this ledger has no metadata any more."""
    path = ZNODES.ledger(METADATA.ledger_id)
    session.create(path, METADATA.encode(), make_parents=True)
    assert answer(context, ReadMetadata()) == MetadataRead(METADATA, 0)
    session.set(path, replace(METADATA, creator_token=2).encode(), 0)
    assert answer(context, ReadMetadata()) == MetadataGone()


def test_metadata_of_another_creator_is_not_overwritten_though_its_version_is_the_expected_one(
    session: Session, context: ClientContext
) -> None:
    """Protocol rule 64: a writer that goes on after the store went back."""
    path, other = ZNODES.ledger(METADATA.ledger_id), replace(METADATA, creator_token=2).encode()
    session.create(path, other, make_parents=True)
    assert answer(context, WriteMetadata(METADATA.closed_at(0, 1), 0)) == MetadataGone()
    assert session.get(path).value == other


# --- choices of bookies


def test_a_replacement_is_a_registered_bookie_that_keeps_the_racks_apart(context: ClientContext) -> None:
    wanted = ChooseReplacements(4, ("b1", "b2", "b3"), (0,), frozenset({"b1"}))
    assert answer(context, wanted) == ReplacementsChosen(4, ((0, "b4"),), "")
    wanted = ChooseReplacements(5, ("b1", "b2", "b3"), (2,), frozenset({"b3"}))
    assert answer(context, wanted) == ReplacementsChosen(5, ((2, "b4"),), "")


def test_read_only_bookies_are_no_replacements(session: Session, context: ClientContext) -> None:
    register(session, ZNODES, BookieAddress("b4", "127.0.0.1", 1, "/b"), read_only=True)
    event = answer(context, ChooseReplacements(4, ("b1", "b2", "b3"), (0,), frozenset({"b1"})))
    assert isinstance(event, ReplacementsChosen)
    assert event.bookies == ()
    assert "needs 1 bookies and 0 can be used" in event.detail


def test_a_metadata_store_that_does_not_answer_gives_no_replacements_and_the_reason(
    session: Session, context: ClientContext
) -> None:
    session.is_cut_off = True
    event = answer(context, ChooseReplacements(4, ("b1", "b2", "b3"), (0,), frozenset({"b1"})))
    assert isinstance(event, ReplacementsChosen)
    assert (event.request_id, event.bookies) == (4, ())
    assert "memory:// does not answer (cut off)" in event.detail


def test_a_bookie_whose_failures_are_reported_stays_out_of_new_ensembles_and_replacements(context: ClientContext) -> None:
    reports: list[Command] = [ReportFailure("b4")] * HURRIED.quarantine_errors
    wanted = ChooseReplacements(4, ("b1", "x", "y"), (1,), frozenset({"x"}))
    run(context, Scripted([*reports, wanted], lambda seen: True))
    for _ in range(10):
        assert set(context.choose_ensemble(3, 3)) == {"b1", "b2", "b3"}
        assert answer(context, wanted).bookies[0][1] in ("b2", "b3")  # type: ignore[union-attr]
    assert "b4" in context.choose_ensemble(4, 3)


def test_an_ensemble_is_chosen_of_the_registered_bookies(session: Session, context: ClientContext) -> None:
    session.is_cut_off = True
    with pytest.raises(MetadataUnavailableError):
        context.choose_ensemble(3, 3)
    session.is_cut_off = False
    assert set(context.choose_ensemble(4, 2)) == {"b1", "b2", "b3", "b4"}
    with pytest.raises(NotEnoughBookiesError, match="a ledger with ensemble size 5 needs 5 bookies and 4 can be used"):
        context.choose_ensemble(5, 3)


def test_racks_that_cannot_be_kept_apart_are_logged_once(
    session: Session, context: ClientContext, caplog: pytest.LogCaptureFixture
) -> None:
    unregister(session, ZNODES, "b3")
    for _ in range(3):
        context.choose_ensemble(3, 2)
    (record,) = [one for one in caplog.records if "in fewer racks than could be wished for, 1 of 2" in one.message]
    assert record.levelname == "WARNING"


def test_an_ensemble_is_not_chosen_on_the_event_loop_nor_after_the_close(session: Session) -> None:
    context = ClientContext(session, ZNODES, HURRIED)

    async def on_the_loop() -> tuple[str, ...]:
        return context.choose_ensemble(3, 3)

    with pytest.raises(ConfigError, match="callbacks run on the client's event loop"):
        context.submit(on_the_loop()).result()
    context.close()
    with pytest.raises(ConfigError, match="closed"):
        context.choose_ensemble(3, 3)
