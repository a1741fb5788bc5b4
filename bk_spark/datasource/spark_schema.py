"""Schemas of Spark, of the log, and of Arrow.

A log stores Spark's JSON with every column nullable. A reader must give Spark exactly the Arrow schema that
``to_arrow_schema`` makes of the declared one, in UTC. Payloads are stored in that form too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType, TimestampType

from bk_spark.errors import ConfigError, SchemaMismatchError
from bk_spark.log.stored.schema import parse_schema, type_name

if TYPE_CHECKING:
    import pyarrow as pa

ENTRIES = StructType(
    [StructField("ledger_id", LongType()), StructField("entry_id", LongType()), StructField("payload", BinaryType())]
)
"""The columns of entries."""

METADATA_COLUMNS = StructType(
    [
        StructField("_ledger_id", LongType()),
        StructField("_entry_id", LongType()),
        StructField("_log", StringType()),
        StructField("_version", LongType()),
        StructField("_commit_timestamp", TimestampType()),
    ]
)
"""The columns that ``includeMetadata`` adds to rows."""

ORIGIN_COLUMNS = frozenset({"_version", "_commit_timestamp"})
"""Those of them that are looked up in the log's commits when a read is planned."""


def from_json(schema_json: str) -> StructType:
    """Spark's type of a stored schema."""
    return StructType.fromJson(json.loads(schema_json))


def nullable(log: str, schema: StructType) -> StructType:
    """``schema`` as a log stores it: every column nullable, nested ones too."""
    return StructType.fromJson(parse_schema(log, schema.json()))


def to_arrow(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark exchanges ``schema``. Raises ConfigError for a type that Arrow does not carry."""
    for field in schema:
        _check_supported(field.name, field.dataType)
        _check_names(field.name, field.dataType)
    return to_arrow_schema(schema, timezone="UTC")


def as_stored(schema: StructType) -> pa.Schema:
    """The Arrow schema of ``schema`` with every column nullable, nested ones too, as entries are decoded."""
    return to_arrow(nullable("(asked for)", schema))


def with_metadata_columns(log: str, schema: StructType) -> StructType:
    """``schema`` with the columns that ``includeMetadata`` adds."""
    clash = set(METADATA_COLUMNS.names) & set(schema.names)
    if clash:
        raise ConfigError("option 'includeMetadata'", True, f"log '{log}' has a column {clash.pop()} of its own: leave it out")
    return StructType([*schema.fields, *METADATA_COLUMNS.fields])


def check_asked(log: str, stored: StructType, asked: StructType) -> None:
    """Raise SchemaMismatchError unless every column of ``asked`` is in ``stored`` with its type.

    ``asked`` is a user's ``.schema(…)``, or the columns of a catalog table. It may declare them NOT NULL, nested ones too: a
    read fails where it meets a null in them.
    """
    if not asked.fields:
        raise SchemaMismatchError(log, "the schema asked for has no column")
    columns = {column["name"]: column for column in stored.jsonValue()["fields"]}
    for column in nullable(log, asked).jsonValue()["fields"]:
        name = column["name"]
        if name not in columns:
            raise SchemaMismatchError(log, f"column '{name}' is asked for, the columns are {', '.join(columns)}")
        if _bare(columns[name]) != _bare(column):
            here, there = type_name(columns[name]["type"]), type_name(column["type"])
            raise SchemaMismatchError(log, f"column '{name}' is {here}, it is asked for as {there}: cast it after reading")


def _check_supported(column: str, kind: DataType) -> None:
    try:
        to_arrow_type(kind, timezone="UTC")
    except (PySparkException, TypeError, ValueError):
        remedy = "Arrow does not carry this type between Spark and Python: cast it, for example to STRING"
        raise ConfigError(f"the type of column '{column}'", kind.simpleString(), remedy) from None


def _check_names(column: str, kind: DataType) -> None:
    """Refuse a struct with two fields of one name. Spark cannot send it to Python, and would not say which column it is."""
    if isinstance(kind, StructType):
        twice = sorted({name for name in kind.names if kind.names.count(name) > 1})
        if twice:
            remedy = f"it has two fields '{twice[0]}', which Arrow does not carry between Spark and Python: rename one"
            raise ConfigError(f"the type of column '{column}'", kind.simpleString(), remedy)
    inner = [field.dataType for field in kind] if isinstance(kind, StructType) else []
    inner += [getattr(kind, name) for name in ("elementType", "keyType", "valueType") if hasattr(kind, name)]
    for inner_kind in inner:
        _check_names(column, inner_kind)


def _bare(kind: Any) -> Any:
    """A type without the metadata of its fields, such as comments: metadata does not change what is stored."""
    if isinstance(kind, dict):
        return {key: _bare(value) for key, value in kind.items() if key != "metadata"}
    return [_bare(inner) for inner in kind] if isinstance(kind, list) else kind
