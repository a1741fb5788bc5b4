"""Appends Arrow data to a log as rows, in one atomic commit, without Spark.

The data go to ledgers of a write job of their own, one for each lane, as one task of Spark would write them. Nobody reads
them before the commit. Whatever fails before it, or a kill, leaves nothing that a reader sees; the sweep of orphans removes the
rest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bk_spark.client.ledger.write_handle import WriteHandle
from bk_spark.errors import BookKeeperError, ConfigError, SchemaMismatchError
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest, check_application
from bk_spark.log.log_store import LogStore
from bk_spark.log.rows.given_rows import batches_of, stream_of
from bk_spark.log.rows.key_lanes import AskedLanes
from bk_spark.log.stored.lanes import Lanes
from bk_spark.log.stored.schema import MERGE_ARGUMENT, Schema, appended_schema, parse_schema, timestamps_of_dates
from bk_spark.log.stored.tier_schema import check_tier_follows
from bk_spark.log.stored.values import CommitKind, Content, Head, LogVersion
from bk_spark.log.write_ledger import JobRefresh, until_ended, write_ledgers
from bk_spark.rows.codec import PayloadFormat, cut
from bk_spark.rows.conversion import Conversion, check_dates
from bk_spark.rows.lanes import in_lanes
from bk_spark.rows.own_memory import in_own_memory
from bk_spark.rows.payload_defaults import COMPRESSION, COMPRESSIONS, MAX_BYTES_PER_ENTRY, MAX_ROWS_PER_ENTRY
from bk_spark.rows.widening import wider_types
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

    @property
    def head(self) -> Head:
        """Where the log stands; the head of an empty one where there is none."""
        return Head(self.name) if self.uid is None else self.logs.names.head(self.name, self.uid)

    def check(self, given: Schema, before: Schema | None = None, *, merge: bool) -> tuple[Head, Schema]:
        """The head of the log, and its columns after an append of rows with these; ``before``: the columns to append to.

        Raises SchemaMismatchError where the log would refuse rows of this schema.
        """
        head = self.head
        if head.content is Content.ENTRIES:
            raise SchemaMismatchError(self.name, "the log holds entries, the data is rows: write them to another log")
        stored = None
        if self.uid is not None and head.schema_id is not None:
            stored = self.logs.reader.schema(self.name, self.uid, head.schema_id)
        if before is None and stored is None:
            return head, given
        appended = appended_schema(self.name, before or stored or given, given, merge=merge, option=MERGE_ARGUMENT)
        check_tier_follows(head, stored, appended)
        return head, appended


@dataclass(frozen=True, slots=True)
class RowWrite:
    """Rows to write, and how."""

    rows: Any
    asked: AskedLanes
    merge_schema: bool
    create_ledger: Callable[[WriteJob], WriteHandle]
    kind: CommitKind = CommitKind.APPEND
    """Or OVERWRITE."""
    after: PlannedWrite | None = None
    """An append to the same log, behind which these rows come in one commit."""


def append_rows(target: RowTarget, write: RowWrite, application: tuple[str, int] | None) -> LogVersion:
    """See Log.append_rows."""
    check_application(application)
    logs = target.logs
    planned = planned_write(target, write)
    job = logs.jobs.begin(target.name, target.uid)
    try:
        with JobRefresh(lambda: logs.jobs.refresh(job)) as refresh:
            request = planned.written(job, refresh)
    except BaseException:
        _abort(logs, job)
        raise
    return logs.commit_or_abort(job, replace(request, application=application))


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """A write that fits its log. Nothing is written yet."""

    target: RowTarget
    write: RowWrite
    stream: pa.RecordBatchReader
    conversion: Conversion
    timestamps: frozenset[str]
    """Places of dates that the log has as timestamps."""
    lanes: Lanes
    appended: Schema
    """The columns of the log after it."""

    def written(self, job: WriteJob, refresh: JobRefresh) -> CommitRequest:
        """Write the rows to ledgers of the job. What was written before an error belongs to the job, whose end deletes it."""
        target, name, conversion, columns = self.target, self.target.name, self.conversion, self.lanes.columns
        given = map(conversion.of, until_ended(batches_of(name, self.stream), refresh))
        batches = (check_dates(name, batch, self.timestamps) for batch in _taken(given, target.cut, self.lanes.count))
        split = in_lanes(batches, columns, self.lanes.count)
        entry = replace(target.cut, key=columns, read_as=wider_types(conversion.stored, self.appended))
        payloads = row_payloads(name, conversion.stored, entry, split, target.add_bytes)
        ledgers = write_ledgers(lambda lane: self.write.create_ledger(job), payloads, target.window_bytes)
        schema_json, merge = json.dumps(conversion.schema), self.write.merge_schema
        return CommitRequest(self.write.kind, ledgers, schema_json, merge, self.lanes, merge_option=MERGE_ARGUMENT)


def planned_write(target: RowTarget, write: RowWrite) -> PlannedWrite:
    """Raises as ``Log.append_rows``, of all that can be known before a row is read."""
    stream = stream_of(target.name, write.rows)
    conversion = Conversion(target.name, stream.schema)
    schema = parse_schema(target.name, json.dumps(conversion.schema))
    if write.kind is CommitKind.OVERWRITE:
        lanes = write.asked.overwritten(target.head, schema)
        return PlannedWrite(target, write, stream, conversion, frozenset(), lanes, schema)
    after = write.after
    head, appended = target.check(schema, None if after is None else after.appended, merge=write.merge_schema)
    if after is not None:
        head = replace(head, content=Content.ROWS, lanes=after.lanes)
    timestamps, lanes = timestamps_of_dates(schema, appended), write.asked.appended(head, schema)
    return PlannedWrite(target, write, stream, conversion, timestamps, lanes, appended)


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
