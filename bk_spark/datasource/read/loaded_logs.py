"""What a ``load()`` of several logs sees: a version of each, taken log after log, and their columns together.

Columns match by name. A column that a log lacks is null in its rows. Where the types differ, one must hold every value of the
other, and rows are read as the wider one: the rule of ``mergeSchema``. A log that holds nothing gives no rows and no columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bk_spark.bookkeeper import BookKeeper
from bk_spark.datasource.option_values import MAX_LOGS_READ
from bk_spark.datasource.options import SourceOptions
from bk_spark.datasource.read.loaded_log import LoadedLog, Stored, load_log
from bk_spark.errors import ConfigError, NoSuchLogError, SchemaMismatchError
from bk_spark.log.stored.merging import ApartTypes, ClashingNames, merged_fields
from bk_spark.log.stored.schema import type_name

_NAMES_SHOWN = 5
"""Names of logs in one error."""


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
    names = options.logs if options.logs_pattern is None else matching(options.logs_pattern, bookkeeper.logs.names.all())
    logs = tuple(load_log(bookkeeper, options, name) for name in names)
    return LoadedLogs(logs, together(logs))


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
    names = ", ".join(log.name for log in logs[:_NAMES_SHOWN])
    if len(logs) > _NAMES_SHOWN:
        names += f" and {len(logs) - _NAMES_SHOWN} more"
    filled = [log for log in logs if log.content is not None]
    for log in filled:
        if log.content != filled[0].content:
            problem = f"log '{filled[0].name}' holds {filled[0].content}, log '{log.name}' holds {log.content}: read them apart"
            raise ConfigError("the list of logs", names, problem)
    content = filled[0].content if filled else None
    return Stored(names, f"each of the logs {names}", content, _merged_schemas(filled) if content == "rows" else None)


def _merged_schemas(logs: Sequence[LoadedLog]) -> str:
    schemas = [json.loads(str(log.schema_json)) for log in logs]
    merged = schemas[0]["fields"]
    for place in range(1, len(schemas)):
        if schemas[place] != schemas[place - 1]:
            try:
                merged = merged_fields(merged, schemas[place]["fields"], "")
            except (ApartTypes, ClashingNames) as problem:
                raise _mismatch(logs, schemas, place) from problem
    return json.dumps({**schemas[0], "fields": merged})


def _mismatch(logs: Sequence[LoadedLog], schemas: Sequence[Any], place: int) -> Exception:
    """The error for the log at ``place``, with the first one before it that it does not fit.

    There is one: each type and each name of the columns together is that of one log.
    """
    for before in range(place):
        try:
            merged_fields(schemas[before]["fields"], schemas[place]["fields"], "")
        except ApartTypes as apart:
            return _apart(logs[before].name, logs[place].name, apart)
        except ClashingNames as clash:
            problem = f"together with log '{logs[before].name}' it has the columns {clash.names}, one name to Spark"
            return SchemaMismatchError(logs[place].name, f"{problem}: read the two apart")
    raise AssertionError("two schemas that cannot be merged")


def _apart(one: str, other: str, apart: ApartTypes) -> SchemaMismatchError:
    column = apart.place.removeprefix(".")
    here, there = type_name(apart.given), type_name(apart.stored)
    problem = f"column '{column}' is {here}, in log '{one}' it is {there}, and neither type holds every value of the other"
    return SchemaMismatchError(other, f"{problem}: read the two apart, and cast the column")
