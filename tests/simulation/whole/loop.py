"""An event loop whose time is the run's: the shipped drivers run on it as they do on a real one, in the order of the run."""

from __future__ import annotations

import asyncio
import math
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any

from tests.simulation.world.client_process import ClientProcess

MAX_CALLS = 100_000
"""Callbacks of one turn; more mean that they call each other for ever."""


MAX_CANCELS = 5
"""A task may go on after it was cancelled, to cancel others."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Of one simulated process. It gets a turn when the run wakes the process, and runs until nothing is ready.

    A process that is stopped gets none, one that was killed never again. What a callback raises is raised out of the turn.
    """

    _ready: deque[asyncio.Handle]

    def __init__(self, process: ClientProcess) -> None:
        super().__init__()
        self.process = process
        self.problem: BaseException | None = None
        self.sent: dict[str, set[int]] = {}
        """Bookie → the entries of adds that went on their way to it."""
        self.after_turn: Callable[[], None] = lambda: None
        self._has_turn_due = False
        self._is_turning = False

    def time(self) -> float:
        return self.process.world.now_ms / 1000

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)  # type: ignore[arg-type]
        self._ask_for_turn()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)  # type: ignore[arg-type]
        delay_ms = math.ceil(round(1000 * (when - self.time()), 3))  # rounded, or 2.5 s would be 2,501 ms
        self.process.later(max(0, delay_ms), lambda: self._fire(timer))
        return timer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.fail(context.get("exception"))

    def fail(self, problem: BaseException | None) -> None:
        """Have a problem raised out of the turn."""
        self.problem = self.problem or problem

    def end(self) -> None:
        """The run is over: cancel what waits, as often as it takes. What comes of it is of no interest."""
        for _ in range(MAX_CANCELS):
            waiting = asyncio.all_tasks(self)
            for task in waiting:
                task.cancel()
            if waiting:
                with suppress(Exception):
                    self.turn()
        self._ready.clear()
        self.close()

    def turn(self) -> None:
        self._has_turn_due, self._is_turning = False, True
        events._set_running_loop(self)
        try:
            for _ in range(MAX_CALLS):
                if not self._ready:
                    break
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            self._is_turning = False
            events._set_running_loop(None)
        if self.problem is not None:
            raise self.problem
        assert not self._ready, f"{self.process.name} does not come to rest"
        self.after_turn()

    def _fire(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled():
            self._ready.append(timer)
            self.turn()

    def _ask_for_turn(self) -> None:
        if not self._is_turning and not self._has_turn_due:
            self._has_turn_due = True
            self.process.later(0, self.turn)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays where it is, and nothing comes of it."""


def loop_of_process() -> SimulatedLoop:
    """Of the process whose turn it is."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


async def answer_to(target: str, body: object, timeout_s: float | None = None) -> object:
    """Send a request from the process whose turn it is. Raises TimeoutError."""
    loop = loop_of_process()
    answer: asyncio.Future[object] = loop.create_future()

    def answered(reply: object) -> None:
        if not answer.done():
            answer.set_result(reply)

    number = loop.process.call(target, body, lambda reply: (loop.call_soon(answered, reply), None)[1])
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    finally:
        loop.process.cancel(number)
