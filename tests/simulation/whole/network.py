"""What the shipped drivers have instead of sockets: connections with frames, and gRPC's channels, over the run's messages.

Everything above is shipped code: it frames and unframes adds, encodes and decodes protobuf messages, connects and connects
again. A connection that breaks ends as the system or gRPC would end it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from bk_spark.client.driver.channels import Channels
from bk_spark.client.driver.framed_adds import AddConnection
from bk_spark.config import ClientConfig
from bk_spark.metadata.registration import ApachePort, BookieAddress
from bk_spark.wire import codec
from bk_spark.wire.frames import pack_reply, unpack_add
from bk_spark.wire.messages import AddReply, AddRequest
from tests.simulation.whole.loop import SimulatedLoop, answer_to, loop_of_process
from tests.simulation.world.messages import Broken, ReadAnswer

CONNECT_S = 5.0
"""How long a connection over a link that is split is tried for: STEP_S of connecting.py."""

SIZE_BYTES = 4

_UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "ReadLastAddConfirmed": (codec.decode_last_add_confirmed_request, codec.encode_last_add_confirmed_reply),
    "StoreLastAddConfirmed": (codec.decode_store_last_add_confirmed_request, codec.encode_store_last_add_confirmed_reply),
    "Force": (codec.decode_force_request, codec.encode_force_reply),
}
"""How a bookie decodes a request and encodes the reply."""


def address_of(bookie_id: str, host: str = "") -> BookieAddress:
    """``host`` is the bookie that answers there: another one, if a port was given out anew."""
    return BookieAddress(bookie_id, host or bookie_id, 1, apache=ApachePort(2, False))


async def open_connection(address: BookieAddress, contexts: object, connection: AddConnection) -> AddConnection:
    """In place of connecting.open_framed."""
    loop = loop_of_process()
    process, bookie = loop.process, loop.process.world.actors[address.host]
    if process.world.is_split(process.name, address.host):
        await asyncio.sleep(CONNECT_S)
        raise ConnectionError(f"the bookie at {address.host} did not answer within {CONNECT_S:g} s")
    if not bookie.is_up:
        raise ConnectionRefusedError("nobody listens there")
    connection.connection_made(FramedTransport(loop, address.host, connection))
    return connection


class FramedTransport(asyncio.Transport):
    """One connection for small adds."""

    def __init__(self, loop: SimulatedLoop, bookie_id: str, connection: AddConnection) -> None:
        super().__init__()
        self._loop = loop
        self._bookie_id = bookie_id
        self._connection = connection
        self._unsent = b""
        self._is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        data = memoryview(self._unsent + bytes(data))
        at = 0
        while len(data) - at >= SIZE_BYTES:
            end = at + SIZE_BYTES + int.from_bytes(data[at : at + SIZE_BYTES])
            if end > len(data):
                break
            self._send(*unpack_add(data, at, end, self._bookie_id))
            at = end
        self._unsent = bytes(data[at:])

    def abort(self) -> None:
        self._is_closed = True

    def is_closing(self) -> bool:
        return self._is_closed

    def _send(self, number: int, add: AddRequest | AddReply) -> None:
        if isinstance(add, AddReply):  # it is for another bookie
            self._answered(number, add)
        elif not self._is_closed:
            request = replace(add, request_id=number)
            note_sent(self._loop, self._bookie_id, request)
            self._loop.process.call(self._bookie_id, request, lambda answer: self._answered(number, answer))

    def _answered(self, number: int, answer: object) -> None:
        if isinstance(answer, AddReply):
            self._loop.call_soon(self._received, pack_reply(answer, number))
        else:
            self._loop.call_soon(self._lost, answer.detail if isinstance(answer, Broken) else "no answer")

    def _received(self, frame: bytes) -> None:
        if not self._is_closed:
            self._connection.data_received(frame)

    def _lost(self, why: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.connection_lost(ConnectionResetError(why))


class SimulatedChannels(Channels):
    def __init__(self) -> None:
        super().__init__(ClientConfig())

    def open(self, address: BookieAddress, content: object) -> Any:
        return SimulatedChannel(address.host)


class SimulatedChannel:
    """As much of a grpc.aio.Channel as clients use."""

    def __init__(self, bookie_id: str) -> None:
        self._bookie_id = bookie_id

    def get_state(self) -> grpc.ChannelConnectivity:
        return grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        """There is nothing to close."""

    def unary_unary(self, path: str, **serializers: object) -> Callable[..., Awaitable[Any]]:
        async def call(message: Any, timeout: float | None = None) -> Any:
            decode, encode = _UNARY[path.rsplit("/", 1)[1]]
            return encode(await self._asked(decode(message), timeout))

        return call

    def unary_stream(self, path: str, **serializers: object) -> Callable[[Any], AsyncIterator[bytes]]:
        async def call(message: Any) -> AsyncIterator[bytes]:
            answer = await self._asked(codec.decode_read_request(message), None)
            for reply in answer.replies if isinstance(answer, ReadAnswer) else ():
                yield codec.encode_read_reply(reply)

        return call

    def stream_stream(self, path: str, **serializers: object) -> Callable[[], _AddStream]:
        return lambda: _AddStream(self._bookie_id)

    async def _asked(self, request: Any, timeout_s: float | None) -> Any:
        try:
            answer = await answer_to(self._bookie_id, request, timeout_s)
        except TimeoutError:
            raise _failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        if isinstance(answer, Broken):
            raise _failed(grpc.StatusCode.UNAVAILABLE, answer.detail)
        return answer


class _AddStream:
    """As much of a grpc.aio call as the stream of large adds uses."""

    def __init__(self, bookie_id: str) -> None:
        self._bookie_id = bookie_id
        self._loop = loop_of_process()
        self._replies: asyncio.Queue[Any] = asyncio.Queue()
        self._is_cancelled = False

    async def write(self, data: bytes) -> None:
        request = codec.decode_add_request(*codec.unpack_add_request(data))
        note_sent(self._loop, self._bookie_id, request)
        self._loop.process.call(self._bookie_id, request, self._answered)

    async def read(self) -> Any:
        answer = await self._replies.get()
        if isinstance(answer, AddReply):
            return codec.encode_add_reply(answer)
        raise _failed(grpc.StatusCode.UNAVAILABLE, answer.detail if isinstance(answer, Broken) else "no answer")

    def cancel(self) -> None:
        self._is_cancelled = True

    def _answered(self, answer: object) -> None:
        if not self._is_cancelled:
            self._loop.call_soon(self._replies.put_nowait, answer)


def note_sent(loop: SimulatedLoop, bookie_id: str, request: AddRequest) -> None:
    header = request.batch.header
    sent = header.pattern.ids(header.first_entry_id, header.last_entry_id)
    loop.sent.setdefault(bookie_id, set()).update(sent.tolist())


def _failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
