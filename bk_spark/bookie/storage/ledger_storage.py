"""Stores batches, fences, deletions and last adds confirmed, over the log files, the cache layers and the index.

One thread, the sync thread, stages and syncs; checkpoints run behind it; any number of threads read. A put is visible in the
write cache at once, and durable after the next ``sync``. A reader that meets a batch that is not durable waits for it
(``wait_durable``). So nothing is denied that is about to be acked, and nothing is shown that a crash could take back. A fence
holds once it is staged, and readers count it once it is durable. A deletion hides what came before it once it is staged.

*Without a journal for data* (``journal_write_data`` off) small adds go to the write cache only, and ``sync`` hands large ones
to the operating system without waiting for the disk. Fences and deletions are still journalled and synced. A force makes a
checkpoint, which syncs everything. Only a crash makes a difference: all that was acked is in the cache or behind it.

*Memory.* Each of the two caches holds at most ``write_cache_bytes`` plus one group commit, whose requests the sync thread's
queue bounds (``sync_queue_bytes``). So both together hold at most twice the sum of the two settings, plus the objects as
estimated in write_cache.py.

After a failed write, sync or commit the storage takes nothing more until the bookie is started again (shared.py).

Ref: docs/rules.md, storage rules 1, 3, 4, 6 and 14, protocol rules 32 to 37.
"""

from __future__ import annotations

import threading

from bk_spark.bookie.index.ledger_index import LedgerIndex, proven_summary
from bk_spark.bookie.index.values import ProvenConfirmation, StoredBatch, stored_batch
from bk_spark.bookie.log_files.all_log_files import LogFiles
from bk_spark.bookie.log_files.record import LedgerNote, RecordKind
from bk_spark.bookie.progress import Progress
from bk_spark.bookie.storage.checkpoint import Background, Checkpoints
from bk_spark.bookie.storage.second_adds import Judgement, SecondAdd
from bk_spark.bookie.storage.shared import ChangeGate, LockedIndex, SharedStorage
from bk_spark.bookie.storage.stored_ledgers import StoredLedgers
from bk_spark.bookie.storage.write_cache import CachedLedger, CacheLayers, WriteCache, from_summary
from bk_spark.config import BookieConfig
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import StorageError


class LedgerStorage(StoredLedgers):
    """Made by ``open_storage``."""

    def __init__(
        self,
        index: LedgerIndex,
        log_files: LogFiles,
        cache: WriteCache,
        config: BookieConfig,
        durable_wait_s: float,
        background: Background,
    ) -> None:
        """``cache`` holds what was replayed, which is durable. ``background`` runs the slow part of checkpoints."""
        changed = threading.Condition()
        gate = ChangeGate(changed)
        shared = SharedStorage(LockedIndex(index, gate), log_files, CacheLayers(cache), gate, changed, config)
        super().__init__(shared, durable_wait_s)
        self._config = config
        self._checkpoints = Checkpoints(shared, background)
        self._has_notes = False
        self._chosen_ids: set[int] = set()
        """Of ledgers that nothing came of yet."""
        self._is_force_staged = False
        self._last_duplicate_at = -1
        """The next sequence at the time when ``put`` last found a batch already stored, of any ledger. Such a batch leaves no
        other trace, and its sender relies on it from then on."""

    # For the sync thread

    def put(self, batch: EncodedBatch, master_key_hash: bytes, *, is_recovery: bool = False) -> bool:
        """Stage a batch of a ledger whose key is ``master_key_hash``. Durable after the next ``sync``.

        Entries that are already here are not stored again: if they are staged, the same sync covers them; if they are in an
        entry log, they were read and verified. False, and nothing is staged, if other entries are stored under these ids
        (second_adds.py).

        Raises CorruptionError; StorageError; NotOpenedError if a file cannot be opened now, or the caches are full because a
        checkpoint could not open one: then nothing has changed.
        """
        self._gate.check()
        if self._checkpoints.waits_because is not None and self._layers.active.size_bytes >= self._config.write_cache_bytes:
            raise self._checkpoints.waits_because
        ledger = self._cached_ledger(batch.header.ledger_id, master_key_hash)
        judgement = self._judge(batch, ledger, is_recovery=is_recovery)
        if judgement is Judgement.OTHER:
            return False
        if judgement is Judgement.STORED:
            self._last_duplicate_at = self.log_files.sequences.next_sequence
            return True
        with self._gate.changing():
            sequence = self._next_sequence()
            is_large = len(batch.body) >= self._config.direct_add_bytes
            is_logged = is_large or self._config.journal_write_data
            location = self.log_files.append(batch, master_key_hash, sequence) if is_logged else None
            with self._changed:
                self._layers.active.add(ledger, stored_batch(batch, sequence, location), batch.header.last_add_confirmed)
        return True

    def fence(self, ledger_id: int, master_key_hash: bytes) -> None:
        """Stage the fence of a ledger, which may be new here. Durable after the next ``sync``, for ever."""
        self._gate.check()
        ledger = self._cached_ledger(ledger_id, master_key_hash)
        if ledger.fenced_at is None:
            sequence = self._append_note(LedgerNote(RecordKind.FENCE, ledger_id), master_key_hash)
            with self._changed:
                ledger.fence(sequence)

    def confirm(self, ledger_id: int, master_key_hash: bytes, last_add_confirmed: int, proof: bytes | None = None) -> None:
        """Stage a last add confirmed that no add carries. Durable after the next ``sync``. A lower one changes nothing.

        The highest one with a ``proof`` is kept besides, for readers that want it.
        """
        self._gate.check()
        ledger = self._cached_ledger(ledger_id, master_key_hash)
        proven = None if proof is None else ProvenConfirmation(last_add_confirmed, proof)
        known = self.proven(ledger_id) if proven else None
        if known is not None and last_add_confirmed <= known.last_add_confirmed:
            proven = None
        if last_add_confirmed > ledger.last_add_confirmed or proven:
            note = LedgerNote(RecordKind.CONFIRMED, ledger_id, last_add_confirmed, proof=proof)
            self._append_note(note, master_key_hash)
            with self._changed:
                ledger.confirm(last_add_confirmed)
                if proven:
                    ledger.prove(proven)

    def delete(self, ledger_id: int, deleted_ms: int, decided_at: int | None = None) -> bool:
        """Stage the deletion of all that is stored of a ledger. Durable after the next ``sync``. Unknown ledgers have nothing.

        The ledger is fenced from then on, and its master key stays. ``deleted_ms`` 0 means that the ledger's metadata exists
        and only this bookie does not need it. Then nothing is deleted, and the result is False, if copies of the ledger came in
        since the last checkpoint, or may have come in since the sequence ``decided_at``.
        """
        self._gate.check()
        known = self._known_ledger(ledger_id)
        if known is None or (known.is_deleted and (known.deleted_ms or not deleted_ms)):
            return True
        if not deleted_ms and self._may_have_new_copies(ledger_id, decided_at):
            return False
        ledger = self._cached_ledger(ledger_id, known.master_key_hash)
        note = LedgerNote(RecordKind.DELETED, ledger_id, deleted_ms=deleted_ms)
        sequence = self._append_note(note, known.master_key_hash)
        with self._changed:
            ledger.delete(sequence, deleted_ms)
        return True

    def force(self) -> None:
        """The next ``sync`` must also make durable what was acked without being durable."""
        self._is_force_staged = True

    def write(self) -> None:
        """Hand all that was put to the operating system: only a crash of the machine can lose it before the next ``sync``."""
        with self._gate.changing():
            self.log_files.write()

    def sync(self) -> None:
        """Make all that was staged durable. If that may have failed, this and every later call raise StorageError.

        Without a journal for data it makes only notes durable, and everything after a force. The rest counts as durable.
        """
        with self._gate.changing():
            if self._config.journal_write_data or self._has_notes:
                self.log_files.sync()
                self._has_notes = False
            else:
                self.log_files.write()
        if self._is_force_staged and not self._config.journal_write_data:
            self._checkpoints.run()
        self._is_force_staged = False
        durable = self.log_files.sequences.next_sequence - 1
        assert durable >= self._durable_sequence, "what is durable stays so"
        with self._changed:
            self._durable_sequence = durable
            self._changed.notify_all()

    def idle(self) -> None:
        """Record in the log files that all of them is durable, unless they say so already. Everything must be synced."""
        with self._gate.changing():
            self.log_files.sync()
            self.log_files.idle()

    def checkpoint_if_due(self, *, may_wait: bool = True) -> None:
        """Begin a checkpoint if enough was logged or one was requested. Everything must be synced.

        If one runs, wait for its end, or without ``may_wait`` begin none.
        """
        self._checkpoints.begin_if_due(may_wait=may_wait)

    def checkpoint(self, *, even_if_empty: bool = False, progress: Progress | None = None) -> None:
        """Bring all since the mark into the index now. Everything must be synced. If it fails, the mark stays."""
        self._checkpoints.run(even_if_empty=even_if_empty, progress=progress)

    def freeze(self, problem: StorageError) -> None:
        """Take no change, as after ``problem``. Before anything was changed."""
        self._gate.failure = problem

    def close(self) -> None:
        """Checkpoint, seal the log files and close all files, in this order. After a failure only close."""
        try:
            if self._gate.failure is None:
                self.sync()
                self.checkpoint()
                self._checkpoints.seal()
        finally:
            self._checkpoints.wait()
            self.log_files.close()
            with self._index.reading() as index:
                index.close()

    # For any thread

    def note_chosen_id(self, ledger_id: int) -> None:
        """The creator of a ledger chose its id. Kept with the ledger from the next request on that changes it."""
        self._chosen_ids.add(ledger_id)

    def request_checkpoint(self, *, roll: bool = False) -> None:
        """Ask for a checkpoint of all that was put so far, with the sync thread's next sync or when it is idle.

        With ``roll`` it seals all entry logs that have data so far, so that compaction may have them.
        """
        self._checkpoints.request(roll=roll)

    def _cached_ledger(self, ledger_id: int, master_key_hash: bytes) -> CachedLedger:
        """The ledger in the active cache, taken in if it is not there."""
        ledger = self._layers.active.ledger(ledger_id) or self._taken_in(ledger_id, master_key_hash)
        if ledger_id in self._chosen_ids:
            self._chosen_ids.discard(ledger_id)
            ledger.has_chosen_id = True
        return ledger

    def _taken_in(self, ledger_id: int, master_key_hash: bytes) -> CachedLedger:
        with self._changed:
            if self._layers.ledger(ledger_id) is not None:  # the frozen cache has it, so the index is not needed
                return self._layers.begin(ledger_id, master_key_hash, None)
        with self._index.reading() as index:  # hold it to the end, so that nothing is purged meanwhile
            summary = proven_summary(index, ledger_id)
            with self._changed:
                return self._layers.begin(ledger_id, master_key_hash, summary)

    def _may_have_new_copies(self, ledger_id: int, decided_at: int | None) -> bool:
        """Whether batches of the ledger came in since the last checkpoint, or may have come in since ``decided_at``.

        What is not in the write cache came before the last checkpoint, so it came before ``decided_at`` if that checkpoint did.
        Look into the cache first, then at the mark. ``_last_duplicate_at`` reveals batches that were already here when they
        came again; it is reset, for the next decision will be a later one.
        """
        if decided_at is not None and self._last_duplicate_at >= decided_at:
            self._last_duplicate_at = -1
            return True
        with self._changed:
            if self._layers.has_batches(ledger_id):
                return True
        with self._index.reading() as index:
            return decided_at is not None and index.mark.next_sequence > decided_at

    def _known_ledger(self, ledger_id: int) -> CachedLedger | None:
        """What the caches or the index know of a ledger."""
        with self._changed:
            cached = self._layers.ledger(ledger_id)
        if cached is not None:
            return cached
        with self._index.reading() as index:
            return from_summary(index.summary(ledger_id))

    def _append_note(self, note: LedgerNote, master_key_hash: bytes) -> int:
        with self._gate.changing():
            sequence = self._next_sequence()
            self.log_files.append_note(note, master_key_hash, sequence)
            self._has_notes = True
        return sequence

    def _next_sequence(self) -> int:
        sequence = self.log_files.sequences.take()
        assert sequence > self._durable_sequence, "nothing counts as durable before it is synced"
        return sequence

    def _judge(self, batch: EncodedBatch, ledger: CachedLedger, *, is_recovery: bool) -> Judgement:
        """Only ids up to the highest one of the ledger are looked up: the adds of a writer in order cost nothing here."""
        first, last = batch.header.first_entry_id, batch.header.last_entry_id
        if first > max(ledger.highest_cached, ledger.highest_below):
            return Judgement.STORE
        batches = self.batches(batch.header.ledger_id, first, last).overlapping(first, last)
        return SecondAdd(batch, is_recovery, self._get_staged).judge(batches)

    def _get_staged(self, stored: StoredBatch) -> EncodedBatch:
        """The bytes of a batch that may not be written yet."""
        if stored.batch is None and stored.sequence > self._durable_sequence:
            self.write()
        return self.get(stored)
