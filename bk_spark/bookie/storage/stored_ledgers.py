"""The part of a bookie's storage for any thread: facts and batches of ledgers, and the upkeep of the index.

A stored batch is first in the active cache, then in the frozen one, then in the index. Each move puts it into the next place
before it leaves the last one, and readers look in this order, so they never miss it. Batches below the sequence of a ledger's
deletion are hidden everywhere.

Ref: docs/rules.md, storage rules 1, 3, 4, 5 and 14.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bk_spark.bookie.index.look_up import BatchWindow
from bk_spark.bookie.index.values import LedgerSummary, Limbo, ProvenConfirmation, StoredBatch, stored_batch
from bk_spark.bookie.log_files.log_file import LogFile
from bk_spark.bookie.log_files.mark import KnownEntryLog
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.bookie.storage.shared import SharedStorage
from bk_spark.bookie.storage.write_cache import CachedLedger, from_summary
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch
from bk_spark.entries.digest import is_foreign, is_keyed, is_other_ledger, master_key_hash
from bk_spark.errors import CorruptionError, MissingLogError

DURABLE_WAIT_S = 10.0
"""How long a reader waits for a pending sync. Clients give up after half of it. A disk this slow counts as failed."""


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What this bookie knows of a ledger as a whole."""

    master_key_hash: bytes
    last_add_confirmed: int
    is_fenced: bool
    """A staged fence counts: it must hold before anybody learns of it."""
    is_durably_fenced: bool
    highest_entry_id: int = NO_ENTRY
    """No entry here has a higher id. It may be one that was deleted."""
    deleted_at: int = 0
    """The sequence of the ledger's last deletion, 0 if there was none. Everything with a lower sequence is gone."""
    is_deleted: bool = False
    """Nothing came after the deletion. Fence and master key are kept."""

    @property
    def is_keyed(self) -> bool:
        """Whether each request must have a key of the ledger, reads too."""
        return is_keyed(self.master_key_hash)

    def is_of_another_creator(self, master_key: bytes) -> bool:
        """Whether this is another ledger of the same id than the one that ``master_key`` names."""
        return is_other_ledger(self.master_key_hash, master_key_hash(master_key))


class StoredLedgers:
    """The readers' part of a LedgerStorage."""

    def __init__(self, shared: SharedStorage, durable_wait_s: float) -> None:
        """All that was logged so far must be durable. ``durable_wait_s``: how long a reader waits for a sync."""
        self._index = shared.index
        self._layers = shared.layers
        self._gate = shared.gate
        self._changed = shared.changed
        self._durable_wait_s = durable_wait_s
        self._durable_sequence = shared.log_files.sequences.next_sequence - 1
        self.log_files = shared.log_files

    @property
    def failure(self) -> BaseException | None:
        """The error that ended all changes."""
        return self._gate.failure

    @property
    def cache_bytes(self) -> tuple[int, int]:
        """The sizes of the active and of the frozen write cache."""
        with self._changed:
            frozen = self._layers.frozen
            return self._layers.active.size_bytes, 0 if frozen is None else frozen.size_bytes

    def facts(self, ledger_id: int) -> LedgerFacts | None:
        """None if this bookie has nothing of the ledger; only ``verify_missing`` proves that."""
        with self._changed:
            cached = self._layers.ledger(ledger_id)
            if cached is not None:  # it includes what the layers below know
                return self._facts(cached)
        with self._index.reading() as index:
            found = from_summary(index.summary(ledger_id))
        return None if found is None else self._facts(found)

    def proven(self, ledger_id: int) -> ProvenConfirmation | None:
        """The highest last add confirmed of a ledger that came by itself, with its proof; None if there is none."""
        with self._changed:
            cached = self._layers.proven(ledger_id)
        if cached is not None:
            return cached
        with self._index.reading() as index:
            return index.proven(ledger_id)

    def batches(self, ledger_id: int, first: int, last: int) -> BatchWindow:
        """All stored batches of a ledger that may now hold ids from ``first`` to ``last``, inclusive."""
        with self._changed:
            cached = self._layers.ledger(ledger_id)
            snapshot = self._layers.overlapping(ledger_id, first, last)
        with self._index.reading() as index:
            summary = index.summary(ledger_id)
        deleted_at = max(0 if cached is None else cached.deleted_at, 0 if summary is None else summary.deleted_at)

        def fetch(after: tuple[int, int], limit: int) -> list[StoredBatch]:
            with self._index.reading() as index:
                return index.batches(ledger_id, after, limit)

        return BatchWindow(snapshot, fetch, first, 0 if summary is None else summary.max_span, deleted_at)

    def get(self, stored: StoredBatch) -> EncodedBatch:
        """The bytes of a durable batch. Raises CorruptionError if they are not what ``stored`` says, StorageError.

        If the entry log is gone, it may have been compacted since the batch was found. Then the batch is looked up once more.
        """
        if stored.batch is not None:
            return stored.batch
        try:
            return self._read(stored)
        except MissingLogError:
            moved = self.find(stored.ledger_id, stored.first_entry_id, stored.sequence)
            if moved is None or moved.location == stored.location:
                raise
            return self._read(moved)

    def is_durable(self, stored: StoredBatch) -> bool:
        """Whether a batch survives a crash by now."""
        with self._changed:
            return stored.sequence <= self._durable_sequence

    def wait_durable(self, stored: StoredBatch) -> bool:
        """Wait for the sync of a staged batch. False if the sync failed or did not end in time: then nothing is known."""
        wait_s = self._durable_wait_s
        with self._changed:
            self._changed.wait_for(lambda: stored.sequence <= self._durable_sequence or self._gate.failure is not None, wait_s)
            return stored.sequence <= self._durable_sequence

    def verify_missing(self, ledger_id: int, entry_id: int | None = None) -> None:
        """Prove that an entry, or the ledger if that is None, is missing. Call it before every denial.

        Raises CorruptionError if the index has lost something that matters here, and StorageError after a failed write: it may
        have left records on the disk that the next start finds.
        """
        self._gate.check_denial()
        with self._index.reading() as index:
            if entry_id is None:
                index.verify_ledger(ledger_id)
            else:
                index.verify_entry(ledger_id, entry_id)

    # For garbage collection, the scrub and the repair of limbo, on threads of their own. LedgerIndex describes most of these.

    def ledgers(self, after: int, limit: int) -> list[LedgerSummary]:
        """The summaries of the ledgers above ``after``, by id, without what came since the last checkpoint."""
        with self._index.reading() as index:
            return index.summaries(after, limit)

    def highest_ledger_id(self) -> int:
        """The highest id of which anything is stored here, tombstones included; -1 if there is none."""
        with self._changed:
            cached = self._layers.highest_ledger_id()
        with self._index.reading() as index:
            return max(cached, index.highest_ledger_id())

    def highest_issued_id(self, others: Collection[int] = ()) -> int:
        """The same without ledgers whose creators chose their ids, and without ``others``."""
        with self._changed:
            cached = self._layers.highest_issued_id(others)
        with self._index.reading() as index:
            return max(cached, index.highest_issued_id(others))

    def is_indexed(self, sequence: int) -> bool:
        """Whether the index has everything with sequences below ``sequence``."""
        with self._changed:
            if not self._layers.active and self._layers.frozen is None:
                return True
        with self._index.reading() as index:
            return index.mark.next_sequence >= sequence

    def entry_logs(self) -> list[KnownEntryLog]:
        with self._index.reading() as index:
            return index.entry_logs()

    def find(self, ledger_id: int, first: int, sequence: int) -> StoredBatch | None:
        with self._index.reading() as index:
            return index.find(ledger_id, first, sequence)

    def batches_from(self, after: tuple[int, int, int], limit: int) -> list[StoredBatch]:
        with self._index.reading() as index:
            return index.batches_from(after, limit)

    def check_index(self) -> Iterator[int]:
        """Verify all of the index. Each step yields how many rows it read. Raises CorruptionError."""
        with self._index.reading() as index:
            steps = index.check(full=True)
        while True:
            with self._index.reading():
                rows = next(steps, None)
            if rows is None:
                return
            yield rows

    def move(self, moves: Sequence[tuple[StoredBatch, EntryLocation]], files: Sequence[LogFile], emptied: int) -> bool:
        with self._index.changing() as index:
            return index.move(moves, files, emptied)

    def forget_log(self, file_id: int) -> None:
        with self._index.changing() as index:
            index.forget_log(file_id)

    def remove_batches(self, batches: Sequence[StoredBatch]) -> None:
        with self._index.changing() as index:
            index.remove_batches(batches)

    def purge(self, ledger_ids: Sequence[int]) -> None:
        """Forget those of the ledgers that are only tombstones, and got nothing since the last checkpoint."""
        with self._index.changing() as index:
            with self._changed:
                idle = [one for one in ledger_ids if self._layers.ledger(one) is None]
            index.purge(idle)

    def forget_foreign(self, own_keys: Mapping[int, bytes]) -> set[int]:
        """As ``purge``, tombstones under another key than the ledger's own one. Returns what is forgotten now."""
        with self._index.changing() as index:
            with self._changed:
                idle = [one for one in own_keys if self._layers.ledger(one) is None]
            found = {one: summary for one in idle if (summary := index.summary(one)) is not None}
            index.purge([one for one, summary in found.items() if is_foreign(summary.master_key_hash, own_keys[one])])
            return {one for one in found if index.summary(one) is None}

    @property
    def limbo(self) -> Limbo | None:
        with self._index.reading() as index:
            return index.limbo

    def set_limbo(self, limbo: Limbo | None) -> None:
        with self._index.changing() as index:
            index.set_limbo(limbo)

    def _facts(self, ledger: CachedLedger) -> LedgerFacts:
        fenced_at = ledger.fenced_at
        is_durable = fenced_at is not None and fenced_at <= self._durable_sequence
        fence, deletion = (fenced_at is not None, is_durable), (ledger.deleted_at, ledger.is_deleted)
        highest = max(ledger.highest_below, ledger.highest_cached)
        return LedgerFacts(ledger.master_key_hash, ledger.last_add_confirmed, *fence, highest, *deletion)

    def _read(self, stored: StoredBatch) -> EncodedBatch:
        assert stored.location is not None
        header, batch = self.log_files.read(stored.location)
        if stored_batch(batch, header.sequence, stored.location) != stored:
            where = f"entry log {stored.location.file_id} at byte {stored.location.offset}"
            raise CorruptionError(where, f"it holds another batch than the index says, {batch.header}")
        return batch
