"""Reads stretches of a log side by side, and gives their batches in order. Bounded in memory.

A few readers take the stretches in order, each one stretch at a time. What they read ahead waits in memory until the consumer
gets there: at most ``ahead_bytes``, and one batch of each reader. The stretch that the consumer waits for may always add a
batch when it has none left, so the others never keep it from going on.

``ReadAhead`` keeps count of that. ``SideBySide`` has threads as readers; for coroutines ``bk_spark.aio`` has tasks.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from bk_spark.calls.forks import check_process, is_forked
from bk_spark.calls.off_main_thread import in_thread, off_main_thread
from bk_spark.config import MIB

READERS = 3
"""Two keep two cores decoding while a third one waits for its bookie."""

AHEAD_BYTES = 64 * MIB
"""Of decoded rows: some ten stretches of a log whose rows compress well."""

_Stretch = TypeVar("_Stretch")


class _Output:
    """What was read of one stretch, and not taken yet."""

    def __init__(self) -> None:
        self.batches: deque[pa.RecordBatch] = deque()
        self.is_done = False
        self.problem: BaseException | None = None


class ReadAhead:
    """Which stretch a reader takes next, who may go on, and what waits for the consumer. Not thread-safe."""

    def __init__(self, stretches: int, ahead_bytes: int = AHEAD_BYTES) -> None:
        self._ahead_bytes = ahead_bytes
        self._outputs = [_Output() for _ in range(stretches)]
        self._next = 0
        """The stretch that the next free reader takes."""
        self.head = 0
        """The stretch that the consumer takes from."""
        self._waiting_bytes = 0
        self.is_over = False
        """Whether the consumer wants no more."""

    # For readers

    @property
    def may_take(self) -> bool:
        return self.is_over or self._next <= self.head or self._has_room

    def take(self) -> int | None:
        """The number of a stretch to read; None if there is none left. Only while ``may_take``."""
        if self.is_over or self._next == len(self._outputs):
            return None
        self._next += 1
        return self._next - 1

    def may_put(self, stretch: int) -> bool:
        return self.is_over or self._has_room or (stretch == self.head and not self._outputs[stretch].batches)

    def put(self, stretch: int, batch: pa.RecordBatch) -> bool:
        """Add a batch. Only while ``may_put``. False, and nothing was added, if the consumer wants no more."""
        if not self.is_over:
            self._outputs[stretch].batches.append(batch)
            self._waiting_bytes += batch.nbytes
        return not self.is_over

    def end(self, stretch: int, problem: BaseException | None) -> None:
        """All of a stretch was read, or as much as could be."""
        self._outputs[stretch].problem, self._outputs[stretch].is_done = problem, True

    # For the consumer

    @property
    def can_give(self) -> bool:
        """Whether ``give`` has an answer. Not at the end."""
        head = self._outputs[self.head]
        return bool(head.batches) or head.is_done

    def give(self) -> pa.RecordBatch | None:
        """The next batch; None where the head went on to the next stretch. Raises what was raised by the reader of the head."""
        output = self._outputs[self.head]
        if output.batches:
            batch = output.batches.popleft()
            self._waiting_bytes -= batch.nbytes
            return batch
        if output.problem is not None:
            raise output.problem
        self.head += 1
        return None

    @property
    def is_at_end(self) -> bool:
        """Whether everything was given."""
        return self.head == len(self._outputs)

    @property
    def _has_room(self) -> bool:
        return self._waiting_bytes < self._ahead_bytes


class _Ending:
    """Ends the threads of a pass: when it is told to, or when it goes, where an interrupt kept it from doing so."""

    _side_by_side: SideBySide[Any] | None = None

    def __init__(self, side_by_side: SideBySide[Any]) -> None:
        self._side_by_side = side_by_side

    def end(self) -> None:
        if self._side_by_side is not None and not is_forked():
            off_main_thread(self._side_by_side._end)

    def __del__(self) -> None:
        left = self._side_by_side
        if left is not None and not left._ahead.is_over and not is_forked() and not sys.is_finalizing():
            in_thread(left._end)


class SideBySide(Generic[_Stretch]):
    """One pass over ``stretches``. ``read`` runs in several threads; what it raises is raised at its place in the order."""

    def __init__(
        self,
        stretches: Sequence[_Stretch],
        read: Callable[[_Stretch], Iterator[pa.RecordBatch]],
        ahead_bytes: int = AHEAD_BYTES,
    ) -> None:
        self._stretches = stretches
        self._read = read
        self._ahead = ReadAhead(len(stretches), ahead_bytes)
        self._changed = threading.Condition()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches, in the order of the stretches. The threads end with this iterator, also when it is closed early."""
        ending = _Ending(self)
        try:
            for _ in range(min(READERS, len(self._stretches))):
                in_thread(self._run)
            while not self._ahead.is_at_end:
                batch = off_main_thread(self._given)  # it takes a lock that the readers need
                if batch is not None:
                    yield batch
        finally:
            ending.end()

    @property
    def head(self) -> int:
        """The number of the stretch that the last batch is of, from 0."""
        return self._ahead.head

    def _end(self) -> None:
        with self._changed:
            self._ahead.is_over = True
            self._changed.notify_all()

    def _given(self) -> pa.RecordBatch | None:
        check_process()
        with self._changed:
            self._changed.wait_for(lambda: self._ahead.can_give or self._ahead.is_over)
            self._changed.notify_all()
            return None if self._ahead.is_over else self._ahead.give()

    def _run(self) -> None:
        """One of the threads."""
        while (stretch := self._take()) is not None:
            problem: BaseException | None = None
            try:
                for batch in self._read(self._stretches[stretch]):
                    if not self._put(stretch, batch):
                        return
            except BaseException as raised:
                problem = raised
            with self._changed:
                self._ahead.end(stretch, problem)
                self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ahead.may_take)
            return self._ahead.take()

    def _put(self, stretch: int, batch: pa.RecordBatch) -> bool:
        """Wait until there is room. False once nobody wants more."""
        with self._changed:
            self._changed.wait_for(lambda: self._ahead.may_put(stretch))
            self._changed.notify_all()
            return self._ahead.put(stretch, batch)


def placed_batches(
    stretches: Sequence[_Stretch], read: Callable[[_Stretch], Iterator[pa.RecordBatch]], place: tuple[int, int]
) -> Generator[tuple[pa.RecordBatch, tuple[int, int]], None, None]:
    """Each batch behind a place, with the place behind it: the number of a stretch, and of rows of it.

    The rows of a stretch must be the same each time that it is read; they may come in other batches.
    """
    first, rows = place
    number, left_out = first, rows
    side_by_side = SideBySide(stretches[first:], read)
    for batch in side_by_side.batches():
        if first + side_by_side.head != number:
            number, rows, left_out = first + side_by_side.head, 0, 0
        cut_off = min(left_out, batch.num_rows)
        left_out -= cut_off
        rows += batch.num_rows - cut_off
        if cut_off < batch.num_rows:
            yield batch.slice(cut_off), (number, rows)
