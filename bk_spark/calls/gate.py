"""Where one thread waits until another one lets it go."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any


class Gate:
    """Is opened once, and stays open. Both ends take one step of C each, so an interrupt comes before it or after it.

    It is also a waiter as those of ``concurrent.futures``, which a future tells that it is done.
    """

    __slots__ = ("_closed",)

    def __init__(self) -> None:
        self._closed = threading.Lock()
        self._closed.acquire()

    def open(self) -> None:
        """Let go whoever waits. From any thread."""
        with suppress(RuntimeError):  # it is open already
            self._closed.release()

    @property
    def is_open(self) -> bool:
        """Before anybody has waited."""
        return not self._closed.locked()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is open; False if that took longer. By one thread."""
        return self._closed.acquire(timeout=-1 if timeout_s is None else max(0.0, min(timeout_s, threading.TIMEOUT_MAX)))

    def add_result(self, future: Future[Any]) -> None:
        self.open()

    add_exception = add_cancelled = add_result
