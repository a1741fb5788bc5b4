"""The appends of a log's leader: as many as its window holds are under way, the others stand in line, first in, first out.

The window counts appends until they are confirmed, also those whose coroutines were cancelled. So a roll, which queues appends
up to the same bound, has room for all of them, and none waits for it on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from bk_spark.aio.calls import Calls
from bk_spark.client.driver.user_loop import LoopFuture, give_outcome, wake


@dataclass(slots=True)
class _Standing:
    """An append in the line."""

    nbytes: int
    begin: Callable[[], Future[Any]]
    entered: LoopFuture[None] | None = None
    """Done once the append has left the line."""


class AppendLine:
    """Appends are named by the futures that they are answered with."""

    def __init__(self, calls: Calls, window_bytes: int) -> None:
        self._calls = calls
        self._window_bytes = window_bytes
        self._held_bytes = 0
        self._line: OrderedDict[LoopFuture[Any], _Standing] = OrderedDict()

    def stand(self, nbytes: int, begin: Callable[[], Future[Any]]) -> LoopFuture[Any]:
        """An append, which holds in the end what the future of ``begin`` holds. ``begin`` is called in its turn."""
        append: LoopFuture[Any] = self._calls.loop.new_future()
        self._line[append] = _Standing(nbytes, begin)
        self._let_in()
        return append

    async def outcome(self, append: LoopFuture[Any]) -> Any:
        """What an append holds in the end. A cancelled wait withdraws it from the line."""
        try:
            return await self._calls.wait(append)
        finally:
            self._withdraw(append)

    async def entered(self, append: LoopFuture[Any]) -> LoopFuture[Any]:
        """The append, once it has left the line. A cancelled wait withdraws it."""
        standing = self._line.get(append)
        try:
            if standing is not None:
                standing.entered = self._calls.loop.new_future()
                await self._calls.wait(standing.entered)
            elif self._calls.is_turn_due():
                await asyncio.sleep(0)
        except BaseException:
            append.cancel()
            self._withdraw(append)
            raise
        return append

    def _withdraw(self, append: LoopFuture[Any]) -> None:
        if self._line.pop(append, None) is not None:
            self._let_in()

    def _let_in(self) -> None:
        while self._line:
            append, standing = next(iter(self._line.items()))
            if self._held_bytes and self._held_bytes + standing.nbytes > self._window_bytes:
                return
            del self._line[append]
            self._begin(append, standing)

    def _begin(self, append: LoopFuture[Any], standing: _Standing) -> None:
        if append.done():  # its coroutine is about to take it out of the line
            return
        try:
            under_way = standing.begin()
        except BaseException as problem:
            append.set_exception(problem)
        else:
            self._held_bytes += standing.nbytes
            under_way.add_done_callback(lambda done: self._calls.loop.tell(self._done, append, standing.nbytes, done))
        if standing.entered is not None:
            wake(standing.entered)

    def _done(self, append: LoopFuture[Any], nbytes: int, done: Future[Any]) -> None:
        self._held_bytes -= nbytes
        give_outcome(append, done)
        self._let_in()
