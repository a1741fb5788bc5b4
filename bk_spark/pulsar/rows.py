"""Decoded rows: columns made of numpy's arrays, and rows chosen, spread over messages and put in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.entries.batch import int64s
from bk_spark.pulsar.columns import DECODED_SCHEMA, TIMESTAMP
from bk_spark.pulsar.protobuf_columns import Varints
from bk_spark.pulsar.slices import bitmap

MOST_CUTS: Final = 256
"""Runs of rows above which taking row by row is as fast as joining the runs: each costs some microseconds."""

_TEXTS: Final = ("key", "_producer", "encryption_key", "uuid")

NO_ROWS: Final = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in DECODED_SCHEMA], schema=DECODED_SCHEMA)

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def ids_of(rows: pa.RecordBatch) -> Ints:
    column = rows.column("entry_id")
    return np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)


def merged(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all parts by entry; in each part they are."""
    order = np.argsort(np.concatenate([ids_of(part) for part in parts]), kind="stable")
    begins = np.cumsum([0, *(part.num_rows for part in parts[:-1])])
    owners = np.searchsorted(begins, order, side="right") - 1
    cuts = np.flatnonzero((np.diff(order) != 1) | (np.diff(owners) != 0)) + 1
    if len(cuts) > MOST_CUTS:
        return pa.concat_batches(parts).take(int64s(order))
    places, of_run = order - begins[owners], owners[[0, *cuts]].tolist()
    runs = zip(of_run, pairwise([0, *cuts.tolist(), len(order)]), strict=True)
    return pa.concat_batches([parts[part].slice(int(places[first]), end - first) for part, (first, end) in runs])


def kept_rows(columns: Mapping[str, pa.Array], kept: Flags) -> pa.RecordBatch | None:
    """The rows to keep, in DECODED_SCHEMA; None if there is none."""
    if not kept.any():
        return None
    mask = None if kept.all() else bools(kept)
    arrays = []
    for field in DECODED_SCHEMA:
        column = columns[field.name] if mask is None else columns[field.name].filter(mask)
        arrays.append(column.view(field.type) if field.name in _TEXTS else column)  # known to be UTF-8
    return pa.RecordBatch.from_arrays(arrays, schema=DECODED_SCHEMA)


def spread(column: pa.Array, places: pa.Int64Array) -> pa.Array:
    """An element for each message. Most of what an entry may say, none says."""
    return pa.nulls(len(places), column.type) if column.null_count == len(column) else column.take(places)


def timestamps(values: npt.NDArray[np.uint64], present: Flags) -> pa.Array:
    """Microseconds of milliseconds."""
    micros = np.ascontiguousarray(values.astype(np.int64) * 1000)
    validity = None if present.all() else bitmap(present)
    return pa.Array.from_buffers(TIMESTAMP, len(values), [validity, pa.py_buffer(micros)])


def uint64s(found: Varints) -> pa.Array:
    return pa.Array.from_buffers(pa.uint64(), len(found.values), [bitmap(found.present), pa.py_buffer(found.values)])


def int32s(values: npt.NDArray[np.int32], present: Flags | None = None) -> pa.Array:
    validity = None if present is None else bitmap(present)
    return pa.Array.from_buffers(pa.int32(), len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))])


def bools(values: Flags) -> pa.BooleanArray:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bitmap(values)])
