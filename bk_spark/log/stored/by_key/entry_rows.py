"""How many rows each entry had of the ledgers that a compaction by key removed.

A stream may have stopped inside such a ledger. Once the ledger is deleted, only this tells the number of the row that it was to
read next. Neighbouring entries with as many rows are one *run*: most ledgers have two.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bk_spark.log.stored.json_values import integer, integers, items

RUNS_PER_PAGE = 10_000
"""A run takes 43 bytes at most, and a ledger as much as two: a page stays below 512 KiB."""
_RUNS_OF_LEDGER = 2


@dataclass(frozen=True, slots=True)
class EntryRows:
    """Of entries that follow each other in one ledger."""

    ledger_id: int
    first_entry_id: int
    runs: tuple[tuple[int, int], ...]
    """So many entries with so many rows each."""

    @staticmethod
    def of(ledger_id: int, rows: Iterable[int]) -> EntryRows:
        """``rows`` of each entry, from the first one on."""
        runs = tuple((len(list(alike)), count) for count, alike in itertools.groupby(rows))
        return EntryRows(ledger_id, 0, runs)

    @property
    def end(self) -> int:
        """The entry behind them."""
        return self.first_entry_id + sum(entries for entries, _ in self.runs)

    def rows_before(self, entry_id: int) -> int:
        """How many rows there are before an entry."""
        left, rows = entry_id - self.first_entry_id, 0
        for entries, count in self.runs:
            rows += min(entries, max(left, 0)) * count
            left -= entries
        return rows

    def cut(self, most: int) -> Iterator[EntryRows]:
        """The same in pieces of up to ``most`` runs."""
        first = self.first_entry_id
        for start in range(0, len(self.runs), most):
            piece = EntryRows(self.ledger_id, first, self.runs[start : start + most])
            yield piece
            first = piece.end

    def stored(self) -> list[object]:
        return [self.ledger_id, self.first_entry_id, [list(run) for run in self.runs]]

    @staticmethod
    def read(value: Any) -> EntryRows:
        ledger_id, first, runs = items(value)
        pairs = [integers(run) for run in items(runs)]
        checked = tuple((integer(entries, 1), integer(count, 0)) for entries, count in pairs)
        return EntryRows(integer(ledger_id, 0), integer(first, 0), checked)


def rows_before(found: Iterable[EntryRows], ledger_id: int, entry_id: int) -> int | None:
    """How many rows a ledger has before an entry; None if nothing is known of the ledger."""
    own = [one for one in found if one.ledger_id == ledger_id]
    return sum(one.rows_before(entry_id) for one in own) if own else None


def in_pages(entries: Sequence[EntryRows]) -> list[tuple[EntryRows, ...]]:
    """The same, as much together as fits into one page."""
    pages: list[list[EntryRows]] = []
    room = 0
    for one in (piece for entry_rows in entries for piece in entry_rows.cut(RUNS_PER_PAGE - _RUNS_OF_LEDGER)):
        size = len(one.runs) + _RUNS_OF_LEDGER
        if size > room:
            pages.append([])
            room = RUNS_PER_PAGE
        pages[-1].append(one)
        room -= size
    return [tuple(page) for page in pages]
