"""The checkpoint: everything logged since the mark goes into the index, and the mark moves with it.

The order matters, and each step is durable before the next:

1. On the sync thread, right after a sync: take the mark of all journals and entry logs, and freeze the write cache.
2. Copy the frozen cache into entry logs of its own, sorted by ledger. Every record keeps the sequence of its original, and runs
   of small records are joined. Sync these entry logs (those with large adds were synced before the freeze, full ones included).
3. One index transaction stores the batches, the ledgers' summaries and the mark. The generation file and the witness follow.
4. Drop the frozen cache, and delete the journal files that end before the mark.

A crash between any two steps leaves the old mark and all that it needs, or the new one. The mark never moves without the
batches: the same transaction holds all that a bookie knows of a ledger (master key, last add confirmed, fence, deletion), also
of a ledger that was only fenced. If a step fails, all changes stop and the mark stays. A checkpoint that could only not open a
file is done again from step 2 on, with the next group of requests; then the copies that it made before are never referred to.

Steps 2 to 4 run in the background while adds go on. One checkpoint runs at a time: when the next one is due, the sync thread
first waits for the one before, or runs it itself if nobody has begun it. So there are at most two caches.

Ref: docs/rules.md, "Order of syncs", protocol rules 36 and 38, situations 57 and 58.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bk_spark.bookie.index.ledger_index import LedgerChange
from bk_spark.bookie.index.values import StoredBatch, stored_batch
from bk_spark.bookie.log_files.entry_log import Copies
from bk_spark.bookie.log_files.log_file import LogFile
from bk_spark.bookie.log_files.mark import LogMark
from bk_spark.bookie.progress import Progress
from bk_spark.bookie.storage.shared import SharedStorage
from bk_spark.bookie.storage.write_cache import CachedLedger, WriteCache
from bk_spark.config import KIB, MAX_BATCH_ENTRIES, MIB
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch
from bk_spark.entries.recut import coalesce, coalesce_whole
from bk_spark.errors import BookKeeperError, CorruptionError, NotOpenedError

JOINED_BELOW_BYTES = 8 * KIB
"""Bodies from this size on stay as they are: joining costs eight bytes an entry and gains less than that."""

MAX_JOINED_BYTES = MIB
"""The parts of one joined record together. It bounds what a read of one entry has to load."""

logger = logging.getLogger(__name__)

Background = Callable[[Callable[[], None]], None]
"""Runs the slow part of a checkpoint, now or later, on a thread of its choice. That part never raises a BookKeeperError."""


def run_inline(step: Callable[[], None]) -> None:
    """The background of a bookie that has none: the sync thread runs the step at once."""
    step()


@dataclass(slots=True)
class _Flush:
    """One checkpoint from its freeze on."""

    cache: WriteCache
    mark: LogMark
    files: Sequence[LogFile]
    is_roll: bool = False
    is_begun: bool = False
    progress: Progress | None = None
    """Whom to tell how many bytes of the cache are copied."""


class Checkpoints:
    """The checkpoints of one bookie, one after the other. Only the sync thread uses it, but any thread may ``request``."""

    def __init__(self, shared: SharedStorage, background: Background) -> None:
        self._shared = shared
        self._background = background
        self._flush: _Flush | None = None
        self._copies: Copies | None = None
        self._is_requested = False
        self._is_roll_requested = False
        self._bytes_at_last = 0
        """What the log files had appended when the last checkpoint began."""
        self.waits_because: NotOpenedError | None = None
        """Why the frozen checkpoint was not done at the last try; None if it was, or was not tried."""

    def request(self, *, roll: bool = False) -> None:
        """LedgerStorage.request_checkpoint."""
        with self._shared.changed:
            self._is_roll_requested |= roll
            self._is_requested = True

    def begin_if_due(self, *, may_wait: bool) -> None:
        """LedgerStorage.checkpoint_if_due."""
        if not self._is_due() or (self._flush is not None and not may_wait):
            return
        self.finish()
        with self._shared.changed:
            is_roll = self._is_roll_requested
            self._is_requested = self._is_roll_requested = False
        self._bytes_at_last = self._shared.log_files.appended_bytes
        if self._shared.layers.active or is_roll:
            flush = self._freeze(is_roll=is_roll)
            self._background(lambda: self._run_quietly(flush))

    def run(self, *, even_if_empty: bool = False, progress: Progress | None = None) -> None:
        """LedgerStorage.checkpoint."""
        self.finish()
        self._bytes_at_last = self._shared.log_files.appended_bytes
        if self._shared.layers.active or even_if_empty:
            flush = self._freeze()
            flush.progress = progress
            self._run(flush)

    def finish(self) -> None:
        """Run the frozen checkpoint, or wait for its end if it runs already. Raises StorageError if it was not done.

        NB: the wait has no bound. On a disk that hangs no add is answered, and its clients go on with other bookies.
        """
        flush, shared = self._flush, self._shared
        if flush is not None:
            self._run(flush)
            with shared.changed:
                shared.changed.wait_for(lambda: not flush.is_begun or self._flush is None or shared.gate.failure is not None)
        shared.gate.check()
        if self.waits_because is not None:
            raise self.waits_because

    def seal(self) -> None:
        """Seal all log files, and tell the index. Call it after ``run``, with nothing staged since."""
        shared = self._shared
        with shared.gate.changing():
            if self._copies is not None:
                self._copies.seal()
            shared.log_files.seal()
            mark, files = shared.log_files.mark(), shared.log_files.files()
            if files or self._copies is not None:
                self._commit((), mark, files)

    def wait(self) -> None:
        """Wait for the end of a running checkpoint, which writes to the log files, whether it succeeds or not."""
        with self._shared.changed:
            self._shared.changed.wait_for(lambda: self._flush is None or not self._flush.is_begun)

    def _is_due(self) -> bool:
        """By request, or by bytes in the cache or in any log file: with large adds only, the cache stays small."""
        shared, config = self._shared, self._shared.config
        is_full = shared.layers.active.size_bytes >= config.write_cache_bytes
        return is_full or self._is_requested or shared.log_files.appended_bytes - self._bytes_at_last >= config.checkpoint_bytes

    def _freeze(self, *, is_roll: bool = False) -> _Flush:
        """Step 1."""
        shared = self._shared
        with shared.gate.changing():
            shared.log_files.sync()  # adds that were acked before they were durable
            if is_roll:
                shared.log_files.seal()
            mark, files = shared.log_files.mark(), shared.log_files.files()
        with shared.changed:
            assert mark.next_sequence == shared.log_files.sequences.next_sequence, "all below the mark is in the cache"
            self._flush = _Flush(shared.layers.freeze(), mark, files, is_roll)
        return self._flush

    def _run_quietly(self, flush: _Flush) -> None:
        """If it fails, the next change raises the error."""
        try:
            self._run(flush)
        except NotOpenedError as problem:
            logger.warning("a checkpoint could not open a file, it is done again: %s", problem)
        except BookKeeperError as problem:
            logger.error("a checkpoint failed, this bookie takes no change until its storage is opened anew: %s", problem)

    def _run(self, flush: _Flush) -> None:
        """Steps 2 to 4, unless another thread has begun them."""
        changed = self._shared.changed
        with changed:
            if flush.is_begun:
                return
            flush.is_begun = True
        left, waits_because = None, None
        try:
            with self._shared.gate.changing():
                self._write_out(flush)
        except NotOpenedError as problem:
            left, waits_because = flush, problem
            raise
        finally:
            with changed:
                self._flush, self.waits_because, flush.is_begun = left, waits_because, left is None
                changed.notify_all()

    def _write_out(self, flush: _Flush) -> None:
        shared = self._shared
        if self._copies is None:
            self._copies = shared.log_files.copies("checkpoint")
        changes, copied_bytes = [], 0
        for ledger_id, ledger in flush.cache.ledgers():
            if flush.progress is not None:
                flush.progress.advance(copied_bytes)
                copied_bytes += sum(len(stored.batch.body) for stored in ledger.batches if stored.batch is not None)
            changes.append(_change(ledger_id, ledger, self._copies))
        self._copies.sync()
        if flush.is_roll:
            self._copies.seal()
        self._commit(changes, flush.mark, flush.files)
        with shared.changed:
            assert shared.layers.frozen is flush.cache, "what is dropped is what was committed"
            shared.layers.drop_frozen()
        with suppress(NotOpenedError):  # a later checkpoint deletes them, too
            shared.log_files.delete_journals(flush.mark)

    def _commit(self, changes: Sequence[LedgerChange], mark: LogMark, files: Sequence[LogFile]) -> None:
        """``files`` belong to ``mark``. The files of the copies are added."""
        copied = self._copies.files() if self._copies is not None else ()
        with self._shared.index.changing() as index:
            assert not mark.is_behind(index.mark), f"the mark {mark} would move back from {index.mark}"
            index.commit(changes, mark, [*files, *copied])
            stored = index.generation
        self._shared.log_files.witness_index(stored.incarnation, stored.generation)
        self._shared.log_files.committed(files)
        if self._copies is not None:
            self._copies.committed(copied)


def _change(ledger_id: int, ledger: CachedLedger, copies: Copies) -> LedgerChange:
    batches = list(_copied(ledger, copies))
    deletion = (ledger.deleted_at, ledger.deleted_ms) if ledger.is_deletion_new else (0, 0)
    is_fenced = ledger.fenced_at is not None
    return LedgerChange(
        ledger_id,
        ledger.master_key_hash,
        ledger.last_add_confirmed,
        batches,
        is_fenced,
        *deletion,
        ledger.proven,
        ledger.has_chosen_id,
    )


def _copied(ledger: CachedLedger, copies: Copies) -> Iterator[StoredBatch]:
    """The stored batches for the index. Copies the batches that are in memory only."""
    for run in runs(ledger.batches):
        if run[0].batch is None:
            yield run[0]
            continue
        for batch, sequence in joined(run):
            yield stored_batch(batch, sequence, copies.append(batch, ledger.master_key_hash, sequence))


def runs(batches: list[StoredBatch]) -> Iterator[list[StoredBatch]]:
    """``batches``, sorted by first entry id and sequence, in runs that may be joined into one record.

    A small record costs a header, an Arrow message and a row of the index, some 500 bytes, however small its entry is. So many
    single appends become one batch. A run is joined if its batches follow each other and hold ids that no other cached batch of
    the ledger may hold. The joined batch gets the highest sequence of those in it, so it must not hide a batch that is newer
    than one of them and older than another.

    Worked example: 0–4 (sequence 5), 0–99 (7), 5–9 (9). Joined as 0–9 (9), the first one would hide what 7 says of 0–4.

    Ref: docs/rules.md, storage rule 1; docs/formats.md, "A batch of entries".
    """
    run: list[StoredBatch] = []
    size = 0
    for stored, may_join in _joinable(batches):
        if run and not (may_join and size < MAX_JOINED_BYTES and _follows(run, stored)):
            yield run
            run, size = [], 0
        run.append(stored)
        size += stored.size_bytes if may_join else MAX_JOINED_BYTES  # one that may not be joined ends its run
    if run:
        yield run


def joined(run: list[StoredBatch]) -> Iterable[tuple[EncodedBatch, int]]:
    """The batches to store for a run that is in memory, with their sequences: each if they do not fit together."""
    each = [(stored.batch, stored.sequence) for stored in run if stored.batch is not None]
    try:
        batches, newest = [batch for batch, _ in each], max(sequence for _, sequence in each)
        found = coalesce_whole(batches) if batches[0].header.is_apache else [coalesce(batches)]
    except CorruptionError:
        return each  # nobody has looked inside yet: what a client sent is kept as it came
    assert sum(batch.header.count for batch in found) == sum(batch.header.count for batch in batches)
    return [(batch, newest) for batch in found]


def _joinable(batches: list[StoredBatch]) -> Iterator[tuple[StoredBatch, bool]]:
    """Each batch, and whether it is small, in memory, and shares no id with another one."""
    reached = NO_ENTRY
    for place, stored in enumerate(batches):
        ends_before_next = place + 1 == len(batches) or stored.last_entry_id < batches[place + 1].first_entry_id
        is_alone = reached < stored.first_entry_id and ends_before_next
        reached = max(reached, stored.last_entry_id)
        yield stored, is_alone and stored.batch is not None and len(stored.batch.body) < JOINED_BELOW_BYTES


def _follows(run: list[StoredBatch], stored: StoredBatch) -> bool:
    before, batch = run[-1].batch, stored.batch
    assert before is not None
    assert batch is not None
    fits = stored.last_entry_id - run[0].first_entry_id < MAX_BATCH_ENTRIES
    return fits and before.header.is_followed_by(batch.header)
