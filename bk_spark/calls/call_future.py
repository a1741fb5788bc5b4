"""The future of a call that a thread of the client answers.

It takes the place of ``concurrent.futures.Future``, whose methods take a lock in Python code: a thread that is interrupted
just then never gives it back, and the client's event loop, which is to answer, waits for it for ever. Here neither side
waits for the other's lock. Whoever waits leaves a ``Gate`` first and looks at the state then; whoever answers sets the state
first and opens the gates then. So one of the two sees what the other one did.

In a forked process nobody answers, and a fork may come while another thread had a future in its hands alone. So a future looks
by itself whether it is there, and has failed then.

Only what the standard library waits with (``concurrent.futures.wait``, ``as_completed``) takes the lock of a future, to read
its state and leave a waiter in one step; for them the answer holds it, too, and gives up one that was never given back.

It depends on the fields of a Future, which a test compares.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import _base as states
from contextlib import suppress
from typing import Any

from bk_spark.calls.forks import is_forked, refusal
from bk_spark.calls.gate import Gate

GUARD_S = 1.0
"""Whoever takes the lock of a future gives it back within microseconds, unless it was interrupted and never will."""

logger = logging.getLogger(__name__)


class Guard:
    """The lock of one or more futures, as the standard library takes it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # ``wait`` takes that of each of its futures
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._is_lost = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> bool:
        """Take it, unless whoever has it does not give it back."""
        if self._is_lost:
            return False
        taken = self._lock.acquire(timeout=GUARD_S)
        self._is_lost = not taken
        return taken


class _GuardInChild(Guard):
    """That of a future in a forked process, where nobody gives back what was held at the fork."""


class CallFuture(Future[Any]):
    """It cannot be cancelled: what was begun cannot be taken back."""

    def __init__(self, guard: Guard | None = None) -> None:
        self._guard = guard or Guard()
        self._state = states.PENDING
        self._result: Any = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Callable[[Any], object]] = []

    @property
    def _condition(self) -> Any:  # type: ignore[override]
        """What the standard library takes before it looks at the state."""
        self._see_fork()
        return self._guard

    # --- for those who wait

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return isinstance(self._exception, CancelledError)

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        self._see_fork()
        return self._state == states.FINISHED

    def result(self, timeout: float | None = None) -> Any:
        """As that of the standard library. Raises ConfigError in a forked process, where nobody answers."""
        if self._state != states.FINISHED:
            self._await(timeout)
        if self._exception is None:
            return self._result
        try:
            raise self._exception
        finally:
            del self  # the traceback would keep the future, and the future the traceback

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As ``result``."""
        if self._state != states.FINISHED:
            self._await(timeout)
        return self._exception

    def add_done_callback(self, call: Callable[[Any], object]) -> None:
        self._see_fork()
        self._done_callbacks.append(call)
        if self._state == states.FINISHED:
            self._call_back()

    def _see_fork(self) -> None:
        """In a forked process: have failed."""
        if is_forked() and type(self._guard) is not _GuardInChild:
            self._guard = _GuardInChild()
            if self._state != states.FINISHED:
                self.set_exception(refusal())

    def _await(self, timeout: float | None) -> None:
        self._see_fork()
        if self._state == states.FINISHED:
            return
        gate = Gate()
        self._waiters.append(gate)
        if self._state != states.FINISHED and not gate.wait(timeout):
            with suppress(ValueError):
                self._waiters.remove(gate)
            raise TimeoutError

    # --- for the one who answers

    def set_result(self, result: Any) -> None:
        self._answer(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        self._answer(None, exception)

    def _answer(self, result: Any, exception: BaseException | None) -> None:
        held = self._guard.take()
        try:
            if self._state == states.FINISHED:
                raise InvalidStateError(f"it is done: {self!r}")
            self._result, self._exception = result, exception
            self._state = states.FINISHED  # last: whoever sees it takes the others
        finally:
            if held:
                self._guard.release()
        self._tell()

    def _tell(self) -> None:
        for waiter in list(self._waiters):
            (waiter.add_result if self._exception is None else waiter.add_exception)(self)
        self._call_back()

    def _call_back(self) -> None:
        """Each callback is called once, by whoever takes it."""
        while self._done_callbacks:
            try:
                call = self._done_callbacks.pop(0)
            except IndexError:  # another thread took the last one
                return
            try:
                call(self)
            except Exception:
                logger.exception("a callback of a future failed")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}, {self._state.lower()}>"
