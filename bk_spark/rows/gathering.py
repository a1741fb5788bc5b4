"""Joins neighbours: record batches up to the size of an entry, payloads up to the size of an add.

An add costs its writer and its bookies about as much as a fifth of a megabyte of data, each entry of rows costs its readers,
and Spark's batches are cut for neither. Items that fill more than half the bound go on at once: few neighbours would still fit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from bk_spark.config import MIB
from bk_spark.entries.batch import ENTRY_OVERHEAD_BYTES, binaries
from bk_spark.entries.digest import payload_sizes

WAITING_BYTES = 32 * MIB
"""Of all lanes together. One lane waits for half an entry at most, so eight of them never wait for this, however large entries
are. With hundreds of lanes entries become smaller, not memory larger."""

_Item = TypeVar("_Item")


def gathered_batches(batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows; neighbours of one schema are joined up to both bounds. A larger batch passes uncopied."""
    return (batch for _, batch in batches_of_lanes(((0, batch) for batch in batches), max_rows, max_bytes))


def batches_of_lanes(
    batches: Iterable[tuple[int, pa.RecordBatch]], max_rows: int, max_bytes: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """As ``gathered_batches``, for batches that come with their lanes: only those of one lane are joined."""
    for _, alike in itertools.groupby(batches, lambda one: one[1].schema):
        for lane, run, _ in _runs(((lane, batch, batch.nbytes, batch.num_rows) for lane, batch in alike), max_bytes, max_rows):
            yield lane, as_one(run)


def gathered_payloads(
    payloads: Iterable[tuple[int, pa.Buffer, int]], max_bytes: int
) -> Iterator[tuple[int, pa.BinaryArray, int]]:
    """Payloads with the lane and the rows of each, joined into arrays of one lane with the rows of all.

    One above ``max_bytes`` stays alone.
    """
    sized = ((lane, payload, payload.size + ENTRY_OVERHEAD_BYTES, rows) for lane, payload, rows in payloads)
    return ((lane, binaries(run), rows) for lane, run, rows in _runs(sized, max_bytes))


@dataclass(slots=True)
class _Run(Generic[_Item]):
    """Items of one lane that wait for more."""

    items: list[_Item] = field(default_factory=list)
    nbytes: int = 0
    rows: int = 0


def _runs(
    items: Iterable[tuple[int, _Item, int, int]], max_bytes: int, max_rows: float = math.inf
) -> Iterator[tuple[int, list[_Item], int]]:
    """Items come with their lane, bytes and rows. Gives those of one lane that are together within both bounds, in their order,
    with the rows of all. Where more than WAITING_BYTES wait in all lanes, the fullest goes on."""
    waiting: dict[int, _Run[_Item]] = {}
    total = 0
    for lane, item, size, count in items:
        run = waiting.get(lane)
        if run and (run.nbytes + size > max_bytes or run.rows + count > max_rows):
            total -= run.nbytes
            yield lane, run.items, run.rows
            run = None
        if run is None:
            run = waiting[lane] = _Run()
        run.items.append(item)
        run.nbytes, run.rows, total = run.nbytes + size, run.rows + count, total + size
        if total > WAITING_BYTES:
            lane, run = max(waiting.items(), key=lambda one: one[1].nbytes)
        if total > WAITING_BYTES or 2 * run.nbytes > max_bytes or 2 * run.rows > max_rows:
            total -= run.nbytes
            del waiting[lane]
            yield lane, run.items, run.rows
    for lane, run in waiting.items():
        yield lane, run.items, run.rows


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
