"""Payloads of rows: header, statistics, Arrow schema and record batch, compressed or not."""

from __future__ import annotations

import datetime
import random
import struct
from collections.abc import Sequence
from decimal import Decimal
from functools import cache

import pyarrow as pa

from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder, decode_stored, layout, row_count, without_large
from tests.soak.fuzz.engine import Target
from tests.soak.fuzz.mutations import spoil_bytes
from tests.soak.fuzz.wire_targets import odd_bodies

_ROWS_AT = 8
_HEADER_BYTES_AT = 6


@cache
def _batch() -> pa.RecordBatch:
    """Two rows of the types that a table has."""
    moment = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)
    columns = {
        "long": pa.array([-(2**63), 2**63 - 1]),
        "string": pa.array(["a", None]),
        "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "when": pa.array([moment, None], pa.timestamp("us", "UTC")),
        "array": pa.array([[1, None], []], pa.list_(pa.field("element", pa.int32()))),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "struct": pa.array([{"x": 1, "y": "z"}, None]),
        "void": pa.nulls(2),
        "flag": pa.array([True, None]),
    }
    return pa.record_batch(columns)


@cache
def _schema() -> pa.Schema:
    return pa.schema([pa.field(field.name, without_large(layout(field.type))) for field in _batch().schema])


@cache
def _wider_schema() -> pa.Schema:
    """What the log's columns may have become since."""
    wider = {
        "long": pa.decimal128(20, 1),
        "decimal": pa.decimal128(20, 4),
        "array": pa.list_(pa.field("element", pa.float64())),
        "map": pa.map_(pa.string(), pa.int64()),
        "struct": pa.struct([("new", pa.string()), ("x", pa.decimal128(19, 0))]),
    }
    return pa.schema([pa.field(field.name, wider.get(field.name, field.type)) for field in _schema()])


@cache
def _payloads() -> Sequence[bytes]:
    rows = pa.concat_batches([_batch()] * 40)
    found = []
    for compression in ("none", "lz4", "zstd"):
        encoder = RowEncoder("orders", _schema(), PayloadFormat(compression=compression, max_rows=1000, max_bytes=1 << 20))
        found += [bytes(payload) for payload, _ in encoder.encode(rows)]
    return [*found, _payload(pa.record_batch({"void": pa.nulls(5)})), *_odd_payloads()]


def _payload(rows: pa.RecordBatch) -> bytes:
    """A payload without statistics, of any schema."""
    schema = rows.schema.serialize()
    head = struct.pack("<4sHHII", b"BKRW", 1, 16, rows.num_rows, schema.size)
    return head + bytes(schema) + bytes(rows.serialize())


def _odd_payloads() -> list[bytes]:
    """Messages that follow a schema and are not of it."""
    schema = bytes(_schema().serialize())
    head = struct.pack("<4sHHII", b"BKRW", 1, 16, 5, len(schema))
    return [head + schema + body for body in odd_bodies()]


def targets() -> list[Target]:
    return [Target("row payload", _payloads, _decode, _spoil)]


def _spoil(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """The header, the schema, the record batch's metadata or the first bytes of its buffers, where compressed sizes stand."""
    part = chance.random()
    if part < 0.2 or len(data) < 16:
        return spoil_bytes(data, others, chance)
    if part < 0.3:
        rows = chance.choice((0, 1, 2**20, 2**31, 2**32 - 1))
        return data[:_ROWS_AT] + struct.pack("<I", rows) + data[_ROWS_AT + 4 :]
    start = chance.choice((0, 16, struct.unpack_from("<H", data, _HEADER_BYTES_AT)[0], chance.randrange(len(data))))
    return data[:start] + spoil_bytes(data[start : start + 300], others, chance)[:400] + data[start + 300 :]


def _decode(data: bytes) -> None:
    payload = pa.py_buffer(data)
    rows = row_count(payload, "it")
    decoder = RowDecoder(_schema().append(pa.field("lacking", pa.int64())))
    decoder.statistics(payload, "it", _schema().names)
    decoded = decoder.decode(payload, "it")
    assert decoded.num_rows == rows
    assert decoded.serialize().size
    assert decode_stored(payload, "it").num_rows == rows
    later = RowDecoder(_wider_schema())
    later.statistics(payload, "it", _schema().names)
    assert later.decode(payload, "it").num_rows == rows
