"""One task attempt of a write, of a batch or of a stream: its rows go to a ledger of its own.

Spark may run several attempts of a task, also at the same time, and a losing attempt may end after the commit. So no attempt
touches what another one wrote, and none makes anything visible.

The sweep takes a write job whose ``running`` nobody has touched for 24 hours (log rule 1). A task may wait longer than that
for its rows, so a thread of its own touches ``running``; that is why the data source uses ``threading`` here.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyspark.sql.types import StructType

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.client.log.changes.jobs import WriteJob
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.stored.values import CommittedLedger
from bk_spark.datasource.connection import connect
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.spark_schema import to_arrow
from bk_spark.errors import BookKeeperError, ConfigError, MetadataUnavailableError
from bk_spark.rows.codec import PayloadFormat, RowEncoder
from bk_spark.rows.gathering import gathered_batches, gathered_entries, gathered_payloads
from bk_spark.rows.parts import in_parts

REFRESH_S = 300.0
"""Seconds between two touches: 288 of them must fail before the sweep's 24 hours are over, and a thousand tasks cost the
metadata store three small writes a second."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What all task attempts of a job have in common: made on the driver, pickled to the tasks.

    ``schema`` is the stored schema of rows; None if each row is an entry.
    """

    options: SourceOptions
    job: WriteJob
    schema: StructType | None

    def write(self, batches: Iterator[pa.RecordBatch]) -> CommittedLedger | None:
        """Write all rows to a new ledger and close it. Without rows there is no ledger, and the result is None.

        Raises JobEndedError where the job was committed, aborted or swept meanwhile.
        """
        handle: WriteHandle | None = None
        last: Future[tuple[int, int]] | None = None
        rows = 0
        try:
            with JobRefresh(lambda: self.logs.jobs.refresh(self.job)) as refresh:
                for payloads, count in self._payloads(_until_ended(batches, refresh)):
                    handle = handle or self._create_ledger()
                    last = handle.append_batch_async(payloads)  # waits while too much is unconfirmed
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

    @property
    def logs(self) -> LogStore:
        return connect(self.options.metadata, self.options.client).logs

    def _create_ledger(self) -> WriteHandle:
        options = self.options
        quorums = (options.ensemble_size, options.write_quorum, options.ack_quorum)
        bookkeeper = connect(options.metadata, options.client)
        return bookkeeper.create_ledger(*quorums, options.digest_type, options.password, job=self.job)

    def _payloads(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.BinaryArray, int]]:
        """Arrays of payloads to append, and how many rows each one holds."""
        options = self.options
        if self.schema is None:
            for payloads in gathered_entries(map(entry_payloads, batches), options.client.add_batch_bytes):
                yield payloads, len(payloads)
            return
        cut = PayloadFormat(
            compression=options.compression, max_rows=options.max_rows_per_entry, max_bytes=options.max_bytes_per_entry
        )
        encoder = RowEncoder(self.job.log_name, to_arrow(self.schema), cut)
        pieces = gathered_batches(batches, cut.max_rows, cut.max_bytes)
        encoded = in_parts(itertools.chain.from_iterable(map(encoder.encode, pieces)))
        yield from gathered_payloads(encoded, options.client.add_batch_bytes)


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


def _until_ended(batches: Iterator[pa.RecordBatch], refresh: JobRefresh) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        refresh.check()
        yield batch


def entry_payloads(batch: pa.RecordBatch) -> pa.BinaryArray:
    """The ``payload`` column as bytes. Raises ConfigError for a null."""
    column = batch.column("payload")
    if column.null_count:
        raise ConfigError("column 'payload'", None, "an entry may be empty, not null: filter the nulls out, or coalesce them")
    return column.cast(pa.binary())
