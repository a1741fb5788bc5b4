"""Who watches what clients make a bookie hold looks while there are clients. Ref: docs/guide/limits.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from bk_spark.bookie.server import open_calls
from bk_spark.bookie.server.apache import listener
from bk_spark.bookie.server.apache.connection import Connection
from bk_spark.bookie.server.apache.listener import ApacheListener, Bounds, Security
from bk_spark.bookie.server.apache.steps import Steps
from bk_spark.bookie.server.apache.turns import Turns
from bk_spark.bookie.server.audit import Audit
from bk_spark.bookie.server.open_calls import OpenCalls
from bk_spark.bookie.server.requests import Requests
from bk_spark.bookie.server.waiting_adds import WaitingAdds
from bk_spark.config import MIB, BookieConfig
from tests.unit.bookie.server import test_connection

TURNS = 50


class Socket(test_connection.Socket):
    def get_write_buffer_size(self) -> int:
        return 0


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One more for each look at the memory, which comes with each look at the clients. There is no pause between two."""
    seen: list[int] = []

    def resident_bytes() -> int:
        seen.append(1)
        return 0

    for module in (open_calls, listener):
        monkeypatch.setattr(module, "LOOK_S", 0.0)
        monkeypatch.setattr(module, "resident_bytes", resident_bytes)
    return seen


async def turn() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def check(looks: list[int], begin: Callable[[], Any], end: Callable[[], Any]) -> None:
    """It looks from the beginning of a client on, once or more after its end, and not before and later."""
    await turn()
    assert not looks
    for _ in range(2):
        begin()
        await turn()
        assert len(looks) > 2
        end()
        await turn()
        looks.clear()
        await turn()
        assert not looks


def test_open_calls_are_looked_at_while_there_are_any(looks: list[int]) -> None:
    async def main() -> None:
        calls = OpenCalls(BookieConfig(), WaitingAdds(MIB), cast(Audit, None))
        watching = asyncio.ensure_future(calls.watch())
        ended = asyncio.Event()

        async def serve(_: AsyncIterator[Any], __: Any) -> None:
            pass

        async def handler(_: Any) -> Any:
            return grpc.stream_stream_rpc_method_handler(serve)

        async def call() -> None:
            await calls.intercept_service(handler, None)
            await ended.wait()

        def begin() -> None:
            ended.clear()
            tasks.append(asyncio.ensure_future(call()))

        tasks: list[asyncio.Future[None]] = []
        await check(looks, begin, ended.set)
        watching.cancel()

    asyncio.run(main())


def test_connections_of_apache_s_clients_are_looked_at_while_there_are_any(looks: list[int]) -> None:
    async def main() -> None:
        bookie = SimpleNamespace(bookie_id="b1", storage=None, admission=None)
        bounds = Bounds(connections=10, memory_bytes=MIB, waiting_adds=WaitingAdds(MIB), frame_bytes=MIB)
        requests = cast(Requests, SimpleNamespace(audit=None, members=None, bookie=bookie))
        served = ApacheListener(requests, bounds, Security(contexts=None, clear_clients=True))
        await served.start("127.0.0.1", 0)
        connections: list[Connection] = []

        def begin() -> None:
            connections.append(Connection(served, Steps(), Turns()))
            connections[-1].connection_made(Socket())

        await check(looks, begin, lambda: connections[-1].connection_lost(None))
        served.stop()

    asyncio.run(main())
