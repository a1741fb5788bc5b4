"""Columns of bytes and texts that are cut out of one buffer: one copy, without a Python object for any of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def cut_out(data: pa.Buffer, starts: Ints, ends: Ints, present: Flags | None = None) -> pa.BinaryArray:
    """The bytes from ``starts`` to ``ends``, excluded; null where not ``present``. Those that are present ascend, and do not
    overlap."""
    rows = np.arange(len(starts)) if present is None else np.flatnonzero(present)
    places = np.empty(2 * len(rows), np.int32)
    places[0::2], places[1::2] = starts[rows], ends[rows]
    pieces = pa.BinaryArray.from_buffers(pa.binary(), max(len(places) - 1, 0), [None, pa.py_buffer(places), data])
    numbers = np.zeros(len(starts), np.int64)
    numbers[rows] = np.arange(0, len(places), 2)
    validity = None if present is None or len(rows) == len(starts) else bitmap(present)
    if not len(rows):
        return pa.nulls(len(starts), pa.binary()) if len(starts) else pieces
    return pieces.take(pa.Array.from_buffers(pa.int64(), len(starts), [validity, pa.py_buffer(numbers)]))


def bitmap(rows: npt.NDArray[np.bool_]) -> pa.Buffer:
    """The same as Arrow keeps it: a bit for each row."""
    return pa.py_buffer(np.packbits(rows, bitorder="little"))


def not_text(column: pa.BinaryArray) -> list[int]:
    """The rows whose bytes are not UTF-8."""
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return [row for row, value in enumerate(column.to_pylist()) if value is not None and not _is_text(value)]
    return []


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
