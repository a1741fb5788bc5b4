"""A TCP connection that carries frames, each behind its size: what both versions of Apache's protocol have in common.

Runs on the event loop. A frame that is too long, or not what it should be, ends the connection, and so does its bookie.
"""

from __future__ import annotations

import asyncio
import socket
from abc import abstractmethod
from typing import Generic, TypeVar

from bk_spark.errors import CorruptionError
from bk_spark.wire.messages import MAX_MESSAGE_BYTES

SIZE_BYTES = 4

_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 20_000}
"""A machine that vanished ends no connection. After 10 s of silence the system asks whether it is there, and 20 s after its
last sign, also while something waits to be sent, it ends the connection. gRPC does the same for our bookies."""

T = TypeVar("T")


class FramedConnection(asyncio.Protocol, Generic[T]):
    """Answers have the numbers of their requests, and are a ``T``.

    Once it has ended everything that waits has got the reason, and nothing more is sent.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[T]] = {}
        """By the number of the request. One that was cancelled is not here any more, answered or not."""
        self.ended: str | None = None
        """Why it has ended; None while it has not."""
        self.cause: Exception | None = None
        """What the transport said when it ended."""
        self._transport: asyncio.Transport | None = None
        self._may_write = asyncio.Event()
        self._chunks: list[bytes] = []
        self._received = 0
        self._needed = SIZE_BYTES
        """So many bytes make the next frame complete, or its size."""

    async def room(self) -> None:
        """Wait until the socket takes more, so that what a bookie that stands still is sent stays bounded; or for the end."""
        await self._may_write.wait()

    def close(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    @property
    def has_begun_frame(self) -> bool:
        """Whether a part of a frame has arrived."""
        return bool(self._received)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Also called when the connection goes on over another transport: TLS."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        _give_up_when_silent(transport.get_extra_info("socket"))
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.cause = exc
        self._end(str(exc) if exc is not None else "the bookie closed the connection")

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._received += len(data)
        if self._received < self._needed or self.ended is not None:
            return
        received = b"".join(self._chunks)
        try:
            at = self._take(received)
        except CorruptionError as problem:
            self.close(str(problem))
            return
        self._chunks, self._received = [received[at:]] if at < len(received) else [], len(received) - at

    def _take(self, received: bytes) -> int:
        """Take in all complete frames; returns where the first incomplete one begins."""
        at, view = 0, memoryview(received)
        while True:
            at += self._take_many(view[at:])
            self._needed = SIZE_BYTES
            if len(received) - at < SIZE_BYTES:
                return at
            size = int.from_bytes(view[at : at + SIZE_BYTES])
            if size > MAX_MESSAGE_BYTES:
                raise CorruptionError("an answer of a bookie", f"a frame of {size} bytes, {MAX_MESSAGE_BYTES} are the most")
            end = at + SIZE_BYTES + size
            if end > len(received):
                self._needed = end - at
                return at
            self._take_frame(received[at + SIZE_BYTES : end])
            at = end

    async def _answer(self, number: int, frame: bytes) -> T:
        """Send a request and wait for its answer. Raises ConnectionError if the connection ends."""
        await self.room()
        if self.ended is not None:
            raise ConnectionError(self.ended)
        awaited: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[number] = awaited
        self._write(frame)
        try:
            return await awaited
        finally:
            self._waiting.pop(number, None)

    def _answered(self, number: int, answer: T) -> None:
        awaited = self._waiting.get(number)
        if awaited is not None and not awaited.done():
            awaited.set_result(answer)

    def _write(self, data: bytes) -> None:
        self.transport.write(data)

    def _end(self, reason: str) -> None:
        if self.ended is None:
            self.ended = reason
            self._may_write.set()
            self._chunks.clear()
            for awaited in self._waiting.values():
                if not awaited.done():
                    awaited.set_exception(ConnectionError(reason))
            self._give_up(reason)

    def _take_many(self, received: memoryview) -> int:
        """Take in frames at the beginning that are quicker to take together; returns their bytes."""
        return 0

    @abstractmethod
    def _take_frame(self, frame: bytes) -> None:
        """Take in a frame, without its size. Raises CorruptionError."""

    def _give_up(self, reason: str) -> None:
        """Tell what waits for something else than an answer with a number that the connection has ended."""


def _give_up_when_silent(connection: socket.socket | None) -> None:
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not each system has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
