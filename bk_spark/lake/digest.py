"""A digest of a ledger's rows that stays the same however they are cut into batches, files and row groups. Pure.

It stays the same, too, when the table gets columns, or wider types: a column of nulls alone counts as missing, and values count
in the widest type that Iceberg lets theirs become. Rows count in their order.

Each column, also one inside of another, has three checksums: of the places of its nulls, of the lengths of its texts or lists,
and of its values. They go on from batch to batch. The digest is a hash of all of them, each with the column's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as of

from bk_spark.entries.crc import crc32c
from bk_spark.log.stored.tier_records import LedgerContent

_PLACES_AT_ONCE = 1 << 17
"""Places of nulls in memory: a column may have nulls alone for as long as a ledger goes on."""

_Path = tuple[str, ...]
"""The name of a column, then those of what is inside of it."""


class LedgerDigest:
    """Takes the rows of one ledger in their order."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[_Path, _Column] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """The next rows."""
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            self._add((name,), column, self.rows)
        self.rows += rows.num_rows

    def content(self) -> LedgerContent:
        """Of all rows so far. Nothing may be added after it."""
        found = [(path, self._columns[path].checksums(self._slots(path))) for path in sorted(self._columns)]
        return LedgerContent(self.rows, hashlib.sha256(repr(found).encode()).hexdigest()[:32])

    def _add(self, path: _Path, column: pa.Array, first: int) -> None:
        """The next slots of a column, of which the first one has the number ``first``."""
        if column.null_count == len(column):
            return
        known = self._columns.setdefault(path, _Column())
        known.add_nulls(column, first)
        valid = column.drop_null()
        inside = known.valid
        known.valid += len(valid)
        if of.is_struct(valid.type):
            for field, child in zip(valid.type, valid.flatten(), strict=True):
                self._add((*path, field.name), child, inside)
        elif of.is_list(valid.type) or of.is_large_list(valid.type) or of.is_map(valid.type):
            self._add_lists(path, known, valid)
        elif of.is_string(valid.type) or of.is_binary(valid.type):
            _, offsets, data = valid.buffers()
            ends = _numbers(offsets, np.int32, valid.offset, len(valid) + 1)
            known.add_lengths(ends)
            known.add_values(memoryview(data)[ends[0] : ends[-1]] if data is not None else b"")
        else:
            known.add_values(_widest(valid))

    def _add_lists(self, path: _Path, known: _Column, lists: pa.Array) -> None:
        ends = lists.offsets.to_numpy()
        known.add_lengths(ends)
        known.has_lists = True
        inside, count = known.items, int(ends[-1] - ends[0])
        known.items += count
        children = {"key": lists.keys, "value": lists.items} if of.is_map(lists.type) else {"element": lists.values}
        for name, child in children.items():
            self._add((*path, name), child.slice(int(ends[0]), count), inside)

    def _slots(self, path: _Path) -> int:
        """How many slots a column has had: rows; of one inside of others, their valid slots, or the items of their lists."""
        if len(path) == 1:
            return self.rows
        outer = self._columns[path[:-1]]
        return outer.items if outer.has_lists else outer.valid


class _Column:
    """One column up to the last batch."""

    def __init__(self) -> None:
        self.valid = self.items = 0
        """Slots that are not null, and what their lists have together."""
        self.has_lists = False
        self._seen = 0
        """The nulls of the slots below are in the checksum."""
        self._nulls = self._lengths = self._values = 0

    def add_nulls(self, column: pa.Array, first: int) -> None:
        self._skip_to(first)
        if column.null_count:
            places = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            self._nulls = crc32c((places + first).astype(np.int64), self._nulls)
        self._seen = first + len(column)

    def add_lengths(self, ends: npt.NDArray[np.int32]) -> None:
        self._lengths = crc32c(np.diff(ends).astype(np.int32), self._lengths)

    def add_values(self, values: memoryview | bytes | npt.NDArray[np.generic]) -> None:
        self._values = crc32c(values, self._values)

    def checksums(self, slots: int) -> tuple[int, int, int]:
        self._skip_to(slots)
        return self._nulls, self._lengths, self._values

    def _skip_to(self, first: int) -> None:
        """In batches in which a column has nulls alone it was not looked at."""
        for start in range(self._seen, first, _PLACES_AT_ONCE):
            self._nulls = crc32c(np.arange(start, min(first, start + _PLACES_AT_ONCE), dtype=np.int64), self._nulls)
        self._seen = max(self._seen, first)


def _widest(column: pa.Array) -> memoryview | npt.NDArray[np.generic]:
    """The values of a column without nulls: whole numbers with 64 bits, and so are numbers with a fraction."""
    if of.is_boolean(column.type):
        column = column.cast(pa.uint8())
    kind, width = column.type, column.type.bit_width // 8
    raw = memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width]
    if of.is_integer(kind) and kind != pa.int64():
        return np.frombuffer(raw, kind.to_pandas_dtype()).astype(np.int64)
    return np.frombuffer(raw, np.float32).astype(np.float64) if of.is_float32(kind) else raw


def _numbers(buffer: pa.Buffer, kind: type[np.int32], first: int, count: int) -> npt.NDArray[np.int32]:
    return np.frombuffer(buffer, kind)[first : first + count]


def runs(ledgers: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Each ledger's stretches of rows that follow each other, in order: its id, and the first and the last row, exclusive."""
    if not len(ledgers):
        return
    starts = np.flatnonzero(np.diff(ledgers, prepend=ledgers[0] - 1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(ledgers)], strict=True):
        yield int(ledgers[start]), start, stop
