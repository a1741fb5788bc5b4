"""Compaction frees the space of deleted batches: it copies the live records out of an entry log, then unlinks that.

Each step is durable before the next, so a crash anywhere loses nothing, and repeating a step does no harm:

1. Read the entry log, header by header. A record is live if the index has a stored batch for it that points to this very place.
2. Copy the live records unchanged, with their checksums verified, into new entry logs of copies. Sync these and their
   directory.
3. In one index transaction, update the batches that still point to the old place, enter the copies, and mark the old entry log
   DEAD once none refers to it. A large entry log takes several transactions.
4. Unlink the old entry log, then remove it from the index.

A crash before step 3 leaves copies that the index does not know: the next start cuts them off or deletes them. A crash after
step 3 leaves a DEAD entry log, which the next run unlinks.

Only sealed entry logs that lie entirely below the persisted mark are compacted: batches of other entry logs may be in memory
alone. The index's count of live bytes chooses entry logs, but only the reading of step 1 lets an entry log be unlinked. An
entry log with an unreadable live record is kept, and the scrub is told; the other entry logs are compacted all the same.

Ref: docs/rules.md, protocol rules 42 and 43, storage rule 5, situation 63.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bk_spark.bookie.index.values import StoredBatch, stored_batch
from bk_spark.bookie.log_files.entry_log import Copies
from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogState
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES, RecordHeader
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.bookie.pace import RateLimiter
from bk_spark.bookie.space.garbage_collection import GoOn, LocalLedgers
from bk_spark.bookie.storage.ledger_storage import LedgerStorage
from bk_spark.config import MIB
from bk_spark.errors import CorruptionError, StorageError

STEP_BYTES = 16 * MIB
"""Copies that are synced and entered together: a larger sync would delay the syncs of adds for longer."""

STEP_BATCHES = 2_000
"""Stored batches of one index transaction, which blocks the index for about 20 ms."""

OVERHEAD_BYTES = FILE_HEADER_BYTES + RECORD_HEADER_BYTES
"""A file's header and seal, which are neither live nor dead."""

PAGE_BATCHES = 1_000
"""Stored batches of the index that are read at once."""

MAX_REPORTED = 1_000
"""Damaged records of one entry log that are reported; the scrub finds the others by itself."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Compacted:
    """The result of one pass."""

    logs_compacted: int = 0
    """Entry logs with live records that were copied."""
    logs_deleted: int = 0
    bytes_freed: int = 0
    """The size of the unlinked entry logs, less that of the copies."""
    bytes_copied: int = 0
    """Into new entry logs, with their headers."""
    is_compacted: bool = True
    """False if the pass was told to stop, or there was no space for copies."""


def live_ratio(log: KnownEntryLog) -> float:
    """The live part of an entry log's records."""
    return log.live_bytes / max(log.total_bytes - OVERHEAD_BYTES, 1)


def choose(logs: Iterable[KnownEntryLog], threshold: float) -> list[KnownEntryLog]:
    """The entry logs worth compacting, first those that free the most space for the fewest copies."""
    sealed = [log for log in logs if log.state is LogState.SEALED]
    return sorted((log for log in sealed if log.live_bytes == 0 or live_ratio(log) < threshold), key=live_ratio)


class Compaction:
    """Compacts pass by pass, and remembers which entry logs are damaged. For one thread."""

    def __init__(self, local: LocalLedgers, limiter: RateLimiter) -> None:
        self._local = local
        self._storage = local.storage
        self._limiter = limiter
        self._damaged: dict[int, int] = {}
        """Damaged entry log → the live bytes left in it at the last try. It is tried again once there are fewer."""

    def run(self, threshold: float, go_on: GoOn) -> Compacted:
        """One pass. Raises StorageError, CorruptionError; what was done until then stays done."""
        done = Compacted()
        logs = self._storage.entry_logs()
        for log in logs:
            if log.state is LogState.DEAD:
                self._unlink(log.file_id, done)
        chosen = [log for log in choose(logs, threshold) if self._damaged.get(log.file_id) != log.live_bytes]
        copying = _Copying(self._local, self._limiter)
        try:
            done.is_compacted = self._compact(chosen, copying, done, go_on)
            copying.finish()
        finally:
            copying.close()
        done.bytes_copied = copying.size_bytes
        done.bytes_freed -= done.bytes_copied
        return done

    def _compact(self, chosen: list[KnownEntryLog], copying: _Copying, done: Compacted, go_on: GoOn) -> bool:
        """False if it was told to stop, or there was no space."""
        is_compacted = True
        unclear: list[_Reading] = []
        for log in chosen:
            reading = _Reading(self._storage, log.file_id, go_on)
            if not go_on() or not self._has_room(log) or not self._copy(reading, copying, done):
                is_compacted = False
            elif reading.has_gaps or not self._end(reading, copying, done):
                unclear.append(reading)
        copying.enter()
        if not self._find_unread(unclear, go_on):
            return False
        for reading in unclear:
            if not self._end(reading, copying, done):
                remedy = "it is kept; stop this bookie and run 'bk-spark bookie sanity --data-dir D'"
                logger.error("entry log %d counts as live, and no batch of the index points to it: %s", reading.file_id, remedy)
        return is_compacted

    def _has_room(self, log: KnownEntryLog) -> bool:
        return log.live_bytes == 0 or log.live_bytes < self._local.free_bytes()

    def _copy(self, reading: _Reading, copying: _Copying, done: Compacted) -> bool:
        """Copy the live records of an entry log. False if it was told to stop."""
        before = copying.copied_records
        for live, header in reading.live_records():
            if not copying.copy(live, header):
                reading.damaged.append(live)
        done.logs_compacted += copying.copied_records > before
        return not reading.is_stopped

    def _end(self, reading: _Reading, copying: _Copying, done: Compacted) -> bool:
        """Keep the entry log if it has unreadable live records, otherwise unlink it. False if the index still has batches in
        it."""
        if reading.damaged:
            copying.enter()
            logger.error("entry log %d is kept for records that cannot be read and have to be repaired", reading.file_id)
            left = (log.live_bytes for log in self._storage.entry_logs() if log.file_id == reading.file_id)
            self._damaged[reading.file_id] = next(left, 0)
            self._local.report_damage(reading.damaged)
            return True
        is_dead = copying.enter(emptied=reading.file_id)
        if is_dead:
            self._unlink(reading.file_id, done)
        return is_dead

    def _find_unread(self, readings: list[_Reading], go_on: GoOn) -> bool:
        """Find the batches that still point into entry logs that could not be read completely. False if it was told to stop.

        This reads the whole index, which is not ordered by file.
        """
        after = (-1, -1, -1)
        by_file = {reading.file_id: reading for reading in readings}
        for reading in readings:
            reading.damaged.clear()
        while by_file and (page := self._storage.batches_from(after, PAGE_BATCHES)):
            if not go_on():
                return False
            for stored in page:
                found = by_file.get(stored.location.file_id) if stored.location is not None else None
                if found is not None and len(found.damaged) < MAX_REPORTED:
                    found.damaged.append(stored)
            after = (page[-1].ledger_id, page[-1].first_entry_id, page[-1].sequence)
        return True

    def _unlink(self, file_id: int, done: Compacted) -> None:
        """Unlink a DEAD entry log and remove it from the index. A crash may have come between the two: then the file is
        gone."""
        assert any(one.file_id == file_id and one.state is LogState.DEAD for one in self._storage.entry_logs())
        logs = self._storage.log_files
        if logs.path_of(file_id) is not None:
            done.bytes_freed += logs.size_of(file_id)
            logs.delete(file_id)
        self._storage.forget_log(file_id)
        self._damaged.pop(file_id, None)
        done.logs_deleted += 1


@dataclass(slots=True)
class _Reading:
    """Finds the live records of one entry log, as far as it can be read."""

    storage: LedgerStorage
    file_id: int
    go_on: GoOn
    is_stopped: bool = False
    """Whether it was told to stop."""
    has_gaps: bool = False
    """Whether there are stretches without a recognisable record."""
    damaged: list[StoredBatch] = field(default_factory=list)
    """Stored batches of unreadable live records."""

    def live_records(self) -> Iterator[tuple[StoredBatch, RecordHeader]]:
        try:
            for location, found in self.storage.log_files.scan(self.file_id, verify_bodies=False):
                if not self.go_on():
                    self.is_stopped = True
                    return
                if not isinstance(found, RecordHeader):
                    self.has_gaps = True
                elif found.batch is not None:
                    stored = self.storage.find(found.batch.ledger_id, found.batch.first_entry_id, found.sequence)
                    if stored is not None and stored.location == location:
                        yield stored, found
        except (CorruptionError, StorageError):
            self.has_gaps = True


@dataclass(slots=True)
class _Copying:
    """The copies of one pass, from any number of entry logs, and the stored batches that will point to them."""

    local: LocalLedgers
    limiter: RateLimiter
    copied_records: int = 0
    _copies: Copies | None = None
    _moves: list[tuple[StoredBatch, EntryLocation]] = field(default_factory=list)
    _moves_bytes: int = 0
    _entered: dict[int, int] = field(default_factory=dict)
    """Files of copies that the index may know, and their sizes."""

    @property
    def size_bytes(self) -> int:
        """Of all copies."""
        return sum(self._entered.values())

    def copy(self, stored: StoredBatch, header: RecordHeader) -> bool:
        """Copy one record. False if it is unreadable, or differs from its header or stored batch."""
        assert stored.location is not None
        self.limiter.take(stored.location.length)
        try:
            _, batch = self.local.storage.log_files.read(stored.location)
        except (CorruptionError, StorageError):
            return False
        if stored_batch(batch, header.sequence, stored.location) != stored:
            return False
        if self._copies is None:
            self._copies = self.local.storage.log_files.copies("compaction")
        place = self._copies.append(batch, header.master_key_hash, header.sequence)
        assert place.length == stored.location.length, "a copy is as long as the record"
        assert place.file_id != stored.location.file_id
        self._moves.append((stored, place))
        self.copied_records += 1
        self._moves_bytes += stored.location.length
        if self._moves_bytes >= STEP_BYTES or len(self._moves) >= STEP_BATCHES:
            self.enter()
        return True

    def enter(self, emptied: int = 0) -> bool:
        """Make the copies durable, and the index point to them. True if no batch refers to the entry log ``emptied`` any
        more."""
        if not self._moves and not emptied:
            return False
        if self._copies is not None:
            self._copies.sync()
        is_dead = self._move(emptied)
        self._moves, self._moves_bytes = [], 0
        return is_dead

    def finish(self) -> None:
        """Enter the rest, and seal the copies: they are ordinary entry logs from now on."""
        if self._copies is not None:
            self._copies.seal()
            self._move(0)

    def close(self) -> None:
        """Close the copies. After an error, delete those that the index cannot know: they would waste space."""
        copies, self._copies = self._copies, None
        if copies is None:
            return
        unknown = [file.file_id for file in copies.files() if file.file_id not in self._entered]
        copies.close()
        for file_id in unknown:
            self.local.storage.log_files.delete(file_id)

    def _move(self, emptied: int) -> bool:
        files = () if self._copies is None else self._copies.files()
        self._entered |= {file.file_id: file.size_bytes for file in files}
        is_dead = self.local.storage.move(self._moves, files, emptied)
        if self._copies is not None:
            self._copies.committed(files)
        return is_dead
