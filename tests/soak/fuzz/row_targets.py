"""Payloads of rows: header, statistics, Arrow schema and record batch, compressed or not."""

from __future__ import annotations

import datetime
import random
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache

import pyarrow as pa

from bk_spark.entries.batch import binaries
from bk_spark.entries.crc import crc32c
from bk_spark.errors import NoSuchEntryError
from bk_spark.rows.codec import PayloadFormat, RowDecoder, RowEncoder, layout, row_count, rows_up_to, without_large
from bk_spark.rows.parts import PayloadPart, Whole, encode_part, whole_payloads
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
    return [Target("row payload", _payloads, _decode, _spoil), Target("row payload in parts", _ledgers, _join, spoil_bytes)]


@cache
def _ledgers() -> Sequence[bytes]:
    """Entries behind each other, each behind its size: a payload in parts between two that are not."""
    data = pa.py_buffer(_payloads()[0])
    whole = Whole(_batch().num_rows, 3, crc32c(data), data.size)
    step = -(-data.size // 3)
    in_parts = [bytes(encode_part(PayloadPart(whole, n, data[n * step : (n + 1) * step]))) for n in range(3)]
    held = [_payloads()[1], *in_parts, _payloads()[2]]
    return [_framed(held), _framed(held[1:]), _framed(in_parts[::-1]), _framed([*in_parts, *in_parts])]


def _framed(entries: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(entry)) + entry for entry in entries)


def _unframed(data: bytes) -> list[bytes]:
    entries = []
    while len(data) >= 4:
        (size,) = struct.unpack_from("<I", data)
        entries.append(data[4 : 4 + size])
        data = data[4 + size :]
    return entries


def _join(data: bytes) -> None:
    entries = _unframed(data)

    def read(first: int, last: int) -> Iterator[pa.RecordBatch]:
        for entry_id in range(first, min(last + 1, len(entries))):
            yield pa.record_batch(
                [pa.array([entry_id], pa.int64()), binaries([entries[entry_id]])], names=["entry_id", "payload"]
            )
        if last >= len(entries):
            raise NoSuchEntryError(7, len(entries))

    middle = len(entries) // 2
    for first, last in ((0, middle - 1), (middle, len(entries) - 1)):
        if first <= last:
            for batch in whole_payloads(read, 7, first, last):
                assert len(batch.column("payload")[0].as_buffer()) <= len(data)


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
    rows_up_to(payload, "it")
    decoder = RowDecoder(_schema().append(pa.field("lacking", pa.int64())))
    decoder.statistics(payload, "it", _schema().names)
    decoded = decoder.decode(payload, "it")
    assert decoded.num_rows == rows
    assert decoded.serialize().size
    later = RowDecoder(_wider_schema())
    later.statistics(payload, "it", _schema().names)
    assert later.decode(payload, "it").num_rows == rows
