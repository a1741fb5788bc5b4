"""Following open ledgers: a few threads wait at their bookies for more confirmed entries.

A wait takes a thread. Up to MAX_THREADS open ledgers have one each, and hear of an entry at once. If a stream has more of
them, the threads wait for one after the other, a moment each.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.errors import BookKeeperError
from bk_spark.log.log_store import LogStore
from bk_spark.log.stream.follow import LedgerEnd
from bk_spark.log.stream.waits import RETRY_S

MAX_THREADS = 64
"""Threads of one stream that wait at bookies: a log has two open ledgers at most, and one as a rule."""

POLL_S = 20.0
"""The longest single wait at the bookies. A wait that ends without news costs a request to each of them."""

SHARED_POLL_S = 0.5
"""The longest single wait if there are more ledgers than threads: 1,000 are then each asked within 8 s."""


class Follows(Protocol):
    """Whoever follows ledgers."""

    @property
    def logs(self) -> LogStore: ...

    @property
    def open_ledger(self) -> Callable[[int], ReadHandle]:
        """Opens without recovery."""


class PollThreads:
    """The threads that wait for the open ledgers of one stream. They end when there is no ledger to wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[LedgerPoll] = deque()
        """The ledgers for which no thread waits now."""
        self._threads = 0
        self._polls = 0

    def add(self, poll: LedgerPoll) -> None:
        """Follow a ledger until it is closed, or the poll is stopped."""
        with self._lock:
            self._polls += 1
            self._waiting.append(poll)
            if self._threads >= MAX_THREADS:
                return
            self._threads += 1
        threading.Thread(target=self._run, name="bk-spark-poll", daemon=True).start()

    def _run(self) -> None:
        while (poll := self._next()) is not None:
            goes_on = poll.wait(POLL_S if self._polls <= MAX_THREADS else SHARED_POLL_S)
            with self._lock:
                if goes_on:
                    self._waiting.append(poll)
                else:
                    self._polls -= 1

    def _next(self) -> LedgerPoll | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None


class LedgerPoll:
    """Follows one open ledger.

    It never fences, so the ledger's writer does not notice it. It ends when the ledger is closed. Bookies do not know of the
    close, so a watch of the ledger's metadata reports it. Calls ``on_news``, which must be brief, after every change.
    """

    def __init__(self, log: Follows, ledger_id: int, on_news: Callable[[], None]) -> None:
        self.ledger_id = ledger_id
        self._open_ledger = log.open_ledger
        self._on_news = on_news
        self._metadata_changed = False
        self._end_watch = log.logs.store.watch(log.logs.znodes.ledger(ledger_id), self._on_metadata)
        self._handle: ReadHandle | None = None
        self._ended = threading.Event()
        self.failure: BaseException | None = None
        """The error that ended it; None after the ledger's close."""
        self.trouble: BookKeeperError | None = None
        """Why no bookie has answered since ``heard_s``; None while they answer."""
        self.heard_s = time.monotonic()

    @property
    def end(self) -> LedgerEnd | None:
        """None until a quorum has answered once."""
        handle = self._handle
        return None if handle is None else LedgerEnd.of(handle)

    def catch_up(self) -> None:
        """Read the ledger's metadata if it has changed. Raises as ``ReadHandle.read_last_add_confirmed``."""
        if self._metadata_changed and self._handle is not None:
            self._metadata_changed = False
            try:
                self._handle.read_last_add_confirmed()
            except BookKeeperError:
                self._metadata_changed = True  # it was not read
                raise

    def stop(self) -> None:
        """End it after its current wait."""
        self._end_watch()
        self._ended.set()

    def wait(self, longest_s: float) -> bool:
        """Wait for news in the calling thread, ``longest_s`` at most. Returns whether there may be more."""
        try:
            if not self._is_over:
                self._ask(longest_s)
        except BaseException as problem:
            self.failure = problem
            self._on_news()
            return False
        if self._is_over:
            self._on_news()
            return False
        return True

    @property
    def _is_over(self) -> bool:
        return self._ended.is_set() or (self._handle is not None and self._handle.is_closed)

    def _ask(self, longest_s: float) -> None:
        try:
            if self._handle is None:
                self._handle = self._open_ledger(self.ledger_id)
            else:
                self._handle.wait_for_last_add_confirmed(self._handle.last_add_confirmed, longest_s)
            self.heard_s, self.trouble = time.monotonic(), None
            self._on_news()
        except BookKeeperError as problem:
            if not problem.retryable:
                raise
            self.trouble = problem
            self._ended.wait(RETRY_S)

    def _on_metadata(self) -> None:
        self._metadata_changed = True
        self._on_news()
