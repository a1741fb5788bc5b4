"""Appends records to the files of one kind in one directory: one open file, rolled by size.

A record is durable after the next ``sync``. Before a record goes into a new file, the old file was sealed and synced, and
the new file's header and name were (docs/rules.md, "Order of syncs"). Bodies are never copied: they wait by reference
for one writev.

``threading`` is here, against the import table, for the lock around the counter of file ids: the writers of copies run on
threads of their own and take ids from the same one.

Ref: docs/formats.md, "Files of a bookie".
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from bk_spark.bookie.disk import AppendFile
from bk_spark.bookie.logs.log_file import (
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
from bk_spark.bookie.logs.record import RECORD_HEADER_BYTES, LedgerNote, Place, RecordKind, pack_batch, pack_mark, pack_note
from bk_spark.config import MIB
from bk_spark.entries.batch import EncodedBatch

MAX_PENDING_BYTES = MIB
"""Records that wait for a write. More per writev gains nothing, and the disk may as well begin."""

MAX_PENDING_BUFFERS = 1000
"""As many as one writev takes, with room for a record and its padding."""


UNCHAINED_SEQUENCE = 0
"""The sequence of a SEAL in a file that follows no other: the counter is the sync thread's."""


class FileIds:
    """The ids of files, each given out once, to any thread."""

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
    """The numbers of records, for all files of a bookie. Used by the sync thread alone."""

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


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Sizes in bytes."""

    maximum_bytes: int
    """A file is rolled before it would become larger, unless one record alone is."""
    aligned_from_bytes: int
    """Bodies from this size on start on an aligned offset."""


class RecordWriter:
    """The end of a log. Used by one thread at a time."""

    def __init__(
        self,
        directory: LogDirectory,
        settings: WriterSettings,
        file_ids: FileIds,
        sequences: SequenceCounter | None,
        predecessor: Predecessor = NO_PREDECESSOR,
    ) -> None:
        """``sequences`` counts the records that stand for nothing else; without it the files are not chained (COPIES).

        Behind a predecessor whose end is lost a file is begun at once, so that the next mark passes over the loss.
        """
        self.appended_bytes = 0
        """By this process, headers of files not included."""
        self._directory = directory
        self._settings = settings
        self._file_ids = file_ids
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
            return self._predecessor.end
        return FilePosition(self._file_id, self._end)

    @property
    def dirty_file(self) -> AppendFile | None:
        """The open file if something of it is still to be synced, written or not, or can never be."""
        file = self._file
        return file if file is not None and (self._pending or file.is_dirty) else None

    def files(self) -> tuple[LogFile, ...]:
        """The open file, and those sealed that were not ``committed`` yet."""
        opened = () if self._file is None else (self._log_file(self._file, is_sealed=False),)
        return (*tuple(self._sealed.values()), *opened)

    def committed(self, file_id: int) -> None:
        """The index knows that this file is sealed. To be called by any thread."""
        self._sealed.pop(file_id, None)

    def append(self, batch: EncodedBatch, master_key_hash: bytes, sequence: int) -> EntryLocation:
        """Durable after the next ``sync``."""
        length = RECORD_HEADER_BYTES + len(batch.body)
        file = self._room_for(length)
        if len(batch.body) >= self._settings.aligned_from_bytes:
            self._push(bytes(-self._end % ALIGNMENT_BYTES))
        place = Place(self._salt, self._end, file.synced)
        self._push(pack_batch(place, sequence, batch, master_key_hash))
        self._push(batch.body)
        self._appended()
        return EntryLocation(self._file_id, place.offset, length)

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
        self._sealed[self._file_id] = self._log_file(file, is_sealed=True)
        if self._sequences is not None:
            self._predecessor = Predecessor(self._file_id, file.size, sequence)
        self.close()

    def close(self) -> None:
        """Let go of the open file as it is on the disk; what was not written is dropped."""
        self._pending, self._pending_bytes = [], 0
        if self._file is not None:
            self._directory.written.pop(self._file_id, None)
            self._file.close()
            self._file = None

    def _room_for(self, length: int) -> AppendFile:
        is_full = self._end > FILE_HEADER_BYTES and self._end + length > self._settings.maximum_bytes
        if self._file is not None and is_full:
            self.seal()
        return self._file or self._begin_file()

    def _begin_file(self) -> AppendFile:
        directory = self._directory
        self._salt = int.from_bytes(directory.disk.random_bytes(8), "little")
        self._file_id = self._file_ids.take()
        header = FileHeader(directory.kind, self._file_id, self._salt, self._predecessor, directory.bookie_id)
        file = directory.disk.create(directory.file_path(self._file_id), pack_file_header(header))
        directory.written[self._file_id] = file
        self._file, self._end = file, file.size
        return file

    def _log_file(self, file: AppendFile, *, is_sealed: bool) -> LogFile:
        return LogFile(self._file_id, self._directory.ordinal, file.synced, is_sealed)

    def _push_mark(self, file: AppendFile, kind: RecordKind) -> int:
        sequence = UNCHAINED_SEQUENCE if self._sequences is None else self._sequences.take()
        self._push(pack_mark(Place(self._salt, self._end, file.synced), sequence, kind))
        return sequence

    def _push(self, data: bytes | memoryview) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)
        self._end += len(data)
        self.appended_bytes += len(data)

    def _appended(self) -> None:
        self._idle_wanted = True
        if self._pending_bytes >= MAX_PENDING_BYTES or len(self._pending) >= MAX_PENDING_BUFFERS:
            self.write()
