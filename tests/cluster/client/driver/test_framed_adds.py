"""Small adds as frames, to a bookie that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.client.driver.channels import Channels
from bk_spark.client.driver.connections import SMALL_BYTES, BookieConnection
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.config import ClientConfig, DigestType
from bk_spark.entries.batch import EncodedBatch, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.metadata.registration import ApachePort, BookieAddress
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire import frames
from bk_spark.wire.apache import version_3_server
from bk_spark.wire.messages import AddReply, AddRequest, Status

BOOKIE_ID = "b1"
KEY = master_key(b"")
DEADLINE_S = 60.0
NOBODY = 1
"""A port where nothing listens."""

Play = Callable[["PlayedBookie", AddRequest], Awaitable[None]]


def batch(entry_id: int, size: int = 10) -> EncodedBatch:
    digester = Digester(DigestType.CRC32C, b"")
    payloads = pa.array([bytes(size)], pa.binary())
    encoded = encode(seal(digester, 7, entry_id, payloads, length_before=0, last_add_confirmed=-1), DigestType.CRC32C)
    assert encoded is not None
    return encoded


class PlayedBookie:
    """Greets like a bookie's second port, then does with each add what ``play`` says."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.adds: list[AddRequest] = []
        self.connections = 0
        self.writer: Any = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.connections += 1
        try:
            while True:
                size = await reader.readexactly(4)
                frame = size + await reader.readexactly(int.from_bytes(size))
                view = memoryview(frame)
                if not frames.is_frame(view, 0, len(frame)):
                    request = version_3_server.unpack(view[4:])
                    assert request is not None
                    answer = pb.AuthMessage(authPluginName="AuthDisabledPlugin", payload=b"")
                    writer.write(version_3_server.pack(request.header, Status.OK, answer))
                    continue
                _, add = frames.unpack_add(view, 0, len(frame), BOOKIE_ID)
                assert isinstance(add, AddRequest)
                self.adds.append(add)
                await self._play(self, add)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def reply(self, number: int, status: Status, detail: str = "", boot: int = 5) -> None:
        self.writer.write(frames.pack_reply(AddReply(0, status, detail, boot), number))


def played(
    play: Play,
    test: Callable[[PlayedBookie, BookieConnection], Awaitable[None]],
    *,
    asks_sasl: bool = False,
    config: ClientConfig | None = None,
) -> PlayedBookie:
    bookie = PlayedBookie(play)

    async def run() -> None:
        server = await asyncio.start_server(bookie.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        address = BookieAddress(BOOKIE_ID, "127.0.0.1", NOBODY, apache=ApachePort(port, asks_sasl=asks_sasl))

        async def lookup(bookie_id: str) -> BookieAddress:
            return address

        connection = BookieConnection(BOOKIE_ID, lookup, Channels(config or ClientConfig()), address)
        async with asyncio.timeout(DEADLINE_S):
            await test(bookie, connection)
            await connection.close()
        server.close()

    asyncio.run(run())
    return bookie


def send(connection: BookieConnection, entry_id: int, size: int = 10) -> asyncio.Future[AddReply]:
    told: asyncio.Future[AddReply] = asyncio.get_running_loop().create_future()
    request = AddRequest(100 + entry_id, BOOKIE_ID, KEY, batch(entry_id, size))
    connection.enqueue(QueuedAdd(request.request_id, request, told.set_result))
    return told


async def ok(bookie: PlayedBookie, add: AddRequest) -> None:
    bookie.reply(add.request_id, Status.OK)


def test_adds_go_over_one_connection_and_each_gets_its_own_reply() -> None:
    async def test(bookie: PlayedBookie, connection: BookieConnection) -> None:
        found = await asyncio.gather(*(send(connection, entry_id) for entry_id in range(50)))
        assert found == [AddReply(100 + entry_id, Status.OK, boot=5) for entry_id in range(50)]

    bookie = played(ok, test)
    assert bookie.connections == 1
    assert [add.batch.header.first_entry_id for add in bookie.adds] == list(range(50))


def test_a_large_add_goes_another_way() -> None:
    async def test(bookie: PlayedBookie, connection: BookieConnection) -> None:
        assert (await send(connection, 0)).status is Status.OK
        assert (await send(connection, 1, SMALL_BYTES)).status is Status.UNKNOWN  # nobody listens there

    assert len(played(ok, test).adds) == 1


def test_where_the_port_asks_for_sasl_a_client_without_a_credential_sends_small_adds_another_way() -> None:
    async def test(bookie: PlayedBookie, connection: BookieConnection) -> None:
        assert (await send(connection, 0)).status is Status.UNKNOWN  # nobody listens there

    assert played(ok, test, asks_sasl=True).connections == 0


def test_where_the_port_does_not_ask_a_credential_is_not_used() -> None:
    pytest.importorskip("puresasl")

    async def test(bookie: PlayedBookie, connection: BookieConnection) -> None:
        assert (await send(connection, 0)).status is Status.OK

    played(ok, test, config=ClientConfig(bookie_auth="sasl:ann:s3cret"))


def test_when_the_connection_breaks_what_waits_is_unknown_and_the_next_add_opens_another() -> None:
    async def break_off_first(bookie: PlayedBookie, add: AddRequest) -> None:
        if bookie.connections == 1:
            bookie.writer.close()
        else:
            await ok(bookie, add)

    async def test(bookie: PlayedBookie, connection: BookieConnection) -> None:
        assert (await send(connection, 0)).status is Status.UNKNOWN
        assert (await send(connection, 1)).status is Status.OK

    assert played(break_off_first, test).connections == 2


def test_replies_that_nobody_waits_for_and_second_replies_change_nothing() -> None:
    async def many(bookie: PlayedBookie, add: AddRequest) -> None:
        for number in (0, 99, 2**64 - 1, add.request_id, add.request_id):
            bookie.reply(number, Status.FENCED, "\x1b[2Jno")

    async def test(bookie: PlayedBookie, connection: BookieConnection) -> None:
        for entry_id in range(3):
            reply = await send(connection, entry_id)
            assert (reply.status, reply.detail) == (Status.FENCED, "\N{REPLACEMENT CHARACTER}[2Jno")

    played(many, test)


def test_another_bookie_at_the_address_ends_the_connection_and_is_looked_up_again() -> None:
    async def wrong_first(bookie: PlayedBookie, add: AddRequest) -> None:
        bookie.reply(add.request_id, Status.WRONG_BOOKIE if bookie.connections == 1 else Status.OK)

    async def test(bookie: PlayedBookie, connection: BookieConnection) -> None:
        assert (await send(connection, 0)).status is Status.WRONG_BOOKIE
        assert (await send(connection, 1)).status is Status.OK

    assert played(wrong_first, test).connections == 2


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\0\0\0\1x", b"\0\0\0\0"])
def test_what_is_no_reply_ends_the_connection(garbage: bytes) -> None:
    async def spoil(bookie: PlayedBookie, add: AddRequest) -> None:
        bookie.writer.write(garbage)

    async def test(bookie: PlayedBookie, connection: BookieConnection) -> None:
        assert (await send(connection, 0)).status is Status.UNKNOWN

    played(spoil, test)


def test_an_add_that_was_cancelled_is_not_sent() -> None:
    async def test(bookie: PlayedBookie, connection: BookieConnection) -> None:
        told: asyncio.Future[AddReply] = asyncio.get_running_loop().create_future()
        queued = QueuedAdd(1, AddRequest(1, BOOKIE_ID, KEY, batch(0)), told.set_result)
        connection.enqueue(queued)
        queued.cancel()
        assert (await told).status is Status.UNKNOWN
        assert (await send(connection, 1)).status is Status.OK

    assert len(played(ok, test).adds) == 1


def test_closing_answers_what_the_bookie_never_answers() -> None:
    async def silent(bookie: PlayedBookie, add: AddRequest) -> None:
        pass

    waiting: list[asyncio.Future[AddReply]] = []

    async def test(bookie: PlayedBookie, connection: BookieConnection) -> None:
        waiting.append(send(connection, 0))

    played(silent, test)
    assert waiting[0].result().detail == "the client was closed"
