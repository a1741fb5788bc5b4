"""Checks on the driver before the tasks of a write run, so that a write that cannot be committed fails early.

The commit checks schema and content again, against the log as it stands then.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.spark_schema import nullable, to_arrow
from bk_spark.errors import (
    ConfigError,
    NoSuchLogError,
    NotEnoughBookiesError,
    SchemaMismatchError,
    State,
    UnauthorizedAccessError,
)
from bk_spark.log.rows.key_lanes import AskedLanes
from bk_spark.log.stored.lanes import PLAIN, Lanes
from bk_spark.log.stored.schema import appended_schema, parse_schema, timestamps_of_dates
from bk_spark.log.stored.snapshot import LogReader
from bk_spark.log.stored.tier_schema import check_tier_follows
from bk_spark.log.stored.values import Head
from bk_spark.rows.widening import wider_types

_VERSIONS_LOOKED_AT = 10
"""Versions that are searched for a ledger of the log. Nearly every version adds one; if none of these did, the whole list
is read."""


def stored_schema(options: SourceOptions, schema: StructType) -> StructType | None:
    """The schema under which a DataFrame's rows are stored; None if each row is an entry.

    Raises ConfigError for a DataFrame that cannot be written as its options say.
    """
    if options.reads_entries:
        _check_entries(schema)
        return None
    if not schema.fields:
        raise ConfigError("the DataFrame's schema", schema.simpleString(), "it has no columns, there is nothing to write")
    stored = nullable(options.path or f"(that column {options.log_column} names)", schema)
    to_arrow(stored)
    return stored


def check_bookies(bookkeeper: BookKeeper, options: SourceOptions) -> None:
    """Raises NotEnoughBookiesError where too few bookies are writable to create a ledger."""
    bookies = bookkeeper.list_bookies()
    writable = sum(not bookie.read_only for bookie in bookies)
    if writable < options.ensemble_size:
        purpose = f"an ensemble of {options.ensemble_size} (option 'ensembleSize')"
        raise NotEnoughBookiesError(options.ensemble_size, writable, purpose, len(bookies) - writable)


def found_log(bookkeeper: BookKeeper, options: SourceOptions) -> tuple[str | None, Head]:
    """The uid and the head of the log; None, and the head of an empty log, where there is none."""
    names, name = bookkeeper.logs.names, options.log
    try:
        uid = names.uid(name)
        return uid, names.head(name, uid)
    except NoSuchLogError:
        return None, Head(name)


def lanes_of_write(options: SourceOptions, given: StructType | None, head: Head, *, overwrite: bool) -> Lanes:
    """The lanes to which the rows go. Raises ConfigError where the options, the rows and the log do not fit together."""
    if given is None:
        return PLAIN
    schema = parse_schema(head.name, given.json())
    asked = AskedLanes(options.partition_key, options.lanes)
    return asked.overwritten(head, schema) if overwrite else asked.appended(head, schema)


@dataclass(frozen=True, slots=True)
class CheckedAppend:
    """What an append of rows has to know of its log."""

    head: Head
    timestamps: frozenset[str] = frozenset()
    """Places of dates that the log has as timestamps."""
    read_as: tuple[tuple[str, pa.DataType], ...] = ()
    """Columns that the log has with a wider type."""


def check_append(bookkeeper: BookKeeper, options: SourceOptions, given: StructType | None) -> CheckedAppend:
    """The log as rows of the schema ``given`` meet it.

    Raises SchemaMismatchError or UnauthorizedAccessError where the log would refuse the append. A stream calls this with every
    batch, so its cost does not depend on how many ledgers the log lists.
    """
    logs, name = bookkeeper.logs, options.log
    uid, head = found_log(bookkeeper, options)
    if uid is None or head.content is None:
        return CheckedAppend(head)
    _check_password(bookkeeper, options, uid, head)
    if head.content.value != options.content:
        problem = f"the log holds {head.content.value}, option 'content' is {options.content}: use another log"
        raise SchemaMismatchError(name, problem)
    if given is None or head.schema_id is None:
        return CheckedAppend(head)
    rows, stored = parse_schema(name, given.json()), logs.reader.schema(name, uid, head.schema_id)
    appended = appended_schema(name, stored, rows, merge=options.merge_schema)
    check_tier_follows(head, stored, appended)
    return CheckedAppend(head, timestamps_of_dates(rows, appended), wider_types(to_arrow(given), appended))


def _check_entries(schema: StructType) -> None:
    if schema.names != ["payload"] or not isinstance(schema["payload"].dataType, (BinaryType, StringType)):
        remedy = "entries are written from one column 'payload', BINARY or STRING: select it, cast or renamed as needed"
        raise ConfigError("the DataFrame's schema", schema.simpleString(), remedy)


def _check_password(bookkeeper: BookKeeper, options: SourceOptions, uid: str, head: Head) -> None:
    """All ledgers of a log must have one password: with two, nobody could read all of it."""
    if head.is_secured and options.password:
        remedy = f"log '{head.name}' is secured, and its ledgers have keys: leave the password out"
        raise ConfigError("option 'password'", State("(not shown)"), remedy)
    newest = _newest_ledger(bookkeeper.logs.reader, options.log, uid, head)
    listed = bookkeeper.existing_ledgers([] if newest is None else [newest])
    if not listed:
        ledgers = bookkeeper.logs.reader.snapshot(options.log).ledgers
        listed = bookkeeper.existing_ledgers([ledger.ledger_id for ledger in ledgers[-1:]])
    for metadata in listed:
        if not metadata.is_opened_by(options.password):
            raise UnauthorizedAccessError(metadata.ledger_id)


def _newest_ledger(reader: LogReader, name: str, uid: str, head: Head) -> int | None:
    """The newest ledger that one of the last versions added; None where they added none."""
    if head.writer.open_ledgers:
        return head.writer.open_ledgers[-1].ledger_id
    first = max(1, head.oldest_record, head.version + 1 - _VERSIONS_LOOKED_AT)
    for version in reversed(list(reader.versions(name, uid, first, head.version))):
        if version.added.ledgers:
            ((_, pages),) = reader.commits(name, uid, version.version, version.version)
            return next((ledger.ledger_id for page in reversed(pages) for ledger in reversed(page.ledgers)), None)
    return None
