"""A log's schema, and whether a DataFrame fits it. Both schemas are given as Spark's JSON.

Columns match by name. Every column of a stored schema is nullable, nested ones too, as with Spark's file sources: a column
that an append lacks is null, and void, the type of nothing but nulls, goes with every type. An extra column or another type
is refused; ``merge`` adds extra columns at the end, and takes types of which one holds the values of the other (merging.py).
Metadata of columns (comments) is kept and not compared.
"""

from __future__ import annotations

import json
from typing import Any

from bk_spark.errors import ConfigError, SchemaMismatchError, State
from bk_spark.log.stored.by_key.settings import PLACE
from bk_spark.log.stored.json_values import decode, encode, text
from bk_spark.log.stored.merging import (
    ApartTypes,
    ClashingNames,
    bare,
    clashing,
    dates_as_timestamps,
    filled,
    merged_fields,
)
from bk_spark.metadata.store import MAX_VALUE_BYTES

Schema = dict[str, Any]
"""Spark's JSON of a StructType, parsed."""

MERGE_OPTION, MERGE_ARGUMENT = "option 'mergeSchema'", "merge_schema=True"
"""What users of Spark, and of Python, call what an append needs that changes the schema."""
_SIMPLE_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def encode_schema(what: str, schema: Schema) -> bytes:
    """Raises ConfigError if the schema does not fit into one znode."""
    encoded = encode(schema=schema)
    if len(encoded) > MAX_VALUE_BYTES:
        remedy = f"the maximum is {MAX_VALUE_BYTES}: write fewer or shorter columns"
        raise ConfigError(what, State(f"{len(encoded)} bytes long"), remedy)
    return encoded


def decode_schema(what: str, value: bytes) -> Schema:
    return decode(what, value, _schema_in)


def parse_schema(log: str, schema_json: str) -> Schema:
    """Parse what ``StructType.json()`` returns, and make every column nullable. Raises ConfigError."""
    what = f"the schema given for log '{log}'"
    try:
        schema = json.loads(schema_json)
        names = _names(schema)
        nullable = _nullable(schema)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ConfigError(what, schema_json[:200], "it must be the JSON of a Spark StructType (schema.json())") from None
    clash = clashing(names)
    if PLACE in [one.lower() for one in names]:
        state = State(f"one with the column {PLACE!r}")
        raise ConfigError(what, state, "logs that are compacted by key have it for their own: rename it")
    if clash:
        state = State(f"one with the columns {clash[0]!r} and {clash[1]!r}")
        raise ConfigError(what, state, "Spark cannot tell such names apart: rename one")
    return dict(nullable)


def appended_schema(log: str, stored: Schema, given: Schema, *, merge: bool, option: str = MERGE_OPTION) -> Schema:
    """The log's schema after data with the schema ``given`` was appended. ``option`` is what its user calls ``merge``.

    Raises SchemaMismatchError.
    """
    known = {column["name"] for column in stored["fields"]}
    added = [column for column in given["fields"] if column["name"] not in known]
    try:
        fields = merged_fields(stored["fields"], given["fields"], "")
    except ApartTypes as apart:
        raise _mismatch(log, apart.place[1:], apart.stored, apart.given, "cast it") from None
    except ClashingNames as clash:
        raise SchemaMismatchError(log, f"Spark cannot tell the columns {clash.names} apart: rename one") from None
    if not merge:
        _check_unmerged(log, stored, given, added, option)
        return stored
    return {**stored, "fields": fields}


def timestamps_of_dates(given: Schema, appended: Schema) -> frozenset[str]:
    """Places of dates in ``given`` that the log has as timestamps once it is appended: not every date can be one."""
    types = {column["name"]: column["type"] for column in appended["fields"]}
    columns = given["fields"]
    return frozenset(
        place for one in columns for place in dates_as_timestamps(one["type"], types.get(one["name"]), one["name"])
    )


def _check_unmerged(log: str, stored: Schema, given: Schema, added: list[Any], option: str) -> None:
    """Raise SchemaMismatchError if the append needs ``merge``."""
    here = {column["name"]: column["type"] for column in stored["fields"]}
    for column in given["fields"]:
        name, there = column["name"], column["type"]
        if name in here and bare(here[name]) != bare(filled(there, here[name])):
            raise _mismatch(log, name, here[name], there, f"cast it, or let the log take both with {option}")
    if added:
        extra = ", ".join(f"'{column['name']}' ({type_name(column['type'])})" for column in added)
        remedy = f"drop it, or add it with {option}"
        raise SchemaMismatchError(log, f"the log has no column {extra}, its schema is {type_name(stored)}: {remedy}")


def _mismatch(log: str, column: str, here: Any, there: Any, remedy: str) -> SchemaMismatchError:
    problem = f"column '{column}' is {type_name(here)} in the log and {type_name(there)} in the data: {remedy}"
    return SchemaMismatchError(log, problem)


def type_name(kind: Any) -> str:
    """A type as Spark SQL spells it: ``bigint``, ``array<string>``, ``struct<a:int,b:date>``."""
    if isinstance(kind, str):
        return _SIMPLE_NAMES.get(kind, kind)
    if kind["type"] == "struct":
        return "struct<" + ",".join(f"{field['name']}:{type_name(field['type'])}" for field in kind["fields"]) + ">"
    if kind["type"] == "array":
        return f"array<{type_name(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{type_name(kind['keyType'])},{type_name(kind['valueType'])}>"
    return f"{kind['type']}<{type_name(kind['sqlType'])}>"


def _schema_in(record: dict[str, Any]) -> Schema:
    schema = record["schema"]
    _names(schema)
    _nullable(schema)  # fails unless every type is well formed
    return dict(schema)


def _names(schema: Schema) -> list[str]:
    return [text(column["name"]) for column in schema["fields"]]


def _nullable(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [{**f, "nullable": True, "type": _nullable(f["type"])} for f in kind["fields"]]}
    if kind["type"] == "array":
        return {**kind, "containsNull": True, "elementType": _nullable(kind["elementType"])}
    if kind["type"] == "map":
        key, value = _nullable(kind["keyType"]), _nullable(kind["valueType"])
        return {**kind, "valueContainsNull": True, "keyType": key, "valueType": value}
    return {**kind, "type": text(kind["type"]), "sqlType": _nullable(kind["sqlType"])}
