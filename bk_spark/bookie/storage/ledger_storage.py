"""Put and get of batches, fences, deletions and last adds confirmed, over the logs, the cache layers and the index.

One thread, the sync thread, stages and syncs; checkpoints run behind it; any number of threads read. A put is visible in the
write cache at once and durable after the next ``sync``; a reader that meets a row that is not durable waits for it
(``wait_durable``), so that nothing is ever denied that is about to be acked, nor shown that a crash could take back. A fence
holds from the moment it is staged, and counts as one for readers once it is durable. A deletion hides what came before it
from the moment it is staged.

*Without a journal for data* (``journal_write_data`` off) small adds go to the write cache alone, and ``sync`` hands large ones
to the operating system without waiting for the disk. Fences and deletions are journalled and synced as ever. A force makes
a checkpoint, which syncs everything. Until a crash nothing is different: what was acked is in the cache or behind it.

*Memory.* Each of the two caches holds at most ``write_cache_bytes`` and what one group commit brings on top, whose requests
the sync thread's queue bounds (``sync_queue_bytes``): both together at most twice the sum of the two settings, and rows as
estimated in write_cache.py.

After a failed write, sync or commit the storage takes nothing more until the bookie is started again (parts.py).

``threading`` is here, against the import table, for the locks around what the threads share.

Ref: docs/rules.md, storage rules 1, 3, 4, 6 and 14, protocol rules 32 to 37.
"""

from __future__ import annotations

import threading

from bk_spark.bookie.index.ledger_index import LedgerIndex
from bk_spark.bookie.index.rows import BatchRow, row_of
from bk_spark.bookie.logs.all_logs import Logs
from bk_spark.bookie.logs.record import LedgerNote, RecordKind
from bk_spark.bookie.logs.writer import EntryLocation
from bk_spark.bookie.storage.checkpoint import Background, Checkpoints
from bk_spark.bookie.storage.parts import ChangeGate, LockedIndex, StorageParts
from bk_spark.bookie.storage.stored_ledgers import StoredLedgers, of_index
from bk_spark.bookie.storage.write_cache import CachedLedger, CacheLayers, WriteCache
from bk_spark.config import BookieConfig
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import CorruptionError, StorageError


class LedgerStorage(StoredLedgers):
    """Made by ``replay.open_storage``."""

    def __init__(
        self,
        index: LedgerIndex,
        logs: Logs,
        cache: WriteCache,
        config: BookieConfig,
        durable_wait_s: float,
        background: Background,
    ) -> None:
        """``cache`` holds what was replayed, which is durable. ``background`` runs what is slow of a checkpoint."""
        changed = threading.Condition()
        gate = ChangeGate(changed)
        locked = LockedIndex(index, threading.Lock(), gate)
        parts = StorageParts(locked, logs, CacheLayers(cache), gate, changed, config)
        super().__init__(parts, durable_wait_s)
        self._config = config
        self._checkpoints = Checkpoints(parts, background)
        self._has_notes = False
        self._is_force_staged = False
        self._vouched_at = -1
        """The sequence that was next when ``put`` last found a batch stored already, of whatever ledger. Such a batch leaves no
        other trace, and whoever sent it relies on it from then on."""

    # --- the sync thread

    def put(self, batch: EncodedBatch, master_key_hash: bytes) -> None:
        """Stage a batch of a ledger whose key is ``master_key_hash``; durable after the next ``sync``.

        A batch that is here already, the same ids in the same bytes, is not stored again: if it is staged, the same sync
        covers it; if it is in the entry log, it was read and verified. Every other batch is, whatever ids are here.
        """
        self._gate.check()
        ledger = self._cached_ledger(batch.header.ledger_id, master_key_hash)
        if self._is_stored(batch, ledger):
            self._vouched_at = self.logs.sequences.next_sequence
            return
        with self._gate.changing():
            sequence = self.logs.sequences.take()
            location = self._log(batch, master_key_hash, sequence)
            with self._changed:
                self._layers.active.add(ledger, row_of(batch, sequence, location), batch.header.last_add_confirmed)

    def fence(self, ledger_id: int, master_key_hash: bytes) -> None:
        """Stage the fence of a ledger, which may be new here; durable after the next ``sync``, and for ever."""
        self._gate.check()
        ledger = self._cached_ledger(ledger_id, master_key_hash)
        if ledger.fenced_at is None:
            sequence = self._append_note(LedgerNote(RecordKind.FENCE, ledger_id), master_key_hash)
            with self._changed:
                ledger.fence(sequence)

    def confirm(self, ledger_id: int, master_key_hash: bytes, last_add_confirmed: int) -> None:
        """Stage a last add confirmed without an add that carries it; durable after the next ``sync``. It never goes back."""
        self._gate.check()
        ledger = self._cached_ledger(ledger_id, master_key_hash)
        if last_add_confirmed > ledger.last_add_confirmed:
            self._append_note(LedgerNote(RecordKind.CONFIRMED, ledger_id, last_add_confirmed), master_key_hash)
            with self._changed:
                ledger.confirm(last_add_confirmed)

    def delete(self, ledger_id: int, deleted_ms: int, decided_at: int | None = None) -> bool:
        """Stage the deletion of all that is stored of a ledger; durable after the next ``sync``. Unknown ledgers have nothing.

        The ledger is fenced from then on; its master key stays. ``deleted_ms`` 0: its metadata exists, it is only not to be
        kept here; False, and nothing is deleted, if copies of it have come in since the last checkpoint, or may have since the
        sequence ``decided_at``.
        """
        self._gate.check()
        known = self._known_ledger(ledger_id)
        if known is None or (known.is_deleted and (known.deleted_ms or not deleted_ms)):
            return True
        if not deleted_ms and self._may_be_coming_back(ledger_id, decided_at):
            return False
        ledger = self._cached_ledger(ledger_id, known.master_key_hash)
        note = LedgerNote(RecordKind.DELETED, ledger_id, deleted_ms=deleted_ms)
        sequence = self._append_note(note, known.master_key_hash)
        with self._changed:
            ledger.delete(sequence, deleted_ms)
        return True

    def force(self) -> None:
        """Have the next ``sync`` make durable also what was acked before."""
        self._is_force_staged = True

    def write(self) -> None:
        """Hand all that was put to the operating system: only the machine can lose it now, and ``sync`` is still to come."""
        with self._gate.changing():
            self.logs.write()

    def sync(self) -> None:
        """Make all that was staged durable. Raises StorageError if it may not be, then and ever after.

        Without a journal for data: make notes durable, everything after a force; and count the rest as if it was.
        """
        with self._gate.changing():
            if self._config.journal_write_data or self._has_notes:
                self.logs.sync()
                self._has_notes = False
            else:
                self.logs.write()
        if self._is_force_staged and not self._config.journal_write_data:
            self._checkpoints.run()
        self._is_force_staged = False
        with self._changed:
            self._durable_sequence = self.logs.sequences.next_sequence - 1
            self._changed.notify_all()

    def idle(self) -> None:
        """Note in the logs, once, that all of them is durable. Everything must be synced."""
        with self._gate.changing():
            self.logs.sync()
            self.logs.idle()

    def checkpoint_if_due(self, *, may_wait: bool = True) -> None:
        """Begin a checkpoint if enough was logged, or one was asked for. Everything must be synced.

        Without ``may_wait`` not before the one that runs has ended.
        """
        self._checkpoints.begin_if_due(may_wait=may_wait)

    def checkpoint(self, *, even_if_empty: bool = False) -> None:
        """Bring all since the mark into the index now. Everything must be synced; if it fails the mark is where it was."""
        self._checkpoints.run(even_if_empty=even_if_empty)

    def close(self) -> None:
        """Checkpoint, seal and release, in order; after a failure only release."""
        try:
            if self._gate.failure is None:
                self.sync()
                self.checkpoint()
                self._checkpoints.seal()
        finally:
            self._checkpoints.wait()
            self.logs.close()
            with self._index.reading() as index:
                index.close()

    # --- any thread

    def request_checkpoint(self, *, roll: bool = False) -> None:
        """Have all that was put so far brought into the index soon: with the sync thread's next sync, or when it is idle.

        With ``roll`` all entry logs with data so far are sealed then, so that compaction may have them.
        """
        self._checkpoints.request(roll=roll)

    # --- inside

    def _cached_ledger(self, ledger_id: int, master_key_hash: bytes) -> CachedLedger:
        """The ledger in the active cache. Before it counts as new or not fenced the index proves that it forgot no fence."""
        ledger = self._layers.active.ledger(ledger_id)
        if ledger is not None:
            return ledger
        with self._changed:
            if self._layers.ledger(ledger_id) is not None:  # the frozen cache has it: no need to wait for the index
                return self._layers.begin(ledger_id, master_key_hash, None)
        with self._index.reading() as index:  # held to the end: nothing is purged meanwhile
            summary = index.summary(ledger_id)
            if summary is None or not summary.is_fenced:
                index.verify_ledger(ledger_id)
            with self._changed:
                return self._layers.begin(ledger_id, master_key_hash, summary)

    def _may_be_coming_back(self, ledger_id: int, decided_at: int | None) -> bool:
        """What is not in the write cache came before the last checkpoint: before ``decided_at`` if that did. This order.

        What was here already when it came again is told by ``_vouched_at``; the next decision is a younger one.
        """
        if decided_at is not None and self._vouched_at >= decided_at:
            self._vouched_at = -1
            return True
        with self._changed:
            if self._layers.has_rows(ledger_id):
                return True
        with self._index.reading() as index:
            return decided_at is not None and index.mark.next_sequence > decided_at

    def _known_ledger(self, ledger_id: int) -> CachedLedger | None:
        """What is known of a ledger, wherever that is."""
        with self._changed:
            cached = self._layers.ledger(ledger_id)
        if cached is not None:
            return cached
        with self._index.reading() as index:
            return of_index(index, ledger_id)

    def _log(self, batch: EncodedBatch, master_key_hash: bytes, sequence: int) -> EntryLocation | None:
        is_small = len(batch.body) < self._config.direct_add_bytes
        if is_small and not self._config.journal_write_data:
            return None
        return self.logs.append(batch, master_key_hash, sequence)

    def _append_note(self, note: LedgerNote, master_key_hash: bytes) -> int:
        with self._gate.changing():
            sequence: int = self.logs.sequences.take()
            self.logs.append_note(note, master_key_hash, sequence)
            self._has_notes = True
        return sequence

    def _is_stored(self, batch: EncodedBatch, ledger: CachedLedger) -> bool:
        """Whether the newest of all that holds ids of this interval is this very batch."""
        first, last = batch.header.first_entry_id, batch.header.last_entry_id
        if first > max(ledger.highest_cached, ledger.highest_below):
            return False
        rows = self.rows(batch.header.ledger_id, first, last).overlapping(first, last)
        newest = max(rows, key=lambda row: row.sequence, default=None)
        return newest is not None and newest.identity == row_of(batch, 0, None).identity and self._is_readable(newest)

    def _is_readable(self, row: BatchRow) -> bool:
        """A copy that cannot be read does not count: the batch that has come again takes its place. None is read if staged."""
        try:
            return row.sequence > self._durable_sequence or bool(self.get(row))
        except (CorruptionError, StorageError):
            return False
