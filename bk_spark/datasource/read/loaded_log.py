"""The one version of a log that a ``load()`` sees, its columns, and the user's condition on them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StringType, StructType

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.client.log.stored.snapshot import check_version
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.spark_schema import ENTRIES, from_json, to_arrow, with_metadata_columns
from bk_spark.errors import ConfigError
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


def load_log(bookkeeper: BookKeeper, options: SourceOptions) -> LoadedLog:
    """The log as it stands now, or as it stood at the version or time that the options name.

    Raises NoSuchLogError; ConfigError for a version that the log does not have, or does not keep any more.
    """
    reader, name = bookkeeper.logs.reader, options.log
    uid = bookkeeper.logs.names.uid(name)
    head = bookkeeper.logs.names.head(name, uid)
    version = head.version
    if options.timestamp_as_of is not None:
        version = reader.version_at(name, uid, options.timestamp_as_of)
    elif options.version_as_of is not None:
        version = options.version_as_of
    check_version(name, head, version)
    if version == 0:
        return LoadedLog(name, uid, 0, None, None)
    record = reader.version(name, uid, version)
    schema_json = None if record.schema_id is None else json.dumps(reader.schema(name, uid, record.schema_id))
    return LoadedLog(name, uid, version, record.content.value, schema_json)


def columns_of(options: SourceOptions, log: LoadedLog) -> StructType:
    """The columns that a load gives by default. Raises ConfigError where the log holds the other content, or nothing."""
    if options.reads_entries:
        return ENTRIES
    stored = _stored(options, log)
    return with_metadata_columns(log.name, stored) if options.include_metadata else stored


def filter_of(options: SourceOptions, log: LoadedLog) -> RowFilter | None:
    """Option ``where``, bound to the log's columns. Raises ConfigError where it does not fit them."""
    if options.where is None:
        return None
    stored = _stored(options, log)
    bound = bind(options.where, log.name, to_arrow(stored), options.zone)
    for path in bound.compared():
        kind: Any = stored
        for name in path:
            kind = kind[name].dataType
        if isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():
            remedy = f"column '{'.'.join(path)}' has a collation of its own: use DataFrame.where()"
            raise ConfigError("option 'where'", options.where.text, remedy)
    return bound


def _stored(options: SourceOptions, log: LoadedLog) -> StructType:
    if log.content == "entries":
        remedy = f"log '{log.name}' holds entries: read it with content=entries"
        raise ConfigError("option 'content'", options.content, remedy)
    if log.schema_json is None:
        what = f"version {log.version} of log '{log.name}'"
        raise ConfigError(what, "empty", "it holds nothing and has no schema: write to the log first, or read a later version")
    return from_json(log.schema_json)
