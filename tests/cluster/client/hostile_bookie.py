"""A bookie that answers whatever a test says, over real gRPC, and a client's connection to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent import futures
from typing import Any, TypeVar

import grpc

from bk_spark.client.driver.channels import Channels
from bk_spark.client.driver.connections import BookieConnection
from bk_spark.config import ClientConfig
from bk_spark.metadata.registration import BookieAddress
from bk_spark.proto.bookie_pb2_grpc import BookieServicer, add_BookieServicer_to_server

BOOKIE_ID = "hostile"
DEADLINE_S = 60.0

_Result = TypeVar("_Result")

Answer = Callable[[Any, Any], Any]


class HostileBookie(BookieServicer):
    """``answers`` has what each method does with its request and gRPC's context."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.sent = 0
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        add_BookieServicer_to_server(self, self._server)
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def close(self) -> None:
        self._server.stop(None).wait()

    def Add(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        return self._counted(self.answers["Add"](requests, context))

    def Read(self, request: Any, context: Any) -> Iterator[Any]:
        return self._counted(self.answers["Read"](request, context))

    def ReadLastAddConfirmed(self, request: Any, context: Any) -> Any:
        return self.answers["ReadLastAddConfirmed"](request, context)

    def Administer(self, request: Any, context: Any) -> Any:
        return self.answers["Administer"](request, context)

    def asked(self, ask: Callable[[BookieConnection], Coroutine[Any, Any, _Result]]) -> _Result:
        """What a client makes of it."""

        async def run() -> _Result:
            address = await self._look_up(BOOKIE_ID)
            connection = BookieConnection(BOOKIE_ID, self._look_up, Channels(ClientConfig()), address)
            try:
                async with asyncio.timeout(DEADLINE_S):
                    return await ask(connection)
            finally:
                await connection.close()

        return asyncio.run(run())

    async def _look_up(self, bookie_id: str) -> BookieAddress:
        return BookieAddress(bookie_id, "127.0.0.1", self._port)

    def _counted(self, replies: Iterator[Any]) -> Iterator[Any]:
        for reply in replies:
            self.sent += 1
            yield reply


async def drained(replies: AsyncIterator[Any]) -> list[Any]:
    return [reply async for reply in replies]
