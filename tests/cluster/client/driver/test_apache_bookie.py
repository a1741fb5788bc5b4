"""What a client makes of an Apache bookie that answers in ways which no bookie should, or only an old one does."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest

from bk_spark.client.driver.apache import connecting
from bk_spark.client.driver.apache import version_2 as apache_version_2
from bk_spark.client.driver.apache.bookie import ApacheBookie
from bk_spark.client.driver.apache.framing import Framing
from bk_spark.client.driver.apache.login_access import LoginAccess
from bk_spark.client.driver.apache.version_2 import MOST_UNANSWERED, Version2
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.config import DigestType
from bk_spark.entries.batch import decode, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.entries.entry_bytes import framed as framed_entries
from bk_spark.errors import CorruptionError
from bk_spark.metadata.registration import BookieAddress
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.messages import AddRequest, LastAddConfirmedRequest, ReadBatch, ReadRequest, Status
from tests.cluster.client.apache_server import (
    Answers,
    Authenticate,
    apache_bookie,
    asks,
    framed,
    is_version_3,
    needs_nothing,
    response,
)

LEDGER = 7
KEY = master_key(b"")
STRIPE = IdPattern(3, 2, 1)
DEADLINE_S = 30.0

_Result = TypeVar("_Result")


def entry(entry_id: int, ledger_id: int = LEDGER) -> bytes:
    payloads = pa.array([b"%d" % entry_id], pa.binary())
    digester = Digester(DigestType.CRC32C, b"")
    sealed = seal(digester, ledger_id, entry_id, payloads, length_before=entry_id, last_add_confirmed=-1)
    return framed_entries(sealed, DigestType.CRC32C, b"")[4:]


def batch_answer(request: bytes, entries: list[bytes], code: int = 0) -> bytes:
    ledger_id, first, number = struct.unpack_from(">qqq", request, 4)
    body = struct.pack(">BBHiqqq", 2, 7, 0, code, ledger_id, first, number)
    return framed(body + b"".join(struct.pack(">i", len(one)) + one for one in entries))


def single_answer(request: bytes, body: bytes) -> bytes:
    asked = pb.Request.FromString(request).readRequest
    found = pb.ReadResponse(status=0, ledgerId=asked.ledgerId, entryId=asked.entryId, body=body)
    return response(request, readResponse=found)


def asked(
    answers: Answers, ask: Callable[[ApacheBookie], Coroutine[Any, Any, _Result]], authenticate: Authenticate = needs_nothing
) -> _Result:
    async def whole() -> _Result:
        async with apache_bookie(answers, authenticate) as bookie, asyncio.timeout(DEADLINE_S):
            return await ask(bookie)

    return asyncio.run(whole())


async def ids_read(bookie: ApacheBookie, last: int = 9, pattern: IdPattern = DENSE) -> list[int]:
    request = ReadRequest("b1", LEDGER, KEY, 0, last, pattern, 1 << 20)
    parts = [part async for part in bookie.read(request)]
    return [one for part in parts if isinstance(part, ReadBatch) for one in decode(part.batch).entry_ids.tolist()]


def test_a_bookie_that_ends_the_connection_of_a_batch_read_but_lives_is_read_by_single_ones_from_then_on() -> None:
    batch_reads = 0

    async def answers(frame: bytes) -> list[bytes]:
        nonlocal batch_reads
        if not is_version_3(frame):
            batch_reads += 1
            raise asyncio.CancelledError
        return [single_answer(frame, entry(pb.Request.FromString(frame).readRequest.entryId))]

    async def ask(bookie: ApacheBookie) -> list[list[int]]:
        return [await ids_read(bookie) for _ in range(3)]

    assert asked(answers, ask) == [list(range(10))] * 3
    assert batch_reads == 1


def test_a_bookie_that_answered_batch_reads_fails_a_read_whose_connection_it_ends() -> None:
    """It has batch reads, so the reason is another one: the reader asks again, or asks another bookie."""
    ends = False

    async def answers(frame: bytes) -> list[bytes]:
        if is_version_3(frame):
            return [single_answer(frame, entry(pb.Request.FromString(frame).readRequest.entryId))]
        if ends:
            raise asyncio.CancelledError
        return [batch_answer(frame, [entry(one) for one in range(10)])]

    async def ask(bookie: ApacheBookie) -> list[int]:
        nonlocal ends
        assert await ids_read(bookie) == list(range(10))
        ends = True
        return await ids_read(bookie)

    with pytest.raises(ConnectionError):
        asked(answers, ask)


WRONG: dict[str, list[bytes]] = {
    "another entry": [entry(1)],
    "an entry left out": [entry(0), entry(2)],
    "one twice": [entry(0), entry(0)],
    "another ledger": [entry(0, LEDGER + 1)],
    "too short": [b"x" * 20],
    "none": [],
    "more than were asked for": [entry(one) for one in range(11)],
}


@pytest.mark.parametrize("entries", WRONG.values(), ids=WRONG)
def test_a_batch_read_that_brings_other_entries_than_were_asked_for_is_refused(entries: list[bytes]) -> None:
    async def answers(frame: bytes) -> list[bytes]:
        first = struct.unpack_from(">q", frame, 12)[0]
        return [batch_answer(frame, [entry(one) for one in range(first, 10)] if first else entries)]

    with pytest.raises(CorruptionError):
        asked(answers, ids_read)


@pytest.mark.parametrize(
    "body", [entry(3), entry(1), entry(0, LEDGER + 1), b""], ids=["another entry", "not of the slot", "another ledger", "none"]
)
def test_a_single_read_that_brings_another_entry_is_refused(body: bytes) -> None:
    async def answers(frame: bytes) -> list[bytes]:
        return [single_answer(frame, body)]

    async def ask(bookie: ApacheBookie) -> list[int]:
        return await ids_read(bookie, last=0, pattern=STRIPE)

    with pytest.raises(CorruptionError):
        asked(answers, ask)


def test_a_bookie_that_asks_for_authentication_is_named_so() -> None:
    async def answers(frame: bytes) -> list[bytes]:
        raise AssertionError("nothing is asked of it")

    with pytest.raises(
        ConnectionError, match=r"asks its clients to authenticate: by SASL with bookie_auth \(bookieAuth, .*tls_ca"
    ):
        asked(answers, ids_read, asks)


def test_a_bookie_that_does_not_greet_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "STEP_S", 0.1)

    async def whole() -> None:
        server = await asyncio.start_server(lambda *_: asyncio.sleep(DEADLINE_S), "127.0.0.1", 0)
        address = BookieAddress("b1", *server.sockets[0].getsockname()[:2])
        with pytest.raises(ConnectionError, match=r"the bookie at 127.0.0.1:\d+ did not answer within 0.1 s"):
            await connecting.open_version_3(address, LoginAccess())
        server.close()

    asyncio.run(whole())


def test_what_a_bookie_says_when_it_lets_a_ledger_go_is_no_last_add_confirmed() -> None:
    async def answers(frame: bytes) -> list[bytes]:
        found = pb.ReadResponse(status=0, ledgerId=LEDGER, entryId=-1, maxLAC=(1 << 63) - 1)
        return [response(frame, readResponse=found)]

    async def ask(bookie: ApacheBookie) -> tuple[Status, int]:
        reply = await bookie.last_add_confirmed(LastAddConfirmedRequest("b1", LEDGER, KEY), DEADLINE_S)
        return reply.status, reply.last_add_confirmed

    assert asked(answers, ask) == (Status.OK, -1)


def test_a_connection_that_ends_while_it_goes_over_to_version_2_is_not_used() -> None:
    """The answer to the greeting and the end come at once."""

    async def greet_and_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await reader.readexactly(struct.unpack(">I", await reader.readexactly(4))[0])
        writer.write(response(frame))
        writer.close()

    async def whole() -> None:
        server = await asyncio.start_server(greet_and_end, "127.0.0.1", 0)
        address = BookieAddress("b1", *server.sockets[0].getsockname()[:2])
        for _ in range(20):
            with contextlib.suppress(ConnectionError):
                connection = await connecting.open_framed(address, LoginAccess(), Version2())
                with pytest.raises(ConnectionError):
                    await asyncio.wait_for(connection.batch_read(LEDGER, 0, 1, 1), DEADLINE_S / 20)
        server.close()

    asyncio.run(whole())


def test_a_connection_that_is_opened_while_the_client_closes_is_closed() -> None:
    greeted, ended = asyncio.Event(), asyncio.Event()

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await reader.readexactly(struct.unpack(">I", await reader.readexactly(4))[0])
        greeted.set()
        await closed.wait()
        writer.write(response(frame))
        await reader.read(-1)
        ended.set()

    async def whole() -> None:
        server = await asyncio.start_server(slowly, "127.0.0.1", 0)
        address = BookieAddress("b1", *server.sockets[0].getsockname()[:2])

        async def look_up(_: str) -> BookieAddress:
            return address

        bookie = ApacheBookie("b1", look_up, LoginAccess(), Framing())
        asking = asyncio.create_task(bookie.describe(DEADLINE_S))
        await greeted.wait()
        await bookie.close()
        closed.set()
        with pytest.raises(ConnectionError, match="the client was closed"):
            await asking
        await asyncio.wait_for(ended.wait(), DEADLINE_S)
        server.close()

    closed = asyncio.Event()
    asyncio.run(whole())


def test_adds_do_not_wait_for_another_connection_that_is_being_opened() -> None:
    connections = 0

    async def first_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections > 1:
            await asyncio.sleep(DEADLINE_S)
        while True:
            frame = await reader.readexactly(struct.unpack(">I", await reader.readexactly(4))[0])
            writer.write(response(frame) if is_version_3(frame) else add_answer(frame))

    async def whole() -> None:
        server = await asyncio.start_server(first_only, "127.0.0.1", 0)
        address = BookieAddress("b1", *server.sockets[0].getsockname()[:2])

        async def look_up(_: str) -> BookieAddress:
            return address

        bookie = ApacheBookie("b1", look_up, LoginAccess(), Framing())
        assert await added(bookie) is Status.OK
        asking = asyncio.create_task(bookie.describe(DEADLINE_S))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(added(bookie), DEADLINE_S / 20) is Status.OK
        asking.cancel()
        await bookie.close()
        server.close()

    asyncio.run(whole())


def test_no_more_adds_are_under_way_than_a_bookie_takes_by_default() -> None:
    """A batch of many small entries goes out in pieces, each when enough of those before it are answered."""
    waiting: list[bytes] = []
    most, left = 0, 3 * MOST_UNANSWERED + 7

    async def answers(frame: bytes) -> list[bytes]:
        nonlocal most, left
        waiting.append(add_answer(frame))
        most = max(most, len(waiting))
        if len(waiting) < min(MOST_UNANSWERED, left):
            return []
        left -= len(waiting)
        answered = waiting.copy()
        waiting.clear()
        return answered

    assert asked(answers, lambda bookie: added(bookie, left)) is Status.OK
    assert most == MOST_UNANSWERED


def test_a_bookie_that_answers_none_of_many_adds_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apache_version_2, "MOST_SILENCE_S", 0.05)

    async def answers(frame: bytes) -> list[bytes]:
        return []

    assert asked(answers, lambda bookie: added(bookie, MOST_UNANSWERED + 1)) is Status.UNKNOWN


def add_answer(frame: bytes) -> bytes:
    ledger_id, entry_id = struct.unpack_from(">qq", frame, 24)
    return framed(struct.pack(">BBHiqq", 2, 1, 0, 0, ledger_id, entry_id))


async def added(bookie: ApacheBookie, count: int = 1) -> Status:
    """Of one add of so many entries."""
    payloads = pa.array([b"x"] * count, pa.binary())
    sealed = seal(Digester(DigestType.CRC32C, b""), LEDGER, 0, payloads, length_before=0, last_add_confirmed=-1)
    batch = encode(sealed, DigestType.CRC32C)
    assert batch is not None
    told: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
    bookie.enqueue(QueuedAdd(1, AddRequest(1, "b1", KEY, batch), lambda reply: told.set_result(reply.status)))
    return await told


@pytest.mark.parametrize("fence", [False, True])
@pytest.mark.parametrize(("damaged_at", "confirmed"), [(None, 4), (16, -1), (23, -1), (40, -1)])
def test_a_damaged_entry_says_nothing_of_what_is_confirmed(damaged_at: int | None, confirmed: int, *, fence: bool) -> None:
    """The bookie's answer counts all the same: rule 15."""
    payloads = pa.array([b"payload"], pa.binary())
    digester = Digester(DigestType.CRC32C, b"")
    sealed = seal(digester, LEDGER, 5, payloads, length_before=5, last_add_confirmed=4)
    body = bytearray(framed_entries(sealed, DigestType.CRC32C, b"")[4:])
    if damaged_at is not None:
        body[damaged_at] ^= 1

    async def answers(frame: bytes) -> list[bytes]:
        return [single_answer(frame, bytes(body))]

    async def ask(bookie: ApacheBookie) -> tuple[Status, int, bool]:
        request = LastAddConfirmedRequest("b1", LEDGER, KEY, fence, digester=digester)
        reply = await bookie.last_add_confirmed(request, DEADLINE_S)
        return reply.status, reply.last_add_confirmed, reply.is_fenced

    assert asked(answers, ask) == (Status.OK, confirmed, fence)


@pytest.mark.parametrize(("has_batch_reads", "fence"), [(True, False), (False, False), (True, True)])
def test_entries_whose_lengths_are_not_in_the_order_of_their_ids_stay_as_they_are(
    *, has_batch_reads: bool, fence: bool
) -> None:
    """Java's LedgerHandleAdv counts the length in the order of the calls: here entries 0, 2, 1, 3."""
    lengths = np.array([1, 3, 2, 4])
    digester = Digester(DigestType.CRC32C, b"")

    def stored(entry_id: int) -> bytes:
        payloads = pa.array([b"x"], pa.binary())
        before = int(lengths[entry_id]) - 1
        sealed = seal(digester, LEDGER, entry_id, payloads, length_before=before, last_add_confirmed=-1)
        return framed_entries(sealed, DigestType.CRC32C, b"")[4:]

    async def answers(frame: bytes) -> list[bytes]:
        if is_version_3(frame):
            entry_id = pb.Request.FromString(frame).readRequest.entryId
            return [single_answer(frame, stored(entry_id)) if entry_id < 4 else response(frame, 403)]
        if not has_batch_reads:
            raise asyncio.CancelledError
        first = struct.unpack_from(">q", frame, 12)[0]
        return [batch_answer(frame, [stored(one) for one in range(first, 4)])]

    async def ask(bookie: ApacheBookie) -> list[tuple[int, int, bool]]:
        request = ReadRequest("b1", LEDGER, KEY, 0, 9 if fence else 3, DENSE, 1 << 20, fence)
        batches = [decode(part.batch) async for part in bookie.read(request) if isinstance(part, ReadBatch)]
        return [
            (int(entry_id), int(length), bool(is_right))
            for batch in batches
            for entry_id, length, is_right in zip(batch.entry_ids, batch.lengths, batch.matching(digester), strict=True)
        ]

    assert asked(answers, ask) == [(0, 1, True), (1, 3, True), (2, 2, True), (3, 4, True)]
