"""Reads the newest row of each key, without Spark, in two passes over each share of lanes.

The first pass reads key columns, and notes which rows are the newest. The second reads the columns to give of the stretches
that have some, and leaves the other rows out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

import pyarrow as pa

from bk_spark.calls.resumed_iterator import ResumedIterator
from bk_spark.client.ledger.stretches import Stretch
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.rows.latest.asked import AskedView
from bk_spark.log.rows.latest.chosen import ChosenRows, choose
from bk_spark.log.rows.latest.shares import lanes_of_ledgers, shares
from bk_spark.log.rows.latest.view import latest_rows
from bk_spark.log.rows.read_rows import RowReader, stored_schema
from bk_spark.log.rows.side_by_side import SideBySide, placed_batches
from bk_spark.rows.reading import joined

Share = Sequence[Stretch]
_Place = tuple[int, int, int]
"""The number of a share, of a stretch in it, and of rows of it that were given."""


class LatestReader:
    """Reads what ``reader`` was asked for, of the newest rows alone. Raises ConfigError for a log without keys."""

    def __init__(self, reader: RowReader, asked: AskedView) -> None:
        snapshot = reader.snapshot
        what, stored = f"version {snapshot.version} of log '{snapshot.name}'", stored_schema(snapshot.name, snapshot)
        self._latest = latest_rows(asked, what, stored, snapshot.lanes, reader.query.where)
        self._reader = reader
        self._schema = reader.query.schema
        self._keys = reader.asking(self._latest.of_keys)
        self.rows: Final = reader.asking(self._latest.of_rows(self._schema))
        """Gives all rows that can be the newest, with the columns that ``pick`` needs."""

    def read(self, start: LogPosition | None, end: LogPosition | None) -> pa.RecordBatchReader:
        """As ``RowReader.read``."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches(self.shares(start, end)))

    def shares(self, start: LogPosition | None, end: LogPosition | None) -> list[Share]:
        """What is read from ``start`` (included) to ``end`` (excluded): no two shares have a key in common."""
        return [*shares(self._reader.stretches(start, end), lanes_of_ledgers(self._reader.snapshot))]

    def chosen(self, share: Share, check_wanted: Callable[[], None] = lambda: None) -> ChosenRows:
        """The newest rows of a share. What ``check_wanted`` raises now and then ends the pass."""
        with closing(self._keys_of(share, check_wanted)) as batches:
            return choose(batches, len(share), self._latest)

    def pick(self, share: Share, chosen: ChosenRows, number: int, first: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What is to be given of the rows of a stretch, from its row ``first`` on."""
        what = f"ledger {share[number].ledger_id} of log '{self._reader.snapshot.name}'"
        return self._latest.given(chosen.of(number, first, rows), self._schema, what)

    def _batches(self, every: list[Share]) -> Iterator[pa.RecordBatch]:
        """As that of RowReader, after an interrupt, too: a share's newest rows are the same each time."""
        kept: dict[int, ChosenRows] = {}
        return ResumedIterator(partial(self._from, every, kept), (0, 0, 0))

    def _from(
        self, every: list[Share], kept: dict[int, ChosenRows], place: _Place
    ) -> Generator[tuple[pa.RecordBatch | None, _Place], None, None]:
        """Each batch with the place behind it. ``kept`` has the newest rows of the last share."""
        first, *inside = place
        for number, share in enumerate(every[first:], first):
            if number not in kept:
                kept.clear()
                kept[number] = self.chosen(share)
            begin = (inside[0], inside[1]) if number == first else (0, 0)
            read = partial(self._rows_of, share, kept[number])
            for batch, (stretch, rows) in placed_batches(range(len(share)), read, begin):
                yield batch, (number, stretch, rows)

    def _keys_of(self, share: Share, check_wanted: Callable[[], None]) -> Generator[tuple[int, pa.RecordBatch], None, None]:
        side_by_side = SideBySide(share, self._keys.rows_of)
        for batch in side_by_side.batches():
            check_wanted()
            yield side_by_side.head, batch

    def _rows_of(self, share: Share, chosen: ChosenRows, number: int) -> Iterator[pa.RecordBatch]:
        return joined(self._picked(share, chosen, number))

    def _picked(self, share: Share, chosen: ChosenRows, number: int) -> Iterator[pa.RecordBatch]:
        first = 0
        for rows in self.rows.rows_of(share[number]) if chosen.has_some(number) else ():
            picked = self.pick(share, chosen, number, first, rows)
            first += rows.num_rows
            if picked.num_rows:
                yield picked
