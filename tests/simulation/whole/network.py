"""What the shipped drivers have instead of sockets: connections with frames, and gRPC's channels, over the run's messages.

Everything above is shipped code: it frames and unframes adds, encodes and decodes protobuf messages, connects and connects
again. A connection that breaks ends as the system or gRPC would end it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from bk_spark.client.driver.channels import Channels
from bk_spark.client.driver.framed_adds import AddConnection
from bk_spark.metadata.registration import ApachePort, BookieAddress
from bk_spark.wire import codec
from bk_spark.wire.frames import pack_reply, unpack_add
from bk_spark.wire.messages import AddReply, AddRequest
from tests.simulation.whole.loop import SimulatedLoop, answer_to, loop_of_process
from tests.simulation.world.client_process import ClientProcess
from tests.simulation.world.messages import Broken, ReadAnswer
from tests.simulation.world.world import World

CONNECT_S = 5.0
"""How long a connection over a link that is split is tried for: STEP_S of connecting.py."""

SIZE_BYTES = 4

WRONG_PERCENT = 4
"""Of look-ups that find the address of a bookie that is gone, and another one there."""

KEPT_S = 60
"""How long nothing may come from a bookie before the system asks whether it is there."""

MOVED_PERCENT = 40
"""Of starts of a bookie that has another port then."""

GIVEN_PERCENT = 50
"""Of calls of a port where its bookie does not listen any more, and another one does."""

CUT_PERCENT, REST_S = 10, 0.005
"""Of frames of which a part arrives later."""

GARBLED_PERCENT = 1
"""Of frames with a flipped byte in their size."""

FULL_PERCENT, FULL_S = 3, 0.2
"""Of writes after which the socket takes no more for a while."""

_UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "ReadLastAddConfirmed": (codec.decode_last_add_confirmed_request, codec.encode_last_add_confirmed_reply),
    "StoreLastAddConfirmed": (codec.decode_store_last_add_confirmed_request, codec.encode_store_last_add_confirmed_reply),
    "Force": (codec.decode_force_request, codec.encode_force_reply),
}
"""How a bookie decodes a request and encodes the reply."""


class Ports:
    """At which ports bookies listen. One that starts again sometimes has another one."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, int]] = {}
        """Of each bookie its process, and its port."""

    def of(self, world: World, bookie_id: str) -> int:
        running = world.actors[bookie_id]._process  # type: ignore[attr-defined]
        before, port = self._known.get(bookie_id, (running, 1))
        if running is not None and running is not before:
            port += world.choices.chance(MOVED_PERCENT, "it has another port")
            before = running
        self._known[bookie_id] = before, port
        return port


def address_of(world: World, bookie_id: str, host: str = "") -> BookieAddress:
    """``host`` is the bookie that answers there: another one, if its registration is of before."""
    port = world.driver.ports.of(world, host or bookie_id)
    rack = f"rack{int(bookie_id.strip('b')) % world.driver.racks}"
    return BookieAddress(bookie_id, host or bookie_id, port, rack, apache=ApachePort(port, False))


def looked_up_address(world: World, bookie_id: str) -> BookieAddress:
    """A registration outlives its bookie, and in few cases names no port for small adds, as that of an older version does."""
    if world.is_calm:
        return address_of(world, bookie_id)
    if world.choices.chance(WRONG_PERCENT, "another bookie is there"):
        world.count("bookies at others' addresses")
        return address_of(world, bookie_id, world.choices.pick(world.available(), "which"))
    address = address_of(world, bookie_id)
    return replace(address, apache=None) if world.choices.chance(WRONG_PERCENT, "no port for small adds") else address


def listener_at(process: ClientProcess, address: BookieAddress) -> str:
    """The bookie that listens at an address: another one, if the port was given out anew. Raises ConnectionRefusedError."""
    world = process.world
    if world.driver.ports.of(world, address.host) == address.port:
        return address.host
    others = [one for one in world.available() if one != address.host]
    if others and not world.is_calm and world.choices.chance(GIVEN_PERCENT, "its port was given out anew"):
        world.count("ports that were given out anew")
        return world.choices.pick(others, "which")
    raise ConnectionRefusedError("nobody listens there")


async def open_connection(address: BookieAddress, access: object, connection: AddConnection) -> AddConnection:
    """In place of connecting.open_framed."""
    loop = loop_of_process()
    bookie_id = listener_at(loop.process, address)
    if loop.process.world.is_split(loop.process.name, bookie_id):
        await asyncio.sleep(CONNECT_S)
        raise ConnectionError(f"the bookie at {address.host} did not answer within {CONNECT_S:g} s")
    if not loop.process.world.actors[bookie_id].is_up:  # type: ignore[attr-defined]
        raise ConnectionRefusedError("nobody listens there")
    transport = FramedTransport(loop, bookie_id, connection)
    connection.connection_made(transport)
    assert transport.get_extra_info("socket").is_kept_alive, "a bookie that vanished would be waited for for ever"
    return connection


class _Socket:
    """As much of a socket as a connection asks for."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self.options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self.options[level, name] = value

    @property
    def is_kept_alive(self) -> bool:
        idle = self.options.get((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 0)
        return bool(self.options.get((socket.SOL_SOCKET, socket.SO_KEEPALIVE))) and 0 < idle <= KEPT_S


class FramedTransport(asyncio.Transport):
    """One connection for small adds. What arrives is cut anywhere, and now and then the socket takes no more for a moment."""

    def __init__(self, loop: SimulatedLoop, bookie_id: str, connection: AddConnection) -> None:
        super().__init__({"socket": _Socket()})
        self._loop = loop
        self._bookie_id = bookie_id
        self._connection = connection
        self._unsent = b""
        self._arrived = b""
        """What the connection was not given yet."""
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
        if self._chance(FULL_PERCENT, "the socket takes no more"):
            self._connection.pause_writing()
            self._loop.call_later(FULL_S, self._connection.resume_writing)

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
        if self._chance(GARBLED_PERCENT, "garbled frame"):
            self._loop.process.world.count("garbled frames")
            frame = bytes([0xFF]) + frame[1:]
        self._arrived += frame
        if self._chance(CUT_PERCENT, "only a part arrives"):
            self._give(self._loop.process.world.choices.choose(len(self._arrived), "bytes"))
            self._loop.call_later(REST_S, self._give_all)
        else:
            self._give_all()

    def _give_all(self) -> None:
        self._give(len(self._arrived))

    def _give(self, count: int) -> None:
        given, self._arrived = self._arrived[:count], self._arrived[count:]
        if given and not self._is_closed:
            self._connection.data_received(given)

    def _chance(self, percent: int, label: str) -> bool:
        world = self._loop.process.world
        return not world.is_calm and world.choices.chance(percent, label)

    def _lost(self, why: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.connection_lost(ConnectionResetError(why))


class SimulatedChannels(Channels):
    def open(self, address: BookieAddress, content: object) -> Any:
        return SimulatedChannel(address)


class SimulatedChannel:
    """As much of a grpc.aio.Channel as clients use."""

    def __init__(self, address: BookieAddress) -> None:
        self._address = address
        self._has_failed = False

    def get_state(self) -> grpc.ChannelConnectivity:
        return grpc.ChannelConnectivity.TRANSIENT_FAILURE if self._has_failed else grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        """There is nothing to close."""

    def unary_unary(self, path: str, **serializers: object) -> Callable[..., Awaitable[Any]]:
        async def call(message: Any, timeout: float | None = None) -> Any:
            decode, encode = _UNARY[path.rsplit("/", 1)[1]]
            return encode(await self._asked(decode(message), timeout))

        return call

    def unary_stream(self, path: str, **serializers: object) -> Callable[[Any], _ReadCall]:
        return lambda message: _ReadCall(self._asked(codec.decode_read_request(message), None))

    def stream_stream(self, path: str, **serializers: object) -> Callable[[], _AddStream]:
        return lambda: _AddStream(self._listener())

    async def _asked(self, request: Any, timeout_s: float | None) -> Any:
        try:
            answer = await answer_to(self._listener(), request, timeout_s)
        except TimeoutError:
            raise _failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        self._has_failed = isinstance(answer, Broken)
        if isinstance(answer, Broken):
            raise _failed(grpc.StatusCode.UNAVAILABLE, answer.detail)
        return answer

    def _listener(self) -> str:
        try:
            return listener_at(loop_of_process().process, self._address)
        except ConnectionRefusedError as refused:
            self._has_failed = True
            raise _failed(grpc.StatusCode.UNAVAILABLE, str(refused)) from None


class _ReadCall:
    """As much of a grpc.aio call as reads use."""

    def __init__(self, asked: Coroutine[Any, Any, Any]) -> None:
        self._answer = asyncio.ensure_future(asked)
        self._replies: Iterator[Any] | None = None

    async def read(self) -> Any:
        if self._replies is None:
            answer = await self._answer
            self._replies = iter(answer.replies if isinstance(answer, ReadAnswer) else ())
        reply = next(self._replies, None)
        return grpc.aio.EOF if reply is None else codec.encode_read_reply(reply)

    def cancel(self) -> None:
        self._answer.cancel()


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
        if self._loop.process.world.choices.chance(30, "its bookie ends the stream"):
            return grpc.aio.EOF
        raise _failed(grpc.StatusCode.UNAVAILABLE, answer.detail if isinstance(answer, Broken) else "no answer")

    async def details(self) -> str:
        return "it stops"

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
