"""Joins neighbours: record batches up to the size of an entry, payloads up to the size of an add.

An add costs its writer and its bookies about as much as a fifth of a megabyte of data, each entry of rows costs its readers,
and Spark's batches are cut for neither. Items that fill more than half the bound go on at once: few neighbours would still fit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import pyarrow as pa

from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES, binaries
from bk_spark.entries.digest import payload_sizes

_Item = TypeVar("_Item")


def gathered_batches(batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows; neighbours of one schema are joined up to both bounds. A larger batch passes uncopied."""
    for _, alike in itertools.groupby(batches, lambda batch: batch.schema):
        for run, _ in _runs(((batch, batch.nbytes, batch.num_rows) for batch in alike), max_bytes, max_rows):
            yield as_one(run)


def gathered_payloads(payloads: Iterable[tuple[pa.Buffer, int]], max_bytes: int) -> Iterator[tuple[pa.BinaryArray, int]]:
    """Payloads with the rows of each, joined into arrays with the rows of all; one above ``max_bytes`` stays alone."""
    sized = ((payload, payload.size + ENTRY_OVERHEAD_BYTES, rows) for payload, rows in payloads)
    return ((binaries(run), rows) for run, rows in _runs(sized, max_bytes))


def _runs(
    items: Iterable[tuple[_Item, int, int]], max_bytes: int, max_rows: float = math.inf
) -> Iterator[tuple[list[_Item], int]]:
    """Items come with their bytes and rows. Gives neighbours that are together within both bounds, with the rows of all."""
    run: list[_Item] = []
    nbytes = rows = 0
    for item, size, count in items:
        if run and (nbytes + size > max_bytes or rows + count > max_rows):
            yield run, rows
            run, nbytes, rows = [], 0, 0
        run.append(item)
        nbytes, rows = nbytes + size, rows + count
        if 2 * nbytes > max_bytes or 2 * rows > max_rows:
            yield run, rows
            run, nbytes, rows = [], 0, 0
    if run:
        yield run, rows


def gathered_entries(arrays: Iterable[pa.BinaryArray], max_bytes: int) -> Iterator[pa.BinaryArray]:
    """The same entries in arrays of up to ``max_bytes``; only an array joined from several is copied."""
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
    """At least one batch, all of one schema, as one batch; a single batch is not copied."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _concatenated(arrays: list[pa.BinaryArray]) -> pa.BinaryArray:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
