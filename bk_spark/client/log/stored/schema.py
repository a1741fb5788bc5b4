"""A log's schema, and whether a DataFrame fits it. Both schemas are given as Spark's JSON.

Columns match by name. Every column of a stored schema is nullable, nested ones too, as with Spark's file sources: a column
that an append lacks is null. An extra column or another type is refused; ``merge`` adds extra columns at the end.
Metadata of columns (comments) is kept and not compared.
"""

from __future__ import annotations

import json
from typing import Any

from bk_spark.client.log.stored.json_values import decode, encode, text
from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.metadata.store import MAX_VALUE_BYTES

Schema = dict[str, Any]
"""Spark's JSON of a StructType, parsed."""

_SIMPLE_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def encode_schema(what: str, schema: Schema) -> bytes:
    """Raises ConfigError if the schema does not fit into one znode."""
    encoded = encode(schema=schema)
    if len(encoded) > MAX_VALUE_BYTES:
        remedy = f"the maximum is {MAX_VALUE_BYTES}: write fewer or shorter columns"
        raise ConfigError(what, f"{len(encoded)} bytes long", remedy)
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
    clash = _clash(names)
    if clash:
        raise ConfigError(what, " and ".join(clash), "Spark cannot tell such column names apart: rename one")
    return dict(nullable)


def appended_schema(log: str, stored: Schema, given: Schema, *, merge: bool) -> Schema:
    """The log's schema after data with the schema ``given`` was appended. Raises SchemaMismatchError."""
    columns = {column["name"]: column for column in stored["fields"]}
    added = []
    for column in given["fields"]:
        name = column["name"]
        if name not in columns:
            added.append(column)
        elif _bare(columns[name]["type"]) != _bare(column["type"]):
            here, there = type_name(columns[name]["type"]), type_name(column["type"])
            raise SchemaMismatchError(log, f"column '{name}' is {here} in the log and {there} in the data: cast it")
    if added and not merge:
        extra = ", ".join(f"'{column['name']}' ({type_name(column['type'])})" for column in added)
        remedy = "drop it, or add it with option 'mergeSchema'"
        raise SchemaMismatchError(log, f"the log has no column {extra}, its schema is {type_name(stored)}: {remedy}")
    clash = _clash([*columns, *(column["name"] for column in added)])
    if clash:
        raise SchemaMismatchError(log, f"Spark cannot tell the columns {' and '.join(clash)} apart: rename one")
    return {**stored, "fields": [*stored["fields"], *added]}


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


def _bare(kind: Any) -> Any:
    """The type without the metadata of its nested fields."""
    if isinstance(kind, dict):
        return {key: _bare(value) for key, value in kind.items() if key != "metadata"}
    return [_bare(one) for one in kind] if isinstance(kind, list) else kind


def _clash(names: list[str]) -> tuple[str, str] | None:
    """Two names that are equal or differ only in case: Spark resolves columns without regard to case."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            return f"'{seen[name.lower()]}'", f"'{name}'"
        seen[name.lower()] = name
    return None
