"""Writes one ledger of a write job, and keeps the job alive meanwhile: what Spark's tasks and writers without Spark share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Self

import pyarrow as pa

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.client.log.stored.values import CommittedLedger
from bk_spark.errors import BookKeeperError, MetadataUnavailableError

REFRESH_S = 300.0
"""Seconds between two touches: 288 of them must fail before the sweep's 24 hours are over, and a thousand tasks cost the
metadata store three small writes a second."""

logger = logging.getLogger(__name__)


def write_ledger(
    create_ledger: Callable[[], WriteHandle], payloads: Iterable[tuple[pa.BinaryArray, int]]
) -> CommittedLedger | None:
    """Write arrays of payloads, each with the number of its rows, to a new ledger and close it.

    Without payloads there is no ledger, and the result is None. Raises what ``payloads`` and the ledger raise; what was
    written then belongs to the job, whose end deletes it.
    """
    handle: WriteHandle | None = None
    last: Future[tuple[int, int]] | None = None
    rows = 0
    try:
        for array, count in payloads:
            handle = handle or create_ledger()
            last = handle.append_batch_async(array)  # waits while too much is unconfirmed
            rows += count
        if handle is None or last is None:
            return None
        _, last_entry_id = last.result()  # entries are confirmed in order: with the last one, all are
        handle.close()
        return CommittedLedger(handle.ledger_id, last_entry_id, handle.length, rows)
    except BaseException:
        if handle is not None:
            with suppress(BookKeeperError):  # the first failure counts, and the end of the job deletes the ledger
                handle.close()
        raise


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


def until_ended(batches: Iterable[pa.RecordBatch], refresh: JobRefresh) -> Iterator[pa.RecordBatch]:
    """The batches, for as long as the job lives."""
    for batch in batches:
        refresh.check()
        yield batch
