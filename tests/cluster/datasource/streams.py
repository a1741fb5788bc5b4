"""What tests of streams share: waiting for a stream's background thread, and a compaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.read.stream_reader import StreamReader
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from bk_spark.log.stream.positions import Offset
from tests.cluster.datasource.direct import micro_batch
from tests.unit.datasource.batches import wait_until

ALL = ReadAllAvailable()

OpenStream = Callable[..., StreamReader]


def payloads(stream: StreamReader, start: Offset, end: Offset) -> list[Any]:
    return micro_batch(stream, start, end, "payload")


def wait_for(stream: StreamReader, start: Offset, holds: Callable[[Offset], bool] | None = None) -> Offset:
    """The next offset above ``start``, or that for which ``holds``, once the background thread has it."""
    found: list[Offset] = []

    def is_there() -> bool:
        found.append(stream.latestOffset(start, ALL))
        return holds(found[-1]) if holds else found[-1] != start

    wait_until(is_there)
    return found[-1]


def compact(bookkeeper: BookKeeper, log: str, first: int = 0) -> None:
    """Copy all entries from the ledger at place ``first`` on into one ledger that takes the place of those."""
    listed = bookkeeper.logs.reader.snapshot(log).ledgers[first:]
    job = bookkeeper.logs.jobs.begin(log)
    written = bookkeeper.create_ledger(job=job)
    for one in listed:
        for batch in bookkeeper.open_ledger(one.ledger_id, recover=False).read(0, one.last_entry_id):
            written.append_batch(batch.column("payload"))
    written.close()
    ledger = CommittedLedger(written.ledger_id, written.last_add_confirmed, written.length, sum(one.rows for one in listed))
    request = CommitRequest(CommitKind.COMPACT, (ledger,), remove=tuple(one.ledger_id for one in listed))
    bookkeeper.logs.commit(job, request)


def bare(offset: Offset) -> Offset:
    """Without the start of the stream, which stands in the end of its first batch."""
    return {key: value for key, value in offset.items() if key != "start"}
