"""A connection to an Apache bookie that speaks version 3, for what version 2 does not have."""

from __future__ import annotations

import asyncio
import itertools

from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache import version_3 as wire


class Version3(FramedConnection):
    """Answers that nobody waits for are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[int, asyncio.Future[pb.Response]] = {}
        self._numbers = itertools.count(1)

    async def ask(self, operation: pb.Operation, request: wire.Request, timeout_s: float) -> pb.Response:
        """Raises ConnectionError if the connection ends, TimeoutError if there is no answer in time."""
        if self.ended is not None:
            raise ConnectionError(self.ended)
        number = next(self._numbers)
        awaited: asyncio.Future[pb.Response] = asyncio.get_running_loop().create_future()
        self._waiting[number] = awaited
        self._write(wire.pack(operation, number, request))
        try:
            return await asyncio.wait_for(awaited, timeout_s)
        finally:
            self._waiting.pop(number, None)

    def _take_frame(self, frame: bytes) -> None:
        response = wire.unpack(frame)
        awaited = self._waiting.pop(response.header.txnId, None)
        if awaited is not None and not awaited.done():
            awaited.set_result(response)

    def _give_up(self, reason: str) -> None:
        waiting, self._waiting = list(self._waiting.values()), {}
        for awaited in waiting:
            if not awaited.done():
                awaited.set_exception(ConnectionError(reason))
