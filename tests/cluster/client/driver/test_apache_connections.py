"""Connections of Apache's protocol against a server that says what a test wants, also what no bookie should."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from bk_spark.client.driver.apache import version_2 as connections
from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.client.driver.apache.version_2 import Version2
from bk_spark.client.driver.apache.version_3 import Version3
from bk_spark.config import DigestType
from bk_spark.entries.batch import BatchHeader
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.quorum import DENSE
from bk_spark.wire.apache import version_2, version_3
from bk_spark.wire.messages import MAX_MESSAGE_BYTES, Status

DEADLINE_S = 10.0
LEDGER = 7


def read_answer(entry_id: int, entry: bytes = b"", code: int = 0) -> bytes:
    body = struct.pack(">BBHiqq", 2, 2, 0, code, LEDGER, entry_id) + entry
    return struct.pack(">I", len(body)) + body


def batch_answer(first: int, number: int, entries: list[bytes], code: int = 0) -> bytes:
    body = struct.pack(">BBHiqqq", 2, 7, 0, code, LEDGER, first, number)
    body += b"".join(struct.pack(">i", len(one)) + one for one in entries)
    return struct.pack(">I", len(body)) + body


def add_answer(entry_id: int, code: int = 0) -> bytes:
    return struct.pack(">IBBHiqq", 24, 2, 1, 0, code, LEDGER, entry_id)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def connected(made: Callable[[], FramedConnection], serve: Serve) -> tuple[asyncio.Server, FramedConnection]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    _, connection = await asyncio.get_running_loop().create_connection(made, host, port)
    return server, connection


def run(made: Callable[[], FramedConnection], serve: Serve, body: Callable[[FramedConnection], Awaitable[None]]) -> None:
    async def whole() -> None:
        server, connection = await connected(made, serve)
        try:
            await asyncio.wait_for(body(connection), DEADLINE_S)
        finally:
            connection.close("the test has ended")
            server.close()

    asyncio.run(whole())


def saying(*parts: bytes, ends: bool = False) -> Serve:
    """Answers the first request with these parts, each by itself."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if ends:
            writer.close()
        else:
            await reader.read(-1)

    return serve


def of_bytes(data: bytes) -> tuple[bytes, ...]:
    return tuple(data[at : at + 1] for at in range(len(data)))


def test_answers_are_taken_in_whatever_pieces_they_come() -> None:
    said = read_answer(4, b"four") + add_answer(9) + batch_answer(1, 1, [b"one", b"two"])

    async def body(connection: FramedConnection) -> None:
        assert isinstance(connection, Version2)
        told: list[tuple[Status, str]] = []
        header = BatchHeader(LEDGER, 9, 9, DENSE, -1, 0, DigestType.CRC32C)
        connection.send_adds(header, b"frames", lambda *outcome: told.append(outcome))
        single, batch = connection.read(LEDGER, 4), connection.batch_read(LEDGER, 1, 2, 100)
        answer = await single
        assert [answer.data[begin:end] for begin, end in answer.places] == [b"four"]
        answer = await batch
        assert [answer.data[begin:end] for begin, end in answer.places] == [b"one", b"two"]
        assert told == [(Status.OK, "")]

    for parts in ((said,), of_bytes(said)):
        run(Version2, saying(*parts), body)


def test_reads_of_one_entry_are_answered_in_their_order() -> None:
    async def body(connection: FramedConnection) -> None:
        assert isinstance(connection, Version2)
        first, second = connection.read(LEDGER, 4), connection.read(LEDGER, 4)
        assert [(await one).status for one in (first, second)] == [Status.NO_SUCH_ENTRY, Status.OK]

    run(Version2, saying(read_answer(4, code=2), read_answer(4, b"x")), body)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (struct.pack(">I", MAX_MESSAGE_BYTES + 1), "a frame of"),
        (struct.pack(">I", 3) + b"abc", "no answer of version 2"),
        (struct.pack(">IBBHiqq", 24, 3, 2, 0, 0, LEDGER, 4), "it has version 3"),
        (struct.pack(">IBBHiqq", 24, 2, 9, 0, 0, LEDGER, 4), "no answer of version 2"),
        (struct.pack(">IBBHiqq", 24, 2, 7, 0, 0, LEDGER, 4), "ends within its request id"),
        (batch_answer(4, 1, [])[:3] + b"\x22" + batch_answer(4, 1, [])[4:] + b"\0\0", "within the size of an entry"),
        (batch_answer(4, 1, [b""])[:-4] + struct.pack(">i", 5), "reaches beyond its end"),
        (batch_answer(4, 1, [b""])[:-4] + struct.pack(">i", -5), "reaches beyond its end"),
    ],
)
def test_what_is_no_answer_ends_the_connection_with_a_reason(said: bytes, reason: str) -> None:
    async def body(connection: FramedConnection) -> None:
        assert isinstance(connection, Version2)
        awaited = connection.read(LEDGER, 4)
        with pytest.raises(ConnectionError, match=reason):
            await awaited
        with pytest.raises(ConnectionError, match=reason):
            connection.read(LEDGER, 5)

    run(Version2, saying(said), body)


def test_a_connection_that_ends_within_a_frame_fails_what_waits_and_what_comes() -> None:
    async def body(connection: FramedConnection) -> None:
        assert isinstance(connection, Version2)
        told: list[tuple[Status, str]] = []
        header = BatchHeader(LEDGER, 9, 9, DENSE, -1, 0, DigestType.CRC32C)
        connection.send_adds(header, b"frames", lambda *outcome: told.append(outcome))
        for awaited in (connection.read(LEDGER, 4), connection.batch_read(LEDGER, 4, 1, 1)):
            with pytest.raises(ConnectionError, match="closed"):
                await awaited
        connection.send_adds(header, b"frames", lambda *outcome: told.append(outcome))
        assert [status for status, _ in told] == [Status.UNKNOWN] * 2

    run(Version2, saying(read_answer(4, b"four")[:20], ends=True), body)


def test_a_bookie_that_answers_no_read_does_not_gather_them_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_UNANSWERED", 3)

    async def body(connection: FramedConnection) -> None:
        assert isinstance(connection, Version2)
        for entry_id in range(3):
            connection.read(LEDGER, entry_id).cancel()
        with pytest.raises(ConnectionError, match="owes answers to 3 reads"):
            connection.batch_read(LEDGER, 4, 1, 1)

    run(Version2, saying(), body)


def test_answers_to_nobody_are_dropped() -> None:
    async def body(connection: FramedConnection) -> None:
        assert isinstance(connection, Version2)
        assert (await connection.read(LEDGER, 4)).status is Status.OK

    run(Version2, saying(add_answer(1), read_answer(77), batch_answer(0, 99, [b"x"]), read_answer(4, b"x")), body)


def test_a_response_of_version_3_goes_to_the_request_whose_number_it_has() -> None:
    def response(number: int, free: int) -> bytes:
        header = pb.Header(version=3, operation=pb.GET_BOOKIE_INFO, txnId=number)
        info = pb.BookieInfoResponse(status=0, freeDiskSpace=free)
        message = pb.Response(header=header, status=0, getBookieInfoResponse=info).SerializeToString()
        return struct.pack(">I", len(message)) + message

    async def body(connection: FramedConnection) -> None:
        assert isinstance(connection, Version3)
        asked = [connection.ask(pb.GET_BOOKIE_INFO, version_3.ask_for_space(), DEADLINE_S) for _ in range(2)]
        found = await asyncio.gather(*asked)
        assert [one.getBookieInfoResponse.freeDiskSpace for one in found] == [11, 22]

    run(Version3, saying(response(5, 55), response(2, 22), response(1, 11)), body)


def test_a_response_that_is_none_ends_the_connection_of_version_3() -> None:
    async def body(connection: FramedConnection) -> None:
        assert isinstance(connection, Version3)
        with pytest.raises(ConnectionError, match="no response of version 3"):
            await connection.ask(pb.GET_BOOKIE_INFO, version_3.ask_for_space(), DEADLINE_S)

    run(Version3, saying(struct.pack(">I", 3) + b"\xff\xff\xff"), body)


def test_a_bookie_that_says_nothing_costs_the_time_that_it_is_given() -> None:
    async def body(connection: FramedConnection) -> None:
        assert isinstance(connection, Version3)
        with pytest.raises(TimeoutError):
            await connection.ask(pb.GET_BOOKIE_INFO, version_3.ask_for_space(), 0.05)

    run(Version3, saying(), body)


def test_the_last_entry_is_asked_for_by_an_id_that_no_entry_has() -> None:
    assert version_2.pack_read(LEDGER, version_2.LAST_ENTRY) == struct.pack(">IBBHqq", 20, 2, 2, 0, LEDGER, -1)
    assert version_2.pack_read(LEDGER, 3, b"k" * 20) == struct.pack(">IBBHqq", 40, 2, 2, 1, LEDGER, 3) + b"k" * 20
