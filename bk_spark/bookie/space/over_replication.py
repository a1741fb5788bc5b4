"""Deletes ledgers that this bookie no longer has to keep: re-replication replaced it in every fragment.

Only a CLOSED ledger qualifies: a later ensemble of an open one may name this bookie again. The ledger's re-replication lock is
held while the decision is made and carried out, so that no copies come back meanwhile. A ledger that others have locked, or
that is marked as under-replicated, is left alone: this copy may be the one that is needed. The lock may be lost while this
process stands still, or with its session. So the storage refuses a deletion if copies may have come in since before the lock
was taken; the next round tries again.

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
    """Finds and deletes over-replicated ledgers, round by round."""

    def __init__(self, local: LocalLedgers, cluster: ClusterMember) -> None:
        self._local = local
        self._cluster = cluster
        self._locks = LedgerLocks(cluster.store, cluster.znodes)
        self._owner = f"{cluster.bookie_id} (garbage collection)"
        self._owed: set[int] = set()
        """Ledgers whose locks may still exist. A ledger deleted here is never locked again, so its lock would stay."""

    def collect(self, go_on: GoOn) -> int:
        """One round. Returns how many ledgers' data was deleted. Raises what the store raises."""
        deleted = 0
        self._cluster.store.ensure_path(self._cluster.znodes.under_replicated_locks)
        for ledger_id in sorted(self._owed):
            self._unlock(ledger_id)
        for page in self._local.pages(PAGE_LEDGERS):
            for ledger_id in self._held_in_vain([ledger.ledger_id for ledger in page if ledger.batch_count]):
                if not go_on():
                    return deleted
                deleted += self._reclaim(ledger_id)
        return deleted

    def _held_in_vain(self, ledger_ids: list[int]) -> list[int]:
        """The candidates after a first look. It may show an old state, so each is checked again."""
        values = self._cluster.store.get_many([self._cluster.znodes.ledger(ledger_id) for ledger_id in ledger_ids])
        return [found for found, value in zip(ledger_ids, values, strict=True) if self._is_elsewhere(found, value)]

    def _reclaim(self, ledger_id: int) -> bool:
        """Decide again, under the ledger's lock, and delete. The next owner of the lock copies after ``decided_at``."""
        decided_at = self._local.storage.log_files.sequences.next_sequence
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
        """Whether the ledger is closed and no fragment names this bookie. Unreadable metadata counts as no."""
        if value is None:
            return False
        try:
            metadata = LedgerMetadata.decode(ledger_id, value.value)
        except (CorruptionError, FormatVersionError):
            return False
        if self._is_other_ledger(metadata):
            return False
        return metadata.is_closed and all(self._cluster.bookie_id not in fragment.ensemble for fragment in metadata.fragments)

    def _is_other_ledger(self, metadata: LedgerMetadata) -> bool:
        """Whether the metadata is of a later ledger of the same id, and says nothing about what is stored here."""
        facts = self._local.storage.facts(metadata.ledger_id)
        return facts is not None and facts.is_of_another_creator(metadata.master_key)
