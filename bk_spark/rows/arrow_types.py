"""Spark's types and Arrow's: the schema of a log as Arrow shows it, and Arrow data in the form in which a log stores it.

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
halffloat float; other units of time become the one above, dictionaries their values, large and view types the plain ones.

Ref: pyspark.sql.pandas.types; docs/guide/python.md, "Types".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as of

from bk_spark.errors import ConfigError

_COMMENTS = b"SPARK::metadata::json"
"""Where Arrow's fields keep the metadata of Spark's."""

_COLLATIONS = "__COLLATIONS"
"""In a field's metadata: Spark's name for the collations of texts in it."""

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


def arrow_schema(schema: dict[str, Any]) -> pa.Schema:
    """The Arrow form of a stored schema, which is Spark's JSON of a StructType. Raises ConfigError for a type without one."""
    return pa.schema([_arrow_field(field) for field in schema["fields"]])


def spark_schema(schema: pa.Schema) -> dict[str, Any]:
    """Spark's JSON for Arrow's columns, all nullable. Raises ConfigError for a type that Spark does not have."""
    return {"type": "struct", "fields": [_spark_field(field, field.name) for field in schema]}


def has_collation(schema: pa.Schema, path: Sequence[str]) -> bool:
    """Whether Spark compares the text of a column, or of a field inside of structs, otherwise than by its bytes."""
    field = schema.field(path[0])
    for name in path[1:]:
        if _COLLATIONS in _comments(field):
            return True  # of some field of it, which is not worth telling apart
        field = field.type.field(name)
    return _COLLATIONS in _comments(field)


def _comments(field: pa.Field) -> dict[str, Any]:
    comments = (field.metadata or {}).get(_COMMENTS)
    return {} if comments is None else dict(json.loads(comments))


def _arrow_field(field: dict[str, Any]) -> pa.Field:
    metadata = field.get("metadata") or {}
    comments = {_COMMENTS: json.dumps(metadata).encode()} if metadata else None
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


def _spark_field(field: pa.Field, column: str) -> dict[str, Any]:
    return {"name": field.name, "type": _spark_type(field.type, column), "nullable": True, "metadata": _comments(field)}


def _spark_type(kind: pa.DataType, column: str) -> Any:
    if of.is_dictionary(kind):
        return _spark_type(kind.value_type, column)
    if of.is_map(kind):
        key, value = _spark_type(kind.key_type, column), _spark_type(kind.item_type, column)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if of.is_struct(kind):
        is_variant = any((field.metadata or {}).get(b"variant") == b"true" for field in kind)
        return "variant" if is_variant else {"type": "struct", "fields": [_spark_field(field, column) for field in kind]}
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        return {"type": "array", "elementType": _spark_type(kind.value_type, column), "containsNull": True}
    if of.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    name = next((name for name, is_one in _SPARK_NAMES if is_one(kind)), None)
    if name is None:
        raise ConfigError(f"the type of column '{column}'", str(kind), "Spark has no such type: cast the column before")
    return name


class Conversion:
    """Brings batches with the columns of ``given`` into the form in which a log stores them, ``stored``."""

    def __init__(self, given: pa.Schema) -> None:
        self.schema = spark_schema(given)
        """Spark's JSON."""
        self.stored = arrow_schema(self.schema)
        self._fits = given.equals(self.stored) and not any(of.is_time(field.type) for field in given)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows. Raises ConfigError where a value would be changed, such as a time with nanoseconds."""
        if self._fits:
            return batch
        columns = [self._column(batch.column(index), field) for index, field in enumerate(self.stored)]
        return pa.RecordBatch.from_arrays(columns, schema=self.stored)

    def _column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            if column.type == pa.time64("ns"):
                column = column.cast(pa.time64("us"))  # Spark's has microseconds; raises where there are nanoseconds
            return column if column.type.equals(field.type) else column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
            remedy = f"it cannot be stored as {field.type} without loss ({problem}): cast or round the column before"
            raise ConfigError(f"a value of column '{field.name}'", str(column.type), remedy) from None
