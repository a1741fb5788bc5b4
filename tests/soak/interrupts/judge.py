"""What an interrupt may leave behind: nothing. Threads and descriptors are counted, and no wait is without an end."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE_S = 20.0


class FoundError(AssertionError):
    """An interrupt left something behind."""


def until(is_so: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise FoundError(what())
        time.sleep(0.0002)


def in_time(call: Callable[[], Any], what: str) -> Any:
    """The result of a call that must return. It is made in another thread than the one that was interrupted."""
    results: list[Any] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as problem:
            problems.append(problem)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    running.join(DEADLINE_S)
    if running.is_alive() or problems:
        raise FoundError(f"{what} {problems or 'never returns'}")
    return results[0]


class Resources:
    """The threads and descriptors of this process, as the operating system counts them, at rest."""

    def __init__(self) -> None:
        self._threads, self._descriptors = _threads(), _descriptors()

    def check(self, name: str) -> None:
        """There are as many again as there were, within the deadline, once what nobody can reach was collected."""
        if _threads() == self._threads and _descriptors() == self._descriptors:
            return
        gc.collect()
        until(lambda: _threads() <= self._threads, lambda: f"{name}: {_threads()} threads, not {self._threads} ({_known()})")
        until(lambda: _descriptors() <= self._descriptors, lambda: f"{name}: {_descriptors()} files, not {self._descriptors}")


def _threads() -> int:
    return len(os.listdir(Path("/proc/self/task")))


def _descriptors() -> int:
    return len(os.listdir(Path("/proc/self/fd")))


def _known() -> str:
    """Those that Python knows; the others are Arrow's and gRPC's."""
    return ", ".join(sorted(one.name for one in threading.enumerate()))
