"""A caller's columns without what their metadata would have Spark do. Pure.

Spark obeys the metadata of a column: it has defaults of new rows, the true type of a text, and collations. That is for members
of the cluster to say. Of what a caller says only the comment of each column stays, and what makes a struct a variant.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.types as of

from bk_spark.errors import ConfigError
from bk_spark.rows.arrow_types import COMMENTS, comments_of

_COMMENT = "comment"
_VARIANT = b"variant"


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns.

    Raises ConfigError for metadata that is malformed, or that stands inside of an extension type; and ValueError for what Arrow
    reads and does not make itself: names that are no UTF-8, a column of nulls that may have none.
    """
    return pa.schema([_plain_field(field) for field in schema])


def with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows. ``schema`` differs from theirs in metadata alone."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _plain_field(field: pa.Field) -> pa.Field:
    metadata = {}
    comment = comments_of(field).get(_COMMENT)
    if isinstance(comment, str):
        metadata[COMMENTS] = json.dumps({_COMMENT: comment}).encode()
    if _VARIANT in (field.metadata or {}):
        metadata[_VARIANT] = field.metadata[_VARIANT]
    return pa.field(field.name, _plain_type(field.type, field.name), field.nullable, metadata)


def _plain_type(kind: pa.DataType, column: str) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        if not _plain_type(kind.storage_type, column).equals(kind.storage_type, check_metadata=True):
            remedy = (
                "fields inside of an extension type may have no metadata here: leave it out, or send what the type is stored as"
            )
            raise ConfigError(f"the type of column '{column}'", str(kind)[:200], remedy)
        return kind
    if of.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz)
    if of.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain_type(kind.value_type, column), kind.ordered)
    if of.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, _plain_type(kind.value_type, column))
    if of.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if of.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field), kind.keys_sorted)
    if of.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    make = next((make for is_one, make in _LISTS if is_one(kind)), None)
    return kind if make is None else make(_plain_field(kind.value_field))


_LISTS = (
    (of.is_list, pa.list_),
    (of.is_large_list, pa.large_list),
    (of.is_list_view, pa.list_view),
    (of.is_large_list_view, pa.large_list_view),
)
