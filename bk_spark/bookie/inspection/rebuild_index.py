"""Rebuilds the index of a bookie from its entry logs and journals, where it is lost or damaged.

The stored batches come from the entry logs, copies included: all good records, one for each sequence, at its newest place,
which is the file with the highest id. The next start replays the journals from the first one on, as after any crash: small
adds, fences and last adds confirmed. So a record that is the copy of a journalled one gets no stored batch in the index, and
the replay finds nothing twice. Deletions come from the journals: records with lower sequences get no stored batch.

What was only in the index is forgotten: fences, tombstones and explicit LACs whose journals are gone. The new index has another
incarnation, so the next start knows that it may have lost something, and is in limbo until other replicas were asked.

The new index is made beside the old one and replaces it when it is complete. After a crash at any point the old one is there,
or none, and the rebuild can be run again. The old one is kept as ``index.replaced``.

Ref: docs/rules.md, storage rules 11, 13 and 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from bk_spark.bookie.directories import INDEX_DIRECTORY, Directories
from bk_spark.bookie.disk import TEMPORARY_SUFFIX, Disk
from bk_spark.bookie.index.ledger_index import LedgerChange, LedgerIndex, OpenIndex
from bk_spark.bookie.index.look_up import next_asked
from bk_spark.bookie.index.sqlite_index import open_index as open_sqlite_index
from bk_spark.bookie.index.values import StoredBatch
from bk_spark.bookie.inspection.logs import InspectedFile, inspect_files, inspect_records
from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES, LOG_START, FileKind, FilePosition, LogFile
from bk_spark.bookie.log_files.mark import LogMark
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES, RecordHeader, RecordKind
from bk_spark.bookie.log_files.replay import Damage
from bk_spark.bookie.log_files.scan import ScannedRecord
from bk_spark.bookie.log_files.writer import EntryLocation, end_file
from bk_spark.config import MIB
from bk_spark.entries.batch import NO_ENTRY, BatchHeader
from bk_spark.errors import ConfigError, CorruptionError

REPLACED_DIRECTORY = f"{INDEX_DIRECTORY}.replaced"
UNFINISHED_DIRECTORY = f"{INDEX_DIRECTORY}{TEMPORARY_SUFFIX}"
CHUNK_BATCHES = 20_000
"""Stored batches and ledgers in one transaction. It bounds the memory; a transaction costs little beside so many."""

NEVER = (0, 0)
"""Sequence and time of a deletion that never happened."""

PROGRESS_BYTES = MIB
"""How much to read between two reports of the progress, some milliseconds' worth."""

Progress = Callable[[str, int, int], None]
"""The current task, how much of it is done, and out of how much: bytes of the log files, then rows of the new index."""


@dataclass(slots=True)
class RebuildReport:
    """What was found. ``damages`` are the places that were skipped."""

    files: int = 0
    batches: int = 0
    journal_records: int = 0
    """Records that the next start replays."""
    damages: list[Damage] = field(default_factory=list)


def rebuild_index(
    directories: Directories,
    bookie_id: str,
    disk: Disk,
    progress: Progress,
    open_index: OpenIndex = open_sqlite_index,
) -> RebuildReport:
    """Replace the index by a new one. The caller holds the locks of all roots.

    Raises CorruptionError if two records give a ledger different master keys, ConfigError if a file is another bookie's,
    StorageError. Then the old index is as it was.
    """
    unfinished = directories.data_dir / UNFINISHED_DIRECTORY
    _remove(disk, unfinished)
    disk.make_directory(unfinished)
    index = open_index(unfinished, bookie_id, disk, logs_exist=False)
    try:
        report = _Rebuild(directories, bookie_id, disk, progress, index).run()
    finally:
        index.close()
    disk.sync_directory(unfinished)
    if disk.exists(directories.index):
        replaced = directories.data_dir / REPLACED_DIRECTORY
        _remove(disk, replaced)
        disk.rename(directories.index, replaced)
    disk.rename(unfinished, directories.index)
    return report


def _remove(disk: Disk, directory: Path) -> None:
    """Remove a directory of files, if it exists."""
    if disk.exists(directory):
        for name in disk.list(directory):
            disk.unlink(directory / name)
        disk.remove_directory(directory)


class _Copy(Enum):
    """How much of a record in an entry log the journals have."""

    NONE = "the journals do not have it"
    WHOLE = "the journals have all of it"
    PART = "the journals have its first entries, and not all of it"


class _JournalledBatches:
    """The batches in the journals, a number or two each: a few checkpoints' worth, some hundred thousand at most.

    The next start replays them, and its checkpoint may join them once more. The copy of a journalled batch in an entry log has
    the ids and the sequence of the batch; a joined copy has the ids of all its parts and the highest of their sequences. Such a
    copy must not be in the rebuilt index, because the replay makes one with the same key.

    Ref: docs/rules.md, storage rules 1 and 13.
    """

    def __init__(self) -> None:
        self._sequences: set[int] = set()
        self._last_ids: dict[tuple[int, int], list[int]] = {}
        """By ledger and first entry id."""

    def add(self, sequence: int, batch: BatchHeader) -> None:
        self._sequences.add(sequence)
        self._last_ids.setdefault((batch.ledger_id, batch.first_entry_id), []).append(batch.last_entry_id)

    def copy_of(self, sequence: int, batch: BatchHeader) -> _Copy:
        """Follow the chains of journalled batches that begin where ``batch`` does.

        A chain may also contain a batch that was added again later. It holds the same ids, and is the newer one.
        """
        if sequence not in self._sequences:
            return _Copy.NONE
        firsts, seen = {batch.first_entry_id}, set[int]()
        while firsts:
            first = firsts.pop()
            if first > batch.last_entry_id:
                return _Copy.WHOLE
            seen.add(first)
            last_ids = self._last_ids.get((batch.ledger_id, first), ())
            firsts |= {next_asked(batch.pattern, last + 1) for last in last_ids} - seen
        return _Copy.PART if (batch.ledger_id, batch.first_entry_id) in self._last_ids else _Copy.NONE


@dataclass(frozen=True, slots=True)
class _Found:
    """A log file, and what the index must know of it."""

    file: InspectedFile
    log: LogFile
    """Its size is at first that of the file, then the end of its last good record."""

    @property
    def is_copies(self) -> bool:
        return self.file.header is not None and self.file.header.kind is FileKind.COPIES


@dataclass(slots=True)
class _Pending:
    """What the next transaction adds to a ledger; stored batches by first entry id and sequence."""

    master_key_hash: bytes
    last_add_confirmed: int = NO_ENTRY
    batches: dict[tuple[int, int], StoredBatch] = field(default_factory=dict)


class _Rebuild:
    def __init__(self, directories: Directories, bookie_id: str, disk: Disk, progress: Progress, index: LedgerIndex) -> None:
        self._directories = directories
        self._bookie_id = bookie_id
        self._disk = disk
        self._progress = progress
        self._index = index
        self._report = RebuildReport()
        self._pending: dict[int, _Pending] = {}
        self._pending_batches = 0
        self._journalled = _JournalledBatches()
        self._journal_keys: dict[int, bytes] = {}
        self._deletions: dict[int, tuple[int, int]] = {}
        """By ledger, the sequence and the time of the last deletion."""
        self._last_sequence = 0
        self._read_bytes = 0
        self._total_bytes = 0

    def run(self) -> RebuildReport:
        journals = [self._files(path, FileKind.JOURNAL, place) for place, path in enumerate(self._directories.journals)]
        logs = [self._files(path, FileKind.ENTRY_LOG, place) for place, path in enumerate(self._directories.entry_logs)]
        for found in _by_id(journals):
            self._read_journal(found)
        readable = [found for found in _by_id(logs) if found.file.header is not None]
        self._index.commit([], LogMark(), [found.log for found in readable])
        last_ids = {found.log.directory: found.log.file_id for found in readable if not found.is_copies}
        scanned = [self._read_entry_log(found, last_ids) for found in reversed(readable)]
        self._flush()
        self._index.commit([], self._mark(journals, logs, scanned), [found.log for found in scanned])
        done = 0
        for rows in self._index.check(full=True):
            done += rows
            self._progress("verifying the new index", done, max(done, self._report.batches))
        return self._report

    def _files(self, directory: Path, kind: FileKind, ordinal: int) -> list[_Found]:
        found = []
        for file in inspect_files([directory], kind, self._disk):
            if file.path.suffix == kind.suffix and file.path.stem.isdecimal():
                self._check_header(file)
                found.append(_Found(file, LogFile(int(file.path.stem), ordinal, file.size_bytes, False)))
        self._report.files += len(found)
        self._total_bytes += sum(one.file.size_bytes for one in found)
        return found

    def _check_header(self, file: InspectedFile) -> None:
        if file.header is None:
            self._damaged(file, 0, file.size_bytes, file.problem)
        elif file.header.bookie_id != self._bookie_id:
            remedy = f"it is a file of that bookie, not of {self._bookie_id}: take it away"
            raise ConfigError(str(file.path), file.header.bookie_id, remedy)

    def _damaged(self, file: InspectedFile, start: int, end: int, problem: str) -> None:
        self._report.damages.append(Damage(file.path, start, end, problem, is_below_durable=True))

    def _read_journal(self, found: _Found) -> None:
        for header in self._headers(found, may_be_torn=True):
            about = header.batch or header.note
            if about is not None:
                self._report.journal_records += 1
                self._check_key(found, header, self._journal_keys.setdefault(about.ledger_id, header.master_key_hash))
            if header.batch is not None:
                self._journalled.add(header.sequence, header.batch)
            if header.note is not None and header.note.kind is RecordKind.DELETED:
                deletion = (header.sequence, header.note.deleted_ms)
                self._deletions[header.note.ledger_id] = max(deletion, self._deletions.get(header.note.ledger_id, NEVER))

    def _read_entry_log(self, found: _Found, last_ids: dict[int, int]) -> _Found:
        end, is_sealed = FILE_HEADER_BYTES, False
        is_last = found.is_copies or last_ids[found.log.directory] == found.log.file_id
        for header in self._headers(found, may_be_torn=is_last):
            end, is_sealed = header.end, header.kind is RecordKind.SEAL
            if header.batch is not None:
                self._take(found, header, header.batch)
        if is_last and not is_sealed:
            # stored batches are about to refer to it, but what a killed process wrote is not durable yet
            end_file(self._disk, found.file.path, 0, sequence=None)
        return replace(found, log=replace(found.log, size_bytes=end, is_sealed=is_sealed or not is_last))

    def _headers(self, found: _Found, *, may_be_torn: bool) -> Iterator[RecordHeader]:
        """The good records of a file. Reports the damage between them."""
        file, shown = found.file, 0
        for item in inspect_records(file, self._disk):
            if isinstance(item, ScannedRecord):
                self._last_sequence = max(self._last_sequence, item.header.sequence)
                yield item.header
                if item.header.end - shown >= PROGRESS_BYTES:
                    shown = item.header.end
                    self._progress(f"reading {file.path}", self._read_bytes + shown, self._total_bytes)
            elif not (item.looks_torn and may_be_torn):
                self._damaged(file, item.start, item.end, item.problem)
        self._read_bytes += file.size_bytes
        self._progress(f"read {file.path}", self._read_bytes, self._total_bytes)

    def _take(self, found: _Found, header: RecordHeader, batch: BatchHeader) -> None:
        """Make a stored batch, unless the record was deleted, or a journal or a file with a higher id has it too."""
        ledger = self._ledger(found, header, batch.ledger_id)
        if header.sequence < self._deletions.get(batch.ledger_id, NEVER)[0]:
            return
        ledger.last_add_confirmed = max(ledger.last_add_confirmed, batch.last_add_confirmed)
        place = (batch.first_entry_id, header.sequence)
        copy = self._journalled.copy_of(header.sequence, batch)
        if copy is _Copy.PART:
            problem = "the journals have the beginning of it, and their replay would store a batch in its place"
            self._damaged(found.file, header.place.offset, header.end, problem)
        elif copy is _Copy.NONE and place not in ledger.batches and self._index.find(batch.ledger_id, *place) is None:
            location = EntryLocation(found.log.file_id, header.place.offset, RECORD_HEADER_BYTES + header.body_length)
            ids = (batch.ledger_id, batch.first_entry_id, batch.last_entry_id)
            ledger.batches[place] = StoredBatch(*ids, header.sequence, batch.pattern, header.body_crc32c, location)
            self._pending_batches += 1
            self._report.batches += 1
        if self._pending_batches + len(self._pending) >= CHUNK_BATCHES:
            self._flush()

    def _ledger(self, found: _Found, header: RecordHeader, ledger_id: int) -> _Pending:
        """The ledger of a record. Raises CorruptionError if the record has another master key than the ledger."""
        pending = self._pending.get(ledger_id)
        if pending is None:
            summary = self._index.summary(ledger_id)
            key = header.master_key_hash if summary is None else summary.master_key_hash
            pending = self._pending[ledger_id] = _Pending(self._journal_keys.get(ledger_id, key))
        self._check_key(found, header, pending.master_key_hash)
        return pending

    def _check_key(self, found: _Found, header: RecordHeader, key: bytes) -> None:
        if header.master_key_hash != key:
            about = header.batch or header.note
            assert about is not None
            where = f"{found.file.path} at byte {header.place.offset}"
            problem = f"a record of ledger {about.ledger_id} with another master key than other records of it"
            raise CorruptionError(where, problem)

    def _flush(self) -> None:
        """Store what is pending."""
        changes = [
            LedgerChange(ledger_id, one.master_key_hash, one.last_add_confirmed, list(one.batches.values()), False, *deletion)
            for ledger_id, one in sorted(self._pending.items())
            for deletion in [self._deletions.get(ledger_id, NEVER)]
        ]
        self._pending, self._pending_batches = {}, 0
        if changes:
            self._index.commit(changes, self._index.mark)

    def _mark(self, journals: list[list[_Found]], logs: list[list[_Found]], scanned: list[_Found]) -> LogMark:
        ends = {one.log.file_id: FilePosition(one.log.file_id, one.log.size_bytes) for one in scanned if not one.is_copies}
        chained = [[ends[one.log.file_id] for one in directory if one.log.file_id in ends] for directory in logs]
        return LogMark(
            self._last_sequence + 1,
            _next_id(journals),
            _next_id(logs),
            tuple(FilePosition(files[0].log.file_id, FILE_HEADER_BYTES) if files else LOG_START for files in journals),
            tuple(max(positions, default=LOG_START) for positions in chained),
        )


def _by_id(directories: list[list[_Found]]) -> list[_Found]:
    return sorted((found for files in directories for found in files), key=lambda found: found.log.file_id)


def _next_id(directories: list[list[_Found]]) -> int:
    return max((found.log.file_id for files in directories for found in files), default=0) + 1
