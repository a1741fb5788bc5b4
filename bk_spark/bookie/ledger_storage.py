"""Put and get of batches, fences and last adds confirmed, over the logs, the write cache and the index.

One thread, the sync thread, stages, syncs and checkpoints; any number of threads read. A put is visible in the write cache
at once and durable after the next ``sync``; a reader that meets a row that is not durable waits for it
(``wait_durable``), so that nothing is ever denied that is about to be acked, nor shown that a crash could take back. A fence
holds from the moment it is staged, and counts as one for readers once it is durable.

After a failed write, sync or commit the storage takes nothing more until the bookie is started again: what the disk holds
is unknown. Reads go on.

``threading`` is here, against the import table, for the lock around the maps that the sync thread and readers share.

Ref: docs/rules.md, storage rules 1, 3, 4 and 6, protocol rules 32 to 36.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bk_spark.bookie.checkpoint import CheckpointTrigger, Logs, flush
from bk_spark.bookie.index_rows import BatchRow, row_of
from bk_spark.bookie.ledger_index import LedgerIndex
from bk_spark.bookie.look_up import RowWindow
from bk_spark.bookie.record import LedgerNote, RecordKind
from bk_spark.bookie.write_cache import CachedLedger, WriteCache
from bk_spark.config import BookieConfig
from bk_spark.entry import EncodedBatch
from bk_spark.errors import CorruptionError, StorageError

DURABLE_WAIT_S = 10.0
"""How long a reader waits for a pending sync. Clients give up after half of it; a disk this slow counts as failed."""


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What is known of a ledger as a whole."""

    master_key_hash: bytes
    last_add_confirmed: int
    is_fenced: bool
    """A fence that is staged counts: it must hold before anybody is told of it."""
    is_durably_fenced: bool


class LedgerStorage:
    """Made by ``replay.open_storage``."""

    def __init__(self, index: LedgerIndex, logs: Logs, cache: WriteCache, config: BookieConfig, durable_wait_s: float) -> None:
        """``cache`` holds what was replayed, which is durable."""
        self._index = index
        self._logs = logs
        self._cache = cache
        self._config = config
        self._durable_wait_s = durable_wait_s
        self._trigger = CheckpointTrigger(config)
        self._lock = threading.Condition()
        self._index_lock = threading.Lock()
        self._durable_sequence = logs.sequences.next_sequence - 1
        self._failure: BaseException | None = None

    # --- the sync thread

    def put(self, batch: EncodedBatch, master_key_hash: bytes) -> None:
        """Stage a batch of a ledger whose key is ``master_key_hash``; durable after the next ``sync``.

        A batch that is here already, the same ids in the same bytes, is not stored again: if it is staged, the same sync
        covers it; if it is in the entry log, it was read and verified. Every other batch is, whatever ids are here.
        """
        self._refuse_after_failure()
        ledger = self._cached_ledger(batch.header.ledger_id, master_key_hash)
        if self._is_stored(batch, ledger):
            return
        with self._failing():
            sequence = self._logs.sequences.take()
            location = None
            if len(batch.body) < self._config.direct_add_bytes:
                self._logs.journal.append(batch, master_key_hash, sequence)
            else:
                location = self._logs.entry_log.append(batch, master_key_hash, sequence)
            with self._lock:
                self._cache.add(ledger, row_of(batch, sequence, location), batch.header.last_add_confirmed)

    def fence(self, ledger_id: int, master_key_hash: bytes) -> None:
        """Stage the fence of a ledger, which may be new here; durable after the next ``sync``, and for ever."""
        self._refuse_after_failure()
        ledger = self._cached_ledger(ledger_id, master_key_hash)
        if ledger.fenced_at is None:
            sequence = self._append_note(LedgerNote(RecordKind.FENCE, ledger_id), master_key_hash)
            with self._lock:
                ledger.fence(sequence)

    def confirm(self, ledger_id: int, master_key_hash: bytes, last_add_confirmed: int) -> None:
        """Stage a last add confirmed without an add that carries it; durable after the next ``sync``. It never goes back."""
        self._refuse_after_failure()
        ledger = self._cached_ledger(ledger_id, master_key_hash)
        if last_add_confirmed > ledger.last_add_confirmed:
            self._append_note(LedgerNote(RecordKind.CONFIRMED, ledger_id, last_add_confirmed), master_key_hash)
            with self._lock:
                ledger.confirm(last_add_confirmed)

    def write(self) -> None:
        """Hand all that was put to the operating system: only the machine can lose it now, and ``sync`` is still to come."""
        with self._failing():
            self._logs.write()

    def sync(self) -> None:
        """Make all that was staged durable. Raises StorageError if it may not be, then and ever after."""
        with self._failing():
            self._logs.sync()
        with self._lock:
            self._durable_sequence = self._logs.sequences.next_sequence - 1
            self._lock.notify_all()

    def idle(self) -> None:
        """Note in the logs, once, that all of them is durable. Everything must be synced."""
        with self._failing():
            self._logs.journal.idle()
            self._logs.entry_log.idle()

    def checkpoint_if_due(self) -> None:
        if self._trigger.is_due(self._logs, self._cache):
            self.checkpoint()

    def checkpoint(self) -> None:
        """Move all since the mark into the index. Everything must be synced; if it fails the mark is where it was."""
        if not self._cache:
            return
        with self._failing():
            changes, mark = flush(self._cache, self._logs)
            with self._index_lock:
                self._index.commit(changes, mark)
            with self._lock:
                self._cache = WriteCache()
            self._logs.journal.delete_before(mark.journal)
        self._trigger.reset(self._logs)

    def close(self) -> None:
        """Checkpoint, seal and release, in order; after a failure only release."""
        try:
            if self._failure is None:
                self.sync()
                self.checkpoint()
                with self._failing():
                    self._logs.journal.seal()
                    self._logs.entry_log.seal()
        finally:
            self._logs.journal.close()
            self._logs.entry_log.close()
            with self._index_lock:
                self._index.close()

    # --- any thread

    def facts(self, ledger_id: int) -> LedgerFacts | None:
        """None if this bookie has nothing of the ledger, as far as the index can be believed (``verify_missing``)."""
        with self._lock:
            cached = self._cache.ledger(ledger_id)
            if cached is not None:  # it took over what the index knows
                fenced_at = cached.fenced_at
                is_durable = fenced_at is not None and fenced_at <= self._durable_sequence
                return LedgerFacts(cached.master_key_hash, cached.last_add_confirmed, fenced_at is not None, is_durable)
        with self._index_lock:
            one = self._index.summary(ledger_id)
        return None if one is None else LedgerFacts(one.master_key_hash, one.last_add_confirmed, one.is_fenced, one.is_fenced)

    def rows(self, ledger_id: int, first: int, last: int) -> RowWindow:
        """All rows of a ledger that may hold ids from ``first`` to ``last``, inclusive, as of now."""
        with self._lock:
            cached = self._cache.ledger(ledger_id)
            snapshot = [] if cached is None else cached.overlapping(first, last)
        with self._index_lock:
            summary = self._index.summary(ledger_id)

        def fetch(after: tuple[int, int], limit: int) -> list[BatchRow]:
            with self._index_lock:
                return self._index.rows(ledger_id, after, limit)

        return RowWindow(snapshot, fetch, first, 0 if summary is None else summary.max_span)

    def get(self, row: BatchRow) -> EncodedBatch:
        """The batch of a row that is durable. Raises CorruptionError if it is not what the row says, StorageError."""
        if row.batch is not None:
            return row.batch
        assert row.location is not None
        header, batch = self._logs.entry_log.read(row.location)
        if row_of(batch, header.sequence, row.location) != row:
            where = f"entry log {row.location.file_id} at byte {row.location.offset}"
            raise CorruptionError(where, f"it holds another batch than the index says, {batch.header}")
        return batch

    def wait_durable(self, row: BatchRow) -> bool:
        """Wait for the sync of a row that is staged; False if it failed or is not to be seen: nothing is known then."""
        wait_s = self._durable_wait_s
        with self._lock:
            self._lock.wait_for(lambda: row.sequence <= self._durable_sequence or self._failure is not None, wait_s)
            return row.sequence <= self._durable_sequence

    def verify_missing(self, ledger_id: int) -> None:
        """To be called before saying no.

        Raises CorruptionError unless the index is whole as far as this ledger goes, StorageError after a failed write: it may
        have left records on the disk that the next start finds.
        """
        if self._failure is not None:
            raise StorageError("denying", f"what the disk holds is unknown, after: {self._failure}")
        with self._index_lock:
            self._index.verify_ledger(ledger_id)

    # --- inside

    def _cached_ledger(self, ledger_id: int, master_key_hash: bytes) -> CachedLedger:
        ledger = self._cache.ledger(ledger_id)
        if ledger is not None:
            return ledger
        with self._index_lock:
            summary = self._index.summary(ledger_id)
        with self._lock:
            return self._cache.begin(ledger_id, master_key_hash, summary)

    def _append_note(self, note: LedgerNote, master_key_hash: bytes) -> int:
        with self._failing():
            sequence = self._logs.sequences.take()
            self._logs.journal.append_note(note, master_key_hash, sequence)
        return sequence

    def _is_stored(self, batch: EncodedBatch, ledger: CachedLedger) -> bool:
        """Whether the newest of all that holds ids of this interval is this very batch."""
        first, last = batch.header.first_entry_id, batch.header.last_entry_id
        if first > max(ledger.highest_cached, ledger.highest_indexed):
            return False
        rows = self.rows(batch.header.ledger_id, first, last).overlapping(first, last)
        newest = max(rows, key=lambda row: row.sequence, default=None)
        return newest is not None and newest.identity == row_of(batch, 0, None).identity and self._is_readable(newest)

    def _is_readable(self, row: BatchRow) -> bool:
        """A damaged copy does not count: the batch that has come again takes its place. A staged one is not read."""
        try:
            return row.sequence > self._durable_sequence or bool(self.get(row))
        except CorruptionError:
            return False

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever goes wrong inside is the end of all changes."""
        self._refuse_after_failure()
        try:
            yield
        except BaseException as problem:
            with self._lock:
                self._failure = problem
                self._lock.notify_all()
            raise

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise StorageError("writing", f"this bookie takes no more until it is started again, after: {self._failure}")
