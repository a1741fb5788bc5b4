"""A connection to an Apache bookie that speaks version 2: adds and batch reads, answered in any order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable

from bk_spark.client.driver.apache.acks import SentAdds
from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.entries.batch import BatchHeader
from bk_spark.wire.apache import version_2 as wire
from bk_spark.wire.messages import Status

MOST_UNANSWERED = 5_000
"""ADDs without an answer, as many as Apache's own client has under way by default. A bookie at its defaults refuses ADDs when
10,000 of all clients wait for one of its threads."""

MOST_SILENCE_S = 60.0
"""While so many ADDs wait. Their writers have given up the bookie by then, and a new connection owes nothing."""

OnAdd = Callable[[Status, str], None]
"""Told what became of a batch."""


class Version2(FramedConnection[wire.Answer]):
    """Answers that nobody waits for are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._adds: SentAdds[OnAdd] = SentAdds()
        self._numbers = itertools.count(1)
        self._fewer = asyncio.Event()
        """Set when ADDs were answered, or the connection has ended."""

    async def send_adds(self, header: BatchHeader, pieces: Iterable[tuple[int, bytes]], on_answer: OnAdd) -> None:
        """Send a batch, an ADD for each entry, in pieces: a number of ADDs, at most MOST_UNANSWERED, and their frames.

        ``on_answer`` is called exactly once, when all are answered or the connection ends.
        """
        if self.ended is not None:
            on_answer(Status.UNKNOWN, self.ended)
            return
        self._adds.add(header, on_answer)
        for count, frames in pieces:
            if not await self._has_room_for(count):
                return
            self._adds.unanswered += count
            self._write(frames)

    async def _has_room_for(self, count: int) -> bool:
        """Wait until so many more may be sent. False: the connection has ended."""
        await self.room()
        while self.ended is None and self._adds.unanswered > MOST_UNANSWERED - count:
            self._fewer.clear()
            try:
                await asyncio.wait_for(self._fewer.wait(), MOST_SILENCE_S)
            except TimeoutError:
                self.close(f"none of {self._adds.unanswered} adds was answered for {MOST_SILENCE_S:g} s")
        return self.ended is None

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
        self._fewer.set()
        return int(acks.nbytes)

    def _take_frame(self, frame: bytes) -> None:
        answer = wire.unpack(frame)
        self._answered(answer.request_id, answer)

    def _give_up(self, reason: str) -> None:
        for on_answer in self._adds.take_all():
            on_answer(Status.UNKNOWN, reason)
        self._fewer.set()
