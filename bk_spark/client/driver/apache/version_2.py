"""A connection to an Apache bookie that speaks version 2: adds and batch reads, answered in any order."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from bk_spark.client.driver.apache.acks import SentAdds
from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.entries.batch import BatchHeader
from bk_spark.wire.apache import version_2 as wire
from bk_spark.wire.messages import Status

OnAdd = Callable[[Status, str], None]
"""Told what became of a batch."""


class Version2(FramedConnection[wire.Answer]):
    """Answers that nobody waits for are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._adds: SentAdds[OnAdd] = SentAdds()
        self._numbers = itertools.count(1)

    def send_adds(self, header: BatchHeader, frames: bytes, on_answer: OnAdd) -> None:
        """Send a batch, an ADD for each entry. ``on_answer`` is called exactly once, later."""
        if self.ended is not None:
            on_answer(Status.UNKNOWN, self.ended)
            return
        self._adds.add(header, on_answer)
        self._write(frames)

    @property
    def owes_adds(self) -> bool:
        """Whether adds were sent that are not answered."""
        return bool(self._adds)

    async def batch_read(self, ledger_id: int, first: int, most_entries: int, most_bytes: int) -> wire.Answer:
        """Consecutive entries from ``first`` on. Raises ConnectionError if the connection ends."""
        number = next(self._numbers)
        return await self._answer(number, wire.pack_batch_read(ledger_id, first, number, most_entries, most_bytes))

    def _take_many(self, received: memoryview) -> int:
        acks = wire.leading_acks(received)
        for on_answer, status, entry_id in self._adds.answered(acks):
            on_answer(status, "" if status is Status.OK else f"entry {entry_id}")
        return int(acks.nbytes)

    def _take_frame(self, frame: bytes) -> None:
        answer = wire.unpack(frame)
        self._answered(answer.request_id, answer)

    def _give_up(self, reason: str) -> None:
        for on_answer in self._adds.take_all():
            on_answer(Status.UNKNOWN, reason)
