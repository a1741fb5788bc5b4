"""Which rows of some stretches are the newest ones of their keys: a bit for each row, in the order of the stretches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bk_spark.log.rows.latest.view import LatestRows
from bk_spark.rows.newest.newest_rows import NewestRows


class ChosenRows:
    """Threads may share it once it is made."""

    def __init__(self, counts: Sequence[int], places: Iterable[npt.NDArray[np.int64]]) -> None:
        """``counts`` rows in each stretch, and the ``places`` of those that are chosen, counted through all of them."""
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._bits = np.zeros(-(-int(self._starts[-1]) // 8), np.uint8)
        for some in places:
            np.bitwise_or.at(self._bits, some >> 3, np.left_shift(1, some & 7).astype(np.uint8))

    def has_some(self, stretch: int) -> bool:
        """Whether any row of a stretch is chosen."""
        first, end = int(self._starts[stretch]), int(self._starts[stretch + 1])
        return bool(self._mask(first, end - first).true_count)

    def of(self, stretch: int, first: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The chosen ones of the rows of a stretch from its row ``first`` on."""
        return rows.filter(self._mask(int(self._starts[stretch]) + first, rows.num_rows))

    def _mask(self, first: int, count: int) -> pa.BooleanArray:
        return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(self._bits)], 0, first)


def choose(batches: Iterable[tuple[int, pa.RecordBatch]], stretches: int, latest: LatestRows) -> ChosenRows:
    """The newest rows of so many stretches, whose rows come in order as ``latest.of_keys``, each batch with its stretch.

    Raises StorageError where the keys do not fit into memory, and the disk does not take them.
    """
    newest, counts = NewestRows(), [0] * stretches
    for stretch, rows in batches:
        newest.add(*latest.split(rows))
        counts[stretch] += rows.num_rows
    return ChosenRows(counts, newest.places())
