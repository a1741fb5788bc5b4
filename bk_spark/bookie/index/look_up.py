"""Finds the stored batch that answers for an entry id: the newest one that holds it.

Batches of a ledger may overlap: they were added again in another cut, are striped, or were copied by recovery. The interval of
a batch only says which ids it may hold; its pattern says which it does. An id is missing only if no batch whose interval covers
it holds it.

Worked example: batches 0–99 (sequence 1) and 10–19 (sequence 2). Ids 0–9 come from the first, 10–19 from the second, 20–99
from the first again. The batch with the greatest first id not above 50 is 10–19; taking it alone would deny entry 50.

Ref: docs/rules.md, storage rules 1 and 14.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np

from bk_spark.bookie.index.values import StoredBatch
from bk_spark.quorum import IdPattern

PAGE_BATCHES = 256
"""The most stored batches to fetch from the index at a time."""

FIRST_PAGE_BATCHES = 8
"""As many as a read of a few entries needs. Every further page has twice as many."""

MAX_SEQUENCE = (1 << 63) - 1
"""The highest that SQLite's integers hold: behind all rows of one first id."""

Fetch = Callable[[tuple[int, int], int], list[StoredBatch]]
"""``LedgerIndex.batches`` of one ledger."""


class BatchWindow:
    """The stored batches around an entry id that moves upward, from a snapshot of the write cache and pages of the index.

    The snapshot must be older than every page: batches move from the cache to the index, so none is missed. One that is
    seen in both does no harm: the newest one answers, and its copies are the same.
    """

    def __init__(self, cached: Iterable[StoredBatch], fetch: Fetch, first: int, span: int, deleted_at: int = 0) -> None:
        """``cached`` ones are sorted by first id. ``span``: the largest of a stored batch in the index, 0 if it has none.

        Batches below the sequence ``deleted_at`` were deleted with their ledger and are left out.
        """
        self._near: list[StoredBatch] = []
        self._cached = deque(stored for stored in cached if stored.sequence > deleted_at)
        self._paged: deque[StoredBatch] = deque()
        self._fetch = fetch
        self._deleted_at = deleted_at
        self._first = first
        self._after = (first - span, MAX_SEQUENCE)
        self._is_exhausted = span == 0
        self._page_batches = FIRST_PAGE_BATCHES

    def overlapping(self, first: int, last: int) -> list[StoredBatch]:
        """Every stored batch whose interval meets ``first`` to ``last``, inclusive. ``first`` must not be lower than before."""
        assert first >= self._first, "stored batches below the last place were dropped"
        self._first = first
        self._near = [stored for stored in self._near if stored.last_entry_id >= first]
        self._read_pages(last)
        for waiting in (self._cached, self._paged):
            while waiting and waiting[0].first_entry_id <= last:
                self._near.append(waiting.popleft())
        return [stored for stored in self._near if stored.first_entry_id <= last and stored.last_entry_id >= first]

    def _read_pages(self, last: int) -> None:
        while not self._is_exhausted and self._after[0] <= last:
            page = self._fetch(self._after, self._page_batches)
            self._is_exhausted = len(page) < self._page_batches
            self._page_batches = min(2 * self._page_batches, PAGE_BATCHES)
            if page:
                self._after = (page[-1].first_entry_id, page[-1].sequence)
            self._paged.extend(stored for stored in page if stored.sequence > self._deleted_at)


def newest_holding(batches: list[StoredBatch], entry_id: int) -> StoredBatch | None:
    return max((stored for stored in batches if stored.holds(entry_id)), key=lambda stored: stored.sequence, default=None)


def stretch_end(stored: StoredBatch, batches: list[StoredBatch], pattern: IdPattern, first: int, last: int) -> int:
    """The last id, at most ``last``, up to which ``stored`` answers for all ids of ``pattern`` from ``first`` on."""
    end = min(stored.last_entry_id, last)
    newer = [other for other in batches if other.sequence > stored.sequence and other.first_entry_id <= end]
    if not newer and (stored.pattern.is_dense or stored.pattern == pattern):
        return end
    asked = pattern.ids(first, end)
    owned = stored.pattern.mask(asked)
    for other in newer:
        owned &= ~((asked >= other.first_entry_id) & (asked <= other.last_entry_id) & other.pattern.mask(asked))
    others = np.flatnonzero(~owned)
    return int(asked[others[0]]) - 1 if len(others) else end


def next_asked(pattern: IdPattern, entry_id: int) -> int:
    """The lowest id from ``entry_id`` on that ``pattern`` holds."""
    return next(one for one in range(entry_id, entry_id + pattern.ensemble_size) if pattern.holds(one))
