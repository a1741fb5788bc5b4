"""Makes the index of a bookie anew, from its entry logs and journals, where it is lost or damaged.

The rows come from the entry logs, copies included: the union of all good records by sequence, each at its newest place, which
is the file with the highest id. What the journals hold is left to the next start, which replays them from the first one on
as after any crash: small adds, fences and last adds confirmed. A record that is the copy of what is in a journal has no row
here, so that the replay finds nothing twice. Deletions are taken from the journals: what has a lower sequence has no row.

What stood in the index alone is forgotten: fences, tombstones and explicit LACs whose journals are gone. The new index has
another incarnation, by which the next start knows that it may have lost something: it is in limbo until other replicas were
asked.

The new index is made beside the old one and takes its place when it is whole: after a crash at any point the old one is
there, or none, and this can be run again. The old one is kept as ``index.replaced``.

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
from bk_spark.bookie.index.rows import BatchRow
from bk_spark.bookie.index.sqlite_index import open_index as open_sqlite_index
from bk_spark.bookie.inspection.logs import InspectedFile, inspect_files, inspect_records
from bk_spark.bookie.logs.log_file import FILE_HEADER_BYTES, LOG_START, FileKind, FilePosition, LogFile
from bk_spark.bookie.logs.mark import LogMark
from bk_spark.bookie.logs.record import RECORD_HEADER_BYTES, RecordHeader, RecordKind
from bk_spark.bookie.logs.replay import Damage
from bk_spark.bookie.logs.scan import ScannedRecord
from bk_spark.bookie.logs.writer import EntryLocation
from bk_spark.config import MIB
from bk_spark.entries.batch import NO_ENTRY, BatchHeader
from bk_spark.errors import ConfigError, CorruptionError

# --- Which batches the journals hold, for a rebuild of the index: the next start replays them, and may join them once more
#
# The copy of a journalled batch in an entry log has its ids and its sequence, a joined one the ids of all its parts and the
# highest of their sequences. Such a copy must have no row in the rebuilt index: the replay makes one of the same key.
#
# Ref: docs/rules.md, storage rules 1 and 13.


class Copy(Enum):
    """What a record in an entry log is to the journals."""

    NONE = "the journals do not have it"
    WHOLE = "the journals have all of it"
    PART = "the journals have its first entries, and not all of it"


class JournalledBatches:
    """A number or two for each batch in a journal: a few checkpoints' worth, some hundred thousand at most."""

    def __init__(self) -> None:
        self._sequences: set[int] = set()
        self._last_ids: dict[tuple[int, int], list[int]] = {}
        """By ledger and first entry id."""

    def add(self, header: RecordHeader) -> None:
        batch = header.batch
        assert batch is not None
        self._sequences.add(header.sequence)
        self._last_ids.setdefault((batch.ledger_id, batch.first_entry_id), []).append(batch.last_entry_id)

    def copy_of(self, header: RecordHeader) -> Copy:
        """Follows the chains of journalled batches that begin where the record does.

        One that was added again later may stand in a chain, too: it holds the same ids, and is the newer one.
        """
        batch = header.batch
        assert batch is not None
        if header.sequence not in self._sequences:
            return Copy.NONE
        firsts, seen = {batch.first_entry_id}, set[int]()
        while firsts:
            first = firsts.pop()
            if first > batch.last_entry_id:
                return Copy.WHOLE
            seen.add(first)
            last_ids = self._last_ids.get((batch.ledger_id, first), ())
            firsts |= {next_asked(batch.pattern, last + 1) for last in last_ids} - seen
        return Copy.PART if (batch.ledger_id, batch.first_entry_id) in self._last_ids else Copy.NONE


REPLACED_DIRECTORY = f"{INDEX_DIRECTORY}.replaced"
UNFINISHED_DIRECTORY = f"{INDEX_DIRECTORY}{TEMPORARY_SUFFIX}"
CHUNK_ROWS = 20_000
"""Rows and ledgers of one transaction: bounds the memory; the price of a transaction is small beside that of so many."""

NEVER = (0, 0)
"""The sequence and the time of a deletion that there was not."""

PROGRESS_BYTES = MIB
"""Read between two words about it: some milliseconds' worth."""

Progress = Callable[[str, int, int], None]
"""What is done, how much of it, out of how much: bytes of the logs, then rows of the new index."""


@dataclass(slots=True)
class RebuildReport:
    """What was found. ``damages`` are the places that were skipped."""

    files: int = 0
    rows: int = 0
    journal_records: int = 0
    """Records that the next start replays."""
    damages: list[Damage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    """A file, the ordinal of its directory, and what the index is to be told of it."""

    file: InspectedFile
    directory: int
    size_bytes: int
    """At first that of the file, then where its last good record ends."""
    is_sealed: bool = False

    @property
    def file_id(self) -> int:
        return int(self.file.path.stem)

    @property
    def is_copies(self) -> bool:
        return self.file.header is not None and self.file.header.kind is FileKind.COPIES

    @property
    def log_file(self) -> LogFile:
        return LogFile(self.file_id, self.directory, self.size_bytes, self.is_sealed)


def rebuild_index(
    directories: Directories,
    bookie_id: str,
    disk: Disk,
    progress: Progress,
    open_index: OpenIndex = open_sqlite_index,
) -> RebuildReport:
    """Put a new index in the place of the old one. The caller holds the locks of all roots.

    Raises CorruptionError if two records say that one ledger has two master keys, ConfigError if a file is another bookie's,
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
    _put_in_place(directories, disk, unfinished)
    return report


def _remove(disk: Disk, directory: Path) -> None:
    """A directory of files, if it is there."""
    if disk.exists(directory):
        for name in disk.list(directory):
            disk.unlink(directory / name)
        disk.remove_directory(directory)


def _put_in_place(directories: Directories, disk: Disk, made: Path) -> None:
    disk.sync_directory(made)
    if disk.exists(directories.index):
        replaced = directories.data_dir / REPLACED_DIRECTORY
        _remove(disk, replaced)
        disk.rename(directories.index, replaced)
    disk.rename(made, directories.index)


@dataclass(slots=True)
class _Pending:
    """What the next transaction adds to a ledger; rows by first entry id and sequence."""

    master_key_hash: bytes
    last_add_confirmed: int = NO_ENTRY
    rows: dict[tuple[int, int], BatchRow] = field(default_factory=dict)


class _Rebuild:
    def __init__(self, directories: Directories, bookie_id: str, disk: Disk, progress: Progress, index: LedgerIndex) -> None:
        self._directories = directories
        self._bookie_id = bookie_id
        self._disk = disk
        self._progress = progress
        self._index = index
        self._report = RebuildReport()
        self._pending: dict[int, _Pending] = {}
        self._pending_rows = 0
        self._journalled = JournalledBatches()
        self._journal_keys: dict[int, bytes] = {}
        self._deletions: dict[int, tuple[int, int]] = {}
        """By ledger, the sequence and the time of the last one."""
        self._last_sequence = 0
        self._read_bytes = 0
        self._total_bytes = 0

    def run(self) -> RebuildReport:
        journals = [self._files(path, FileKind.JOURNAL, place) for place, path in enumerate(self._directories.journals)]
        logs = [self._files(path, FileKind.ENTRY_LOG, place) for place, path in enumerate(self._directories.entry_logs)]
        for found in _by_id(journals):
            self._read_journal(found)
        readable = [found for found in _by_id(logs) if found.file.header is not None]
        self._index.commit([], LogMark(), [found.log_file for found in readable])
        last_ids = {found.directory: found.file_id for found in readable if not found.is_copies}
        scanned = [self._read_entry_log(found, last_ids) for found in reversed(readable)]
        self._flush()
        self._index.commit([], self._mark(journals, logs, scanned), [found.log_file for found in scanned])
        self._verify()
        return self._report

    def _verify(self) -> None:
        done = 0
        for rows in self._index.check(full=True):
            done += rows
            self._progress("verifying the new index", done, max(done, self._report.rows))

    def _files(self, directory: Path, kind: FileKind, ordinal: int) -> list[_Found]:
        files = [file for file in inspect_files([directory], kind, self._disk) if file.path.suffix == kind.suffix]
        found = [_Found(file, ordinal, file.size_bytes) for file in files if file.path.stem.isdecimal()]
        for one in found:
            self._check_header(one.file)
        self._report.files += len(found)
        self._total_bytes += sum(one.size_bytes for one in found)
        return found

    def _check_header(self, file: InspectedFile) -> None:
        if file.header is None:
            self._report.damages.append(Damage(file.path, 0, file.size_bytes, file.problem, is_below_durable=True))
        elif file.header.bookie_id != self._bookie_id:
            remedy = f"it is a file of that bookie, not of {self._bookie_id}: take it away"
            raise ConfigError(str(file.path), file.header.bookie_id, remedy)

    def _read_journal(self, found: _Found) -> None:
        for header in self._headers(found, may_be_torn=True):
            self._last_sequence = max(self._last_sequence, header.sequence)
            about = header.batch or header.note
            if about is not None:
                self._report.journal_records += 1
                self._check_key(found, header, self._journal_keys.setdefault(about.ledger_id, header.master_key_hash))
            if header.batch is not None:
                self._journalled.add(header)
            if header.note is not None and header.note.kind is RecordKind.DELETED:
                deletion = (header.sequence, header.note.deleted_ms)
                self._deletions[header.note.ledger_id] = max(deletion, self._deletions.get(header.note.ledger_id, NEVER))

    def _read_entry_log(self, found: _Found, last_ids: dict[int, int]) -> _Found:
        end, is_sealed = FILE_HEADER_BYTES, False
        is_last = found.is_copies or last_ids[found.directory] == found.file_id
        for header in self._headers(found, may_be_torn=is_last):
            end, is_sealed = header.end, header.kind is RecordKind.SEAL
            self._last_sequence = max(self._last_sequence, header.sequence)
            if header.batch is not None:
                self._take(found, header)
        if is_last and not is_sealed:
            self._sync(found.file.path)
        return replace(found, size_bytes=end, is_sealed=is_sealed or not is_last)

    def _headers(self, found: _Found, *, may_be_torn: bool) -> Iterator[RecordHeader]:
        """The good records of a file; what is damaged between them goes into the report."""
        file, shown = found.file, 0
        for item in inspect_records(file, self._disk):
            if isinstance(item, ScannedRecord):
                yield item.header
                if item.header.end - shown >= PROGRESS_BYTES:
                    shown = item.header.end
                    self._progress(f"reading {file.path}", self._read_bytes + shown, self._total_bytes)
            elif not (item.looks_torn and may_be_torn):
                self._report.damages.append(Damage(file.path, item.start, item.end, item.problem, is_below_durable=True))
        self._read_bytes += file.size_bytes
        self._progress(f"read {file.path}", self._read_bytes, self._total_bytes)

    def _sync(self, path: Path) -> None:
        """What a process that was killed had written is not durable yet, and rows are about to refer to it."""
        file = self._disk.open_append(path)
        try:
            file.sync()
        finally:
            file.close()

    def _take(self, found: _Found, header: RecordHeader) -> None:
        """A row, unless the record was deleted, or a journal or a file with a higher id has it too."""
        batch = header.batch
        assert batch is not None
        ledger = self._ledger(found, header, batch.ledger_id)
        if header.sequence < self._deletions.get(batch.ledger_id, NEVER)[0]:
            return
        ledger.last_add_confirmed = max(ledger.last_add_confirmed, batch.last_add_confirmed)
        place = (batch.first_entry_id, header.sequence)
        copy = self._journalled.copy_of(header)
        if copy is Copy.PART:
            problem = "the journals have the beginning of it, and their replay would make a row in its place"
            damage = Damage(found.file.path, header.place.offset, header.end, problem, is_below_durable=True)
            self._report.damages.append(damage)
        elif copy is Copy.NONE and place not in ledger.rows and self._index.row(batch.ledger_id, *place) is None:
            ledger.rows[place] = _row(found, header, batch)
            self._pending_rows += 1
            self._report.rows += 1
        if self._pending_rows + len(self._pending) >= CHUNK_ROWS:
            self._flush()

    def _ledger(self, found: _Found, header: RecordHeader, ledger_id: int) -> _Pending:
        """The ledger that a record belongs to. Raises CorruptionError if it says that it has another master key."""
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
            LedgerChange(ledger_id, one.master_key_hash, one.last_add_confirmed, list(one.rows.values()), False, *deletion)
            for ledger_id, one in sorted(self._pending.items())
            for deletion in [self._deletions.get(ledger_id, NEVER)]
        ]
        self._pending, self._pending_rows = {}, 0
        if changes:
            self._index.commit(changes, self._index.mark)

    def _mark(self, journals: list[list[_Found]], logs: list[list[_Found]], scanned: list[_Found]) -> LogMark:
        ends = {found.file_id: FilePosition(found.file_id, found.size_bytes) for found in scanned if not found.is_copies}
        chained = [[ends[found.file_id] for found in directory if found.file_id in ends] for directory in logs]
        return LogMark(
            self._last_sequence + 1,
            _next_id(journals),
            _next_id(logs),
            tuple(FilePosition(files[0].file_id, FILE_HEADER_BYTES) if files else LOG_START for files in journals),
            tuple(max(positions, default=LOG_START) for positions in chained),
        )


def _by_id(directories: list[list[_Found]]) -> list[_Found]:
    return sorted((found for files in directories for found in files), key=lambda found: found.file_id)


def _next_id(directories: list[list[_Found]]) -> int:
    return max((found.file_id for files in directories for found in files), default=0) + 1


def _row(found: _Found, header: RecordHeader, batch: BatchHeader) -> BatchRow:
    location = EntryLocation(found.file_id, header.place.offset, RECORD_HEADER_BYTES + header.body_length)
    ids = (batch.ledger_id, batch.first_entry_id, batch.last_entry_id)
    return BatchRow(*ids, header.sequence, batch.pattern, header.body_crc32c, location)
