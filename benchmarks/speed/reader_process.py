"""Two processes that work at the same time: many readers, each in a thread of its own; and beside them fences."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import getpid

from benchmarks.speed.processes import peak_memory_mib
from bk_spark import BookKeeper
from bk_spark.client.ledger.read_handle import ReadHandle

READERS_OF_CLIENT = 100
"""A bookie holds at most 128 long polls of one connection."""

LONGEST_WAIT_S = 1.0

FENCES = 12
"""Of one turn."""


@dataclass(frozen=True, slots=True)
class ReaderTask:
    metadata_uri: str
    ledger_ids: Sequence[int]
    """Readers go round them."""
    readers: int
    seconds: float
    is_tail: bool
    """Whether they wait for what is appended; or read the whole of closed ledgers, again and again."""


@dataclass(frozen=True, slots=True)
class ReaderFigures:
    entries: int
    seconds: float
    """Until the last reader ended, which finishes what it has begun."""
    peak_mib: float


class _Readers:
    """The readers, open and ready."""

    def __init__(self, task: ReaderTask) -> None:
        self._task = task
        self._clients = ExitStack()
        self._begin = threading.Barrier(task.readers + 1)
        self._deadline = 0.0
        self._entries = [0] * task.readers
        self._problem: Exception | None = None
        self._threads = []
        for first in range(0, task.readers, READERS_OF_CLIENT):
            client = self._clients.enter_context(BookKeeper(task.metadata_uri))
            for number in range(first, min(first + READERS_OF_CLIENT, task.readers)):
                self._threads.append(threading.Thread(target=self._read, args=(number, client), daemon=True))
        for thread in self._threads:
            thread.start()

    def run(self) -> ReaderFigures:
        started = time.monotonic()
        self._deadline = started + self._task.seconds
        self._begin.wait()
        for thread in self._threads:
            thread.join()
        if self._problem is not None:
            raise self._problem
        seconds = max(time.monotonic() - started, self._task.seconds)
        figures = ReaderFigures(sum(self._entries), seconds, peak_memory_mib([getpid()]))
        self._clients.close()
        return figures

    def _read(self, number: int, client: BookKeeper) -> None:
        handle = client.open_ledger(self._task.ledger_ids[number % len(self._task.ledger_ids)], recover=False)
        self._begin.wait()
        count = self._tail if self._task.is_tail else self._whole
        try:
            while (left_s := self._deadline - time.monotonic()) > 0:
                self._entries[number] += count(handle, min(left_s, LONGEST_WAIT_S))
        except Exception as problem:
            self._problem = problem

    def _whole(self, handle: ReadHandle, wait_s: float) -> int:
        return sum(len(batch) for batch in handle.read(0, handle.last_add_confirmed))

    def _tail(self, handle: ReadHandle, wait_s: float) -> int:
        """What came since the last look: as a tail does, each entry once."""
        known = handle.last_add_confirmed
        if handle.wait_for_last_add_confirmed(known, wait_s) == known:
            return 0
        return sum(len(batch) for batch in handle.read(known + 1, handle.last_add_confirmed))


class _Fences:
    """Recoveries of ledgers with one entry, spread over the time that the readers read."""

    def __init__(self, task: ReaderTask) -> None:
        self._task = task
        self._client = BookKeeper(task.metadata_uri)
        writers = [self._client.create_ledger() for _ in range(FENCES)]
        for writer in writers:
            writer.append(b"x")
        self._ids = [writer.ledger_id for writer in writers]

    def run(self) -> list[float]:
        """The seconds of each."""
        taken = []
        for ledger_id in self._ids:
            started = time.perf_counter()
            self._client.open_ledger(ledger_id)
            taken.append(time.perf_counter() - started)
            time.sleep(max(0.0, self._task.seconds / FENCES - taken[-1]))
        self._client.close()
        return taken


def prepare(number: int, task: ReaderTask) -> Callable[[], ReaderFigures | list[float]]:
    """A job for ``processes.Workers``: the first worker fences, the second one reads."""
    return _Readers(task).run if number else _Fences(task).run
