"""Appends records to the files of one kind: one open file, rolled by size.

A record is durable after the next ``sync``. Before a record goes into a new file, the old file was sealed and synced, and
the new file's header and name were (docs/rules.md, "Order of syncs"). Bodies are never copied: they wait by reference
for one writev.

Ref: docs/formats.md, "Files of a bookie".
"""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.bookie.disk import AppendFile
from bk_spark.bookie.log_file import (
    ALIGNMENT_BYTES,
    FILE_HEADER_BYTES,
    FileHeader,
    LogDirectory,
    LogPosition,
    Predecessor,
    pack_file_header,
)
from bk_spark.bookie.record import RECORD_HEADER_BYTES, LedgerNote, Place, RecordKind, pack_batch, pack_mark, pack_note
from bk_spark.config import MIB
from bk_spark.entry import EncodedBatch

MAX_PENDING_BYTES = MIB
"""Records that wait for a write. More per writev gains nothing, and the disk may as well begin."""

MAX_PENDING_BUFFERS = 1000
"""As many as one writev takes, with room for a record and its padding."""


@dataclass(slots=True)
class SequenceCounter:
    """The numbers of records, for all files of a bookie."""

    next_sequence: int

    def take(self) -> int:
        taken = self.next_sequence
        self.next_sequence += 1
        return taken

    def pass_over(self, sequence: int) -> None:
        """Never give out ``sequence`` or a lower one."""
        self.next_sequence = max(self.next_sequence, sequence + 1)


@dataclass(frozen=True, slots=True)
class EntryLocation:
    """Where a record stands: header and body, ``length`` bytes."""

    file_id: int
    offset: int
    length: int


class LogWriter:
    """The end of a log. Used by the sync thread alone."""

    def __init__(
        self,
        directory: LogDirectory,
        maximum_bytes: int,
        sequences: SequenceCounter,
        next_file_id: int,
        predecessor: Predecessor,
        aligned_from_bytes: int,
    ) -> None:
        self.next_file_id = next_file_id
        self.appended_bytes = 0
        self._directory = directory
        self._maximum_bytes = maximum_bytes
        self._sequences = sequences
        self._predecessor = predecessor
        self._aligned_from_bytes = aligned_from_bytes
        self._file: AppendFile | None = None
        self._salt = 0
        self._end = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._idle_wanted = False

    @property
    def position(self) -> LogPosition:
        """The end of all that was appended."""
        if self._file is None:
            return self._predecessor.end
        return LogPosition(self.next_file_id - 1, self._end)

    def append(self, batch: EncodedBatch, master_key_hash: bytes, sequence: int) -> EntryLocation:
        """Durable after the next ``sync``. Bodies from ``aligned_from_bytes`` on start on an aligned offset."""
        length = RECORD_HEADER_BYTES + len(batch.body)
        file = self._room_for(length)
        if len(batch.body) >= self._aligned_from_bytes:
            self._push(bytes(-self._end % ALIGNMENT_BYTES))
        place = Place(self._salt, self._end, file.synced)
        self._push(pack_batch(place, sequence, batch, master_key_hash))
        self._push(batch.body)
        self._appended()
        return EntryLocation(self.next_file_id - 1, place.offset, length)

    def append_note(self, note: LedgerNote, master_key_hash: bytes, sequence: int) -> None:
        """Durable after the next ``sync``."""
        file = self._room_for(RECORD_HEADER_BYTES)
        self._push(pack_note(Place(self._salt, self._end, file.synced), sequence, note, master_key_hash))
        self._appended()

    def write(self) -> None:
        """Hand all that was appended to the operating system: from here on only the machine can lose it."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if pending and self._file is not None:
            self._file.append(pending)

    def sync(self) -> None:
        """Make all that was appended durable."""
        if self._file is not None:
            self.write()
            self._file.sync()

    def idle(self) -> None:
        """After a sync with nothing to do: say once, durably, that the end of the file is durable."""
        if self._idle_wanted and self._file is not None:
            self._idle_wanted = False
            self._push_mark(self._file, RecordKind.IDLE)
            self.sync()

    def seal(self) -> None:
        """Sync and end the open file, if there is one; the next append begins a new one."""
        file = self._file
        if file is None:
            return
        self.sync()
        sequence = self._push_mark(file, RecordKind.SEAL)
        self.sync()
        self._predecessor = Predecessor(self.next_file_id - 1, file.size, sequence)
        self.close()

    def close(self) -> None:
        """Let go of the file as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _room_for(self, length: int) -> AppendFile:
        if self._file is not None and self._end > FILE_HEADER_BYTES and self._end + length > self._maximum_bytes:
            self.seal()
        return self._file or self._begin_file()

    def _begin_file(self) -> AppendFile:
        directory = self._directory
        self._salt = int.from_bytes(directory.disk.random_bytes(8), "little")
        header = FileHeader(directory.kind, self.next_file_id, self._salt, self._predecessor, directory.bookie_id)
        file = directory.disk.create(directory.file_path(self.next_file_id), pack_file_header(header))
        self.next_file_id += 1
        self._file, self._end = file, file.size
        return file

    def _push_mark(self, file: AppendFile, kind: RecordKind) -> int:
        sequence = self._sequences.take()
        self._push(pack_mark(Place(self._salt, self._end, file.synced), sequence, kind))
        return sequence

    def _push(self, data: bytes) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)
        self._end += len(data)
        self.appended_bytes += len(data)

    def _appended(self) -> None:
        self._idle_wanted = True
        if self._pending_bytes >= MAX_PENDING_BYTES or len(self._pending) >= MAX_PENDING_BUFFERS:
            self.write()
