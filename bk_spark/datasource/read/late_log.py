"""A log that appears while a stream runs: whether its rows fit the columns that the stream was started with.

It must hold what the other logs hold, and its columns must be among theirs, with types whose values theirs hold. Otherwise
the stream stops before it reads the log. Where a restart helps, which takes the columns of all logs together, the error says
so. A stream whose user selects columns, by ``.schema(…)``, needs no others.
"""

from __future__ import annotations

import json
from typing import Any

from bk_spark.datasource.read.loaded_log import LoadedLog, Stored
from bk_spark.datasource.read.read_task import Reading
from bk_spark.errors import SchemaMismatchError
from bk_spark.log.stored.merging import ApartTypes, ClashingNames, bare, clashing, merged
from bk_spark.log.stored.schema import type_name

_RESTART = "restart the query, which then reads it"
_APART = "leave the log out of this query, and start one of its own for it"


def check_fits(log: LoadedLog, stored: Stored, reading: Reading) -> None:
    """Raise SchemaMismatchError where the log does not fit ``stored``, which the stream's ``load()`` found."""
    if log.content is None:
        return
    if stored.content is not None and log.content != stored.content:
        raise _misfit(log, f"it holds {log.content}, the other logs hold {stored.content}", _APART)
    if log.schema_json is None or stored.schema_json is None:
        return
    known = {field["name"]: field["type"] for field in json.loads(stored.schema_json)["fields"]}
    given = {field["name"]: field["type"] for field in json.loads(log.schema_json)["fields"]}
    selected = set(reading.schema.names)
    for name, kind in given.items():
        if name in known:
            _check_type(log, name, known[name], kind, is_read=name in selected)
    added = [name for name in given if name not in known]
    clash = clashing([*known, *added])
    if clash is not None:
        raise _misfit(log, f"its column '{clash[1]}' and '{clash[0]}' of another log are one name to Spark", _APART)
    if added and selected.issuperset(known):
        raise _misfit(log, f"it has a column '{added[0]}', which the stream does not have", _RESTART)


def _check_type(log: LoadedLog, name: str, known: Any, given: Any, *, is_read: bool) -> None:
    try:
        together = merged(known, given)
    except (ApartTypes, ClashingNames):
        what = f"its column '{name}' is {type_name(given)}, the stream reads {type_name(known)}"
        raise _misfit(log, f"{what}, and neither type holds every value of the other", _APART) from None
    if is_read and bare(together) != bare(known):
        what = f"its column '{name}' is {type_name(given)}, the stream reads {type_name(known)}"
        raise _misfit(log, what, f"{_RESTART} so")


def _misfit(log: LoadedLog, problem: str, remedy: str) -> SchemaMismatchError:
    return SchemaMismatchError(log.name, f"the log came while the stream runs, and {problem}: {remedy}")
