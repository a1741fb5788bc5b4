"""Keeps the stored batches whose records are known to be damaged, until they are replaced.

Readers of a damaged record get DAMAGED, which counts as unknown and never as a "no". It is replaced in two steps. First the
entries that belong here are copied from the other replicas as an add of recovery: it is newer than the damaged batch, so
readers get it at once. Then, once a checkpoint has brought the newer batches into the index, the damaged one is removed.

Ref: docs/rules.md, storage rules 1 and 2, protocol rule 39.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bk_spark.bookie.index.values import StoredBatch
from bk_spark.bookie.repair.ledger_repair import LedgerRepair
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.errors import BookKeeperError, CorruptionError, StorageError
from bk_spark.quorum import IdPattern

MAX_DAMAGED = 1_000
"""Stored batches kept at a time, about 300 KB; the next scrub finds the others again."""

PAGE_BATCHES = 256
"""Stored batches of the index that are read at once. That blocks the index for a few milliseconds."""

_Ids = list[tuple[IdPattern, int, int]]
"""Ids by pattern and interval, both ends inclusive."""


@dataclass(slots=True)
class _Damage:
    stored: StoredBatch
    needed: _Ids | None = None
    """What newer batches must hold before this one is removed; None until it is copied."""


class DamagedBatches:
    """For one thread, but for ``knows``."""

    def __init__(self, storage: LedgerStorage, repair: LedgerRepair | None) -> None:
        """Without ``repair`` damage is only remembered."""
        self._storage = storage
        self._repair = repair
        self._known: dict[tuple[int, int, int], _Damage] = {}
        self.repaired = 0
        """Stored batches since the start."""
        self.last_error = ""
        """Why a batch was not repaired at the last try; empty if all were."""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def is_full(self) -> bool:
        return len(self._known) >= MAX_DAMAGED

    def knows(self, stored: StoredBatch) -> bool:
        """Whether a batch is kept. Any thread may ask."""
        return _key(stored) in self._known

    def check(self, stored: StoredBatch) -> bool:
        """Read and verify a stored batch of the index; keep it if it is damaged and there is room. True if it is good.

        Raises NotOpenedError if its file cannot be opened now.
        """
        damaged = self._damaged(stored)
        if damaged is not None and not self.is_full:
            self._known.setdefault(_key(stored), _Damage(damaged))
        return damaged is None

    def copy(self) -> None:
        """Copy the entries of the damaged batches from the other bookies. ``last_error`` shows what failed."""
        self.last_error = ""
        for key, damage in list(self._known.items()):
            try:
                damage.needed = self._copied(damage.stored)
            except BookKeeperError as problem:
                stored = damage.stored
                self.last_error = (
                    f"ledger {stored.ledger_id}, entries {stored.first_entry_id} to {stored.last_entry_id}: {problem}"
                )
            else:
                if not damage.needed:
                    del self._known[key]

    def remove_replaced(self) -> bool:
        """Remove the copied batches for which the index has newer ones. True once no copied one is left."""
        for key, damage in list(self._known.items()):
            if damage.needed is not None and _is_held(damage.stored, damage.needed, self._indexed(damage.stored)):
                self._storage.remove_batches([damage.stored])
                del self._known[key]
                self.repaired += 1
        return all(damage.needed is None for damage in self._known.values())

    def _damaged(self, stored: StoredBatch) -> StoredBatch | None:
        """The batch as it is in the index now if its record is damaged. It may have been moved or deleted meanwhile."""
        while True:
            try:
                self._storage.get(stored)
                return None
            except (CorruptionError, StorageError):
                now = self._storage.find(stored.ledger_id, stored.first_entry_id, stored.sequence)
                if now is None or now.location == stored.location:
                    return now
                stored = now

    def _copied(self, stored: StoredBatch) -> _Ids:
        """Copy a batch's entries. Returns those that are needed, which newer batches hold now; empty if the ledger is gone."""
        if self._repair is None:
            raise StorageError("repairing", "this bookie was started without access to the others")
        [metadata] = self._repair.peers.metadata([stored.ledger_id])
        if metadata is None:
            return []
        if isinstance(metadata, BookKeeperError):
            raise metadata
        end = stored.last_entry_id if metadata.last_entry_id is None else min(stored.last_entry_id, metadata.last_entry_id)
        shares = self._repair.shares(metadata, stored.first_entry_id, end)
        needed = shares if metadata.is_closed else [(stored.pattern, stored.first_entry_id, stored.last_entry_id)]
        if not _is_held(stored, needed, self._indexed(stored)):
            for _, first, last in shares:
                self._repair.copy(metadata, first, last)
            window = self._storage.batches(stored.ledger_id, stored.first_entry_id, stored.last_entry_id)
            if not _is_held(stored, needed, window.overlapping(stored.first_entry_id, stored.last_entry_id)):
                raise StorageError("repairing", "not all of it came from the other bookies, or is to be kept here")
        return needed

    def _indexed(self, stored: StoredBatch) -> Iterator[StoredBatch]:
        """The stored batches of the index around ``stored``, without those that are only in memory."""
        after = (stored.ledger_id, stored.first_entry_id - MAX_BATCH_ENTRIES, 0)
        while page := self._storage.batches_from(after, PAGE_BATCHES):
            for other in page:
                if other.ledger_id != stored.ledger_id or other.first_entry_id > stored.last_entry_id:
                    return
                yield other
            after = (page[-1].ledger_id, page[-1].first_entry_id, page[-1].sequence)


def _key(stored: StoredBatch) -> tuple[int, int, int]:
    return stored.ledger_id, stored.first_entry_id, stored.sequence


def _is_held(stored: StoredBatch, needed: _Ids, others: Iterable[StoredBatch]) -> bool:
    """Whether ``others`` that are newer than ``stored`` hold all its ids that are needed."""
    ids = stored.pattern.ids(stored.first_entry_id, stored.last_entry_id)
    left = np.zeros(len(ids), dtype=np.bool_)
    for pattern, first, last in needed:
        left |= (ids >= first) & (ids <= last) & pattern.mask(ids)
    for other in others:
        if other.sequence > stored.sequence:
            left &= ~((ids >= other.first_entry_id) & (ids <= other.last_entry_id) & other.pattern.mask(ids))
    return not left.any()
