"""A connection to an Apache bookie that speaks version 3: single reads, fences, and what version 2 does not have."""

from __future__ import annotations

import asyncio
import itertools

from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache import version_3 as wire


class Version3(FramedConnection[pb.Response]):
    """Answers that nobody waits for are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)

    async def ask(self, operation: pb.Operation, request: wire.Request, timeout_s: float | None = None) -> pb.Response:
        """Raises ConnectionError if the connection ends, TimeoutError if there is no answer in time."""
        number = next(self._numbers)
        return await asyncio.wait_for(self._answer(number, wire.pack(operation, number, request)), timeout_s)

    def _take_frame(self, frame: bytes) -> None:
        response = wire.unpack(frame)
        self._answered(response.header.txnId, response)
