"""Reads the parts of a log side by side, and gives their batches in order. Bounded in memory.

A few threads take the parts in order, each one part at a time. What they read ahead waits in memory until the consumer gets
there: at most ``ahead_bytes``, and one batch of each thread. The part that the consumer waits for may always add a batch when
it has none left, so the others never keep it from going on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from bk_spark.config import MIB

THREADS = 3
"""Two keep two cores decoding while a third one waits for its bookie."""

AHEAD_BYTES = 64 * MIB
"""Of decoded rows: some ten parts of a log whose rows compress well."""

_Part = TypeVar("_Part")


class _Output:
    """What was read of one part, and not taken yet."""

    def __init__(self) -> None:
        self.batches: deque[pa.RecordBatch] = deque()
        self.is_done = False
        self.problem: BaseException | None = None


class SideBySide(Generic[_Part]):
    """One pass over ``parts``. ``read`` runs in several threads; what it raises is raised at its place in the order."""

    def __init__(
        self, parts: Sequence[_Part], read: Callable[[_Part], Iterator[pa.RecordBatch]], ahead_bytes: int = AHEAD_BYTES
    ) -> None:
        self._parts = parts
        self._read = read
        self._ahead_bytes = ahead_bytes
        self._outputs = [_Output() for _ in parts]
        self._next = 0
        """The part that the next free thread takes."""
        self._head = 0
        """The part that the consumer takes from."""
        self._waiting_bytes = 0
        self._is_over = False
        self._changed = threading.Condition()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches, in the order of the parts. The threads end with this iterator, also when it is closed early."""
        for _ in range(min(THREADS, len(self._parts))):
            threading.Thread(target=self._run, name="bk_spark-rows", daemon=True).start()
        try:
            for index, output in enumerate(self._outputs):
                self._move_to(index)
                while (batch := self._taken(output)) is not None:
                    yield batch
                if output.problem is not None:
                    raise output.problem
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _move_to(self, index: int) -> None:
        with self._changed:
            self._head = index
            self._changed.notify_all()

    def _taken(self, output: _Output) -> pa.RecordBatch | None:
        """The next batch of the head; None at its end."""
        with self._changed:
            self._changed.wait_for(lambda: output.batches or output.is_done)
            if not output.batches:
                return None
            batch = output.batches.popleft()
            self._waiting_bytes -= batch.nbytes
            self._changed.notify_all()
            return batch

    def _run(self) -> None:
        """One of the threads."""
        while (index := self._take_part()) is not None:
            problem: BaseException | None = None
            try:
                for batch in self._read(self._parts[index]):
                    if not self._put(index, batch):
                        return
            except BaseException as raised:
                problem = raised
            with self._changed:
                self._outputs[index].problem, self._outputs[index].is_done = problem, True
                self._changed.notify_all()

    def _take_part(self) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._next <= self._head or self._has_room)
            if self._is_over or self._next == len(self._parts):
                return None
            self._next += 1
            return self._next - 1

    def _put(self, index: int, batch: pa.RecordBatch) -> bool:
        """Wait until there is room. False once nobody wants more."""
        output = self._outputs[index]
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._has_room or (index == self._head and not output.batches))
            if not self._is_over:
                output.batches.append(batch)
                self._waiting_bytes += batch.nbytes
                self._changed.notify_all()
            return not self._is_over

    @property
    def _has_room(self) -> bool:
        return self._waiting_bytes < self._ahead_bytes
