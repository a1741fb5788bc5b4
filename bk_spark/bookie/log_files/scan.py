"""Scans one log file from an offset on, and goes on behind damage.

A record counts with a right checksum, this file's salt and its own offset, so that a bookie file that a user stored as payload
is never taken for records. Where no record stands, the scan finds the next one:

- if the header is good and the body is not, the header says where the next record is;
- else it searches byte by byte for the magic with the file's salt and the offset at which it stands.

A *gap* is everything from the end of the last good record to the next good one. The scan does not decide what a gap means. It
only says whether a gap at the end of the file looks like the last, unfinished record that a power cut leaves:

- the file ends inside the record, or
- everything from the end of the last good record on is zeros, or
- the record begins as it should, and from a sector boundary inside it on there are only zeros to the end of the file.

The last case looks at whole sectors, which disks write in one piece, and these must have held something else than zeros. A
body may end in zeros itself, and its header says in how many: without that, a record with a flipped bit would pass for a torn
one because of them. At least two bytes must have become zeros, for one flip can make the last byte zero. A body with so many
trailing zeros that their number is not known never looks torn.

Worked example: records a, b, c stand one behind the other. A flipped bit in the header of b gives a, a gap from b to c, c. A
file that ends inside c gives a, b, a gap from c to its end that looks torn.

Ref: docs/rules.md, "Record header", storage rule 2, protocol rule 40.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bk_spark.bookie.disk import SECTOR_BYTES, ReadFile
from bk_spark.bookie.log_files.log_file import ALIGNMENT_BYTES, FileHeader, FileKind
from bk_spark.bookie.log_files.record import (
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

PIECE_BYTES = 64 * KIB
"""What one read fetches at least. Small records then need no read each, and large ones are not read twice."""


@dataclass(frozen=True, slots=True)
class ScannedRecord:
    header: RecordHeader
    batch: EncodedBatch | None
    """Of a BATCH whose body was verified, else None."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The bytes from ``start`` (inclusive) to ``end`` (exclusive) are no record."""

    start: int
    end: int
    problem: str
    looks_torn: bool
    """It ends the file, and may be what a power cut left of a record that was not durable."""


class LogScan:
    """One pass over a file. ``last``: the last good record so far; ``synced_through``: the highest value in a good record."""

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
            before, found = self._at, self._next()
            assert before < self._at <= self._size, "a scan goes on, and stays in the file"
            yield found

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
        """The next record's offset. Zeros up to an aligned offset are padding, unless the file ends there."""
        aligned = self._at + -self._at % ALIGNMENT_BYTES
        if not self._pads or aligned >= self._size or self._file.read(self._at, len(RECORD_MAGIC)) == RECORD_MAGIC:
            return self._at
        return aligned if self._is_zeros(self._at, aligned) else self._at

    def _gap(self, search_from: int, problem: str, looks_torn: bool) -> Gap:
        """The gap from here to the next record, which is searched for from ``search_from`` on."""
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
        """Compares the place first, for a payload may hold the magic a million times."""
        if not may_begin_record(data, self._salt, offset):
            return False
        try:
            unpack(data, self._what(offset), self._salt, offset)
        except CorruptionError:
            return False
        return True

    def _is_torn_header(self, offset: int) -> bool:
        """Whether the file ends, or only zeros follow, here or inside the header that begins at ``offset``."""
        if self._is_zeros(self._at, self._size):
            return True
        end = offset + RECORD_HEADER_BYTES
        zeros = self._zero_sectors(offset) if end <= self._size else self._size
        is_cut = zeros <= end - HEADER_CRC_BYTES or self._size < end
        return is_cut and may_begin_record(self._file.read(offset, zeros - offset), self._salt, offset)

    def _is_torn_within(self, header: RecordHeader) -> bool:
        """Whether the record ends in zero sectors that held something else."""
        content_end = header.end - header.trailing_zeros
        return header.trailing_zeros < MANY_ZEROS and self._zero_sectors(header.place.offset) < content_end - 1

    def _zero_sectors(self, offset: int) -> int:
        """Where the zero sectors at the end of the file start, its end if there are none. Looks back to ``offset`` at most."""
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
