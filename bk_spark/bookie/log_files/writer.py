"""Appends records to one kind of log file in one directory: to one open file, until that is full and the next one begins.

A record is durable after the next ``sync``. Before a new file takes a record, the file before it was sealed and synced, and the
header and name of the new one were synced (docs/rules.md, "Order of syncs"). Bodies are never copied: the writer keeps
references to them until one writev takes them all.

Ref: docs/formats.md, "Files of a bookie".
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.disk import AppendFile, Disk
from bk_spark.bookie.log_files.log_file import (
    ALIGNMENT_BYTES,
    FILE_HEADER_BYTES,
    NO_PREDECESSOR,
    FileHeader,
    FilePosition,
    LogDirectory,
    LogFile,
    Predecessor,
    pack_file_header,
)
from bk_spark.bookie.log_files.record import (
    RECORD_HEADER_BYTES,
    LedgerNote,
    Place,
    RecordKind,
    pack_batch,
    pack_mark,
    pack_note,
)
from bk_spark.config import MIB
from bk_spark.entries.batch import EncodedBatch

MAX_PENDING_BYTES = MIB
"""So many bytes wait for a write at most. More per writev gain nothing, and the disk may as well begin."""

MAX_PENDING_BUFFERS = 1000
"""As many as one writev takes, with room for a record and its padding."""

UNCHAINED_SEQUENCE = 0
"""The sequence of a SEAL in copies, which follow no other file: only the sync thread may use the counter."""


class FileIds:
    """Gives out file ids, each one once, to any thread: writers of copies run on threads of their own."""

    def __init__(self, next_id: int) -> None:
        self._next_id = next_id
        self._lock = threading.Lock()

    @property
    def next_id(self) -> int:
        """No file has this id or a higher one."""
        with self._lock:
            return self._next_id

    def take(self) -> int:
        with self._lock:
            taken = self._next_id
            self._next_id += 1
            return taken


@dataclass(slots=True)
class SequenceCounter:
    """Numbers the records of all log files of a bookie. Only the sync thread uses it."""

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
    """Where a record stands in an entry log. ``length`` counts the bytes of header and body."""

    file_id: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What the writers of one kind of log files share."""

    maximum_bytes: int
    """No file becomes larger, unless a single record is."""
    aligned_from_bytes: int
    """Records with bodies from this size on start on an aligned offset."""
    file_ids: FileIds


class RecordWriter:
    """Appends to the journal or entry log of one directory. Used by one thread at a time."""

    def __init__(
        self,
        directory: LogDirectory,
        settings: WriterSettings,
        sequences: SequenceCounter | None,
        predecessor: Predecessor = NO_PREDECESSOR,
    ) -> None:
        """``sequences`` numbers IDLE and SEAL records; without it the files are not chained (COPIES).

        If the predecessor's end is lost, a new file is begun at once, so that the next mark lies behind the loss.
        """
        self.appended_bytes = 0
        """By this process, file headers not included."""
        self.directory = directory
        self.settings = settings
        self._sequences = sequences
        self._predecessor = predecessor
        self._file: AppendFile | None = None
        self._file_id = 0
        self._salt = 0
        self._end = 0
        self._pending: list[bytes | memoryview] = []
        self._pending_bytes = 0
        self._idle_wanted = False
        self._sealed: dict[int, LogFile] = {}
        if predecessor.is_lost:
            self._begin_file()

    @property
    def position(self) -> FilePosition:
        """The end of all that was appended."""
        if self._file is None:
            return FilePosition(self._predecessor.file_id, self._predecessor.sealed_bytes)
        return FilePosition(self._file_id, self._end)

    @property
    def durable(self) -> tuple[int, int]:
        """The newest file, and the end of what is synced of it. Asked for at each group commit."""
        if self._file is None:
            return self._predecessor.file_id, self._predecessor.sealed_bytes
        return self._file_id, self._file.synced

    @property
    def dirty_file(self) -> AppendFile | None:
        """The open file, if not all of it is synced, or if a write or sync of it failed."""
        file = self._file
        return file if file is not None and (self._pending or file.is_dirty) else None

    def files(self) -> tuple[LogFile, ...]:
        """The sealed files that are not ``committed`` yet, and the open file."""
        sealed, file = tuple(self._sealed.values()), self._file
        return sealed if file is None else (*sealed, LogFile(self._file_id, self.directory.ordinal, file.synced, False))

    def committed(self, file_id: int) -> None:
        """The index has stored that this file is sealed. Any thread may call it."""
        self._sealed.pop(file_id, None)

    def append(self, batch: EncodedBatch, master_key_hash: bytes, sequence: int) -> EntryLocation:
        """Durable after the next ``sync``."""
        length = RECORD_HEADER_BYTES + len(batch.body)
        file = self._room_for(length)
        assert self._sequences is None or 0 < sequence < self._sequences.next_sequence, "the counter gave the sequence out"
        if len(batch.body) >= self.settings.aligned_from_bytes:
            self._push(bytes(-self._end % ALIGNMENT_BYTES))
        place = self._place(file)
        self._push(pack_batch(place, sequence, batch, master_key_hash))
        self._push(batch.body)
        assert self._end == place.offset + length
        self._appended()
        return EntryLocation(self._file_id, place.offset, length)

    def append_note(self, note: LedgerNote, master_key_hash: bytes, sequence: int) -> None:
        """Durable after the next ``sync``."""
        file = self._room_for(RECORD_HEADER_BYTES)
        self._push(pack_note(self._place(file), sequence, note, master_key_hash))
        self._appended()

    def write(self) -> None:
        """Hand all that was appended to the operating system. After that only a crash of the machine can lose it."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if not pending:
            return
        assert self._file is not None
        self._file.append(pending)
        assert self._file.size == self._end, "every record stands at the offset that its header names"

    def sync(self) -> None:
        """Make all that was appended durable."""
        if self._file is not None:
            self.write()
            self._file.sync()
            assert self._file.synced == self._end

    def idle(self) -> None:
        """Append an IDLE record, durably, if the file got something since its last one. Everything must be synced."""
        if self._idle_wanted and self._file is not None:
            self._idle_wanted = False
            self._push_mark(self._file, RecordKind.IDLE)
            self.sync()

    def seal(self) -> None:
        """Sync and seal the open file, if there is one. The next append begins a new one."""
        file = self._file
        if file is None:
            return
        self.sync()
        sequence = self._push_mark(file, RecordKind.SEAL)
        self.sync()
        assert self._file_id not in self._sealed
        self._sealed[self._file_id] = LogFile(self._file_id, self.directory.ordinal, file.synced, is_sealed=True)
        if self._sequences is not None:
            self._predecessor = Predecessor(self._file_id, file.size, sequence)
        self.close()

    def close(self) -> None:
        """Close the open file as it is on the disk. What was not written is dropped."""
        self._pending, self._pending_bytes = [], 0
        if self._file is not None:
            self.directory.written.pop(self._file_id, None)
            self._file.close()
            self._file = None

    def _room_for(self, length: int) -> AppendFile:
        is_full = self._end > FILE_HEADER_BYTES and self._end + length > self.settings.maximum_bytes
        if self._file is not None and is_full:
            self.seal()
        return self._file or self._begin_file()

    def _begin_file(self) -> AppendFile:
        """If this raises NotOpenedError, nothing has changed but the next file's id."""
        assert self._file is None
        assert not self._pending, "all that was appended is in the file before"
        directory = self.directory
        salt = int.from_bytes(directory.disk.random_bytes(8), "little")
        file_id = self.settings.file_ids.take()
        assert file_id > self._file_id, "the ids of a directory's files ascend"
        header = FileHeader(directory.kind, file_id, salt, self._predecessor, directory.bookie_id)
        file = directory.disk.create(directory.file_path(file_id), pack_file_header(header))
        directory.written[file_id] = file
        self._file, self._file_id, self._salt, self._end = file, file_id, salt, file.size
        return file

    def _push_mark(self, file: AppendFile, kind: RecordKind) -> int:
        sequence = UNCHAINED_SEQUENCE if self._sequences is None else self._sequences.take()
        self._push(pack_mark(self._place(file), sequence, kind))
        return sequence

    def _place(self, file: AppendFile) -> Place:
        """That of the next record."""
        assert self._end >= FILE_HEADER_BYTES, "a file's header is not a record's place"
        assert file.synced <= self._end
        return Place(self._salt, self._end, file.synced)

    def _push(self, data: bytes | memoryview) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)
        self._end += len(data)
        self.appended_bytes += len(data)

    def _appended(self) -> None:
        self._idle_wanted = True
        if self._pending_bytes >= MAX_PENDING_BYTES or len(self._pending) >= MAX_PENDING_BUFFERS:
            self.write()


def end_file(disk: Disk, path: Path, salt: int, sequence: int | None) -> int:
    """Sync a file of a former process, and seal it with ``sequence``, or not if that is None. Returns the file's size."""
    file = disk.open_append(path)
    try:
        file.sync()
        if sequence is not None:
            file.append([pack_mark(Place(salt, file.size, file.synced), sequence, RecordKind.SEAL)])
            file.sync()
        return file.size
    finally:
        file.close()
