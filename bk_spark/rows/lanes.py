"""In which lane a row is: a CRC-32C over its key values, modulo the number of lanes. Rows of one key are in one lane.

The checksum covers the values of the key columns, in their order, each in this form:

====== ====== ==================================================================================
offset type   little endian
====== ====== ==================================================================================
0      u32    tag: 0 null, 1 number, 2 bytes, 3 floating point, 4 decimal
4      u32    n, the bytes that follow: 0 for null, 8 for a number or floating point, 32 for a decimal
8      n      an i64, the bytes, an f64, or an i256
====== ====== ==================================================================================

A number is a whole number of any width, a boolean (0 or 1), the days of a date since 1970, or the microseconds of a timestamp
since 1970. Bytes are those of a text or a binary. Floating point is the value as a double: -0.0 is 0.0, and NaN has the bits
0x7FF8000000000000. A decimal is its value times 10 to the 38th, whatever its scale. So columns of numbers may become wider,
and keys stay in their lanes. Equal numbers of two kinds are two keys.

Worked example: the key ("ab", 8) is 02000000 02000000 6162 01000000 08000000 0800000000000000. Its CRC-32C is 0xE214D51E,
so with 8 lanes the row is in lane 6.

Ref: docs/formats.md, "Lanes".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from decimal import Context, Decimal
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.config import MIB
from bk_spark.entries.crc import Words, crc32c, crc32c_each, crc32c_of_rows
from bk_spark.rows.gathering import gathered_batches
from bk_spark.rows.statistics import Key

_HEADER = struct.Struct("<II")
_NULL, _NUMBER, _BYTES, _FLOAT, _DECIMAL = range(5)
_I64, _F64 = struct.Struct("<q"), struct.Struct("<d")
_WIDEST = pa.decimal256(76, 38)
"""Holds the value of every decimal of up to 38 digits, all with one scale."""
_WIDEST_BYTES = 32
_EXACT = Context(prec=76)

SPLIT_ROWS, SPLIT_BYTES = 131_072, 8 * MIB
"""Batches are joined to more than half of this before they are split: to take a lane's rows out costs some ten microseconds a
column, however few they are."""

KINDS = ("boolean", "integer", "date", "timestamp", "timestamp_ntz", "string", "binary", "float", "decimal")
"""The kinds of key columns. Equal values of one kind are one key; a value of another kind is another key."""

KeyValue: TypeAlias = Key | Decimal | None
"""A value of a key: in the form in which statistics.py compares it, but a decimal as such."""


def kind_of_key(of: pa.DataType) -> str | None:
    """One of KINDS; None for a type that cannot be a key: a nested one, or a time of day."""
    if pa.types.is_timestamp(of):
        return "timestamp_ntz" if of.tz is None else "timestamp"
    if pa.types.is_signed_integer(of):
        return "integer"
    if pa.types.is_float32(of) or pa.types.is_float64(of):
        return "float"
    if pa.types.is_decimal128(of):
        return "decimal"
    plain = {pa.bool_(): "boolean", pa.date32(): "date", pa.string(): "string", pa.binary(): "binary"}
    return plain.get({pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(of, of))


def lane_of(key: Sequence[KeyValue], count: int) -> int:
    """The lane of one key."""
    return int(crc32c(b"".join(map(_encoded, key)))) % count


def lanes_of(columns: Iterable[pa.Array], rows: int, count: int) -> npt.NDArray[np.uint8]:
    """The lane of each row, of at most 256, by its values in ``columns``."""
    return (key_checksums(columns, rows) % np.uint32(count)).astype(np.uint8)


def key_checksums(columns: Iterable[pa.Array], rows: int) -> Words:
    """The CRC-32C of each row's key: its values in ``columns``."""
    found = np.zeros(rows, np.uint32)
    for column in columns:
        found = _continued(found, column)
    return found


def in_lanes(batches: Iterable[pa.RecordBatch], columns: Sequence[str], count: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of the batches with their lanes; in each lane in their order. With one lane the batches pass as they are."""
    if count == 1:
        return ((0, batch) for batch in batches)
    joined = gathered_batches(batches, SPLIT_ROWS, SPLIT_BYTES)
    return (part for batch in joined for part in split(batch, columns, count))


def split(batch: pa.RecordBatch, columns: Sequence[str], count: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each lane that has some, in their order, copied: a slice would keep the whole batch in memory."""
    lanes = lanes_of((batch.column(name) for name in columns), batch.num_rows, count)
    order = np.argsort(lanes, kind="stable")
    sizes = np.bincount(lanes, minlength=count)
    ends = np.cumsum(sizes)
    for lane in np.flatnonzero(sizes):
        yield int(lane), batch.take(pa.array(order[ends[lane] - sizes[lane] : ends[lane]]))


def canonical_floats(column: pa.Array) -> pa.Array:
    """The values as doubles, of which equal ones have the same bits: -0.0 is 0.0, and there is one NaN."""
    doubles = column.cast(pa.float64())
    values = pc.fill_null(doubles, 0.0).to_numpy(zero_copy_only=False)
    values = np.where(np.isnan(values), math.nan, values) + 0.0
    return pa.array(values, mask=doubles.is_null().to_numpy(zero_copy_only=False))


def _encoded(value: KeyValue) -> bytes:
    if value is None:
        return _HEADER.pack(_NULL, 0)
    if isinstance(value, float):
        return _HEADER.pack(_FLOAT, _F64.size) + _F64.pack(math.nan if math.isnan(value) else value + 0.0)
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(_WIDEST.scale, _EXACT))
        return _HEADER.pack(_DECIMAL, _WIDEST_BYTES) + unscaled.to_bytes(_WIDEST_BYTES, "little", signed=True)
    if isinstance(value, bytes):
        return _HEADER.pack(_BYTES, len(value)) + value
    return _HEADER.pack(_NUMBER, _I64.size) + _I64.pack(int(value))


def _continued(before: Words, column: pa.Array) -> Words:
    """The checksum of each row, ``before``, continued by its value in ``column``."""
    kind = kind_of_key(column.type)
    if kind in ("string", "binary"):
        return _with_bytes(before, column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()))
    if kind == "float":
        doubles = pc.fill_null(canonical_floats(column), 0.0).to_numpy(zero_copy_only=False)
        return _with_words(before, column, _FLOAT, doubles.view(np.uint64).reshape(-1, 1))
    if kind == "decimal":
        return _with_words(before, column, _DECIMAL, _widest(column))
    return _with_words(before, column, _NUMBER, _whole_numbers(column).view(np.uint64).reshape(-1, 1))


def _with_words(before: Words, column: pa.Array, tag: int, words: npt.NDArray[np.uint64]) -> Words:
    """Of values of as many words each."""
    blocks = np.empty((len(column), 1 + words.shape[1]), "<u8")
    blocks[:, 0] = int.from_bytes(_HEADER.pack(tag, 8 * words.shape[1]), "little")
    blocks[:, 1:] = words
    found = crc32c_of_rows(blocks.view(np.uint8), before)
    if column.null_count:
        nulls = crc32c_of_rows(np.zeros((len(column), _HEADER.size), np.uint8), before)
        found = np.where(column.is_null().to_numpy(zero_copy_only=False), nulls, found)
    return found


def _widest(column: pa.Array) -> npt.NDArray[np.uint64]:
    """The values as whole numbers of four words."""
    values = pc.fill_null(column, pa.scalar(Decimal(0), column.type)).cast(_WIDEST)
    words = _WIDEST_BYTES // 8
    return np.frombuffer(values.buffers()[1], "<u8", words * len(values), _WIDEST_BYTES * values.offset).reshape(-1, words)


def _whole_numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    filled = pc.fill_null(column.cast(pa.int64()), 0)
    return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), np.int64)


def _with_bytes(before: Words, column: pa.Array) -> Words:
    sizes = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    headers = np.empty((len(column), 2), "<u4")
    headers[:, 0] = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, _BYTES)
    headers[:, 1] = sizes
    begun = crc32c_of_rows(headers.view(np.uint8), before)
    return crc32c_each(pc.fill_null(column, b"").to_pylist(), begun.tolist())
