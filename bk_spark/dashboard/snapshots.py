"""Keeps the last value read of each thing, with its age, and with the time since when reading it fails.

All callers that ask for a thing share one read. It is not read again before ``FRESH_S`` has passed, nor before three times as
long as the read took (after a failure, only ``FRESH_S`` counts). So a page that is open in fifty browsers costs the store as
much as one page. Reads run in a few threads of their own. Callers wait only briefly for them, and not at all if reads fail:
meanwhile they get the last value.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from bk_spark.errors import BookKeeperError

FRESH_S = 1.5
"""A younger value is not read again: pages ask every two seconds."""

BUSY_SHARE = 4
"""A thing is being read for at most one part in so many of the time."""

SELDOM_S = 10.0
"""The longest pause between reads that BUSY_SHARE causes: one read that hung must not stop the next ones for long."""

SLOW_S = 3.0
"""A read that takes longer is shown as failing, because the value shown is then old."""

BUSY = "too many things are being read at once: ask again in a moment"

Record = dict[str, object]
"""What JSON can take."""

_Value = TypeVar("_Value")
logger = logging.getLogger(__name__)


class UnansweredError(Exception):
    """What was asked did not answer. The text is for people."""


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[_Value]):
    """A value that was read ``age_s`` ago; both are None before the first successful read."""

    value: _Value | None = None
    age_s: float | None = None
    problem: str = ""
    """Why the last read failed; empty if it succeeded."""
    failing_s: float = 0.0
    """How long ago reads began to fail."""

    def about(self) -> Record:
        """All but the value, for JSON."""
        return {"age_s": self.age_s, "problem": self.problem, "failing_s": self.failing_s}


@dataclass(slots=True)
class _Thing(Generic[_Value]):
    """What is known of one thing."""

    value: _Value | None = None
    read_s: float | None = None
    due_s: float = float("-inf")
    problem: str = ""
    failing_since_s: float = 0.0
    reading: Future[None] | None = None
    began_s: float = 0.0

    def snapshot(self, now_s: float) -> Snapshot[_Value]:
        age_s = None if self.read_s is None else now_s - self.read_s
        if self.problem:
            return Snapshot(self.value, age_s, self.problem, now_s - self.failing_since_s)
        if self.reading is not None and now_s - self.began_s > SLOW_S:
            return Snapshot(self.value, age_s, "no answer yet", now_s - self.began_s)
        return Snapshot(self.value, age_s)


class Snapshots(Generic[_Value]):
    """Snapshots of up to ``limit`` things, those used last. Any thread may ask. ``clock`` returns seconds, never backwards."""

    def __init__(self, threads: int, limit: int, clock: Callable[[], float]) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="bk_spark-dashboard")
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        self._things: OrderedDict[Hashable, _Thing[_Value]] = OrderedDict()

    def look(self, key: Hashable, read: Callable[[], _Value], wait_s: float) -> Snapshot[_Value]:
        """The last value of the thing ``key``. If a new read is due, start it, and wait up to ``wait_s`` for it."""
        with self._lock:
            thing = self._find(key)
            if thing is None:
                return Snapshot(problem=BUSY)
            if thing.reading is None and self._clock() >= thing.due_s:
                thing.began_s = self._clock()
                thing.reading = self._executor.submit(self._read, thing, read)
            reading = thing.reading
            is_failing = bool(thing.snapshot(self._clock()).problem)
        if reading is not None and not is_failing:
            wait([reading], wait_s)
        with self._lock:
            return thing.snapshot(self._clock())

    def close(self) -> None:
        """Begin no further reads; those under way end by themselves."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _find(self, key: Hashable) -> _Thing[_Value] | None:
        """Make room for a new thing if need be. None if everything is being read."""
        if key not in self._things and len(self._things) >= self._limit:
            idle = next((one for one, thing in self._things.items() if thing.reading is None), None)
            if idle is None:
                return None
            del self._things[idle]
        thing = self._things.setdefault(key, _Thing())
        self._things.move_to_end(key)
        return thing

    def _read(self, thing: _Thing[_Value], read: Callable[[], _Value]) -> None:
        value, problem = None, ""
        try:
            value = read()
        except (BookKeeperError, UnansweredError) as failure:
            problem = str(failure)
        except Exception as failure:  # shown on the page and logged: one broken view must not end the others
            if not self._closed:
                logger.exception("the dashboard could not read something")
            problem = f"{type(failure).__name__}: {failure}"
        with self._lock:
            now_s = self._clock()
            thing.reading = None
            pause_s = 0.0 if problem else min((BUSY_SHARE - 1) * (now_s - thing.began_s), SELDOM_S)
            thing.due_s = now_s + max(FRESH_S, pause_s)
            if problem and not thing.problem:
                thing.failing_since_s = thing.began_s
            thing.problem = problem
            if not problem:
                thing.value, thing.read_s = value, thing.began_s
