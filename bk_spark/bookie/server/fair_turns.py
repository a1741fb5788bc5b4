"""Shares something scarce fairly among connections: a connection that asks for much waits for its own requests, others do not.

Lives on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairTurns:
    """At most ``count`` have a turn at a time."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, connection: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it. Every waiting connection gets one turn before any connection gets its next."""
        await self._take(connection)
        try:
            yield
        finally:
            self._give()

    async def _take(self, connection: str) -> None:
        if self._free:
            self._free -= 1
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # the turn was given right before
                self._give()
            raise

    def _give(self) -> None:
        """Give the turn to the connection that has waited longest since its last one."""
        while self._waiting:
            connection, queue = next(iter(self._waiting.items()))
            del self._waiting[connection]
            first = queue.popleft()
            if queue:
                self._waiting[connection] = queue  # at the end
            if not first.done():
                first.set_result(None)
                return
        self._free += 1
