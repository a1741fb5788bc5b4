"""A connection to an Apache bookie that speaks version 2: adds, reads and batch reads, answered in any order."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

from bk_spark.client.driver.apache.acks import SentAdds
from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.entries.batch import BatchHeader
from bk_spark.wire.apache import version_2 as wire
from bk_spark.wire.messages import Status

OnAdd = Callable[[Status, str], None]
"""Told what became of a batch."""

Awaited = asyncio.Future[wire.Answer]
"""Raises ConnectionError if the connection ends. Cancel it to drop the answer."""


MOST_UNANSWERED = 10_000
"""Reads that a bookie may owe answers for, those that nobody waits for any more among them. Sixteen reads of 128 entries are
under way at most, so this one answers nothing."""


class Version2(FramedConnection):
    """Answers that nobody waits for are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._adds: SentAdds[OnAdd] = SentAdds()
        self._reads: dict[tuple[int, int], deque[Awaited]] = {}
        """By ledger and entry id. An answer has no number of its request, so it is for the oldest."""
        self._batch_reads: dict[int, Awaited] = {}
        self._numbers = itertools.count(1)
        self._unanswered = 0

    def send_adds(self, header: BatchHeader, frames: bytes, on_answer: OnAdd) -> None:
        """Send a batch, an ADD for each entry. ``on_answer`` is called exactly once, later."""
        if self.ended is not None:
            on_answer(Status.UNKNOWN, self.ended)
            return
        self._adds.add(header, on_answer)
        self._write(frames)

    def read(self, ledger_id: int, entry_id: int, fence_key: bytes = b"") -> Awaited:
        """One entry, LAST_ENTRY: the last one."""
        awaited = self._asked(wire.pack_read(ledger_id, entry_id, fence_key))
        self._reads.setdefault((ledger_id, entry_id), deque()).append(awaited)
        return awaited

    def batch_read(self, ledger_id: int, first: int, most_entries: int, most_bytes: int) -> Awaited:
        """Consecutive entries from ``first`` on."""
        number = next(self._numbers)
        awaited = self._asked(wire.pack_batch_read(ledger_id, first, number, most_entries, most_bytes))
        self._batch_reads[number] = awaited
        return awaited

    def _asked(self, frame: bytes) -> Awaited:
        if self._unanswered >= MOST_UNANSWERED:
            self.close(f"it owes answers to {self._unanswered} reads")
        if self.ended is not None:
            raise ConnectionError(self.ended)
        self._unanswered += 1
        self._write(frame)
        return asyncio.get_running_loop().create_future()

    def _take_many(self, received: memoryview) -> int:
        acks = wire.leading_acks(received)
        for on_answer, status, entry_id in self._adds.answered(acks):
            on_answer(status, "" if status is Status.OK else f"entry {entry_id}")
        return int(acks.nbytes)

    def _take_frame(self, frame: bytes) -> None:
        answer = wire.unpack(frame)
        if answer.operation is wire.Operation.BATCH_READ:
            awaited = self._batch_reads.pop(answer.request_id, None)
        else:
            awaited = self._oldest((answer.ledger_id, answer.entry_id))
        self._unanswered -= awaited is not None
        if awaited is not None and not awaited.done():
            awaited.set_result(answer)

    def _oldest(self, asked: tuple[int, int]) -> Awaited | None:
        waiting = self._reads.get(asked)
        if waiting is None:
            return None
        awaited = waiting.popleft()
        if not waiting:
            del self._reads[asked]
        return awaited

    def _give_up(self, reason: str) -> None:
        for on_answer in self._adds.take_all():
            on_answer(Status.UNKNOWN, reason)
        waiting = [*itertools.chain.from_iterable(self._reads.values()), *self._batch_reads.values()]
        self._reads.clear()
        self._batch_reads.clear()
        for awaited in waiting:
            if not awaited.done():
                awaited.set_exception(ConnectionError(reason))
