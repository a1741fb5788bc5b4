"""One of several processes that want to lead the same log: it takes the log over, appends, rolls, and takes it over again.

A *session* is one leadership: its payloads are ``<session> <number>``, numbered from 0. What is appended is told to the
history before the call, what is confirmed from the future's callback: who is killed has told all that it was told.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future

from bk_spark.bookkeeper import BookKeeper
from bk_spark.errors import BookKeeperError
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from bk_spark.log.log_handle import LogPosition
from tests.soak.chaos.history import Recorder

LED, APPENDED, CONFIRMED, FAILED = "led", "appended to log", "confirmed in log", "leader failed"

DEPTH = 32
"""Calls on their way, so that rolls find some."""
ROLL_BYTES = (200, 2000, 20_000)
"""A roll after every few entries; every fifty; after some hundreds."""
SHAPES = ((3, 3, 2), (2, 2, 2))
"""Where all bookies of a ledger must ack, one that stalls keeps it from confirming."""
MOST_CALLS = 600
"""Of one session: then its leader closes the log, or leaves it open."""
REST_S = 0.8
"""The longest rest before the log is taken over again, so that the other one comes to append."""


class Duellist:
    """Runs until ``stop``."""

    def __init__(self, client: BookKeeper, recorder: Recorder, log_name: str, seed: int) -> None:
        self._log = client.open_log(log_name)
        self._recorder = recorder
        self._who = recorder.who
        self._random = random.Random(seed)
        self._sessions = 0

    def fight(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                writer = self._log.open_writer(*self._random.choice(SHAPES), roll_bytes=self._random.choice(ROLL_BYTES))
            except BookKeeperError as problem:
                self._recorder.record(FAILED, session=None, error=type(problem).__name__, text=str(problem))
            else:
                self._sessions += 1
                Session(writer, self._recorder, f"{self._who}.{self._sessions}", self._random).run(stop)
            stop.wait(self._random.uniform(0.0, REST_S))


class Session:
    """One leadership, until it fails, is told to stop, or has appended enough."""

    def __init__(self, writer: LogWriteHandle, recorder: Recorder, name: str, chance: random.Random) -> None:
        self._writer = writer
        self._recorder = recorder
        self._name = name
        self._random = chance
        self._room = threading.Semaphore(DEPTH)
        self._failed = threading.Event()
        recorder.record(LED, session=name, epoch=writer.epoch)

    def run(self, stop: threading.Event) -> None:
        number = 0
        try:
            for _ in range(self._random.randint(1, MOST_CALLS)):
                if stop.is_set() or self._failed.is_set():
                    return
                number += self._append(number)
                if self._random.random() < 0.01:
                    self._writer.roll()
                if self._random.random() < 0.1:
                    stop.wait(self._random.uniform(0.0, 0.02))
            if self._random.random() < 0.5:
                self._writer.close()
        except BookKeeperError as problem:
            self._fail(problem)

    def _append(self, number: int) -> int:
        """One call, of one entry or of a few; gives back how many."""
        while not self._room.acquire(timeout=0.1):
            if self._failed.is_set():
                return 0
        count = self._random.choice((1, 1, 1, 2, 5))
        payloads = [f"{self._name} {one}".encode() for one in range(number, number + count)]
        self._recorder.record(APPENDED, session=self._name, first=number, count=count)
        if count == 1:
            self._writer.append_async(payloads[0]).add_done_callback(lambda done: self._answered(number, 1, done))
        else:
            self._writer.append_batch_async(payloads).add_done_callback(lambda done: self._answered(number, count, done))
        return count

    def _answered(self, number: int, count: int, done: Future[LogPosition] | Future[tuple[LogPosition, LogPosition]]) -> None:
        problem = done.exception()
        if problem is not None:
            self._fail(problem)
        else:
            places = done.result()
            first = places if isinstance(places, LogPosition) else places[0]
            facts = {"session": self._name, "first": number, "count": count}
            self._recorder.record(CONFIRMED, **facts, ledger_id=first.ledger_id, entry_id=first.entry_id)
        self._room.release()

    def _fail(self, problem: BaseException) -> None:
        """The first failure of a leader is all of them."""
        if not self._failed.is_set():
            self._failed.set()
            self._recorder.record(FAILED, session=self._name, error=type(problem).__name__, text=str(problem))
