"""Entries as bookies answer them → batches that decode fast: a call costs most of a millisecond, however few entries it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from bk_spark.config import MIB

GATHER_BYTES = 2 * MIB
"""Decoding more at a time is hardly faster, and what waits is memory."""

GATHER_ENTRIES = 8192
"""The same limit in entries, for entries of few bytes."""


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same entries in batches of about GATHER_BYTES or GATHER_ENTRIES; larger ones pass uncopied."""
    waiting: list[pa.RecordBatch] = []
    nbytes = entries = 0
    for batch in batches:
        waiting.append(batch)
        nbytes, entries = nbytes + batch.nbytes, entries + batch.num_rows
        if nbytes >= GATHER_BYTES or entries >= GATHER_ENTRIES:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, nbytes, entries = [], 0, 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
