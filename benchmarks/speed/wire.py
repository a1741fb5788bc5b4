"""What the wire allows: grpcio moving the same bytes to as many servers as there are replicas, acks back, and no disk.

Servers and client are processes of their own, with the channel options of the product; messages are bytes as they are, without
protobuf. Whatever moves entries over grpcio pays at least this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from multiprocessing.connection import Connection
from typing import Any

import grpc
import grpc.aio

from benchmarks.speed.measure import Sample
from benchmarks.speed.processes import SPAWN, Workers
from bk_spark.bookie.server.options import server_options
from bk_spark.client.driver.channels import CHANNEL_OPTIONS
from bk_spark.config import BookieConfig, ClientConfig

SERVICE = "Ceiling"
ACK = b"acknowledged"
READ_AHEAD = 2
"""Pieces that are asked for at a time: one travels while the other one is taken."""
WINDOW_BYTES = ClientConfig().add_window_bytes


class Wire:
    """Servers, and a client that is a process of its own. Close it, or use it in a ``with`` statement."""

    def __init__(self, servers: int = 3) -> None:
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(servers):
            ours, theirs = SPAWN.Pipe()
            self._processes.append(SPAWN.Process(target=_serve, args=(theirs,), daemon=True))
            self._processes[-1].start()
            theirs.close()
            self._pipes.append(ours)
        self._ports: list[int] = [pipe.recv() for pipe in self._pipes]
        self._client = Workers(1)

    def move(self, user_bytes: int, piece_bytes: int, copies_each: float = 1.0) -> Sample:
        """Each server is sent ``copies_each`` of the user's bytes and acks every piece; a window is on its way."""
        pieces = max(1, round(user_bytes * copies_each / piece_bytes))
        (seconds,) = self._client.run(_moving, self._ports, pieces, piece_bytes)
        return Sample(seconds, pieces, user_bytes)

    def fetch(self, user_bytes: int, piece_bytes: int) -> Sample:
        """The first server sends the user's bytes, in as many requests as a reader has under way."""
        pieces = max(1, user_bytes // piece_bytes)
        (seconds,) = self._client.run(_fetching, self._ports, pieces, piece_bytes)
        return Sample(seconds, pieces, user_bytes)

    def close(self) -> None:
        self._client.close()
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- a server, in a process of its own


def _serve(pipe: Connection) -> None:
    asyncio.run(_serve_until_closed(pipe))


async def _serve_until_closed(pipe: Connection) -> None:
    server = grpc.aio.server(options=server_options(BookieConfig().max_connections))
    handlers = {
        "move": grpc.stream_stream_rpc_method_handler(_take),
        "fetch": grpc.unary_unary_rpc_method_handler(_give),
        "ask": grpc.unary_unary_rpc_method_handler(_answer),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    pipe.send(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await asyncio.to_thread(pipe.poll, None)
    await server.stop(0)


async def _take(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
    async for _piece in requests:
        yield ACK


_PIECES: dict[int, bytes] = {}


async def _give(request: bytes, _: object) -> bytes:
    size = int(request)
    return _PIECES.setdefault(size, bytes(size))


async def _answer(_request: bytes, _: object) -> bytes:
    return ACK


# --- the client, in a process of its own


class _Calls:
    """Channels that are open, and the loop that they live on."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._runner = asyncio.Runner()
        self.channels = self._runner.run(self._open(ports))

    async def _open(self, ports: Sequence[int]) -> list[Any]:
        channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) for port in ports]
        for channel in channels:
            await channel.unary_unary(f"/{SERVICE}/ask")(b"")
        return channels

    def timed(self, work: Callable[[list[Any]], Coroutine[Any, Any, Any]]) -> Callable[[], Any]:
        def run() -> Any:
            try:
                return self._runner.run(work(self.channels))
            finally:
                self._runner.run(self._close())
                self._runner.close()

        return run

    async def _close(self) -> None:
        for channel in self.channels:
            await channel.close()


def _moving(_: int, ports: Sequence[int], pieces: int, piece_bytes: int) -> Callable[[], Any]:
    piece = bytes(piece_bytes)

    async def work(channels: list[Any]) -> float:
        start = time.perf_counter()
        await asyncio.gather(*(_send(channel, pieces, piece) for channel in channels))
        return time.perf_counter() - start

    return _Calls(ports).timed(work)


async def _send(channel: Any, pieces: int, piece: bytes) -> None:
    call = channel.stream_stream(f"/{SERVICE}/move")()
    room = asyncio.Semaphore(max(1, WINDOW_BYTES // len(piece)))

    async def read() -> None:
        for _ in range(pieces):
            await call.read()
            room.release()

    acks = asyncio.create_task(read())
    for _ in range(pieces):
        await room.acquire()
        await call.write(piece)
    await acks
    await call.done_writing()


def _fetching(_: int, ports: Sequence[int], pieces: int, piece_bytes: int) -> Callable[[], Any]:
    async def work(channels: list[Any]) -> float:
        fetch, left = channels[0].unary_unary(f"/{SERVICE}/fetch"), iter(range(pieces))

        async def caller() -> None:
            for _ in left:
                await fetch(b"%d" % piece_bytes)

        start = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(READ_AHEAD)))
        return time.perf_counter() - start

    return _Calls(ports).timed(work)
