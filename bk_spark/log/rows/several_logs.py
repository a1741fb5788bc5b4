"""The rows of several logs as they stood at one moment: each transaction is in all of them, or in none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from bk_spark.errors import ConfigError, NoSuchLogError, State
from bk_spark.log.log_store import LogStore
from bk_spark.log.rows.read_rows import RowQuery, RowReader, milliseconds_of
from bk_spark.log.stored.columns_together import LogColumns, columns_together, names_together
from bk_spark.log.stored.snapshot import LogSnapshot
from bk_spark.log.stored.values import Content
from bk_spark.log.tier.opener import LogLedgerOpener
from bk_spark.rows.arrow_types import arrow_schema

MOST_LOGS = 1000
"""Of one read, as in one of Spark: their heads are two readings of a megabyte."""


@dataclass(frozen=True, slots=True)
class LogAt:
    """A log at one version."""

    name: str
    uid: str
    version: int


def logs_at(logs: LogStore, names: Sequence[str], timestamp: datetime | None) -> list[LogAt]:
    """Each log as it stands now, or stood at ``timestamp``, with each transaction in all or in none.

    Raises NoSuchLogError, ConfigError.
    """
    check_names(names)
    time_ms = None if timestamp is None else milliseconds_of(timestamp)
    uids = logs.names.find_many(names)
    heads = logs.names.heads({uid: name for name, uid in uids.items()})
    gone = next((name for name in names if name not in uids or uids[name] not in heads), None)
    if gone is not None:
        raise NoSuchLogError(gone)
    standing = [(name, uids[name], heads[uids[name]]) for name in names]
    if time_ms is None:
        return [LogAt(name, uid, head.version) for name, uid, head in standing]
    return [LogAt(name, uid, logs.reader.version_at(name, uid, time_ms, head)) for name, uid, head in standing]


def snapshot_of(logs: LogStore, at: LogAt) -> LogSnapshot:
    """Raises NoSuchLogError where the name is another log's by now."""
    found = logs.reader.snapshot(at.name, at.version)
    if found.uid != at.uid:
        raise NoSuchLogError(at.name)
    return found


def check_names(names: Sequence[str]) -> None:
    """Raises ConfigError for what is no list of different names."""
    if isinstance(names, str) or not names or not all(isinstance(one, str) for one in names):
        raise ConfigError("logs", names, "it must be a list of names of logs")
    if len(set(names)) < len(names):
        raise ConfigError("logs", names, "it must name each log once")
    if len(names) > MOST_LOGS:
        raise ConfigError("the number of logs to read together", len(names), f"it must be {MOST_LOGS} at most")


@dataclass(frozen=True, slots=True)
class SeveralLogs:
    """Reads the rows of several logs, log after log."""

    snapshots: Sequence[LogSnapshot]
    openers: Mapping[str, LogLedgerOpener]
    """By the name of each log."""
    query: RowQuery

    def read(self) -> pa.RecordBatchReader:
        """Lazily; columns that a log lacks are null. Raises ConfigError, SchemaMismatchError."""
        stored, filled = self._together(), [one for one in self.snapshots if one.content is not None]
        readers = [RowReader(one, self.query, self.openers[one.name], stored) for one in filled]
        return pa.RecordBatchReader.from_batches(readers[0].query.schema, _rows(readers))

    def _together(self) -> pa.Schema:
        names = names_together([one.name for one in self.snapshots])
        entries = next((one.name for one in self.snapshots if one.content is Content.ENTRIES), None)
        if entries is not None:
            raise ConfigError("the log", entries, "it holds entries, not rows: read them with Log.read()")
        columns = [LogColumns(one.name, json.loads(one.schema_json)) for one in self.snapshots if one.schema_json is not None]
        if not columns:
            raise ConfigError(f"each of the logs {names}", State("empty"), "they have no columns: write rows first")
        return arrow_schema(columns_together(columns))


def _rows(readers: Sequence[RowReader]) -> Iterator[pa.RecordBatch]:
    for reader in readers:
        yield from reader.read(None, None)
