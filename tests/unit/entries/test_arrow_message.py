"""Schemas that stand for more than their bytes are refused before Arrow builds them."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from bk_spark.entries.arrow_message import PREFIX_BYTES, SchemaBounds, check_schema
from bk_spark.errors import CorruptionError
from tests.unit.entries.shared_fields import schema_of_shared_fields

BOUNDS = SchemaBounds(fields=10_000, nbytes=4 << 20, levels=64)


def _message(schema: pa.Schema) -> memoryview:
    return memoryview(schema.serialize())[PREFIX_BYTES:]


def _nested(levels: int) -> pa.DataType:
    kind = pa.int64()
    for _ in range(levels - 1):
        kind = pa.list_(kind)
    return kind


def test_schemas_of_every_kind_of_type_are_taken() -> None:
    kinds = [
        pa.timestamp("us", "Europe/Berlin"),
        pa.dictionary(pa.int8(), pa.list_(pa.string())),
        pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.decimal128(9, 2))])),
        pa.sparse_union([pa.field("a", pa.int64())]),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.null(),
    ]
    fields = [pa.field(f"c{place}", kind, metadata={"comment": "x"}) for place, kind in enumerate(kinds)]
    check_schema(_message(pa.schema(fields, metadata={"of": "all"})), BOUNDS, "it")
    check_schema(_message(pa.schema([])), BOUNDS, "it")


def test_a_schema_at_its_bounds_is_taken_and_one_above_is_refused() -> None:
    check_schema(_message(pa.schema([(f"c{n}", pa.int64()) for n in range(10_000)])), BOUNDS, "it")
    check_schema(_message(pa.schema([("a", _nested(64))])), BOUNDS, "it")
    with pytest.raises(
        CorruptionError, match="it is damaged: its schema has more than 10000 fields, with those inside of others"
    ):
        check_schema(_message(pa.schema([(f"c{n}", pa.int64()) for n in range(10_001)])), BOUNDS, "it")
    with pytest.raises(CorruptionError, match="its schema has a column of more than 64 levels"):
        check_schema(_message(pa.schema([("a", _nested(65))])), BOUNDS, "it")


@pytest.mark.parametrize(
    "field",
    [
        pa.field("n" * 5_000_000, pa.int64()),
        pa.field("a", pa.timestamp("us", "z" * 5_000_000)),
        pa.field("a", pa.int64(), metadata={"a": "v" * 5_000_000}),
        pa.field("a", pa.int64(), metadata={str(n): "" for n in range(40_000)}),
    ],
    ids=["name", "time zone", "value of metadata", "many pairs of metadata"],
)
def test_names_and_metadata_above_their_bound_are_refused(field: pa.Field) -> None:
    with pytest.raises(CorruptionError, match="the names and metadata of its schema take more than 4194304 bytes"):
        check_schema(_message(pa.schema([field])), BOUNDS, "it")


def test_fields_that_share_their_children_count_as_often_as_they_are_referred_to() -> None:
    assert pa.ipc.read_schema(_framed(schema_of_shared_fields(3))).field(0).type.num_fields == 2  # Arrow takes it
    check_schema(memoryview(schema_of_shared_fields(3)), BOUNDS, "it")
    with pytest.raises(CorruptionError, match="more than 10000 fields"):
        check_schema(memoryview(schema_of_shared_fields(22)), BOUNDS, "it")


def test_a_damaged_schema_message_is_refused_or_taken_and_never_another_error() -> None:
    sound = bytes(_message(pa.schema([pa.field("a", pa.timestamp("us", "UTC"), metadata={"a": "b"}), ("b", _nested(3))])))
    for place in range(len(sound)):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(sound)
            damaged[place] ^= mask
            try:
                check_schema(memoryview(damaged), BOUNDS, "it")
            except CorruptionError:
                continue
    with pytest.raises(CorruptionError, match="no Arrow schema message"):
        check_schema(memoryview(b""), BOUNDS, "it")


def _framed(message: bytes) -> pa.Buffer:
    return pa.py_buffer(struct.pack("<iI", -1, len(message)) + message)
