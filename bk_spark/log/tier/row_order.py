"""Which rows of a tier's files are those of some entries, and their order in the log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.config import MIB
from bk_spark.log.stored.tier_columns import ENTRY, LEDGER, ROW

MOST_SORTED = 256 * MIB
"""Of rows that are sorted in memory at a time. More are sorted in parts, for each of which the files are read once."""


def parts_of(first: int, last: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """Entries ``first`` to ``last`` of so many bytes, in parts of MOST_SORTED at most, if all entries are equally large."""
    count = -(-nbytes // MOST_SORTED)
    step = max(1, -(-(last - first + 1) // max(1, count)))
    return ((start, min(start + step - 1, last)) for start in range(first, last + 1, step))


def of_entries(batch: pa.RecordBatch, ledger_id: int, first: int, last: int) -> pa.RecordBatch:
    """The rows of some entries, in their order."""
    ledgers, entries = (batch.column(name).fill_null(-1).to_numpy() for name in (LEDGER, ENTRY))  # rows of others have none
    places = np.flatnonzero((ledgers == ledger_id) & (entries >= first) & (entries <= last))
    if not len(places):
        return batch.slice(0, 0)
    if places[-1] - places[0] + 1 == len(places):
        return batch.slice(int(places[0]), len(places))
    return batch.take(pa.array(places))


def by_ledger(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The stretches of rows that belong to one ledger each."""
    ledgers = batch.column(LEDGER).fill_null(-1).to_numpy()
    starts = np.flatnonzero(np.diff(ledgers, prepend=ledgers[:1] - 1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(ledgers)], strict=True) if starts else ():
        yield int(ledgers[start]), batch.slice(start, end - start)


def order_of(rows: pa.Table) -> npt.NDArray[np.int64] | None:
    """The places of rows of one ledger in the log's order; None if they are in order already."""
    entries, numbers = (rows.column(name).to_numpy() for name in (ENTRY, ROW))
    ordered = np.lexsort((numbers, entries))
    return None if np.array_equal(ordered, np.arange(len(ordered))) else ordered
