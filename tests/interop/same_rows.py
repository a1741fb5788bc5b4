"""Rows of a log and of its table, made comparable: engines name types and the insides of lists and maps in their own ways."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of

from bk_spark.log.stored.tier_columns import LEDGER, PLACE


def of_log(rows: pa.Table) -> list[str]:
    """The rows in their order, without columns that have no type yet: a table does not have them."""
    return _comparable(rows, [one.name for one in rows.schema if not of.is_null(one.type)])


def of_table(found: pa.Table, columns: Sequence[str]) -> list[str]:
    """The log's rows of those that an engine gave, in the log's order, with these columns."""
    own = found.filter(pc.is_valid(found[LEDGER])).sort_by([(name, "ascending") for name in PLACE])
    return _comparable(own, [name for name in columns if name in own.column_names])


def _comparable(rows: pa.Table, columns: Sequence[str]) -> list[str]:
    kinds = {name: rows.schema.field(name).type for name in sorted(columns)}
    return [repr({name: _plain(kind, row[name]) for name, kind in kinds.items()}) for row in rows.to_pylist()]


def _plain(kind: pa.DataType, value: Any) -> Any:
    """As text it is equal where the values are: NaN is itself, and -0.0 is not 0.0."""
    if value is None:
        return None
    if of.is_map(kind):
        return sorted((repr(_plain(kind.key_type, key)), _plain(kind.item_type, item)) for key, item in value)
    if of.is_struct(kind):
        return {field.name: _plain(field.type, value[field.name]) for field in sorted(kind, key=lambda one: one.name)}
    if of.is_list(kind) or of.is_large_list(kind):
        return _plain_list(kind.value_type, value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def _plain_list(kind: pa.DataType, values: list[Any]) -> Any:
    """Polars has no maps: they are lists of keys and values."""
    if of.is_struct(kind) and [field.name for field in kind] == ["key", "value"]:
        return _plain(pa.map_(kind[0].type, kind[1].type), [(one["key"], one["value"]) for one in values])
    return [_plain(kind, one) for one in values]
