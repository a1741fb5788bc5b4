"""Finds the last row of each key among rows that come in order.

Only keys, and a number for each row, are kept. They wait until there are half as many as keys are known; then both are grouped
by key, and the largest number of each stays. So a row is grouped a few times at most, however many there are.

Where the keys themselves do not fit, they go to PARTS files by a hash, so that all rows of one key are in one part. Each part
is then grouped alone, and cut again if it does not fit either. What goes to a file was grouped among its neighbours before.

**Memory.** At most ``most_bytes`` of keys and their numbers are known, and half as many wait; grouping takes some times as much
beside them for a moment. Only keys that one hash cannot tell apart in MAX_CUTS cuts may need more.

A *number* of a row is twice its place among all rows, and one more where it removes its key: the largest one tells both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.config import MIB
from bk_spark.rows.lanes import canonical_floats
from bk_spark.rows.newest.key_hash import hashes_of
from bk_spark.rows.newest.spilled import SpilledBatches
from bk_spark.rows.own_memory import in_own_memory

KNOWN_BYTES = 32 * MIB
"""Of keys that are known: two million whole numbers."""

WAITING_BYTES = 8 * MIB
"""Of keys that wait, at least: to group fewer costs more a row."""

PARTS = 16
"""A part has a file, and a process must have that many descriptors left."""

MAX_CUTS = 4
"""Parts of parts: 65,536 times KNOWN_BYTES of keys are two terabytes."""

_SPILLED_ROWS = 131_072
"""Put into parts at a time: what it takes to hash more would be memory beside all that is grouped."""

_NUMBER = "number"


class NewestRows:
    """Rows are given to ``add`` in their order; ``places`` then tells which are the newest. Not thread-safe."""

    def __init__(self, most_bytes: int = KNOWN_BYTES) -> None:
        self._grouped = _Grouped(most_bytes, 0)
        self._rows = 0

    def add(self, keys: Sequence[pa.Array], removes: pa.Array | None) -> None:
        """More rows: their key columns, and whether each removes its key; null does not."""
        count = len(keys[0])
        numbers = np.arange(self._rows, self._rows + count, dtype=np.int64) * 2
        if removes is not None:
            numbers += pc.fill_null(removes, False).to_numpy(zero_copy_only=False)
        self._rows += count
        columns = [*map(comparable, keys), pa.array(numbers)]
        names = [*map(str, range(len(keys))), _NUMBER]
        # A column of an entry that is not compressed is a slice of the whole entry.
        self._grouped.add(in_own_memory(pa.RecordBatch.from_arrays(columns, names)))

    def places(self) -> Iterator[npt.NDArray[np.int64]]:
        """The places of the newest rows that do not remove their keys, in no order. Called once, behind the last row."""
        for numbers in self._grouped.numbers():
            yield numbers[numbers % 2 == 0] // 2


def comparable(column: pa.Array) -> pa.Array:
    """A key column whose values are equal keys where they have the same bits."""
    if pa.types.is_floating(column.type):
        return canonical_floats(column)
    return column.cast(pa.binary()) if pa.types.is_string(column.type) else column


class _Grouped:
    """The largest number of each key, in memory or in parts."""

    def __init__(self, most_bytes: int, cuts: int) -> None:
        self._most_bytes = most_bytes
        self._cuts = cuts
        self._known: pa.Table | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._parts: dict[int, SpilledBatches] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        known_bytes = 0 if self._known is None else self._known.nbytes
        if self._waiting_bytes >= max(min(WAITING_BYTES, self._most_bytes), known_bytes // 2):
            self._group()

    def numbers(self) -> Iterator[npt.NDArray[np.int64]]:
        self._group()
        if self._known is not None:
            yield self._known.column(_NUMBER).to_numpy()
            self._known = None
        while self._parts:
            part = _Grouped(self._most_bytes, self._cuts + 1)
            for batch in self._parts.popitem()[1].read():
                part.add(batch)
            yield from part.numbers()

    def _group(self) -> None:
        if not self._waiting:
            return
        known = [] if self._known is None else self._known.to_batches()
        table = pa.Table.from_batches([*known, *self._waiting])
        self._waiting, self._waiting_bytes = [], 0
        keys = table.schema.names[:-1]
        largest = table.group_by(keys, use_threads=False).aggregate([(_NUMBER, "max")])
        self._known = largest.select([*keys, f"{_NUMBER}_max"]).rename_columns([*keys, _NUMBER])
        can_be_cut = self._known.num_rows > 1 and self._cuts < MAX_CUTS
        is_too_large = self._known.nbytes > self._most_bytes and can_be_cut
        if self._parts or is_too_large:
            self._spill(self._known)
            self._known = None

    def _spill(self, table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=_SPILLED_ROWS):
            hashes = hashes_of(batch.columns[:-1], batch.num_rows)
            parts = (hashes >> np.uint64(60 - 4 * self._cuts)).astype(np.uint8) % PARTS
            order = np.argsort(parts, kind="stable")
            sizes = np.bincount(parts, minlength=PARTS)
            ends = np.cumsum(sizes)
            for part in np.flatnonzero(sizes).tolist():
                if part not in self._parts:
                    self._parts[part] = SpilledBatches(table.schema)
                self._parts[part].write(batch.take(pa.array(order[ends[part] - sizes[part] : ends[part]])))
