"""Reads one log file from a place on, and goes on behind what is damaged.

A record counts with a right checksum, this file's salt and its own offset, so that a bookie file that a user stored as payload
is never taken for records. Where there is none:

- its header is good and its body is not: the next record is where the header says;
- else it is searched for, byte by byte: the magic, the salt and the offset at which it stands.

Everything from the end of the last good record to the next good one is a *gap*. What a gap means, the scan does not decide;
it says whether one at the end of the file looks as a power cut leaves the last, unfinished record:

- the file ends inside the record, or
- everything from the end of the last good record on is zeros, or
- the record begins as it should, and from the boundary of a sector inside it on there are only zeros to the end of the file.

The last is told by whole sectors, which disks write in one piece, and which must have held something else: a body may end in
zeros itself, its header says in how many, and one with a flipped bit must not pass for a torn one because of them. Nor must one
whose last byte became zero by the flip: two bytes at least must have gone. A body of which it is not known how far its zeros
reach, because they are many, never looks torn.

Worked example: records a, b, c stand one behind the other. A flipped bit in the header of b gives a, a gap from b to c, c. A
file that ends inside c gives a, b, a gap from c to its end that looks torn.

Ref: docs/rules.md, "Record header", storage rule 2, protocol rule 40.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bk_spark.bookie.disk import ReadFile
from bk_spark.bookie.logs.log_file import ALIGNMENT_BYTES, FileHeader, FileKind
from bk_spark.bookie.logs.record import (
    HEADER_CRC_BYTES,
    MANY_ZEROS,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    RecordHeader,
    RecordKind,
    batch_of,
    may_begin_record,
    unpack,
)
from bk_spark.config import KIB
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import CorruptionError

SECTOR_BYTES = 512
"""The least that a disk writes in one piece."""

PIECE_BYTES = 64 * KIB
"""Read from the file at a time at least: small records need no call each, and large ones are not read twice."""


@dataclass(frozen=True, slots=True)
class ScannedRecord:
    header: RecordHeader
    batch: EncodedBatch | None
    """What a BATCH holds; None for the other kinds, and where bodies are not verified."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The bytes from ``start`` to before ``end`` are no record."""

    start: int
    end: int
    problem: str
    looks_torn: bool
    """Nothing follows, and it may be what a power cut left of a record that was not durable."""


class LogScan:
    """One pass over a file. ``last`` is the last good record; ``synced_through`` the highest that a good record states."""

    def __init__(self, file: ReadFile, header: FileHeader, start: int, size: int, *, verify_bodies: bool = True) -> None:
        """Reads up to before ``size``. ``start`` is the offset of a record, or the end of the last."""
        self.last: RecordHeader | None = None
        self.synced_through = 0
        self._file = _PieceReader(file, size)
        self._name = file.path
        self._salt = header.salt
        self._pads = header.kind is not FileKind.JOURNAL
        self._at = start
        self._size = size
        self._verify_bodies = verify_bodies

    def items(self) -> Iterator[ScannedRecord | Gap]:
        """Every good record and every gap, in order. Raises FormatVersionError at a newer record, StorageError."""
        while self._at < self._size:
            yield self._next()

    def seal_before(self, offset: int) -> RecordHeader | None:
        """The SEAL that ends at ``offset``, if there is one."""
        start = offset - RECORD_HEADER_BYTES
        try:
            header = self._header(start)
        except CorruptionError:
            return None
        return header if header.kind is RecordKind.SEAL else None

    def _next(self) -> ScannedRecord | Gap:
        offset = self._after_padding()
        try:
            header = self._header(offset)
        except CorruptionError as problem:
            return self._gap(self._at + 1, problem.problem, self._is_torn_header(offset))
        if header.end > self._size:
            return self._gap(offset + RECORD_HEADER_BYTES, "the file ends inside a record", looks_torn=True)
        batch = None
        if header.batch is not None and self._verify_bodies:
            try:
                batch = batch_of(header, self._file.read(offset + RECORD_HEADER_BYTES, header.body_length), self._what(offset))
            except CorruptionError as problem:
                return self._gap(header.end, problem.problem, self._is_torn_within(header))
        self._at = header.end
        self.last = header
        self.synced_through = max(self.synced_through, header.place.synced_through)
        return ScannedRecord(header, batch)

    def _header(self, offset: int) -> RecordHeader:
        return unpack(self._file.read(offset, RECORD_HEADER_BYTES), self._what(offset), self._salt, offset)

    def _after_padding(self) -> int:
        """The next record's offset: zeros up to an aligned one are padding if something follows there."""
        aligned = self._at + -self._at % ALIGNMENT_BYTES
        if not self._pads or aligned >= self._size or self._file.read(self._at, len(RECORD_MAGIC)) == RECORD_MAGIC:
            return self._at
        return aligned if self._is_zeros(self._at, aligned) else self._at

    def _gap(self, search_from: int, problem: str, looks_torn: bool) -> Gap:
        """The gap from here to the next record, which starts at ``search_from`` at the earliest."""
        found = self._search(search_from)
        start, self._at = self._at, self._size if found is None else found
        return Gap(start, self._at, problem, looks_torn and found is None)

    def _search(self, offset: int) -> int | None:
        """The offset of the first header of this file at or after ``offset``."""
        while offset < self._size:
            piece = self._file.read(offset, PIECE_BYTES + RECORD_HEADER_BYTES - 1)
            at = piece.find(RECORD_MAGIC)
            while at >= 0:
                if self._is_header(piece[at : at + RECORD_HEADER_BYTES], offset + at):
                    return offset + at
                at = piece.find(RECORD_MAGIC, at + 1)
            offset += PIECE_BYTES
        return None

    def _is_header(self, data: bytes, offset: int) -> bool:
        """The place is compared first: a payload may hold the magic a million times."""
        if not may_begin_record(data, self._salt, offset):
            return False
        try:
            unpack(data, self._what(offset), self._salt, offset)
        except CorruptionError:
            return False
        return True

    def _is_torn_header(self, offset: int) -> bool:
        """Whether nothing or the beginning of a header stands here, and then the file ends or only zeros follow."""
        if self._is_zeros(self._at, self._size):
            return True
        end = offset + RECORD_HEADER_BYTES
        zeros = self._zero_sectors(offset) if end <= self._size else self._size
        is_cut = zeros <= end - HEADER_CRC_BYTES or self._size < end
        return is_cut and may_begin_record(self._file.read(offset, zeros - offset), self._salt, offset)

    def _is_torn_within(self, header: RecordHeader) -> bool:
        """Whether zeros stand in the place of something else at the end of a record."""
        content_end = header.end - header.trailing_zeros
        return header.trailing_zeros < MANY_ZEROS and self._zero_sectors(header.place.offset) < content_end - 1

    def _zero_sectors(self, offset: int) -> int:
        """Where the whole sectors of zeros begin that reach to the end of the file; its end if there are none."""
        end = self._size
        while end > offset:
            start = max(offset, end - PIECE_BYTES)
            kept = len(self._file.read(start, end - start).rstrip(b"\0"))
            if kept:
                end = start + kept
                break
            end = start
        return min(end + -end % SECTOR_BYTES, self._size)

    def _is_zeros(self, start: int, end: int) -> bool:
        pieces = (self._file.read(at, min(PIECE_BYTES, end - at)) for at in range(start, end, PIECE_BYTES))
        return not any(piece.count(0) != len(piece) for piece in pieces)

    def _what(self, offset: int) -> str:
        return f"{self._name} at byte {offset}"


class _PieceReader:
    """The bytes of a file up to ``size``, read in large pieces."""

    def __init__(self, file: ReadFile, size: int) -> None:
        self._file = file
        self._size = size
        self._start = 0
        self._piece = b""

    def read(self, offset: int, count: int) -> bytes:
        """Fewer bytes than ``count`` only at the end."""
        count = min(count, self._size - offset)
        if not self._start <= offset <= offset + count <= self._start + len(self._piece):
            self._start, self._piece = offset, self._file.read(offset, min(max(count, PIECE_BYTES), self._size - offset))
        return self._piece[offset - self._start : offset - self._start + count]
