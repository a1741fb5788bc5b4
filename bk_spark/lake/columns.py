"""The columns of a log as its table has them: Iceberg has fewer types than Spark.

==================================== ===========================================================
in the log                           in the table
==================================== ===========================================================
byte, short                          int
time                                 time, in microseconds
void                                 no column, until the log knows its type
interval, VARIANT, geometry, a void  refused
inside of a column
all others                           the same
==================================== ===========================================================

Ref: the Iceberg specification, "Schemas and Data Types"; DESIGN.md, "Lake".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.types as of

from bk_spark.errors import ConfigError, State
from bk_spark.log.stored.tier_columns import CONFIRMED, LENGTH, PAYLOAD, PLACE

ENTRIES = pa.schema([pa.field(PAYLOAD, pa.binary()), pa.field(LENGTH, pa.int64()), pa.field(CONFIRMED, pa.int64())])
"""Of a log of entries."""

_SAME = (
    of.is_boolean,
    of.is_int32,
    of.is_int64,
    of.is_float32,
    of.is_float64,
    of.is_string,
    of.is_binary,
    of.is_date32,
    of.is_timestamp,
    of.is_decimal128,
)


class UnfitColumnError(ConfigError):
    """A column that the table can never hold."""


def table_columns(log: str, stored: pa.Schema) -> pa.Schema:
    """The columns of a table for rows of a log with the schema ``stored``. Raises ConfigError for what it cannot hold."""
    taken = next((name for name in stored.names if name in PLACE or not name), None)
    if taken is not None:
        raise UnfitColumnError(f"a column of log '{log}'", taken, "a tier's table cannot have a column of this name: rename it")
    names = Counter(name for one in stored for name in _full_names(one, ""))
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        remedy = "Iceberg cannot tell a column with a dot from a field inside of another one: rename one of them"
        raise UnfitColumnError(f"a column of log '{log}'", twice, remedy)
    fields = [pa.field(one.name, _kind(one.type, one.name)) for one in stored if not of.is_null(one.type)]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in PLACE)])


def _full_names(field: pa.Field, place: str) -> Iterator[str]:
    name = f"{place}{field.name}"
    yield name
    if of.is_struct(field.type):
        for inner in field.type:
            yield from _full_names(inner, f"{name}.")


def _kind(kind: pa.DataType, column: str) -> pa.DataType:
    """``column`` is its name, or its place inside of one: ``visits.element.page``."""
    if of.is_int8(kind) or of.is_int16(kind):
        return pa.int32()
    if of.is_time64(kind):
        return pa.time64("us")
    if any(is_one(kind) for is_one in _SAME):
        return kind
    if of.is_list(kind):
        return pa.list_(pa.field("element", _kind(kind.value_type, f"{column}.element")))
    if of.is_map(kind):
        key, value = _kind(kind.key_type, f"{column}.key"), _kind(kind.item_type, f"{column}.value")
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))
    if of.is_struct(kind) and kind.num_fields and all(field.nullable for field in kind):
        return pa.struct([pa.field(field.name, _kind(field.type, f"{column}.{field.name}")) for field in kind])
    state = State(f"of a type that Iceberg does not have ({str(kind)[:80]})")
    raise UnfitColumnError(
        f"column '{column}'", state, "a log with it cannot have a tier: cast it, or overwrite the log without it"
    )
