"""Opens the storage of a bookie: what a former process logged after the mark comes back before anything is served.

Replay is the union of both logs from the mark on, one record per sequence: a checkpoint that was cut short left copies in
the entry log of what the journal has too. It does not go through the add path: what was acked is taken as it is. The torn ends
of both logs are cut, sealed and synced, then a checkpoint moves the mark beyond them.

Ref: docs/rules.md, storage rules 7, 12 and 14; docs/formats.md, "Files of a bookie".
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bk_spark.bookie.checkpoint import Logs
from bk_spark.bookie.disk import Disk
from bk_spark.bookie.entry_log import EntryLog
from bk_spark.bookie.index_rows import BatchRow, row_of
from bk_spark.bookie.journal import Journal
from bk_spark.bookie.ledger_index import LedgerIndex, open_index
from bk_spark.bookie.ledger_storage import LedgerStorage
from bk_spark.bookie.log_file import FileKind, LogDirectory
from bk_spark.bookie.log_replay import LogReplay, ReplayedBatch
from bk_spark.bookie.log_writer import EntryLocation, SequenceCounter
from bk_spark.bookie.record import RECORD_HEADER_BYTES
from bk_spark.bookie.write_cache import CachedLedger, WriteCache
from bk_spark.config import BookieConfig
from bk_spark.entry import NO_ENTRY
from bk_spark.errors import CorruptionError

JOURNAL_DIRECTORY = "journal"
ENTRY_LOG_DIRECTORY = "entry_log"
INDEX_DIRECTORY = "index"


def open_storage(data_dir: Path, bookie_id: str, config: BookieConfig, disk: Disk) -> LedgerStorage:
    """The storage in a data directory that this process has locked; all that it gives back is durable.

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
        storage = LedgerStorage(index, logs, cache, config)
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
    cache = _Replay(index).union(entry_log_replay.batches(), journal_replay.batches())
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

    def union(self, entry_log: Iterable[ReplayedBatch], journal: Iterable[ReplayedBatch]) -> WriteCache:
        for found in entry_log:
            length = RECORD_HEADER_BYTES + found.header.body_length
            location = EntryLocation(found.file_id, found.header.place.offset, length)
            self._take(found, row_of(found.batch, found.header.sequence, location))
        for found in journal:
            self._take(found, row_of(found.batch, found.header.sequence, None))
        return self._cache

    def _take(self, found: ReplayedBatch, row: BatchRow) -> None:
        if row.sequence in self._seen:
            return
        self._seen.add(row.sequence)
        ledger = self._ledger(row.ledger_id, found.header.master_key_hash)
        if ledger.master_key_hash != found.header.master_key_hash:
            where = f"file {found.file_id} at byte {found.header.place.offset}"
            raise CorruptionError(where, f"a record of ledger {row.ledger_id} with another master key than the ledger has")
        self._cache.add(ledger, row, found.batch.header.last_add_confirmed)

    def _ledger(self, ledger_id: int, master_key_hash: bytes) -> CachedLedger:
        ledger = self._cache.ledger(ledger_id)
        if ledger is not None:
            return ledger
        summary = self._index.summary(ledger_id)
        if summary is None:
            return self._cache.begin(ledger_id, master_key_hash, NO_ENTRY)
        return self._cache.begin(ledger_id, summary.master_key_hash, summary.highest_entry_id)
