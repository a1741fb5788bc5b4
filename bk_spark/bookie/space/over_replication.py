"""Ledgers that this bookie keeps and no longer has to: re-replication gave its place in every fragment to others.

Only a CLOSED ledger counts, for the ensemble of another one may still name this bookie again. While the decision is taken and
carried out the ledger's re-replication lock is held, so that nobody brings copies back meanwhile; a ledger that is locked by
others or marked as lacking copies is left alone: this copy may be the one that is needed. The lock may be lost while this
process stands still, or with its session; so the storage refuses the deletion if copies may have come in since before the
lock was taken, and it waits for another round.

Ref: docs/rules.md, protocol rule 45, storage rules 8 and 10, situation 65; Apache BookKeeper's under-replication znodes.
"""

from __future__ import annotations

from bk_spark.bookie.space.garbage_collection import METADATA_EXISTS, ClusterMember, GoOn, LocalLedgers
from bk_spark.errors import CorruptionError, FormatVersionError
from bk_spark.metadata.ledger_locks import LedgerLocks
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import Versioned

PAGE_LEDGERS = 100
"""Ledgers whose metadata is read at once: each may have 512 KiB."""


class OverReplicatedLedgers:
    def __init__(self, local: LocalLedgers, cluster: ClusterMember) -> None:
        self._local = local
        self._cluster = cluster
        self._locks = LedgerLocks(cluster.store, cluster.znodes)
        self._owner = f"{cluster.bookie_id} (garbage collection)"
        self._owed: set[int] = set()
        """Ledgers whose locks may be there still. What was deleted here is never locked again: its lock would stay."""

    def collect(self, go_on: GoOn) -> int:
        """How many ledgers' data was deleted. Raises what the store raises."""
        deleted = 0
        self._cluster.store.ensure_path(self._cluster.znodes.under_replicated_locks)
        for ledger_id in sorted(self._owed):
            self._unlock(ledger_id)
        for page in self._local.pages(PAGE_LEDGERS):
            for ledger_id in self._held_in_vain([one.ledger_id for one in page if one.row_count]):
                if not go_on():
                    return deleted
                deleted += self._reclaim(ledger_id)
        return deleted

    def _held_in_vain(self, ledger_ids: list[int]) -> list[int]:
        """What a first look shows, which may be old: each of them is looked at again."""
        values = self._cluster.store.get_many([self._cluster.znodes.ledger(one) for one in ledger_ids])
        return [one for one, value in zip(ledger_ids, values, strict=True) if self._is_elsewhere(one, value)]

    def _reclaim(self, ledger_id: int) -> bool:
        """Decide again, under the ledger's lock, and delete. Whoever gets the lock behind us copies after ``decided_at``."""
        decided_at = self._local.storage.logs.sequences.next_sequence
        self._owed.add(ledger_id)
        if not self._locks.try_lock(ledger_id, self._owner):
            self._owed.discard(ledger_id)
            return False
        try:
            return self._may_go(ledger_id) and self._local.delete_ledger(ledger_id, METADATA_EXISTS, decided_at)
        finally:
            self._unlock(ledger_id)

    def _unlock(self, ledger_id: int) -> None:
        self._locks.unlock(ledger_id)
        self._owed.discard(ledger_id)

    def _may_go(self, ledger_id: int) -> bool:
        self._cluster.sync()
        znodes = self._cluster.znodes
        mark, value = self._cluster.store.get_many([znodes.under_replicated(ledger_id), znodes.ledger(ledger_id)])
        return mark is None and self._is_elsewhere(ledger_id, value)

    def _is_elsewhere(self, ledger_id: int, value: Versioned | None) -> bool:
        """Whether the ledger is closed and all of it is others'. Metadata that cannot be read says nothing."""
        if value is None:
            return False
        try:
            metadata = LedgerMetadata.decode(ledger_id, value.value)
        except (CorruptionError, FormatVersionError):
            return False
        return metadata.is_closed and all(self._cluster.bookie_id not in one.ensemble for one in metadata.fragments)
