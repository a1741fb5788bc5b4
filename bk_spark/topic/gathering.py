"""Entries as bookies answer them → batches that decode fast: a call costs most of a millisecond, however few entries it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.config import MIB
from bk_spark.entries.batch import numbers

GATHER_BYTES = 2 * MIB
"""Decoding more at a time is hardly faster, and what waits is memory."""

GATHER_ENTRIES = 8192
"""The same limit in entries, for entries of few bytes."""


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[npt.NDArray[np.int64], pa.ChunkedArray]]:
    """The ids of the same entries and their payloads, uncopied, about GATHER_BYTES or GATHER_ENTRIES at a time."""
    waiting: list[pa.RecordBatch] = []
    nbytes = entries = 0
    for batch in batches:
        waiting.append(batch)
        nbytes, entries = nbytes + batch.nbytes, entries + batch.num_rows
        if nbytes >= GATHER_BYTES or entries >= GATHER_ENTRIES:
            yield _together(waiting)
            waiting, nbytes, entries = [], 0, 0
    if waiting:
        yield _together(waiting)


def _together(batches: Sequence[pa.RecordBatch]) -> tuple[npt.NDArray[np.int64], pa.ChunkedArray]:
    ids = np.concatenate([numbers(batch.column("entry_id")) for batch in batches])
    return ids, pa.chunked_array([batch.column("payload") for batch in batches])
