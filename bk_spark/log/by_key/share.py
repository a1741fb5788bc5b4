"""Which rows of some lanes stay in a compaction by key. Two passes: keys alone, then all columns of the rows that stay."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bk_spark.errors import CorruptionError
from bk_spark.log.rows.latest.chosen import ChosenRows
from bk_spark.log.rows.latest.view import LatestRows
from bk_spark.log.rows.side_by_side import SideBySide
from bk_spark.log.spans.merged import places_of
from bk_spark.log.spans.span_handle import PLACE_FIELD
from bk_spark.log.stored.by_key.entry_rows import EntryRows
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.rows.newest.newest_rows import NewestRows
from bk_spark.rows.reading import Added

ReadLedger: TypeAlias = Callable[[CommittedLedger, AskedRows], Iterator[pa.RecordBatch]]
"""The rows of a whole ledger, in their order. Threads call it side by side."""

_ENTRY_FIELD = pa.field("_bk_spark_entry", pa.int64())
_ENTRY: Added = {_ENTRY_FIELD.name: lambda _, entry_id: entry_id}

Places: TypeAlias = npt.NDArray[np.int64]


@dataclass
class _Counted:
    """Counts what passes."""

    places: Iterator[Places]
    count: int = 0

    def __iter__(self) -> Iterator[Places]:
        for some in self.places:
            self.count += len(some)
            yield some


@dataclass(frozen=True, slots=True)
class PlacedLedger:
    """A ledger to compact."""

    ledger: CommittedLedger
    start: int
    """The place of its first row in the new span; of a ledger in an older span, the place of that span's first row number."""

    def places(self, first: int, rows: pa.RecordBatch) -> Places:
        """Those of rows of the ledger, the first of which is its row ``first``."""
        if self.ledger.span is not None:
            return places_of(rows) + self.start
        return np.arange(self.start + first, self.start + first + rows.num_rows, dtype=np.int64)

    def entry_rows(self, rows: Mapping[int, int]) -> EntryRows | None:
        """``rows`` of each entry that has some; None where no stream stops inside the ledger by an entry."""
        if self.ledger.span is not None or self.ledger.last_entry_id < 1:
            return None
        return EntryRows.of(self.ledger.ledger_id, (rows.get(one, 0) for one in range(self.ledger.last_entry_id + 1)))


@dataclass(frozen=True, slots=True)
class Choice:
    """What stays of a share."""

    rows: ChosenRows
    kept: int
    """How many rows."""
    entries: tuple[EntryRows, ...]
    """Of the ledgers of several entries, which a stream may have stopped in."""


@dataclass(frozen=True, slots=True)
class KeyShare:
    """The ledgers of some lanes, in the order in which the log lists them. Pickles."""

    ledgers: tuple[PlacedLedger, ...]
    schema: pa.Schema
    """The columns of the log."""
    latest: LatestRows
    """The key columns, and the one that says which rows remove their keys."""
    tombstones_end: int
    """A row before this place goes if it removes its key, and is the newest one of it."""

    @property
    def stored(self) -> pa.Schema:
        """The columns of a span's entries."""
        return pa.schema([*self.schema, PLACE_FIELD])

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(one.name for one in self.latest.keys)

    def chosen(self, read: ReadLedger) -> Choice:
        """Which rows stay. Raises CorruptionError where a ledger has more or fewer rows than the log lists.

        Raises StorageError where the keys do not fit into memory, and the disk does not take them.
        """
        newest, keys = NewestRows(), self.latest.of_keys
        asked = AskedRows(pa.schema([*keys.schema, PLACE_FIELD, _ENTRY_FIELD]), added=_ENTRY, checks_values=False)
        counts, entries = [0] * len(self.ledgers), [dict[int, int]() for _ in self.ledgers]
        with closing(self._batches(read, asked)) as batches:
            for number, rows in batches:
                columns, removes = self.latest.split(rows)
                if removes is not None:
                    places = self.ledgers[number].places(counts[number], rows)
                    removes = pc.and_(removes, pa.array(places < self.tombstones_end))
                newest.add(columns, removes)
                counts[number] += rows.num_rows
                entry_id = rows.column(_ENTRY_FIELD.name)[0].as_py()
                entries[number][entry_id] = entries[number].get(entry_id, 0) + rows.num_rows
        for one, count in zip(self.ledgers, counts, strict=True):
            if count != one.ledger.rows:
                what = f"ledger {one.ledger.ledger_id}"
                raise CorruptionError(what, f"it holds {count} rows, the log lists {one.ledger.rows}")
        counted = _Counted(newest.places())
        chosen = ChosenRows(counts, counted)
        told = (one.entry_rows(rows) for one, rows in zip(self.ledgers, entries, strict=True))
        return Choice(chosen, counted.count, tuple(one for one in told if one is not None))

    def kept(self, read: ReadLedger, chosen: ChosenRows) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that stay, with their lanes, as ``stored``; in each lane in the order of their places."""
        done = [0] * len(self.ledgers)
        with closing(self._batches(read, AskedRows(self.stored, checks_values=False))) as batches:
            for number, rows in batches:
                placed, first = self.ledgers[number], done[number]
                done[number] += rows.num_rows
                columns = [*rows.columns[:-1], pa.array(placed.places(first, rows))]
                stay = chosen.of(number, first, pa.RecordBatch.from_arrays(columns, schema=self.stored))
                if stay.num_rows:
                    yield placed.ledger.lane, stay

    def _batches(self, read: ReadLedger, asked: AskedRows) -> Generator[tuple[int, pa.RecordBatch], None, None]:
        side_by_side = SideBySide(self.ledgers, lambda one: read(one.ledger, asked))
        for batch in side_by_side.batches():
            yield side_by_side.head, batch
