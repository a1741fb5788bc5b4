"""Appends Arrow data to a log as rows, in one atomic commit, without Spark.

The data go to ledgers of a write job of their own, one for each lane, as one task of Spark would write them. Nobody reads
them before the commit. Whatever fails before it, or a kill, leaves nothing that a reader sees; the sweep of orphans removes the
rest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.errors import BookKeeperError, ConfigError, SchemaMismatchError
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest, check_application
from bk_spark.log.log_store import LogStore
from bk_spark.log.rows.given_rows import batches_of, stream_of
from bk_spark.log.rows.key_lanes import AskedLanes
from bk_spark.log.stored.schema import MERGE_ARGUMENT, appended_schema, parse_schema, timestamps_of_dates
from bk_spark.log.stored.tier_schema import check_tier_follows
from bk_spark.log.stored.values import CommitKind, Content, Head, LogVersion
from bk_spark.log.write_ledger import JobRefresh, until_ended, write_ledgers
from bk_spark.rows.codec import PayloadFormat, cut
from bk_spark.rows.conversion import Conversion, check_dates
from bk_spark.rows.lanes import in_lanes
from bk_spark.rows.own_memory import in_own_memory
from bk_spark.rows.payload_defaults import COMPRESSION, COMPRESSIONS, MAX_BYTES_PER_ENTRY, MAX_ROWS_PER_ENTRY
from bk_spark.rows.writing import row_payloads

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowTarget:
    """A log that rows go to, and the form in which they are stored. Raises ConfigError for an unknown compression."""

    logs: LogStore
    name: str
    uid: str | None
    """None: there was no log of this name, and the commit creates it with its first rows."""
    add_bytes: int
    """Payloads travel together up to so many bytes: ``ClientConfig.add_batch_bytes``."""
    window_bytes: int
    """Of unconfirmed payloads: ``ClientConfig.add_window_bytes``."""
    compression: str = COMPRESSION

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise ConfigError("compression", self.compression, f"it must be one of {', '.join(COMPRESSIONS)}")

    @property
    def cut(self) -> PayloadFormat:
        """How rows are cut into entries."""
        return PayloadFormat(compression=self.compression, max_rows=MAX_ROWS_PER_ENTRY, max_bytes=MAX_BYTES_PER_ENTRY)

    def check(self, schema_json: str, *, merge: bool) -> tuple[Head, frozenset[str]]:
        """The head of the log, and places of dates that it has as timestamps.

        Raises SchemaMismatchError where the log would refuse rows of this schema.
        """
        given = parse_schema(self.name, schema_json)
        if self.uid is None:
            return Head(self.name), frozenset()
        head = self.logs.names.head(self.name, self.uid)
        if head.content is Content.ENTRIES:
            raise SchemaMismatchError(self.name, "the log holds entries, the data is rows: write them to another log")
        if head.schema_id is None:
            return head, frozenset()
        stored = self.logs.reader.schema(self.name, self.uid, head.schema_id)
        appended = appended_schema(self.name, stored, given, merge=merge, option=MERGE_ARGUMENT)
        check_tier_follows(head, stored, appended)
        return head, timestamps_of_dates(given, appended)


def append_rows(
    target: RowTarget,
    rows: Any,
    create_ledger: Callable[[WriteJob], WriteHandle],
    application: tuple[str, int] | None,
    asked: AskedLanes,
    *,
    merge_schema: bool,
) -> LogVersion:
    """See Log.append_rows."""
    check_application(application)
    stream = stream_of(target.name, rows)
    conversion = Conversion(target.name, stream.schema)
    schema_json = json.dumps(conversion.schema)
    head, timestamps = target.check(schema_json, merge=merge_schema)
    lanes = asked.appended(head, parse_schema(target.name, schema_json))
    logs = target.logs
    job = logs.jobs.begin(target.name, target.uid)
    try:
        with JobRefresh(lambda: logs.jobs.refresh(job)) as refresh:
            given = map(conversion.of, until_ended(batches_of(target.name, stream), refresh))
            batches = (check_dates(target.name, batch, timestamps) for batch in _taken(given, target.cut, lanes.count))
            split = in_lanes(batches, lanes.columns, lanes.count)
            payloads = row_payloads(target.name, conversion.stored, target.cut, split, target.add_bytes)
            ledgers = write_ledgers(lambda: create_ledger(job), payloads, target.window_bytes)
    except BaseException:
        _abort(logs, job)
        raise
    request = CommitRequest(
        CommitKind.APPEND, ledgers, schema_json, merge_schema, lanes, application=application, merge_option=MERGE_ARGUMENT
    )
    return logs.commit_or_abort(job, request)


def _taken(batches: Iterable[pa.RecordBatch], entry: PayloadFormat, lanes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in memory of our own, in pieces of about an entry for each lane: their memory is free for the next one."""
    for batch in batches:
        for piece in cut(batch, lanes * entry.max_rows, lanes * entry.max_bytes):
            yield in_own_memory(piece)


def _abort(logs: LogStore, job: WriteJob) -> None:
    try:
        logs.jobs.abort(job)
    except BookKeeperError as problem:  # the first failure counts
        logger.warning("write job %s on log '%s' is left to the sweep: %s", job.job_id, job.log_name, problem)
