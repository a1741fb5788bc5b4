"""Finds the stored batch that answers for an entry id: the newest one that holds it.

Batches of a ledger may overlap: they were added again in another cut, are striped, or were copied by recovery. A row's interval
only says which ids the row may hold; its pattern says which it does. An id is missing only if no row whose interval covers it
holds it.

Worked example: rows 0–99 (sequence 1) and 10–19 (sequence 2). Ids 0–9 come from the first, 10–19 from the second, 20–99
from the first again. The row with the greatest first id not above 50 is 10–19; taking it alone would deny entry 50.

Ref: docs/rules.md, storage rules 1 and 14.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np

from bk_spark.bookie.index.rows import BatchRow
from bk_spark.quorum import IdPattern

PAGE_ROWS = 256
"""The most rows to fetch from the index at a time."""

FIRST_PAGE_ROWS = 8
"""As many as a read of a few entries needs. Every further page has twice as many."""

MAX_SEQUENCE = (1 << 63) - 1

Fetch = Callable[[tuple[int, int], int], list[BatchRow]]
"""LedgerIndex.rows of one ledger."""


class RowWindow:
    """The rows around an entry id that moves upward, from a snapshot of the write cache and pages of the index.

    The snapshot must be older than every page: rows move from the cache to the index, so none is missed. A row seen in both
    does no harm: the newest row answers, and its copies are the same.
    """

    def __init__(self, cached: Iterable[BatchRow], fetch: Fetch, first: int, span: int, deleted_at: int = 0) -> None:
        """``cached`` rows are sorted by first id. ``span``: the largest of a row in the index, 0 if the index has no row.

        Rows below the sequence ``deleted_at`` were deleted with their ledger and are left out.
        """
        self._near: list[BatchRow] = []
        self._cached = deque(row for row in cached if row.sequence > deleted_at)
        self._paged: deque[BatchRow] = deque()
        self._fetch = fetch
        self._deleted_at = deleted_at
        self._after = (first - span, MAX_SEQUENCE)
        self._is_exhausted = span == 0
        self._page_rows = FIRST_PAGE_ROWS

    def overlapping(self, first: int, last: int) -> list[BatchRow]:
        """Every row whose interval meets ``first`` to ``last``, inclusive. ``first`` must not be lower than before."""
        self._near = [row for row in self._near if row.last_entry_id >= first]
        self._read_pages(last)
        for waiting in (self._cached, self._paged):
            while waiting and waiting[0].first_entry_id <= last:
                self._near.append(waiting.popleft())
        return [row for row in self._near if row.first_entry_id <= last and row.last_entry_id >= first]

    def _read_pages(self, last: int) -> None:
        while not self._is_exhausted and self._after[0] <= last:
            page = self._fetch(self._after, self._page_rows)
            self._is_exhausted = len(page) < self._page_rows
            self._page_rows = min(2 * self._page_rows, PAGE_ROWS)
            if page:
                self._after = (page[-1].first_entry_id, page[-1].sequence)
            self._paged.extend(row for row in page if row.sequence > self._deleted_at)


def newest_holding(rows: list[BatchRow], entry_id: int) -> BatchRow | None:
    return max((row for row in rows if row.holds(entry_id)), key=lambda row: row.sequence, default=None)


def stretch_end(row: BatchRow, rows: list[BatchRow], pattern: IdPattern, first: int, last: int) -> int:
    """The last id, at most ``last``, up to which ``row`` answers for all ids of ``pattern`` from ``first`` on."""
    end = min(row.last_entry_id, last)
    newer = [other for other in rows if other.sequence > row.sequence and other.first_entry_id <= end]
    if not newer and (row.pattern.is_dense or row.pattern == pattern):
        return end
    asked = pattern.ids(first, end)
    owned = row.pattern.mask(asked)
    for other in newer:
        owned &= ~((asked >= other.first_entry_id) & (asked <= other.last_entry_id) & other.pattern.mask(asked))
    others = np.flatnonzero(~owned)
    return int(asked[others[0]]) - 1 if len(others) else end


def next_asked(pattern: IdPattern, entry_id: int) -> int:
    """The lowest id from ``entry_id`` on that ``pattern`` holds."""
    return next(one for one in range(entry_id, entry_id + pattern.ensemble_size) if pattern.holds(one))
