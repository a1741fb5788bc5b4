"""Column statistics in the header of a row payload: smallest and largest value, and the number of nulls.

They let a reader with a condition (option ``where``) skip an entry in which no row can match, without decoding it.
Only top-level columns whose type has an order have statistics. Values are compared as one of four *kinds*:

======== ================================================== ============ ==========================
kind     Arrow types                                        in Python    in the header
======== ================================================== ============ ==========================
INTEGER  bool, intN, date32, timestamp[us], time64[ns]      int          8 bytes, little endian
DECIMAL  decimal128                                         int, unscaled 16 bytes, little endian
FLOAT    float, double                                      float        8 bytes, little endian
BYTES    string (as UTF-8), binary                          bytes        at most 64 bytes
======== ================================================== ============ ==========================

The block has a row for each column with statistics, as many as fit:

====== ====== ==================================================================
offset type   row
====== ====== ==================================================================
0      u16    index of the column in the payload's schema
2      u8     flags: 1 there are bounds; 2 there is a NaN (bounds ignore NaN)
3      u32    nulls
7      u8     bytes of the lower bound, then the bound      (only with flag 1)
…      u8     bytes of the upper bound, then the bound      (only with flag 1)
====== ====== ==================================================================

Bounds hold for every value that is neither null nor NaN, but need not occur: long strings are cut. For the upper bound one is
added to the last byte that is left.

Ref: docs/formats.md, "Row payloads".
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import Enum
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.errors import CorruptionError

BOUND_BYTES = 64
"""The most bytes of a string's bound: most keys differ within them, and a thousand columns fit into the header's 64 KiB."""

MIN_ROWS = 64
"""Payloads of fewer rows get no statistics: making them takes longer than decoding the payload."""

_ROW = struct.Struct("<HBI")
_HAS_BOUNDS, _HAS_NAN = 1, 2
_EXACT = Context(prec=76)
_MAX_COLUMNS = 2**16

Key: TypeAlias = int | float | bytes
"""A value as it is compared."""


class Kind(Enum):
    """How the values of a column are compared."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of one column of one payload. Both bounds are set, or none: without a value, or without an upper bound."""

    nulls: int
    low: Key | None = None
    high: Key | None = None
    has_nan: bool = False


def kind_of(of: pa.DataType) -> Kind | None:
    """The kind of a column's values; None if its type has no order or gets no statistics."""
    if pa.types.is_integer(of) or pa.types.is_boolean(of) or pa.types.is_date32(of):
        return Kind.INTEGER
    if pa.types.is_timestamp(of) or pa.types.is_time64(of):
        return Kind.INTEGER
    if pa.types.is_decimal128(of):
        return Kind.DECIMAL
    if pa.types.is_floating(of):
        return Kind.FLOAT
    return Kind.BYTES if pa.types.is_string(of) or pa.types.is_binary(of) else None


def key_of(value: pa.Scalar) -> Key:
    """A value of a type that has a kind, and that is not null."""
    kind = kind_of(value.type)
    if kind is Kind.BYTES:
        return bytes(value.as_buffer())
    return float(value.as_py()) if kind is Kind.FLOAT else _integer(value)


def encode_statistics(batch: pa.RecordBatch, max_bytes: int) -> bytes:
    """The block for the rows of ``batch``. Columns that no longer fit into ``max_bytes`` are left out."""
    if batch.num_rows < MIN_ROWS:
        return b""
    rows: list[bytes] = []
    left = max_bytes
    for index, column in enumerate(batch.columns[:_MAX_COLUMNS]):
        row = _encoded(index, column)
        if len(row) <= left:
            rows.append(row)
            left -= len(row)
    return b"".join(rows)


def decode_statistics(block: bytes, schema: pa.Schema, wanted: Collection[str], what: str) -> Mapping[str, ColumnStatistics]:
    """The statistics of ``wanted`` columns that the block has, by name. Raises CorruptionError; ``what`` names the payload."""
    try:
        return {
            schema.field(index).name: _decoded(schema.field(index).type, flags, nulls, bounds)
            for index, flags, nulls, bounds in _rows(block)
            if schema.field(index).name in wanted
        }
    except (struct.error, IndexError, ValueError) as problem:
        raise CorruptionError(what, f"its statistics cannot be read ({problem})") from None


def _encoded(index: int, column: pa.Array) -> bytes:
    kind = kind_of(column.type)
    if kind is None:
        return b""
    has_nan, bounds = _of_floats(column) if kind is Kind.FLOAT else (False, _bounds(kind, column))
    flags = (_HAS_BOUNDS if bounds else 0) | (_HAS_NAN if has_nan else 0)
    return _ROW.pack(index, flags, column.null_count) + b"".join(bytes([len(bound)]) + bound for bound in bounds or ())


def _of_floats(column: pa.Array) -> tuple[bool, tuple[bytes, bytes] | None]:
    """Whether there is a NaN, and the bounds of the other values. numpy's minimum (NaN if there is one) beats Arrow's."""
    values = column.drop_null().to_numpy(zero_copy_only=False)
    has_nan = bool(len(values) and np.isnan(values.min()))
    if has_nan:
        values = values[~np.isnan(values)]
    bounds = (struct.pack("<d", values.min()), struct.pack("<d", values.max())) if len(values) else None
    return has_nan, bounds


def _bounds(kind: Kind, column: pa.Array) -> tuple[bytes, bytes] | None:
    extremes = pc.min_max(column)
    low, high = extremes["min"], extremes["max"]
    if not low.is_valid:
        return None
    if kind is Kind.BYTES:
        above = _rounded_up(bytes(high.as_buffer()))
        return None if above is None else (bytes(low.as_buffer()[:BOUND_BYTES]), above)
    size = 16 if kind is Kind.DECIMAL else 8
    return _integer(low).to_bytes(size, "little", signed=True), _integer(high).to_bytes(size, "little", signed=True)


def _integer(value: pa.Scalar) -> int:
    if pa.types.is_decimal128(value.type):
        return unscaled(value.as_py(), value.type.scale)
    return int(value.value) if hasattr(value, "value") else int(value.as_py())


def unscaled(value: Decimal, scale: int) -> int:
    """``value``, with at most ``scale`` decimal places, in units of the last place."""
    return int(value.scaleb(scale, _EXACT))


def _rounded_up(value: bytes) -> bytes | None:
    """A value of at most BOUND_BYTES that is not below ``value``; None if there is none."""
    if len(value) <= BOUND_BYTES:
        return value
    head = value[:BOUND_BYTES].rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def _rows(block: bytes) -> Iterator[tuple[int, int, int, tuple[bytes, ...]]]:
    at = 0
    while at < len(block):
        index, flags, nulls = _ROW.unpack_from(block, at)
        at += _ROW.size
        bounds = []
        for _ in range(2 if flags & _HAS_BOUNDS else 0):
            size = block[at]
            bounds.append(block[at + 1 : at + 1 + size])
            at += 1 + size
            if at > len(block):
                raise ValueError("it ends in a bound")
        yield index, flags, nulls, tuple(bounds)


def _decoded(of: pa.DataType, flags: int, nulls: int, bounds: tuple[bytes, ...]) -> ColumnStatistics:
    kind = kind_of(of)
    # Bounds of a column without an order say nothing.
    low, high = (_unpacked(kind, bound) for bound in bounds) if bounds and kind is not None else (None, None)
    return ColumnStatistics(nulls, low, high, bool(flags & _HAS_NAN))


def _unpacked(kind: Kind, bound: bytes) -> Key:
    if kind in (Kind.INTEGER, Kind.DECIMAL):
        return int.from_bytes(bound, "little", signed=True)
    if kind is Kind.FLOAT:
        (value,) = struct.unpack("<d", bound)
        return float(value)
    return bound
