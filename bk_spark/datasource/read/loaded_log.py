"""The one version of a log that a ``load()`` sees, its columns, and the user's condition on them.

What a load of several logs gives is in ``loaded_logs.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StringType, StructType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.spark_schema import ENTRIES, from_json, to_arrow, with_metadata_columns
from bk_spark.errors import ConfigError, State
from bk_spark.log.rows.latest.view import LatestRows, latest_rows
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.snapshot import check_version
from bk_spark.log.stored.values import Head
from bk_spark.rows.where.filter import RowFilter, bind


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """A version of a log, and its schema."""

    name: str
    uid: str
    version: int
    content: str | None
    """``rows`` or ``entries``; None for a log without any commit."""
    schema_json: str | None
    """Spark's JSON; None unless the content is rows."""
    lanes: Lanes = PLAIN

    @property
    def stored(self) -> Stored:
        what = f"version {self.version} of log '{self.name}'"
        return Stored(self.name, what, self.content, self.schema_json)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a load finds, in one log or in several together. The fields that it shares with LoadedLog mean the same."""

    name: str
    """What errors call it: the log's name, or several names."""
    what: str
    """What holds nothing if ``content`` is None."""
    content: str | None
    schema_json: str | None


def load_log(bookkeeper: BookKeeper, options: SourceOptions, name: str) -> LoadedLog:
    """The log as it stands now, or as it stood at the version or time that the options name.

    Raises NoSuchLogError; ConfigError for a version that the log does not have, or does not keep any more.
    """
    uid = bookkeeper.logs.names.uid(name)
    return load_at(bookkeeper, options, uid, bookkeeper.logs.names.head(name, uid))


def load_at(bookkeeper: BookKeeper, options: SourceOptions, uid: str, head: Head) -> LoadedLog:
    """As ``load_log``, of a log that stands at ``head`` now."""
    reader, name = bookkeeper.logs.reader, head.name
    version = head.version
    if options.timestamp_as_of is not None:
        version = reader.version_at(name, uid, options.timestamp_as_of, head)
    elif options.version_as_of is not None:
        version = options.version_as_of
    check_version(name, head, version)
    if version == 0:
        return LoadedLog(name, uid, 0, None, None)
    record = reader.version(name, uid, version)
    schema_json = None if record.schema_id is None else json.dumps(reader.schema(name, uid, record.schema_id))
    return LoadedLog(name, uid, version, record.content.value, schema_json, record.lanes)


def columns_of(options: SourceOptions, stored: Stored) -> StructType:
    """The columns that a load gives by default. Raises ConfigError where the log holds the other content, or nothing."""
    if options.reads_entries:
        return ENTRIES
    columns = _columns(options, stored)
    return with_metadata_columns(stored.name, columns) if options.include_metadata else columns


def filter_of(options: SourceOptions, stored: Stored) -> RowFilter | None:
    """Option ``where``, bound to the log's columns. Raises ConfigError where it does not fit them."""
    if options.where is None:
        return None
    columns = _columns(options, stored)
    bound = bind(options.where, stored.name, to_arrow(columns), options.zone)
    for path in bound.compared():
        kind: Any = columns
        for name in path:
            kind = kind[name].dataType
        if isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():
            remedy = f"column '{'.'.join(path)}' has a collation of its own: use DataFrame.where()"
            raise ConfigError("option 'where'", options.where.text, remedy)
    return bound


def latest_of(options: SourceOptions, log: LoadedLog, where: RowFilter | None) -> LatestRows | None:
    """Options ``view`` and ``deletedBy``, bound to the log's key and columns. Raises ConfigError where it has no key."""
    asked = options.asked_view
    if not asked.is_latest:
        return None
    return latest_rows(asked, log.stored.what, to_arrow(_columns(options, log.stored)), log.lanes, where)


def _columns(options: SourceOptions, stored: Stored) -> StructType:
    if stored.content == "entries":
        remedy = f"log '{stored.name}' holds entries: read it with content=entries"
        raise ConfigError("option 'content'", options.content, remedy)
    if stored.schema_json is None:
        problem = "it holds nothing and has no schema: write to the log first, or read a later version"
        raise ConfigError(stored.what, State("empty"), problem)
    return from_json(stored.schema_json)
