"""Follows a log in the background, so that Spark's questions are answered from memory.

An idle query asks every 12 ms for the latest offset; that must cost nothing. So one thread waits for news: of the log's head
by a watch in the metadata store, of open ledgers by long polls at their bookies (``LedgerPoll``). After each piece of news
it plans the newest position once. It also reads the head every HEARTBEAT_S seconds, in case a watch was lost.

If the thread died, or has not heard of the log for STALE_S, the next question fails with the reason: an old answer from
memory would look like an idle log. The threads are daemons and hold nothing that must be released, because Spark usually
kills the process of a stream's source.

Ref: docs/rules.md, log rules 2 and 7.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.log.stored.values import Head, OpenLedger
from bk_spark.client.log.stream.follow import LedgerEnd, Newest
from bk_spark.client.log.stream.positions import StreamPosition
from bk_spark.client.log.stream.waits import HEARTBEAT_S, PATIENCE_S, RETRY_S
from bk_spark.datasource.read.followed_log import CursorPublisher, FollowedLog
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import BookKeeperError, MetadataUnavailableError

STALE_S = PATIENCE_S
"""The stream fails after this long without a read of the log's head, or without an answer of an open ledger's bookies."""

GRACE_S = 10.0
"""How long a question waits for a fresh look after STALE_S without one, as after the machine's sleep."""

POLL_S = 20.0
"""The longest single wait at the bookies. A wait that ends without news costs a request to each of them."""


class LogTail:
    """The newest position of one log, kept in the background for a stream that stands at ``start``."""

    def __init__(self, log: FollowedLog, start: StreamPosition, cursor: CursorPublisher) -> None:
        self.start = start
        """Where the stream stands; nothing before it is read."""
        self._log = log
        self._cursor = cursor
        self._polls: dict[int, LedgerPoll] = {}
        self._changed = threading.Event()
        self._looked = threading.Event()
        self._looked_s = time.monotonic()
        self._known: tuple[Head, Newest] | None = None
        self._planned_from: tuple[Head, dict[int, LedgerEnd]] | None = None
        self._failure: BaseException | None = None
        self._trouble: BookKeeperError | None = None
        self._stopped = False
        threading.Thread(target=self._run, name=f"bk-spark-tail-{log.name}", daemon=True).start()

    def newest(self) -> tuple[Head, Newest]:
        """The log's head and newest position, from memory. Only the first call waits. Raises why the log cannot be followed."""
        if self._known is None:
            self._looked.wait(STALE_S)
        elif self._is_stale:
            self._looked.clear()
            self._changed.set()
            self._looked.wait(GRACE_S)
        if self._failure is not None:
            raise self._failure
        if self._known is None or self._is_stale:
            problem = f"nothing was heard of log '{self._log.name}' for {STALE_S:g} s"
            raise self._trouble or MetadataUnavailableError("that holds the log", problem)
        return self._known

    def wake(self) -> None:
        """Have the thread look for work, such as a cursor to publish."""
        self._changed.set()

    def stop(self) -> None:
        """End the threads after their current waits."""
        self._stopped = True
        self._changed.set()

    @property
    def _is_stale(self) -> bool:
        return time.monotonic() - self._looked_s > STALE_S

    def _run(self) -> None:
        """The thread; the methods below run in it."""
        end_watch: Callable[[], None] | None = None
        try:
            while not self._stopped:
                self._changed.clear()
                end_watch = end_watch or self._watch()
                self._look()
                if self._cursor.wait_s() == 0.0:
                    self._cursor.publish()
                self._changed.wait(self._wait_s())
        except BaseException as problem:
            self._failure = problem
        finally:
            self._looked.set()
            if end_watch is not None:
                end_watch()
            for poll in self._polls.values():
                poll.stop()

    def _watch(self) -> Callable[[], None] | None:
        """None while the metadata store does not answer."""
        try:
            return self._log.logs.store.watch(self._log.logs.names.paths(self._log.uid).head, self.wake)
        except MetadataUnavailableError as problem:
            self._trouble = problem
            return None

    def _look(self) -> None:
        try:
            self._plan()
        except BookKeeperError as problem:
            if not problem.retryable:
                raise
            self._trouble = problem
            return
        self._trouble, self._looked_s = None, time.monotonic()
        self._looked.set()

    def _plan(self) -> None:
        log = self._log
        failed = {ledger_id: poll.failure for ledger_id, poll in self._polls.items() if poll.failure is not None}
        # The head is read after the failures, so that it does not list a ledger that failed because it was closed and deleted.
        head = log.logs.names.head(log.name, log.uid)
        ends = {ledger.ledger_id: self._end(ledger, failed) for ledger in head.writer.open_ledgers}
        for ledger_id in self._polls.keys() - ends.keys():
            self._polls.pop(ledger_id).stop()
        if self._planned_from != (head, ends):
            newest = log.planned(head, lambda head: log.follower.newest(head, ends, self.start))
            position = newest.position if self._known is None else max(newest.position, self._known[1].position)
            self._known = head, replace(newest, position=position)
            self._planned_from = head, ends

    def _end(self, opened: OpenLedger, failed: Mapping[int, BaseException]) -> LedgerEnd:
        if opened.ledger_id in failed:
            raise failed[opened.ledger_id]
        if opened.ledger_id not in self._polls:
            self._polls[opened.ledger_id] = LedgerPoll(self._log, opened.ledger_id, self.wake)
        poll = self._polls[opened.ledger_id]
        poll.catch_up()
        if poll.trouble is not None and time.monotonic() - poll.heard_s > STALE_S:
            self._failure = poll.trouble
            self._stopped = True
        return poll.end or LedgerEnd(NO_ENTRY, is_closed=False)

    def _wait_s(self) -> float:
        if self._trouble is not None:
            return RETRY_S
        wait_s = self._cursor.wait_s()
        return HEARTBEAT_S if wait_s is None else min(HEARTBEAT_S, wait_s)


class LedgerPoll:
    """Follows one open ledger: a thread that waits at its bookies for more confirmed entries.

    It never fences, so the ledger's writer does not notice it. It ends when the ledger is closed. Bookies do not know of the
    close, so a watch of the ledger's metadata reports it. Calls ``on_news``, which must be brief, after every change.
    """

    def __init__(self, log: FollowedLog, ledger_id: int, on_news: Callable[[], None]) -> None:
        self._open_ledger = log.open_ledger
        self._ledger_id = ledger_id
        self._on_news = on_news
        self._metadata_changed = False
        self._end_watch = log.logs.store.watch(log.logs.znodes.ledger(ledger_id), self._on_metadata)
        self._handle: ReadHandle | None = None
        self._ended = threading.Event()
        self.failure: BaseException | None = None
        """The error that ended the thread; None after the ledger's close."""
        self.trouble: BookKeeperError | None = None
        """Why no bookie has answered since ``heard_s``; None while they answer."""
        self.heard_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"bk-spark-poll-{ledger_id}", daemon=True)
        self._thread.start()

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
        """End the thread after its current wait."""
        self._end_watch()
        self._ended.set()

    def _on_metadata(self) -> None:
        self._metadata_changed = True
        self._on_news()

    def _run(self) -> None:
        try:
            while not self._ended.is_set() and not (self._handle is not None and self._handle.is_closed):
                self._wait()
        except BaseException as problem:
            self.failure = problem
        self._on_news()

    def _wait(self) -> None:
        try:
            if self._handle is None:
                self._handle = self._open_ledger(self._ledger_id)
            else:
                self._handle.wait_for_last_add_confirmed(self._handle.last_add_confirmed, POLL_S)
            self.heard_s, self.trouble = time.monotonic(), None
            self._on_news()
        except BookKeeperError as problem:
            if not problem.retryable:
                raise
            self.trouble = problem
            self._ended.wait(RETRY_S)
