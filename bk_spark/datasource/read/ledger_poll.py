"""Follows one open ledger: a thread that waits at its bookies for more confirmed entries.

It never fences, so the ledger's writer does not notice it. It ends when the ledger is closed. Bookies do not know of the
close, so a watch of the ledger's metadata reports it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.client.log.stream.follow import LedgerEnd
from bk_spark.datasource.read.followed_log import FollowedLog
from bk_spark.errors import BookKeeperError

POLL_S = 20.0
"""The longest single wait at the bookies. A wait that ends without news costs a request to each of them."""

RETRY_S = 0.5
"""Between tries while a bookie or the metadata store does not answer."""


class LedgerPoll:
    """How far one open ledger is known to be confirmed. Calls ``on_news``, which must be brief, when that changes."""

    def __init__(self, log: FollowedLog, ledger_id: int, on_news: Callable[[], None]) -> None:
        self._open_ledger = log.open_ledger
        self._ledger_id = ledger_id
        self._on_news = on_news
        self._metadata_changed = False
        self._end_watch = log.logs.watch.ledger(ledger_id, self._on_metadata)
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
