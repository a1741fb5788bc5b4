"""One ledger, and how far it can be read: from memory, for an idle query asks every 12 ms."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.datasource.background.heard import STALE_S
from bk_spark.datasource.connection import connect
from bk_spark.datasource.read.ledger_poll import LedgerPoll, PollThreads
from bk_spark.datasource.read.read_task import Reading, opened
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.log.log_store import LogStore
from bk_spark.log.stream.follow import LedgerEnd


@dataclass(frozen=True, slots=True)
class FollowedLedger:
    """A ledger with what it takes to follow it."""

    ledger_id: int
    logs: LogStore
    open_ledger: Callable[[int], ReadHandle]

    @staticmethod
    def of(reading: Reading) -> FollowedLedger:
        [ledger_id] = reading.options.ledger
        bookkeeper = connect(reading.options.metadata, reading.options.client)
        return FollowedLedger(ledger_id, bookkeeper.logs, partial(opened, bookkeeper, reading.options))

    def end(self) -> int:
        """The entry behind all that a quorum of bookies says is confirmed now."""
        return LedgerEnd.of(self.open_ledger(self.ledger_id)).last_entry_id + 1


class LedgerTail:
    """How far a ledger can be read, from memory: a thread waits at its bookies, a watch tells of its end."""

    def __init__(self, ledger: FollowedLedger) -> None:
        self._looked = threading.Event()
        self._poll = LedgerPoll(ledger, ledger.ledger_id, self._looked.set)
        PollThreads().add(self._poll)

    def end(self) -> int:
        """The entry behind the last confirmed one. Only the first call waits. Raises why the ledger cannot be followed."""
        if self._poll.end is None:
            self._looked.wait(STALE_S)
        trouble = self._poll.trouble
        try:
            self._poll.catch_up()
        except BookKeeperError as problem:
            if not problem.retryable:
                raise
            trouble = problem
        if self._poll.failure is not None:
            raise self._poll.failure
        end = self._poll.end
        if end is None:  # not an empty ledger: nobody has said how far it goes
            silence = f"nothing was heard of ledger {self._poll.ledger_id} for {STALE_S:g} s"
            raise trouble or MetadataUnavailableError("that holds the ledger", silence)
        if trouble is not None and time.monotonic() - self._poll.heard_s > STALE_S:
            raise trouble
        return end.last_entry_id + 1

    def stop(self) -> None:
        self._poll.stop()
