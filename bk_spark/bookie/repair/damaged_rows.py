"""Keeps the known rows with damaged records until they are replaced.

Readers of a damaged record get DAMAGED, which counts as unknown and never as a "no". A row is replaced in two steps. First the
entries that belong here are copied from the other replicas as an add of recovery: it is newer than the damaged row, so
readers get it at once. Then, once a checkpoint has brought the newer rows into the index, the damaged row is removed.

Ref: docs/rules.md, storage rules 1 and 2, protocol rule 39.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bk_spark.bookie.index.rows import BatchRow
from bk_spark.bookie.repair.ledger_repair import LedgerRepair
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.errors import BookKeeperError, CorruptionError, StorageError
from bk_spark.quorum import IdPattern

MAX_DAMAGED = 1_000
"""Rows kept at a time, about 300 KB; the next scrub finds the others again."""

PAGE_ROWS = 256

_Ids = list[tuple[IdPattern, int, int]]
"""Ids by pattern and interval, both ends inclusive."""


@dataclass(slots=True)
class _Damage:
    row: BatchRow
    needed: _Ids | None = None
    """What newer rows must hold before the row is removed; None until it is copied."""


class DamagedRows:
    """For one thread, but for ``knows``."""

    def __init__(self, storage: LedgerStorage, repair: LedgerRepair | None) -> None:
        """Without ``repair`` damage is only remembered."""
        self._storage = storage
        self._repair = repair
        self._known: dict[tuple[int, int, int], _Damage] = {}
        self.repaired = 0
        """Rows since the start."""
        self.last_error = ""
        """Why a row was not repaired at the last try; empty if all were."""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def is_full(self) -> bool:
        return len(self._known) >= MAX_DAMAGED

    def knows(self, row: BatchRow) -> bool:
        """Whether a row is kept. Any thread may ask."""
        return _key(row) in self._known

    def check(self, row: BatchRow) -> bool:
        """Read and verify a row of the index; keep it if it is damaged and there is room. True if it is good.

        Raises NotOpenedError if its file cannot be opened now.
        """
        damaged = self._damaged(row)
        if damaged is not None and not self.is_full:
            self._known.setdefault(_key(row), _Damage(damaged))
        return damaged is None

    def copy(self) -> None:
        """Copy the entries of the damaged rows from the other bookies. ``last_error`` shows what failed."""
        self.last_error = ""
        for key, damage in list(self._known.items()):
            try:
                damage.needed = self._copied(damage.row)
            except BookKeeperError as problem:
                row = damage.row
                self.last_error = f"ledger {row.ledger_id}, entries {row.first_entry_id} to {row.last_entry_id}: {problem}"
            else:
                if not damage.needed:
                    del self._known[key]

    def remove_replaced(self) -> bool:
        """Remove the copied rows for which the index has newer ones. True once no copied row is left."""
        for key, damage in list(self._known.items()):
            if damage.needed is not None and _is_held(damage.row, damage.needed, self._indexed(damage.row)):
                self._storage.remove_rows([damage.row])
                del self._known[key]
                self.repaired += 1
        return all(damage.needed is None for damage in self._known.values())

    def _damaged(self, row: BatchRow) -> BatchRow | None:
        """The row as it is in the index now if its record is damaged. It may have been moved or deleted meanwhile."""
        while True:
            try:
                self._storage.get(row)
                return None
            except (CorruptionError, StorageError):
                now = self._storage.row(row.ledger_id, row.first_entry_id, row.sequence)
                if now is None or now.location == row.location:
                    return now
                row = now

    def _copied(self, row: BatchRow) -> _Ids:
        """Copy a row's entries. Returns those that are needed, which newer rows hold now; empty if the ledger is gone."""
        if self._repair is None:
            raise StorageError("repairing", "this bookie was started without access to the others")
        [metadata] = self._repair.peers.metadata([row.ledger_id])
        if metadata is None:
            return []
        if isinstance(metadata, BookKeeperError):
            raise metadata
        end = row.last_entry_id if metadata.last_entry_id is None else min(row.last_entry_id, metadata.last_entry_id)
        shares = self._repair.shares(metadata, row.first_entry_id, end)
        needed = shares if metadata.is_closed else [(row.pattern, row.first_entry_id, row.last_entry_id)]
        if not _is_held(row, needed, self._indexed(row)):
            for _, first, last in shares:
                self._repair.copy(metadata, first, last)
            window = self._storage.rows(row.ledger_id, row.first_entry_id, row.last_entry_id)
            if not _is_held(row, needed, window.overlapping(row.first_entry_id, row.last_entry_id)):
                raise StorageError("repairing", "not all of it came from the other bookies, or is to be kept here")
        return needed

    def _indexed(self, row: BatchRow) -> Iterator[BatchRow]:
        """The rows of the index around ``row``, without those that are only in memory."""
        after = (row.ledger_id, row.first_entry_id - MAX_BATCH_ENTRIES, 0)
        while page := self._storage.rows_from(after, PAGE_ROWS):
            for other in page:
                if other.ledger_id != row.ledger_id or other.first_entry_id > row.last_entry_id:
                    return
                yield other
            after = (page[-1].ledger_id, page[-1].first_entry_id, page[-1].sequence)


def _key(row: BatchRow) -> tuple[int, int, int]:
    return row.ledger_id, row.first_entry_id, row.sequence


def _is_held(row: BatchRow, needed: _Ids, others: Iterable[BatchRow]) -> bool:
    """Whether ``others`` that are newer than the row hold all its ids that are needed."""
    ids = row.pattern.ids(row.first_entry_id, row.last_entry_id)
    left = np.zeros(len(ids), dtype=np.bool_)
    for pattern, first, last in needed:
        left |= (ids >= first) & (ids <= last) & pattern.mask(ids)
    for other in others:
        if other.sequence > row.sequence:
            left &= ~((ids >= other.first_entry_id) & (ids <= other.last_entry_id) & other.pattern.mask(ids))
    return not left.any()
