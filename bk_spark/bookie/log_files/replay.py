"""Replays the journal or entry log of one directory after a restart, and tells a tear from damage.

A process that dies leaves the last file of each directory unsealed, perhaps torn. D is the offset up to which a file is known
to have been durable: the greatest of the mark, of the length that the file's successor says it was sealed with, of
``synced_through`` of every valid record in it, and of what the witness says of it (witness.py). A *gap* is a stretch between
records that is no record (scan.py). A gap

- below D is damage: bytes that were acked are gone;
- at or above D, at the end of the file, that looks as a power cut leaves it, is a tear: nothing in it was acked, and the file
  is cut there;
- elsewhere at or above D cannot be decided and counts as damage: it may have been acked or not.

The newest file has no successor that names it, but the witness does: it is damage if that file is missing.

The replay reports damage and goes on to the records behind it. The caller concludes that this start may have lost data, and
makes that durable before ``finish``. A tear is cut, but damage stays in the file, so that a second crash finds it again.

``finish`` seals and syncs every file before anything new is written. It writes the bytes of an entry log above D once more: a
sync may have failed there, and then only the kernel's memory may have them. A file that is gone, shorter than it was, or has an
unreadable header cannot be sealed. Its successor begins at once, and every start finds the damage again until the mark is in
the successor.

Worked example: a is acked, b was written and not synced when the power failed. If the file ends inside b, b is lost. A flipped
bit in a is damage, for b or an IDLE record stands behind it and a's bytes are not zeros.

Ref: docs/rules.md, storage rules 2, 7 and 15.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.log_files.log_file import (
    FILE_HEADER_BYTES,
    LOG_START,
    NO_PREDECESSOR,
    FileHeader,
    FileKind,
    FilePosition,
    LogDirectory,
    Predecessor,
)
from bk_spark.bookie.log_files.record import RecordHeader, RecordKind
from bk_spark.bookie.log_files.scan import Gap, LogScan
from bk_spark.bookie.log_files.writer import EntryLocation, SequenceCounter, end_file
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class ReplayedRecord:
    """A record about a ledger, and where it was found."""

    file_id: int
    header: RecordHeader
    batch: EncodedBatch | None
    """Of a BATCH, else None."""
    location: EntryLocation | None
    """Where to read it again; None in a journal."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The bytes of a file from ``offset`` (inclusive) to ``end`` (exclusive) are, or may be, lost. 0 to 0 is a missing file."""

    path: Path
    offset: int
    end: int
    problem: str
    is_below_durable: bool
    """The bytes were durable. False if that cannot be decided."""

    def __str__(self) -> str:
        certainty = "" if self.is_below_durable else ", and whether it was ever durable is not known"
        return f"{self.error()}{certainty}"

    def error(self) -> CorruptionError:
        where = f"{self.path} from byte {self.offset} to {self.end}" if self.end else str(self.path)
        return CorruptionError(where, self.problem)


@dataclass(slots=True)
class _LastFile:
    """What ``finish`` needs to know of a directory's last file with a readable header."""

    header: FileHeader
    end: int
    """Where to cut the file."""
    sealed_sequence: int | None
    """The sequence of the SEAL at its end, None if it is not sealed."""
    can_be_sealed: bool
    """False if the file is shorter than the offset from which it was to be scanned."""
    durable: int = 0
    """D."""


class LogReplay:
    """A directory's log from a mark on. Read ``records`` to the end, then ``damages``, then call ``finish``."""

    def __init__(
        self,
        directory: LogDirectory,
        mark: FilePosition,
        witnessed: FilePosition,
        sequences: SequenceCounter,
        *,
        mark_file_is_kept: bool = True,
    ) -> None:
        """``witnessed``: the newest file that was begun, durable at least up to there; what lies before the mark may be gone.

        ``mark_file_is_kept``: nobody has deleted the mark's file, so it is damage if the file is missing.
        """
        directory.remove_unfinished()
        self.damages: list[Damage] = []
        """Complete once ``records`` was read to its end."""
        self.directory = directory
        self._mark = mark
        self._witnessed = witnessed
        self._sequences = sequences
        self._mark_file_is_kept = mark_file_is_kept
        self._headers = self._read_headers()
        self._last: _LastFile | None = None
        self._lost = LOG_START
        """The end of the last file that is missing or has an unreadable header."""
        self.scanned_bytes = 0
        """What ``records`` has read so far, about."""

    @property
    def file_ids(self) -> list[int]:
        """The files from the mark's on that have readable headers, ascending, without copies."""
        return [file_id for file_id, header in self._headers.items() if header is not None]

    def records(self) -> Iterator[ReplayedRecord]:
        """All records about ledgers from the mark on, in order. Raises FormatVersionError, StorageError."""
        self._check_chain()
        for file_id, successor in itertools.zip_longest(self._headers, list(self._headers)[1:]):
            after = self._headers[successor] if successor is not None else None
            sealed = after.predecessor if after is not None and after.predecessor.file_id == file_id else None
            yield from self._file_records(file_id, sealed)

    def total_bytes(self) -> int:
        """What ``records`` is to read, about."""
        directory, mark = self.directory, self._mark
        sizes = {file_id: directory.disk.size(directory.file_path(file_id)) for file_id in self._headers}
        return sum(sizes.values()) - min(mark.offset, sizes.get(mark.file_id, 0))

    def sync_only(self) -> None:
        """In place of ``finish``, on a full disk: all that ``records`` gave is durable then, and nothing was appended or cut.

        Journals are written once more, too, since no checkpoint copies them.
        """
        last, disk = self._last, self.directory.disk
        if last is not None and last.can_be_sealed:
            path = self.directory.file_path(last.header.file_id)
            disk.rewrite(path, last.durable)
            end_file(disk, path, last.header.salt, None)

    def finish(self) -> Predecessor:
        """Cut, seal and sync the last file: all that ``records`` gave is durable then. Returns the directory's last file.

        A file that cannot be sealed stays as it is, so that its loss remains visible, and is returned as lost.
        """
        last = self._end_readable()
        lost = self._lost
        return Predecessor(lost.file_id, lost.offset, 0) if lost.file_id > 0 and lost.file_id >= last.file_id else last

    def _end_readable(self) -> Predecessor:
        """``finish`` for the last file with a readable header."""
        last = self._last
        if last is None:
            return Predecessor(self._mark.file_id, self._mark.offset, 0) if self._mark.file_id else NO_PREDECESSOR
        file_id = last.header.file_id
        if not last.can_be_sealed:
            return Predecessor(file_id, last.end, 0)
        disk, path = self.directory.disk, self.directory.file_path(file_id)
        if last.end < disk.size(path):
            assert last.end >= last.durable, "what was durable is never cut"
            disk.truncate(path, last.end)
        if last.end > last.durable and self.directory.kind is FileKind.ENTRY_LOG:  # checkpoints copy what journals hold anyway
            disk.rewrite(path, last.durable)
        sealed = last.sealed_sequence
        sequence = self._sequences.take() if sealed is None else sealed
        size = end_file(disk, path, last.header.salt, sequence if sealed is None else None)
        disk.sync_directory(self.directory.path)
        return Predecessor(file_id, size, sequence)

    def _read_headers(self) -> dict[int, FileHeader | None]:
        """The headers of the files to scan, by ascending file id; None for an unreadable one."""
        found: dict[int, FileHeader | None] = {}
        for file_id in self.directory.file_ids():
            if file_id < self._mark.file_id:
                continue
            try:
                header = self.directory.header(file_id)
            except CorruptionError as problem:
                found[file_id] = None
                self._damaged(file_id, 0, self.directory.disk.size(self.directory.file_path(file_id)), problem.problem)
                continue
            if header.kind is not FileKind.COPIES:
                found[file_id] = header
        return found

    def _check_chain(self) -> None:
        """Report every file that is missing: the mark's, one that a later file names as its predecessor, or the newest."""
        before = self._mark.file_id
        if before and before not in self._headers and self._mark_file_is_kept:
            self._damaged(before, 0, 0, "it is missing")
        for file_id, header in self._headers.items():
            named = header.predecessor.file_id if header is not None else before
            if named != before and file_id != self._mark.file_id and named not in self._headers:
                self._damaged(named, 0, 0, f"it is missing, file {file_id} follows it")
            before = file_id
        newest = self._witnessed
        if newest.file_id > self._mark.file_id and newest.file_id not in self._headers:
            self._damaged(newest.file_id, 0, 0, f"it is missing, though it was durable up to byte {newest.offset}")
            self._lost = newest

    def _file_records(self, file_id: int, sealed: Predecessor | None) -> Iterator[ReplayedRecord]:
        start = self._mark.offset if file_id == self._mark.file_id else FILE_HEADER_BYTES
        header = self._headers[file_id]
        with self.directory.disk.open_read(self.directory.file_path(file_id)) as file:
            if header is None:
                self._lost = max(self._lost, FilePosition(file_id, max(start, file.size)))
                return
            self._last = last = _LastFile(header, max(start, file.size), None, start <= file.size)
            scan = LogScan(file, header, start, file.size)
            if start == file.size:
                scan.last = scan.seal_before(start)
            gaps = yield from self._scanned(file_id, scan)
            durable = last.durable = max(start, scan.synced_through, self._told(file_id, sealed))
            problems = len(self.damages)
            last.end = self._judged(file_id, gaps, file.size, durable)
        if scan.last is not None and scan.last.kind is RecordKind.SEAL and scan.last.end == last.end:
            last.sealed_sequence = scan.last.sequence
        if sealed is not None and problems == len(self.damages):
            self._check_sealed(sealed, last)

    def _told(self, file_id: int, sealed: Predecessor | None) -> int:
        """How much of a file was durable, as its successor or the witness tells."""
        witnessed = self._witnessed.offset if file_id == self._witnessed.file_id else 0
        return max(witnessed, sealed.sealed_bytes if sealed is not None else 0)

    def _scanned(self, file_id: int, scan: LogScan) -> Generator[ReplayedRecord, None, list[Gap]]:
        gaps: list[Gap] = []
        for item in scan.items():
            if isinstance(item, Gap):
                gaps.append(item)
                continue
            self.scanned_bytes += item.header.end - item.header.place.offset
            self._sequences.pass_over(item.header.sequence)
            if item.batch is not None or item.header.note is not None:
                start, end = item.header.place.offset, item.header.end
                location = None if self.directory.kind is FileKind.JOURNAL else EntryLocation(file_id, start, end - start)
                yield ReplayedRecord(file_id, item.header, item.batch, location)
        return gaps

    def _judged(self, file_id: int, gaps: list[Gap], size: int, durable: int) -> int:
        """Report the gaps that are no tear; ``durable`` is D. Returns where to cut the file: its size if there is no tear."""
        for gap in gaps:
            if gap.looks_torn and gap.start >= durable:
                return gap.start
            self._damaged(file_id, gap.start, gap.end, gap.problem, gap.start < durable)
        if size < durable and not (gaps and gaps[-1].end == size):
            self._damaged(file_id, size, durable, f"it breaks off here, though it was durable up to byte {durable}")
        return max(size, self._mark.offset if file_id == self._mark.file_id else 0)

    def _check_sealed(self, expected: Predecessor, found: _LastFile) -> None:
        """A file with a successor must be exactly what the successor says."""
        if (found.end, found.sealed_sequence) != (expected.sealed_bytes, expected.last_sequence):
            problem = f"its successor says that it was sealed at byte {expected.sealed_bytes}, it was not"
            self._damaged(expected.file_id, found.end, found.end, problem)

    def _damaged(self, file_id: int, offset: int, end: int, problem: str, is_below_durable: bool = True) -> None:
        self.damages.append(Damage(self.directory.file_path(file_id), offset, end, problem, is_below_durable))
