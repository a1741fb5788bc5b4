"""Reads the end of a log again after a restart, and tells a tear from damage.

A process that dies leaves the last file of a log unsealed, perhaps torn. D is the offset up to which the file is known to
have been durable. Where the scan cannot go on

- below D, bytes that were acked are gone: damage;
- at or above D, it is a tear if the file ends inside the record or everything from there on is zeros: nothing of it was
  acked, the file is cut there;
- anything else is damage.

D is the greatest of the mark, of the length that a successor says the file was sealed with, and of ``synced_through`` of every
valid record. The last needs no code of its own: a valid record behind the place where the scan stops is neither the
end of the file nor zeros, so it makes the place damage whatever its ``synced_through``; this is what IDLE records are for.

Damage stops the bookie: guessing could turn acked entries into missing ones. A torn file is cut, sealed and synced before
anything new is written, so that a second crash finds it whole.

Worked example: a is acked, b was written and not synced when the power failed. A file that ends inside b loses b; a
flipped bit in a is damage, for b or an IDLE record stands behind it and a's bytes are not zeros.

Ref: docs/rules.md, storage rules 2 and 7.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from bk_spark.bookie.disk import ReadFile
from bk_spark.bookie.log_file import (
    ALIGNMENT_BYTES,
    FILE_HEADER_BYTES,
    NO_PREDECESSOR,
    LogDirectory,
    LogPosition,
    Predecessor,
)
from bk_spark.bookie.log_writer import SequenceCounter
from bk_spark.bookie.record import (
    RECORD_HEADER_BYTES,
    Place,
    RecordHeader,
    RecordKind,
    batch_of,
    pack_mark,
    unpack,
)
from bk_spark.config import MIB
from bk_spark.entry import EncodedBatch
from bk_spark.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class ReplayedRecord:
    """A record that says something of a ledger, and where it was found."""

    file_id: int
    header: RecordHeader
    batch: EncodedBatch | None
    """What a BATCH holds, None for the other kinds."""


class FileScan:
    """The records of one file from ``start`` on. ``end`` is where the last good one ended."""

    def __init__(self, file: ReadFile, salt: int, start: int, durable: int) -> None:
        self.end = start
        self.last: RecordHeader | None = None
        self._file = file
        self._salt = salt
        self._size = file.size
        self._durable = max(start, durable)

    @property
    def sealed(self) -> bool:
        return self.last is not None and self.last.kind is RecordKind.SEAL

    def records(self) -> Iterator[tuple[RecordHeader, EncodedBatch | None]]:
        """Every good record up to the end or a tear. Raises CorruptionError at damage, FormatVersionError at a newer record."""
        if self.end == self._size:
            self.last = self._seal_before_end()
        while self.end < self._size and not self.sealed:
            found = self._next()
            if found is None:
                break
            self.last = found[0]
            self.end = self.last.end
            yield found
        self._check_end()

    def _next(self) -> tuple[RecordHeader, EncodedBatch | None] | None:
        offset = self._after_padding()
        data = self._file.read(offset, RECORD_HEADER_BYTES)
        if len(data) < RECORD_HEADER_BYTES or (not any(data) and self._zeros(self.end, self._size)):
            return None
        header = unpack(data, self._what(offset), self._salt, offset)
        if header.end > self._size:
            return None
        if header.batch is None:
            return header, None
        body = self._file.read(offset + RECORD_HEADER_BYTES, header.body_length)
        return header, batch_of(header, body, self._what(offset))

    def _seal_before_end(self) -> RecordHeader | None:
        """The SEAL that ends a file of which nothing is left to scan."""
        offset = self.end - RECORD_HEADER_BYTES
        try:
            header = unpack(self._file.read(offset, RECORD_HEADER_BYTES), self._what(offset), self._salt, offset)
        except CorruptionError:
            return None
        return header if header.kind is RecordKind.SEAL else None

    def _after_padding(self) -> int:
        """The next record's offset: zeros up to an aligned one are padding if something follows there."""
        aligned = self.end + -self.end % ALIGNMENT_BYTES
        return aligned if aligned < self._size and self._zeros(self.end, aligned) else self.end

    def _zeros(self, start: int, end: int) -> bool:
        pieces = (self._file.read(at, min(MIB, end - at)) for at in range(start, end, MIB))
        return not any(piece.count(0) != len(piece) for piece in pieces)

    def _check_end(self) -> None:
        if min(self.end, self._size) < self._durable:
            problem = f"it breaks off here, though it was durable up to byte {self._durable}"
            raise CorruptionError(self._what(self.end), problem)
        if self.sealed and self.end < self._size:
            raise CorruptionError(self._what(self.end), f"bytes follow after its sealed end, up to {self._size}")

    def _what(self, offset: int) -> str:
        return f"{self._file.path} at byte {offset}"


class LogReplay:
    """One log from a mark on: first ``records``, to the end, then ``finish``."""

    def __init__(self, directory: LogDirectory, mark: LogPosition, sequences: SequenceCounter) -> None:
        directory.remove_unfinished()
        self._directory = directory
        self._mark = mark
        self._sequences = sequences
        self._ids = [file_id for file_id in directory.file_ids() if file_id >= mark.file_id]
        self._last: FileScan | None = None

    def records(self) -> Iterator[ReplayedRecord]:
        """All that says something of a ledger, from the mark on, in order. Raises CorruptionError, FormatVersionError."""
        self._check_chain()
        for file_id, successor in itertools.zip_longest(self._ids, self._ids[1:]):
            sealed = self._directory.header(successor).predecessor if successor is not None else None
            yield from self._file_records(file_id, sealed)

    def finish(self) -> Predecessor:
        """Cut, seal and sync the last file, so that all that ``records`` gave is durable. Returns the log's last file."""
        if self._last is None:
            return NO_PREDECESSOR
        file_id, scan = self._ids[-1], self._last
        path = self._directory.file_path(file_id)
        if scan.end < self._directory.disk.size(path):
            self._directory.disk.truncate(path, scan.end)
        sequence = self._seal(file_id, scan)
        self._directory.disk.sync_directory(self._directory.path)
        return Predecessor(file_id, self._directory.disk.size(path), sequence)

    def next_file_id(self, at_least: int) -> int:
        return max([at_least, *(file_id + 1 for file_id in self._directory.file_ids())])

    def _check_chain(self) -> None:
        """Every file from the mark's on is there, each after the one that it names."""
        if self._mark.file_id and self._mark.file_id not in self._ids:
            raise CorruptionError(str(self._directory.file_path(self._mark.file_id)), "it is missing")
        chain = self._ids if self._mark.file_id else [0, *self._ids]
        for before, file_id in itertools.pairwise(chain):
            named = self._directory.header(file_id).predecessor.file_id
            if named != before:
                raise CorruptionError(str(self._directory.file_path(named)), f"it is missing, file {file_id} follows it")

    def _file_records(self, file_id: int, sealed: Predecessor | None) -> Iterator[ReplayedRecord]:
        start = self._mark.offset if file_id == self._mark.file_id else FILE_HEADER_BYTES
        with self._directory.disk.open_read(self._directory.file_path(file_id)) as file:
            durable = sealed.sealed_bytes if sealed else 0
            self._last = scan = FileScan(file, self._directory.salt(file_id), start, durable)
            for header, batch in scan.records():
                self._sequences.pass_over(header.sequence)
                if batch is not None or header.note is not None:
                    yield ReplayedRecord(file_id, header, batch)
            if sealed is not None:
                self._check_sealed(scan, sealed)

    def _check_sealed(self, scan: FileScan, expected: Predecessor) -> None:
        """A file that has a successor is exactly what the successor says."""
        found = (scan.end, scan.last.sequence) if scan.last is not None and scan.sealed else None
        if found != (expected.sealed_bytes, expected.last_sequence):
            path = self._directory.file_path(expected.file_id)
            problem = f"its successor says that it was sealed at byte {expected.sealed_bytes}, it was not"
            raise CorruptionError(f"{path} at byte {scan.end}", problem)

    def _seal(self, file_id: int, scan: FileScan) -> int:
        """Sync a file of an earlier process, and seal it unless it is. Returns its last sequence."""
        file = self._directory.disk.open_append(self._directory.file_path(file_id))
        try:
            file.sync()
            if scan.last is not None and scan.sealed:
                return scan.last.sequence
            sequence = self._sequences.take()
            place = Place(self._directory.salt(file_id), file.size, file.synced)
            file.append([pack_mark(place, sequence, RecordKind.SEAL)])
            file.sync()
            return sequence
        finally:
            file.close()
