"""What a client makes of an Apache bookie that answers in ways which no bookie should, or only an old one does."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from bk_spark.client.driver.apache import connecting
from bk_spark.client.driver.apache.bookie import ApacheBookie
from bk_spark.config import DigestType
from bk_spark.entries.batch import decode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.errors import CorruptionError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.apache.entry_bytes import framed as framed_entries
from bk_spark.wire.messages import LastAddConfirmedRequest, ReadBatch, ReadRequest, Status
from tests.cluster.client.apache_server import Answers, apache_bookie, framed, is_version_3, response

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


def asked(answers: Answers, ask: Callable[[ApacheBookie], Coroutine[Any, Any, _Result]], greeting: int = 0) -> _Result:
    async def whole() -> _Result:
        async with apache_bookie(answers, greeting) as bookie, asyncio.timeout(DEADLINE_S):
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

    with pytest.raises(ConnectionError, match=r"asks its clients to authenticate\. SASL is not supported"):
        asked(answers, ids_read, greeting=502)


def test_a_bookie_that_does_not_greet_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "STEP_S", 0.1)

    async def whole() -> None:
        server = await asyncio.start_server(lambda *_: asyncio.sleep(DEADLINE_S), "127.0.0.1", 0)
        address = connecting.BookieAddress("b1", *server.sockets[0].getsockname()[:2])
        with pytest.raises(ConnectionError, match=r"the bookie at 127.0.0.1:\d+ did not answer within 0.1 s"):
            await connecting.open_version_3(address, None)
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
