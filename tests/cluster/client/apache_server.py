"""A server of Apache's protocol that greets as Apache's bookies do, and then answers what a test says."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bk_spark.client.driver.apache.bookie import ApacheBookie
from bk_spark.client.driver.apache.framing import Framing
from bk_spark.client.driver.apache.login_access import LoginAccess
from bk_spark.metadata.registration import APACHE_PROTOCOL, BookieAddress
from bk_spark.proto import apache_wire_pb2 as pb

Answers = Callable[[bytes], Awaitable[list[bytes]]]
"""What to send for a frame, without its size: frames as they are. An asyncio.CancelledError ends the connection."""


def framed(message: bytes) -> bytes:
    return struct.pack(">I", len(message)) + message


def response(request: bytes, status: int = 0, **answer: object) -> bytes:
    """Of version 3, as a frame."""
    header = pb.Request.FromString(request).header
    return framed(pb.Response(header=header, status=status, **answer).SerializeToString())


def is_version_3(frame: bytes) -> bool:
    return frame[0] != 2


Authenticate = Callable[[bytes], list[bytes]]
"""What to send for a frame with a message of AUTH. An asyncio.CancelledError ends the connection."""


def needs_nothing(frame: bytes) -> list[bytes]:
    """Clients need not authenticate."""
    return [response(frame)]


def asks(frame: bytes) -> list[bytes]:
    """Clients must authenticate, and cannot."""
    return [response(frame, 502)]


@asynccontextmanager
async def apache_server(answers: Answers, authenticate: Authenticate = needs_nothing) -> AsyncIterator[BookieAddress]:
    """Serves as long as the context lasts."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(struct.unpack(">I", await reader.readexactly(4))[0])
                if is_version_3(frame) and pb.Request.FromString(frame).HasField("authRequest"):
                    writer.writelines(authenticate(frame))
                    continue
                for one in await answers(frame):
                    writer.write(one)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        yield BookieAddress("b1", host, port, protocol=APACHE_PROTOCOL)
    finally:
        server.close()


@asynccontextmanager
async def apache_bookie(
    answers: Answers, authenticate: Authenticate = needs_nothing, access: LoginAccess | None = None
) -> AsyncIterator[ApacheBookie]:
    """What a client has of such a bookie."""
    async with apache_server(answers, authenticate) as address:

        async def look_up(_: str) -> BookieAddress:
            return address

        bookie = ApacheBookie(address.bookie_id, look_up, access or LoginAccess(), Framing())
        try:
            yield bookie
        finally:
            await bookie.close()
