"""Follows a log in the background, so that Spark's questions are answered from memory.

An idle query asks every 12 ms for the latest offset; that must cost nothing. So the stream's thread waits for news: of the
log's head by a watch in the metadata store, of open ledgers by long polls at their bookies (``LedgerPoll``). After each piece
of news it plans the newest position once. It also reads the head every HEARTBEAT_S seconds, in case a watch was lost.

Ref: docs/rules.md, log rules 2 and 7.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bk_spark.datasource.background.heard import STALE_S, Heard
from bk_spark.datasource.background.stream_thread import StreamThread
from bk_spark.datasource.read.followed_log import CURSOR_INTERVAL_S, CursorPublisher, FollowedLog
from bk_spark.datasource.read.ledger_poll import LedgerPoll, PollThreads
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.log.stored.values import Head, OpenLedger
from bk_spark.log.stream.follow import LedgerEnd, Newest
from bk_spark.log.stream.positions import StreamPosition
from bk_spark.log.stream.waits import HEARTBEAT_S, RETRY_S


@dataclass(frozen=True, slots=True)
class StreamThreads:
    """The threads that all logs of one stream share."""

    looks: StreamThread
    polls: PollThreads = field(default_factory=PollThreads)


class LogTail:
    """The newest position of one log, kept in the background for a stream that stands at ``start``."""

    def __init__(self, log: FollowedLog, start: StreamPosition, cursor: CursorPublisher, threads: StreamThreads) -> None:
        self.start = start
        """Where the stream stands; nothing before it is read."""
        self._log = log
        self._cursor = cursor
        self._threads = threads
        self._polls: dict[int, LedgerPoll] = {}
        self._end_watch: Callable[[], None] | None = None
        self._woken = True
        self._due_s = 0.0
        self._heard: Heard[tuple[Head, Newest]] = Heard(f"log '{log.name}'", "that holds the log")
        self._planned_from: tuple[Head, dict[int, LedgerEnd]] | None = None
        threads.looks.add(self)

    def newest(self) -> tuple[Head, Newest]:
        """The log's head and newest position, from memory. Only the first call waits. Raises why the log cannot be followed."""
        return self._heard.ask(self.wake)

    def wake(self) -> None:
        """Have the thread look for work, such as a cursor to publish."""
        self._woken = True
        self._threads.looks.wake()

    def stop(self) -> None:
        """Follow the log no more."""
        self._threads.looks.remove(self)

    # The thread calls the methods below.

    def wait_s(self) -> float:
        """See ``Work``."""
        if self._heard.failure is not None:
            return HEARTBEAT_S
        if self._woken:
            return 0.0
        wait_s, cursor_s = self._due_s - time.monotonic(), self._cursor.wait_s()
        return wait_s if cursor_s is None or self._heard.trouble is not None else min(wait_s, cursor_s)

    def step(self) -> None:
        """See ``Work``."""
        self._woken = False
        try:
            self._end_watch = self._end_watch or self._watch()
            self._look()
            if self._cursor.wait_s() == 0.0:
                self._cursor.publish(self._threads.looks.interval_s(CURSOR_INTERVAL_S))
        except BaseException as problem:
            self._heard.fail(problem)
        waits_s = RETRY_S if self._heard.trouble is not None else self._threads.looks.interval_s(HEARTBEAT_S)
        self._due_s = time.monotonic() + waits_s

    def end(self) -> None:
        """See ``Work``."""
        self._heard.end()
        if self._end_watch is not None:
            self._end_watch()
        for poll in self._polls.values():
            poll.stop()

    def _watch(self) -> Callable[[], None] | None:
        """None while the metadata store does not answer."""
        try:
            return self._log.logs.store.watch(self._log.logs.names.paths(self._log.uid).head, self.wake)
        except MetadataUnavailableError as problem:
            self._heard.miss(problem)
            return None

    def _look(self) -> None:
        try:
            self._plan()
        except BookKeeperError as problem:
            self._heard.miss(problem)
        else:
            self._heard.hear()

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
            known = self._heard.known
            position = newest.position if known is None else max(newest.position, known[1].position)
            self._heard.known = head, replace(newest, position=position)
            self._planned_from = head, ends

    def _end(self, opened: OpenLedger, failed: Mapping[int, BaseException]) -> LedgerEnd:
        if opened.ledger_id in failed:
            raise failed[opened.ledger_id]
        if opened.ledger_id not in self._polls:
            self._polls[opened.ledger_id] = LedgerPoll(self._log, opened.ledger_id, self.wake)
            self._threads.polls.add(self._polls[opened.ledger_id])
        poll = self._polls[opened.ledger_id]
        poll.catch_up()
        if poll.trouble is not None and time.monotonic() - poll.heard_s > STALE_S:
            self._heard.failure = poll.trouble  # not raised here: while it is retryable, the look would be tried again
        return poll.end or LedgerEnd(NO_ENTRY, is_closed=False)
