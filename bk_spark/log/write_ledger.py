"""Writes the ledgers of a write job, and keeps the job alive meanwhile: what Spark's tasks and writers without Spark share."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa

from bk_spark.client.ledger.payloads import own_payloads
from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.entries.digest import payload_bytes
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.rows.lane_limits import MAX_LANES

REFRESH_S = 300.0
"""Seconds between two touches: 288 of them must fail before the sweep's 24 hours are over, and a thousand tasks cost the
metadata store three small writes a second."""

_Batch = TypeVar("_Batch")

logger = logging.getLogger(__name__)


def write_ledgers(
    create_ledger: Callable[[int], WriteHandle], payloads: Iterable[tuple[int, pa.BinaryArray, int]], window_bytes: int
) -> tuple[CommittedLedger, ...]:
    """Write arrays of payloads, each with its lane and the number of its rows: those of each lane to a new, closed ledger.

    The payloads are in memory that nobody changes. ``create_ledger`` is given the lane. Returns the ledgers by lane; a lane
    without payloads has none. With several logs, a lane of log n is given as n * MAX_LANES + lane. At most ``window_bytes`` of
    several ledgers together are sent and not confirmed, beside one array. Raises what ``payloads`` and a ledger raise; what was
    written then belongs to the job, whose end deletes it.
    """
    ledgers: dict[int, _LaneLedger] = {}
    sent: deque[tuple[Future[tuple[int, int]], int]] = deque()
    unconfirmed = 0
    try:
        for lane, array, count in payloads:
            ledger = ledgers.get(lane)
            if ledger is None:
                ledger = ledgers[lane] = _LaneLedger(lane % MAX_LANES, create_ledger(lane))
            last = ledger.append(array, count)  # waits while too much of this ledger is unconfirmed
            if len(ledgers) > 1:
                sent.append((last, payload_bytes(array)))
                unconfirmed += payload_bytes(array)
            while unconfirmed > window_bytes:
                oldest, nbytes = sent.popleft()
                oldest.result()
                unconfirmed -= nbytes
        return tuple(ledgers[lane].closed() for lane in sorted(ledgers))
    except BaseException:
        for ledger in ledgers.values():
            with suppress(BookKeeperError):  # the first failure counts, and the end of the job deletes the ledgers
                ledger.handle.close()
        raise


@dataclass(slots=True)
class _LaneLedger:
    """The ledger of one lane, which has an entry at least once it is closed."""

    lane: int
    handle: WriteHandle
    rows: int = 0
    last: Future[tuple[int, int]] | None = None

    def append(self, array: pa.BinaryArray, rows: int) -> Future[tuple[int, int]]:
        self.last = self.handle.append_batch_async(own_payloads(array))
        self.rows += rows
        return self.last

    def closed(self) -> CommittedLedger:
        assert self.last is not None
        _, last_entry_id = self.last.result()  # entries are confirmed in order: with the last one, all are
        self.handle.close()
        return CommittedLedger(self.handle.ledger_id, last_entry_id, self.handle.length, self.rows, self.lane)


class JobRefresh:
    """Calls ``refresh`` every ``interval_s`` seconds for as long as the ``with`` block lasts."""

    def __init__(self, refresh: Callable[[], None], interval_s: float = REFRESH_S) -> None:
        self._refresh = refresh
        self._interval_s = interval_s
        self._done = threading.Event()
        self._problem: BookKeeperError | None = None

    def check(self) -> None:
        """Raise the error that ended the job, such as JobEndedError: further writes of the task would be useless."""
        if self._problem is not None:
            raise self._problem

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="bk_spark job refresh", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Does not wait for a call of ``refresh`` under way: after the job's end it changes nothing."""
        self._done.set()

    def _run(self) -> None:
        while not self._done.wait(self._interval_s):
            try:
                self._refresh()
            except MetadataUnavailableError as problem:
                logger.warning("a write job could not be kept alive, it is tried again in %g s: %s", self._interval_s, problem)
            except BookKeeperError as problem:
                self._problem = problem
                return


def until_ended(batches: Iterable[_Batch], refresh: JobRefresh) -> Iterator[_Batch]:
    """The batches, for as long as the job lives."""
    for batch in batches:
        refresh.check()
        yield batch
