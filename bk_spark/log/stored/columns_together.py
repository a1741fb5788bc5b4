"""The columns of several logs together: those of the first log, then what each further one adds.

Columns match by name. Where the types differ, one must hold every value of the other, and rows are read as the wider one: the
rule of ``mergeSchema``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bk_spark.errors import SchemaMismatchError
from bk_spark.log.stored.merging import ApartTypes, ClashingNames, merged_fields
from bk_spark.log.stored.schema import Schema, type_name

_NAMES_SHOWN = 5
"""Names of logs in one error."""


@dataclass(frozen=True, slots=True)
class LogColumns:
    """The columns of one log."""

    name: str
    schema: Schema


def names_together(names: Sequence[str]) -> str:
    """What errors call several logs."""
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def columns_together(logs: Sequence[LogColumns]) -> Schema:
    """Of at least one log. Raises SchemaMismatchError for columns of which neither type holds the values of the other."""
    merged = logs[0].schema["fields"]
    for place in range(1, len(logs)):
        if logs[place].schema != logs[place - 1].schema:
            try:
                merged = merged_fields(merged, logs[place].schema["fields"], "")
            except (ApartTypes, ClashingNames) as problem:
                raise _mismatch(logs, place) from problem
    return {**logs[0].schema, "fields": merged}


def _mismatch(logs: Sequence[LogColumns], place: int) -> Exception:
    """The error for the log at ``place``, with the first one before it that it does not fit.

    There is one: each type and each name of the columns together is that of one log.
    """
    name, fields = logs[place].name, logs[place].schema["fields"]
    for before in logs[:place]:
        try:
            merged_fields(before.schema["fields"], fields, "")
        except ApartTypes as apart:
            return _apart(before.name, name, apart)
        except ClashingNames as clash:
            problem = f"together with log '{before.name}' it has the columns {clash.names}, one name to Spark"
            return SchemaMismatchError(name, f"{problem}: read the two apart")
    raise AssertionError("two schemas that cannot be merged")


def _apart(one: str, other: str, apart: ApartTypes) -> SchemaMismatchError:
    column = apart.place.removeprefix(".")
    here, there = type_name(apart.given), type_name(apart.stored)
    problem = f"column '{column}' is {here}, in log '{one}' it is {there}, and neither type holds every value of the other"
    return SchemaMismatchError(other, f"{problem}: read the two apart, and cast the column")
