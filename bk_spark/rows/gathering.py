"""Neighbours put together: record batches to the size of an entry, payloads to the size of an add.

Every add costs its writer and its bookies about as much as a fifth of a megabyte does, and every entry of rows costs whoever
reads it; Spark's batches are cut for neither. Rows that are more than half of an entry go on at once: they would wait for a
neighbour that hardly fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES, binaries
from bk_spark.entries.digest import payload_sizes


def gathered_batches(batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows; neighbours of one schema are joined while that is within both bounds. What is larger passes uncopied."""
    waiting: list[pa.RecordBatch] = []
    nbytes = rows = 0
    for batch in batches:
        fits = nbytes + batch.nbytes <= max_bytes and rows + batch.num_rows <= max_rows
        if waiting and not (fits and batch.schema.equals(waiting[0].schema)):
            yield as_one(waiting)
            waiting, nbytes, rows = [], 0, 0
        waiting.append(batch)
        nbytes, rows = nbytes + batch.nbytes, rows + batch.num_rows
        if 2 * nbytes > max_bytes or 2 * rows > max_rows:
            yield as_one(waiting)
            waiting, nbytes, rows = [], 0, 0
    if waiting:
        yield as_one(waiting)


def gathered_payloads(payloads: Iterable[tuple[pa.Buffer, int]], max_bytes: int) -> Iterator[tuple[pa.BinaryArray, int]]:
    """Payloads with the rows of each, as arrays to append with the rows of all; above ``max_bytes`` one stands alone."""
    waiting: list[pa.Buffer] = []
    nbytes = rows = 0
    for payload, its_rows in payloads:
        size = payload.size + ENTRY_OVERHEAD_BYTES
        if waiting and nbytes + size > max_bytes:
            yield binaries(waiting), rows
            waiting, nbytes, rows = [], 0, 0
        waiting.append(payload)
        nbytes, rows = nbytes + size, rows + its_rows
        if 2 * nbytes > max_bytes:
            yield binaries(waiting), rows
            waiting, nbytes, rows = [], 0, 0
    if waiting:
        yield binaries(waiting), rows


def gathered_entries(arrays: Iterable[pa.BinaryArray], max_bytes: int) -> Iterator[pa.BinaryArray]:
    """The same entries in adds of up to ``max_bytes``; only what comes of two arrays is copied."""
    waiting: list[pa.BinaryArray] = []
    nbytes = 0
    for array in arrays:
        ends = np.cumsum(payload_sizes(array) + ENTRY_OVERHEAD_BYTES)
        start = before = 0
        while start < len(array):
            end = int(np.searchsorted(ends, before + max_bytes - nbytes, side="right"))
            end = end if waiting else max(end, start + 1)
            if end > start:
                waiting.append(array.slice(start, end - start))
                start, before, nbytes = end, int(ends[end - 1]), nbytes + int(ends[end - 1]) - before
            if start < len(array):
                yield _concatenated(waiting)
                waiting, nbytes = [], 0
    if waiting:
        yield _concatenated(waiting)


def as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema, at least one, as one; a single one is not copied."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _concatenated(arrays: list[pa.BinaryArray]) -> pa.BinaryArray:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
