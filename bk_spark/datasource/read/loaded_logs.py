"""What a ``load()`` of several logs sees: a version of each, all of one moment, and their columns together.

A column that a log lacks is null in its rows. A log that holds nothing gives no rows and no columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.option_values import MAX_LOGS_READ
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.read.loaded_log import LoadedLog, Stored, load_at, load_log
from bk_spark.errors import ConfigError, MetadataConflictError, NoSuchLogError
from bk_spark.log.stored.columns_together import LogColumns, columns_together, names_together

_TRIES = 20
"""Each further try means that a log was created or deleted while heads were read, which takes milliseconds."""


@dataclass(frozen=True, slots=True)
class LoadedLogs:
    """The logs of one load in the order in which they are read, and what they store together."""

    logs: tuple[LoadedLog, ...]
    stored: Stored


def load_logs(bookkeeper: BookKeeper, options: SourceOptions) -> LoadedLogs:
    """The logs that the options name, each as ``load_log`` gives it.

    Raises NoSuchLogError; ConfigError where no name fits the pattern, or where one log holds rows and another one entries;
    SchemaMismatchError for columns of which neither type holds the values of the other.
    """
    if not options.names_several:
        log = _only_log(bookkeeper, options)
        return LoadedLogs((log,), log.stored)
    logs = tuple(_named(bookkeeper, options))
    return LoadedLogs(logs, together(logs))


def _named(bookkeeper: BookKeeper, options: SourceOptions) -> Iterator[LoadedLog]:
    """A pattern is matched again where logs came or went meanwhile: a transaction may have made one that is not among them."""
    if options.logs_pattern is None:
        return _at_one_moment(bookkeeper, options, options.logs)
    logs = bookkeeper.logs.names
    for _ in range(_TRIES):
        changes = logs.changes()
        found = [*_at_one_moment(bookkeeper, options, matching(options.logs_pattern, logs.all()))]
        if logs.changes() == changes:
            return iter(found)
    problem = f"in {_TRIES} readings of the names of logs, others were created or deleted: try again"
    raise MetadataConflictError(f"the logs that match {options.logs_pattern!r}", problem)


def _at_one_moment(bookkeeper: BookKeeper, options: SourceOptions, names: Sequence[str]) -> Iterator[LoadedLog]:
    """The logs in the order of ``names``, each transaction in all of them or in none. Raises NoSuchLogError."""
    uids = bookkeeper.logs.names.find_many(names)
    heads = bookkeeper.logs.names.heads({uid: name for name, uid in uids.items()})
    for name in names:
        if name not in uids or uids[name] not in heads:
            raise NoSuchLogError(name)
        yield load_at(bookkeeper, options, uids[name], heads[uids[name]])


def _only_log(bookkeeper: BookKeeper, options: SourceOptions) -> LoadedLog:
    """The log of ``load('name')``. A name may have commas, so they never separate names there."""
    try:
        return load_log(bookkeeper, options, options.log)
    except NoSuchLogError:
        if "," not in options.log:
            raise
        problem = "there is no log of this name, commas included: load(['a', 'b']) or option 'logs' reads several logs"
        raise ConfigError("option 'path'", options.log, problem) from None


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The names that the pattern matches whole, in their order. Raises ConfigError for none, and for too many."""
    found = matching_now(pattern, names)
    if not found:
        problem = f"it matches the whole name of none of the {len(names)} logs: 'bk-spark log list' shows what there is"
        raise ConfigError("option 'logsPattern'", pattern, problem)
    return found


def matching_now(pattern: str, names: Sequence[str]) -> list[str]:
    """As ``matching``, and none is no error: others may come."""
    expression = re.compile(pattern)
    found = [name for name in names if expression.fullmatch(name)]
    if len(found) > MAX_LOGS_READ:
        problem = f"it matches {len(found)} logs, one read takes {MAX_LOGS_READ} at most: match fewer, and use union()"
        raise ConfigError("option 'logsPattern'", pattern, problem)
    return found


def together(logs: Sequence[LoadedLog]) -> Stored:
    """The content of the logs and the columns of all: those of the first log, then what each further one adds."""
    names = names_together([log.name for log in logs])
    filled = [log for log in logs if log.content is not None]
    for log in filled:
        if log.content != filled[0].content:
            problem = f"log '{filled[0].name}' holds {filled[0].content}, log '{log.name}' holds {log.content}: read them apart"
            raise ConfigError("the list of logs", names, problem)
    content, schema_json = filled[0].content if filled else None, None
    if content == "rows":
        columns = [LogColumns(log.name, json.loads(str(log.schema_json))) for log in filled]
        schema_json = json.dumps(columns_together(columns))
    return Stored(names, f"each of the logs {names}", content, schema_json)
