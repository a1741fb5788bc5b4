"""Columns that are asked for as NOT NULL, of data in which every column may hold nulls.

Stored columns are nullable, nested ones too, and Spark believes a schema: of a column that is NOT NULL it takes IS NULL for
false, and its generated code does not look for nulls. So the values are looked at before they are given to it.
"""

from __future__ import annotations

import pyarrow as pa


def null_place(column: pa.Array, field: pa.Field) -> str | None:
    """The first place, such as ``a.element.b``, that ``field`` declares as not null and where ``column`` has a null.

    The types may differ in which nested fields are nullable alone. A place inside of a null holds nothing, so it has no null.
    """
    return _place(column, field.type, field.nullable, field.name)


def declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same values under ``schema``, which differs from the batch's at most in what is nullable."""
    if batch.schema.types == schema.types:
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    return pa.ipc.read_record_batch(batch.serialize(), schema)  # a batch's message is the same for both


def _place(column: pa.Array, kind: pa.DataType, nullable: bool, place: str) -> str | None:
    if not nullable and column.null_count:
        return place
    if not _has_not_null(kind):
        return None
    for child, field, name in _children(column.drop_null(), kind):
        found = _place(child, field.type, field.nullable, f"{place}.{name}")
        if found is not None:
            return found
    return None


def _has_not_null(kind: pa.DataType) -> bool:
    """Whether a type has a nested field that is not nullable. The key of a map always is."""
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        fields = [kind.item_field]
        if _has_not_null(kind.key_type):
            return True
    return any(not field.nullable or _has_not_null(field.type) for field in fields)


def _children(column: pa.Array, kind: pa.DataType) -> list[tuple[pa.Array, pa.Field, str]]:
    """The values inside of a column without nulls, and what ``kind`` declares them as."""
    if pa.types.is_struct(kind):
        return [(column.field(place), kind.field(place), kind.field(place).name) for place in range(kind.num_fields)]
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    if pa.types.is_map(kind):
        pairs = ((column.keys, kind.key_field, "key"), (column.items, kind.item_field, "value"))
        return [(values.slice(first, last - first), field, name) for values, field, name in pairs]
    return [(column.values.slice(first, last - first), kind.value_field, "element")]
