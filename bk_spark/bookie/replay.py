"""Opens the storage of a bookie: what a former process logged after the mark comes back before anything is served.

Replay is the union of both logs from the mark on, one record per sequence: a checkpoint that was cut short left copies in
the entry log of what the journal has too. It does not go through the add path: what was acked is taken as it is, also entries
of a ledger that is fenced, and fences come back beside them. The torn ends of both logs are cut, sealed and synced, then a
checkpoint moves the mark beyond them.

Ref: docs/rules.md, storage rules 7, 12 and 14; docs/formats.md, "Files of a bookie".
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bk_spark.bookie.checkpoint import Logs
from bk_spark.bookie.disk import Disk
from bk_spark.bookie.entry_log import EntryLog
from bk_spark.bookie.index_rows import row_of
from bk_spark.bookie.journal import Journal
from bk_spark.bookie.ledger_index import LedgerIndex, OpenIndex
from bk_spark.bookie.ledger_storage import DURABLE_WAIT_S, LedgerStorage
from bk_spark.bookie.log_file import FileKind, LogDirectory
from bk_spark.bookie.log_replay import LogReplay, ReplayedRecord
from bk_spark.bookie.log_writer import EntryLocation, SequenceCounter
from bk_spark.bookie.record import RECORD_HEADER_BYTES, LedgerNote, RecordKind
from bk_spark.bookie.sqlite_index import open_index as open_sqlite_index
from bk_spark.bookie.write_cache import CachedLedger, WriteCache
from bk_spark.config import BookieConfig
from bk_spark.entry import EncodedBatch
from bk_spark.errors import CorruptionError

JOURNAL_DIRECTORY = "journal"
ENTRY_LOG_DIRECTORY = "entry_log"
INDEX_DIRECTORY = "index"


def open_storage(
    data_dir: Path,
    bookie_id: str,
    config: BookieConfig,
    disk: Disk,
    open_index: OpenIndex = open_sqlite_index,
    durable_wait_s: float = DURABLE_WAIT_S,
) -> LedgerStorage:
    """The storage in a data directory that this process has locked; all that it gives back is durable.

    ``durable_wait_s`` is how long a reader waits for a pending sync; 0 where nothing else runs that could end it.
    Raises CorruptionError, FormatVersionError, StorageError, ConfigError (files of another bookie).
    """
    for name in (JOURNAL_DIRECTORY, ENTRY_LOG_DIRECTORY, INDEX_DIRECTORY):
        disk.make_directory(data_dir / name)
    journals = LogDirectory(disk, data_dir / JOURNAL_DIRECTORY, FileKind.JOURNAL, bookie_id)
    entry_logs = LogDirectory(disk, data_dir / ENTRY_LOG_DIRECTORY, FileKind.ENTRY_LOG, bookie_id)
    logs_exist = bool(journals.file_ids() or entry_logs.file_ids())
    index = open_index(data_dir / INDEX_DIRECTORY, bookie_id, disk, logs_exist=logs_exist)
    try:
        logs, cache = _replay(index, journals, entry_logs, config)
        storage = LedgerStorage(index, logs, cache, config, durable_wait_s)
        storage.checkpoint()
    except BaseException:
        index.close()
        raise
    return storage


def _replay(
    index: LedgerIndex, journals: LogDirectory, entry_logs: LogDirectory, config: BookieConfig
) -> tuple[Logs, WriteCache]:
    mark = index.mark
    sequences = SequenceCounter(mark.next_sequence)
    entry_log_replay = LogReplay(entry_logs, mark.entry_log, sequences)
    journal_replay = LogReplay(journals, mark.journal, sequences)
    cache = _Replay(index).union(entry_log_replay.records(), journal_replay.records())
    journal = Journal(
        journals,
        config.journal_file_bytes,
        sequences,
        journal_replay.next_file_id(mark.next_journal_id),
        journal_replay.finish(),
    )
    entry_log = EntryLog(
        entry_logs,
        config.entry_log_file_bytes,
        config.direct_add_bytes,
        sequences,
        entry_log_replay.next_file_id(mark.next_entry_log_id),
        entry_log_replay.finish(),
    )
    return Logs(journal, entry_log, sequences), cache


class _Replay:
    def __init__(self, index: LedgerIndex) -> None:
        self._index = index
        self._cache = WriteCache()
        self._seen: set[int] = set()

    def union(self, entry_log: Iterable[ReplayedRecord], journal: Iterable[ReplayedRecord]) -> WriteCache:
        for found in entry_log:
            length = RECORD_HEADER_BYTES + found.header.body_length
            self._take(found, EntryLocation(found.file_id, found.header.place.offset, length))
        for found in journal:
            self._take(found, None)
        return self._cache

    def _take(self, found: ReplayedRecord, location: EntryLocation | None) -> None:
        sequence = found.header.sequence
        if sequence in self._seen:
            return
        self._seen.add(sequence)
        if found.batch is not None:
            self._take_batch(found, found.batch, location)
        if found.header.note is not None:
            self._take_note(found, found.header.note)

    def _take_batch(self, found: ReplayedRecord, batch: EncodedBatch, location: EntryLocation | None) -> None:
        ledger = self._ledger(found, batch.header.ledger_id)
        self._cache.add(ledger, row_of(batch, found.header.sequence, location), batch.header.last_add_confirmed)

    def _take_note(self, found: ReplayedRecord, note: LedgerNote) -> None:
        ledger = self._ledger(found, note.ledger_id)
        ledger.confirm(note.last_add_confirmed)
        if note.kind is RecordKind.FENCE:
            ledger.fence(found.header.sequence)

    def _ledger(self, found: ReplayedRecord, ledger_id: int) -> CachedLedger:
        """The ledger that a record belongs to. Raises CorruptionError if it says that it has another master key."""
        key = found.header.master_key_hash
        ledger = self._cache.ledger(ledger_id) or self._cache.begin(ledger_id, key, self._index.summary(ledger_id))
        if ledger.master_key_hash != key:
            where = f"file {found.file_id} at byte {found.header.place.offset}"
            raise CorruptionError(where, f"a record of ledger {ledger_id} with another master key than the ledger has")
        return ledger
