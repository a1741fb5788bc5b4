"""Spark's types and Arrow's: the schema of a log as Arrow shows it, and Arrow's as a log stores it.

A log stores its schema as Spark's JSON. Spark exchanges each type in one form of Arrow, in UTC; payloads are stored in it.

=============================================== ================================================================
Spark SQL                                       Arrow
=============================================== ================================================================
boolean, tinyint, smallint, int, bigint         bool, int8, int16, int32, int64
float, double, decimal(p,s)                     float, double, decimal128(p, s)
string, binary                                  string, binary
date, timestamp, timestamp_ntz, time            date32, timestamp[us, UTC], timestamp[us], time64[ns]
interval day to second                          duration[us]
array, map, struct                              list, map, struct
void, variant                                   null, struct of two binaries that says so in a field's metadata
=============================================== ================================================================

Other types of Arrow are written if nothing is lost: uint8 becomes smallint, uint16 int, uint32 bigint, uint64 decimal(20,0),
halffloat float; other units of time become the one above, encodings of values the values (conversion.py).

Ref: pyspark.sql.pandas.types; docs/guide/python.md, "Types".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as of

from bk_spark.errors import ConfigError, State

COMMENTS = b"SPARK::metadata::json"
"""Where Arrow's fields keep the metadata of Spark's."""

_COLLATIONS = "__COLLATIONS"
"""In a field's metadata: Spark's name for the collations of texts in it."""

MAX_LEVELS = 64
"""Of a column and the types inside of it. Arrow writes and reads no batch with more."""

_IS_VARIANT = {b"variant": b"true"}
_VARIANT = pa.struct(
    [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False, metadata=_IS_VARIANT)]
)
_PLACE = pa.struct([pa.field("srid", pa.int32(), nullable=False), pa.field("wkb", pa.binary(), nullable=False)])

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": _VARIANT,
}
_WITH_ARGUMENTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], pa.DataType]], ...] = (
    (re.compile(r"decimal\((\d+),\s*(\d+)\)"), lambda found: pa.decimal128(int(found[1]), int(found[2]))),
    (re.compile(r"time\(\d\)"), lambda found: pa.time64("ns")),
    (re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?"), lambda found: pa.duration("us")),
    (re.compile(r"(geometry|geography)\(.+\)"), lambda found: _PLACE),
)

_SPARK_NAMES: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("boolean", of.is_boolean),
    ("byte", of.is_int8),
    ("short", lambda kind: of.is_int16(kind) or of.is_uint8(kind)),
    ("integer", lambda kind: of.is_int32(kind) or of.is_uint16(kind)),
    ("long", lambda kind: of.is_int64(kind) or of.is_uint32(kind)),
    ("decimal(20,0)", of.is_uint64),
    ("float", lambda kind: of.is_float16(kind) or of.is_float32(kind)),
    ("double", of.is_float64),
    ("string", lambda kind: of.is_string(kind) or of.is_large_string(kind) or of.is_string_view(kind)),
    (
        "binary",
        lambda kind: of.is_binary(kind) or of.is_large_binary(kind) or of.is_binary_view(kind) or of.is_fixed_size_binary(kind),
    ),
    ("date", of.is_date),
    ("timestamp", lambda kind: of.is_timestamp(kind) and kind.tz is not None),
    ("timestamp_ntz", of.is_timestamp),
    ("time(6)", of.is_time),
    ("interval day to second", of.is_duration),
    ("void", of.is_null),
)


_LISTS = (of.is_list, of.is_large_list, of.is_fixed_size_list, of.is_list_view, of.is_large_list_view)


def arrow_schema(schema: dict[str, Any]) -> pa.Schema:
    """The Arrow form of a stored schema, which is Spark's JSON of a StructType. Raises ConfigError for a type without one."""
    return pa.schema([_arrow_field(field) for field in schema["fields"]])


def spark_schema(schema: pa.Schema) -> dict[str, Any]:
    """Spark's JSON for Arrow's columns, all nullable.

    Raises ConfigError for a type that Spark does not have, for one that is nested too deeply, and for names of columns, or of
    fields, that hold a NUL, that are no UTF-8, or that Spark cannot tell apart.
    """
    try:
        for field in schema:
            if is_too_deep(field.type):
                remedy = f"a log's types have at most {MAX_LEVELS} levels: store deeper values as text, such as JSON"
                raise ConfigError(f"the type of column '{field.name}'", f"{str(field.type)[:80]}…", remedy)
        return {"type": "struct", "fields": _spark_fields(list(schema), "")}
    except UnicodeDecodeError as problem:  # Arrow takes any bytes for a name, and decodes them when they are asked for
        state = State(f"one with {bytes(problem.object)[:80]!r} for a name")
        raise ConfigError("the schema", state, "names of columns, fields and time zones are UTF-8: rename it") from None


def is_too_deep(kind: pa.DataType, levels: int = MAX_LEVELS) -> bool:
    return levels == 0 or any(is_too_deep(kind.field(place).type, levels - 1) for place in range(kind.num_fields))


def has_more_levels(found: Any, levels: int) -> bool:
    """Whether lists and objects of JSON are nested more deeply than that. ``json.dumps`` fails at some hundreds."""
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else None
    return inner is not None and (levels == 0 or any(has_more_levels(one, levels - 1) for one in inner))


def has_collation(schema: pa.Schema, path: Sequence[str]) -> bool:
    """Whether Spark compares the text of a column, or of a field inside of structs, otherwise than by its bytes."""
    field = schema.field(path[0])
    for name in path[1:]:
        if _COLLATIONS in comments_of(field):
            return True  # of some field of it, which is not worth telling apart
        field = field.type.field(name)
    return _COLLATIONS in comments_of(field)


def comments_of(field: pa.Field) -> dict[str, Any]:
    """The metadata of Spark's that a field has. Raises ConfigError for what is none."""
    comments = (field.metadata or {}).get(COMMENTS)
    try:
        found = {} if comments is None else dict(json.loads(comments))
        is_known = not has_more_levels(found, MAX_LEVELS)
    except (ValueError, TypeError, RecursionError):
        is_known = False
    if not is_known:
        remedy = (
            f"it must be a JSON object of at most {MAX_LEVELS} levels: remove '{COMMENTS.decode()}' from the field's metadata"
        )
        raise ConfigError(f"the comment of column '{field.name}'", repr(comments)[:200], remedy)
    return found


def _arrow_field(field: dict[str, Any]) -> pa.Field:
    metadata = field.get("metadata") or {}
    comments = {COMMENTS: json.dumps(metadata).encode()} if metadata else None
    return pa.field(field["name"], _arrow_type(field["type"], field["name"]), metadata=comments)


def _arrow_type(kind: Any, column: str) -> pa.DataType:
    if isinstance(kind, str):
        return _arrow_atom(kind, column)
    if kind["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(pa.field("element", _arrow_type(kind["elementType"], column)))
    if kind["type"] == "map":
        key, value = (_arrow_type(kind[name], column) for name in ("keyType", "valueType"))
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))
    return _arrow_type(kind["sqlType"], column)


def _arrow_atom(kind: str, column: str) -> pa.DataType:
    if kind in _PLAIN:
        return _PLAIN[kind]
    for pattern, build in _WITH_ARGUMENTS:
        found = pattern.fullmatch(kind)
        if found:
            return build(found)
    raise ConfigError(f"the type of column '{column}'", kind, "Arrow has no form of it: leave the column out (columns=…)")


def _spark_fields(fields: list[pa.Field], place: str) -> list[dict[str, Any]]:
    """``place`` is that of the struct, with a dot behind it; empty for columns."""
    _check_names([field.name for field in fields], place)
    return [
        {
            "name": field.name,
            "type": _spark_type(field.type, f"{place}{field.name}"),
            "nullable": True,
            "metadata": comments_of(field),
        }
        for field in fields
    ]


def _check_names(names: list[str], place: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if "\0" in name:
            what = f"a field of column '{place[:-1]}'" if place else "a column"
            raise ConfigError(what, name, "other programs cut a name at its NUL: rename it")
        if (other := seen.get(name.lower())) is not None:
            what = f"the struct of column '{place[:-1]}'" if place else "the schema"
            state = State(f"one with the names {other!r} and {name!r}")
            raise ConfigError(what, state, "Spark cannot tell such names apart: rename one")
        seen[name.lower()] = name


def _spark_type(kind: pa.DataType, column: str) -> Any:
    """``column`` is its name, or its place inside of one: ``visits.element.page``."""
    if isinstance(kind, pa.BaseExtensionType):
        return _spark_type(kind.storage_type, column)
    if of.is_dictionary(kind) or of.is_run_end_encoded(kind):
        return _spark_type(kind.value_type, column)
    if of.is_map(kind):
        key, value = _spark_type(kind.key_type, f"{column}.key"), _spark_type(kind.item_type, f"{column}.value")
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if of.is_struct(kind):
        is_variant = any((field.metadata or {}).get(b"variant") == b"true" for field in kind)
        return "variant" if is_variant else {"type": "struct", "fields": _spark_fields(list(kind), f"{column}.")}
    if any(is_one(kind) for is_one in _LISTS):
        return {"type": "array", "elementType": _spark_type(kind.value_type, f"{column}.element"), "containsNull": True}
    if of.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    name = next((name for name, is_one in _SPARK_NAMES if is_one(kind)), None)
    if name is None:
        raise ConfigError(f"the type of column '{column}'", str(kind), "Spark has no such type: cast the column before")
    return name
