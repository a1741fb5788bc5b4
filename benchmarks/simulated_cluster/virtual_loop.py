"""An event loop whose time goes on only while nothing is left to do: shipped coroutines run on it in simulated time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class NothingLeftError(Exception):
    """The simulation waits for something that will never happen."""


class _Time:
    """In place of a selector: waiting for input takes the time to the next timer, and there is none."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise NothingLeftError("no timer is set, and nothing is ready")
        self.now_s += timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Callbacks take no time; timers come exactly when they are due, in the order in which they were set."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Time()

    def time(self) -> float:
        return self._selector.now_s

    @property
    def now_ms(self) -> int:
        """Whole milliseconds; a time that is short of one only by rounding has reached it, or nobody could wait for it."""
        return int(self._selector.now_s * 1000 + 1e-3)

    def call_soon_threadsafe(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run until ``work`` is done, then cancel whatever else runs. Simulated processes do not log."""
        logged = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            return self.run_until_complete(work)
        finally:
            logging.disable(logged)
            left = asyncio.all_tasks(self)
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.close()

    def _process_events(self, event_list: list[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody else wakes it."""
