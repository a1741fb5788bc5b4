"""Connections of Apache's protocol against a server that says what a test wants, also what no bookie should."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.client.driver.apache.connecting import open_version_3
from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.client.driver.apache.framing import Framing
from bk_spark.client.driver.apache.login_access import LoginAccess
from bk_spark.client.driver.apache.version_2 import Version2
from bk_spark.client.driver.apache.version_3 import Version3
from bk_spark.client.driver.bookies import Bookies
from bk_spark.client.driver.channels import Channels
from bk_spark.config import ClientConfig, DigestType
from bk_spark.entries.batch import BatchHeader, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.local.security import local_tls
from bk_spark.metadata.registration import APACHE_PROTOCOL, PROTOCOL, BookieAddress
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.quorum import DENSE
from bk_spark.tls.client_contexts import ClientContexts
from bk_spark.tls.files import TlsSource
from bk_spark.wire.apache import version_3
from bk_spark.wire.messages import MAX_MESSAGE_BYTES, AddRequest, Status
from tests.cluster.client.apache_server import apache_server, response

DEADLINE_S = 10.0
LEDGER = 7


def batch_answer(first: int, number: int, entries: list[bytes], code: int = 0) -> bytes:
    body = struct.pack(">BBHiqqq", 2, 7, 0, code, LEDGER, first, number)
    body += b"".join(struct.pack(">i", len(one)) + one for one in entries)
    return struct.pack(">I", len(body)) + body


def add_answer(entry_id: int, code: int = 0) -> bytes:
    return struct.pack(">IBBHiqq", 24, 2, 1, 0, code, LEDGER, entry_id)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def connected(made: Callable[[], FramedConnection[Any]], serve: Serve) -> tuple[asyncio.Server, FramedConnection[Any]]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    _, connection = await asyncio.get_running_loop().create_connection(made, host, port)
    return server, connection


def run(
    made: Callable[[], FramedConnection[Any]], serve: Serve, body: Callable[[FramedConnection[Any]], Awaitable[None]]
) -> None:
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
    said = batch_answer(4, 2, [b"four"]) + add_answer(9) + batch_answer(1, 1, [b"one", b"two"])

    async def body(connection: FramedConnection[Any]) -> None:
        assert isinstance(connection, Version2)
        told: list[tuple[Status, str]] = []
        header = BatchHeader(LEDGER, 9, 9, DENSE, -1, 0, DigestType.CRC32C)
        await connection.send_adds(header, [(1, b"frames")], lambda *outcome: told.append(outcome))
        answers = await asyncio.gather(connection.batch_read(LEDGER, 1, 2, 100), connection.batch_read(LEDGER, 4, 1, 100))
        entries = [[answer.data[begin:end] for begin, end in answer.places] for answer in answers]
        assert entries == [[b"one", b"two"], [b"four"]]
        assert told == [(Status.OK, "")]
        assert not connection.owes_adds

    for parts in ((said,), of_bytes(said)):
        run(Version2, saying(*parts), body)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (struct.pack(">I", MAX_MESSAGE_BYTES + 1), "a frame of"),
        (struct.pack(">I", 3) + b"abc", "no answer of version 2"),
        (struct.pack(">IBBHiqqq", 32, 3, 7, 0, 0, LEDGER, 4, 1), "it has version 3"),
        (struct.pack(">IBBHiqqq", 32, 2, 9, 0, 0, LEDGER, 4, 1), "operation 9"),
        (struct.pack(">IBBHiqq", 24, 2, 7, 0, 0, LEDGER, 4), "no answer of version 2"),
        (batch_answer(4, 1, [])[:3] + b"\x22" + batch_answer(4, 1, [])[4:] + b"\0\0", "within the size of an entry"),
        (batch_answer(4, 1, [b""])[:-4] + struct.pack(">i", 5), "reaches beyond its end"),
        (batch_answer(4, 1, [b""])[:-4] + struct.pack(">i", -5), "reaches beyond its end"),
    ],
)
def test_what_is_no_answer_ends_the_connection_with_a_reason(said: bytes, reason: str) -> None:
    async def body(connection: FramedConnection[Any]) -> None:
        assert isinstance(connection, Version2)
        for _ in range(2):  # the second one is not sent any more
            with pytest.raises(ConnectionError, match=reason):
                await connection.batch_read(LEDGER, 4, 1, 1)

    run(Version2, saying(said), body)


def test_a_connection_that_ends_within_a_frame_fails_what_waits_and_what_comes() -> None:
    async def body(connection: FramedConnection[Any]) -> None:
        assert isinstance(connection, Version2)
        told: list[tuple[Status, str]] = []
        header = BatchHeader(LEDGER, 9, 9, DENSE, -1, 0, DigestType.CRC32C)
        await connection.send_adds(header, [(1, b"frames")], lambda *outcome: told.append(outcome))
        with pytest.raises(ConnectionError, match="closed"):
            await connection.batch_read(LEDGER, 4, 1, 1)
        await connection.send_adds(header, [(1, b"frames")], lambda *outcome: told.append(outcome))
        assert [status for status, _ in told] == [Status.UNKNOWN] * 2

    run(Version2, saying(batch_answer(4, 1, [b"four"])[:20], ends=True), body)


def test_a_bookie_that_answers_no_read_does_not_gather_them() -> None:
    async def body(connection: FramedConnection[Any]) -> None:
        assert isinstance(connection, Version2)
        for entry_id in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(connection.batch_read(LEDGER, entry_id, 1, 1), 0.01)
        assert not connection._waiting

    run(Version2, saying(), body)


def test_answers_to_nobody_are_dropped() -> None:
    async def body(connection: FramedConnection[Any]) -> None:
        assert isinstance(connection, Version2)
        assert (await connection.batch_read(LEDGER, 4, 1, 1)).status is Status.NO_SUCH_ENTRY

    run(Version2, saying(add_answer(1), batch_answer(0, 99, [b"x"]), batch_answer(4, 1, [], code=2)), body)


def test_a_response_of_version_3_goes_to_the_request_whose_number_it_has() -> None:
    def response(number: int, free: int) -> bytes:
        header = pb.Header(version=3, operation=pb.GET_BOOKIE_INFO, txnId=number)
        info = pb.BookieInfoResponse(status=0, freeDiskSpace=free)
        message = pb.Response(header=header, status=0, getBookieInfoResponse=info).SerializeToString()
        return struct.pack(">I", len(message)) + message

    async def body(connection: FramedConnection[Any]) -> None:
        assert isinstance(connection, Version3)
        asked = [connection.ask(pb.GET_BOOKIE_INFO, version_3.ask_for_space(), DEADLINE_S) for _ in range(2)]
        found = await asyncio.gather(*asked)
        assert [one.getBookieInfoResponse.freeDiskSpace for one in found] == [11, 22]

    run(Version3, saying(response(5, 55), response(2, 22), response(1, 11)), body)


def test_a_response_that_is_none_ends_the_connection_of_version_3() -> None:
    async def body(connection: FramedConnection[Any]) -> None:
        assert isinstance(connection, Version3)
        with pytest.raises(ConnectionError, match="no response of version 3"):
            await connection.ask(pb.GET_BOOKIE_INFO, version_3.ask_for_space(), DEADLINE_S)

    run(Version3, saying(struct.pack(">I", 3) + b"\xff\xff\xff"), body)


def test_a_bookie_that_says_nothing_costs_the_time_that_it_is_given() -> None:
    async def body(connection: FramedConnection[Any]) -> None:
        assert isinstance(connection, Version3)
        with pytest.raises(TimeoutError):
            await connection.ask(pb.GET_BOOKIE_INFO, version_3.ask_for_space(), 0.05)

    run(Version3, saying(), body)


def test_an_answer_from_before_a_fence_never_counts_for_the_read_that_fences() -> None:
    """Both ask for the last entry, and the bookie answers in whatever order: their numbers tell."""

    def response(number: int, status: int) -> bytes:
        header = pb.Header(version=3, operation=pb.READ_ENTRY, txnId=number)
        read = pb.ReadResponse(status=status, ledgerId=LEDGER, entryId=-1)
        message = pb.Response(header=header, status=status, readResponse=read).SerializeToString()
        return struct.pack(">I", len(message)) + message

    async def body(connection: FramedConnection[Any]) -> None:
        assert isinstance(connection, Version3)
        questions = (version_3.read(LEDGER, version_3.LAST_ENTRY), version_3.read(LEDGER, version_3.LAST_ENTRY, b"k" * 20))
        assert [one.HasField("flag") for one in questions] == [False, True]
        plain, fencing = await asyncio.gather(*(connection.ask(pb.READ_ENTRY, one, DEADLINE_S) for one in questions))
        assert (plain.status, fencing.status) == (403, 501)

    run(Version3, saying(response(2, 501), response(1, 403)), body)


def test_a_client_that_closes_waits_for_the_adds_that_a_bookie_still_owes() -> None:
    """They are copies of confirmed entries: dropped here, they would be missing there."""

    may_look, came, may_answer = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slowly(_: bytes) -> list[bytes]:
        came.set()
        await may_answer.wait()
        return [add_answer(0)]

    async def closed(address: BookieAddress) -> list[Status]:
        async def look_up(_: str) -> BookieAddress:
            await may_look.wait()
            return address

        told: list[Status] = []
        digester = Digester(DigestType.CRC32C, b"")
        sealed = seal(digester, LEDGER, 0, pa.array([b"x"], pa.binary()), length_before=0, last_add_confirmed=-1)
        encoded = encode(sealed, DigestType.CRC32C)
        assert encoded is not None
        bookies = Bookies(look_up, Channels(ClientConfig()), Framing(ClientConfig().apache_frame_bytes))
        add = AddRequest(1, "b1", master_key(b""), encoded)
        bookies.bookie("b1").send_add(add, lambda reply: told.append(reply.status))
        closing = asyncio.create_task(bookies.close())
        await asyncio.sleep(0)  # the client begins to close before it knows where the bookie is
        may_look.set()
        await asyncio.wait_for(came.wait(), DEADLINE_S)
        assert not closing.done()
        may_answer.set()
        await closing
        return told

    async def whole() -> list[Status]:
        async with apache_server(slowly) as address:
            return await closed(address)

    assert asyncio.run(whole()) == [Status.OK]


def test_bookies_are_apaches_if_those_that_were_found_are_and_only_one_is_looked_up() -> None:
    looked_up: list[str] = []

    async def look_up(bookie_id: str) -> BookieAddress | None:
        looked_up.append(bookie_id)
        protocol = {"apache": APACHE_PROTOCOL, "other": APACHE_PROTOCOL, "ours": PROTOCOL}.get(bookie_id)
        return None if protocol is None else BookieAddress(bookie_id, "127.0.0.1", 1, protocol=protocol)

    async def asked() -> list[bool]:
        bookies = Bookies(look_up, Channels(ClientConfig()), Framing(ClientConfig().apache_frame_bytes))
        questions = [
            ("gone", "apache"),
            ("apache", "ours"),
            ("other", "ours"),
            ("gone", "other"),
            ("ours", "gone"),
            ("apache", "ours"),
        ]
        return [await bookies.are_of_apache(one) for one in questions]

    assert asyncio.run(asked()) == [False, True, True, True, False, False]
    assert looked_up == ["gone", "apache", "other", "ours"]


def test_a_reset_behind_the_handshake_is_told_as_the_refusal_that_it_overtook(tmp_path: Path) -> None:
    made = local_tls(tmp_path / "tls")
    server_files, client_files = made.server, made.client
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server_files.certificate, server_files.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await reader.readexactly(struct.unpack(">I", await reader.readexactly(4))[0])
        writer.write(response(frame))
        await writer.start_tls(context)
        await reader.readexactly(1)  # the greeting is there
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def opened() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = BookieAddress("b1", "127.0.0.1", server.sockets[0].getsockname()[1], protocol=APACHE_PROTOCOL)
        contexts = ClientContexts(TlsSource(replace(client_files, certificate="", key="")))
        with pytest.raises(ConnectionError, match="takes only clients with a certificate, and none is given"):
            await open_version_3(address, LoginAccess(contexts))
        server.close()

    asyncio.run(opened())
