"""What was last read of something, how old that is, and since when reading it fails.

Whoever asks for a thing shares one read with all others, and it is not read again before ``FRESH_S``, nor before three times
as long as the read took (what failed only by FRESH_S): a page that is open in fifty browsers costs the store as much as one.
Nobody waits long, and nobody at all for what fails: until a read is done, the last value is given with its age.

Threads: reads run in a few of their own, so that a store that does not answer holds up none of the callers.
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
"""A value that is younger is not read again: pages ask every two seconds."""

BUSY_SHARE = 4
"""A thing is being read for at most one part in so many of the time."""

SELDOM_S = 10.0
"""But not more seldom than this, also after a read that hung for a while and then succeeded."""

SLOW_S = 3.0
"""A read that has taken so long is shown as one that does not succeed: what is kept is then old."""

BUSY = "too many things are being read at once: ask again in a moment"

_Value = TypeVar("_Value")
logger = logging.getLogger(__name__)


class UnansweredError(Exception):
    """What was asked did not answer; the text says so to people."""


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[_Value]):
    """A value as it was read ``age_s`` ago; None for both while nothing was read yet."""

    value: _Value | None
    age_s: float | None
    problem: str = ""
    """Why the last read failed; empty if it succeeded."""
    failing_s: float = 0.0
    """How long ago the reads began to fail."""


class _Kept(Generic[_Value]):
    """What is known of one thing."""

    def __init__(self) -> None:
        self.value: _Value | None = None
        self.read_s: float | None = None
        self.due_s = float("-inf")
        self.problem = ""
        self.failing_since_s = 0.0
        self.reading: Future[None] | None = None
        self.began_s = 0.0

    def snapshot(self, now_s: float) -> Snapshot[_Value]:
        age_s = None if self.read_s is None else now_s - self.read_s
        if self.problem:
            return Snapshot(self.value, age_s, self.problem, now_s - self.failing_since_s)
        if self.reading is not None and now_s - self.began_s > SLOW_S:
            return Snapshot(self.value, age_s, "no answer yet", now_s - self.began_s)
        return Snapshot(self.value, age_s)


class Snapshots(Generic[_Value]):
    """Snapshots of up to ``kept`` things, the last used ones. Any thread may ask. ``clock`` gives seconds, never backwards."""

    def __init__(self, threads: int, kept: int, clock: Callable[[], float]) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="bk_spark-dashboard")
        self._limit = kept
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        self._things: OrderedDict[Hashable, _Kept[_Value]] = OrderedDict()

    def look(self, key: Hashable, read: Callable[[], _Value], wait_s: float) -> Snapshot[_Value]:
        """The thing ``key`` as far as it is known, after a new read if one is due and done within ``wait_s``."""
        with self._lock:
            kept = self._find(key)
            if kept is None:
                return Snapshot(None, None, BUSY)
            if kept.reading is None and self._clock() >= kept.due_s:
                kept.began_s = self._clock()
                kept.reading = self._executor.submit(self._read, kept, read)
            reading = kept.reading
            is_failing = bool(kept.snapshot(self._clock()).problem)
        if reading is not None and not is_failing:
            wait([reading], wait_s)
        with self._lock:
            return kept.snapshot(self._clock())

    def close(self) -> None:
        """Begin no further read; those under way end by themselves."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _find(self, key: Hashable) -> _Kept[_Value] | None:
        if key not in self._things and len(self._things) >= self._limit:
            idle = next((one for one, kept in self._things.items() if kept.reading is None), None)
            if idle is None:
                return None
            del self._things[idle]
        kept = self._things.setdefault(key, _Kept())
        self._things.move_to_end(key)
        return kept

    def _read(self, kept: _Kept[_Value], read: Callable[[], _Value]) -> None:
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
            self._note(kept, value, problem)

    def _note(self, kept: _Kept[_Value], value: _Value | None, problem: str) -> None:
        now_s = self._clock()
        kept.reading = None
        pause_s = 0.0 if problem else min((BUSY_SHARE - 1) * (now_s - kept.began_s), SELDOM_S)
        kept.due_s = now_s + max(FRESH_S, pause_s)
        if problem and not kept.problem:
            kept.failing_since_s = kept.began_s
        kept.problem = problem
        if not problem:
            kept.value, kept.read_s = value, kept.began_s
