"""Reads, scans and deletes entry log files, in whatever directory they are. For any thread.

Files stay open for a while, for opening one for each record cost more than reading it. The last reader of a deleted file closes
it, so that its space becomes free. If a file is gone, MissingLogError is raised, never "not found": compaction may have moved
the record, and a second look-up finds the new place.

Ref: docs/rules.md, storage rule 5, protocol rule 39.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.disk import ReadFile
from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES, FileHeader, LogDirectory
from bk_spark.bookie.log_files.record import RECORD_HEADER_BYTES, RecordHeader, batch_of, unpack
from bk_spark.bookie.log_files.replay import Damage
from bk_spark.bookie.log_files.scan import Gap, LogScan
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import CorruptionError, MissingLogError

MAX_OPEN_FILES = 128
"""Enough for 128 GiB of entry logs, and far below the usual limit of 1024 descriptors, which connections need too."""


@dataclass(slots=True)
class _OpenFile:
    file: ReadFile
    header: FileHeader
    users: int = 0
    is_dropped: bool = False
    """Its last user closes it."""


class EntryLogFiles:
    """All entry logs of a bookie, direct ones and copies."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self._directories = directories
        self._lock = threading.Lock()
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()

    def path_of(self, file_id: int) -> Path | None:
        """None if the file is gone."""
        directory = self._directory_of(file_id)
        return None if directory is None else directory.file_path(file_id)

    def size_of(self, file_id: int) -> int:
        """Bytes of a file that are durable. Raises MissingLogError, StorageError."""
        directory = self._existing_directory_of(file_id)
        writing = directory.written.get(file_id)
        return writing.synced if writing is not None else directory.disk.size(directory.file_path(file_id))

    def read(self, location: EntryLocation) -> tuple[RecordHeader, EncodedBatch]:
        """The durable record at ``location``, its checksums verified. Never "not found".

        Raises CorruptionError, MissingLogError (look the batch up again), StorageError.
        """
        with self._reading(location.file_id) as opened:
            what, file = f"{opened.file.path} at byte {location.offset}", opened.file
            header = unpack(file.read(location.offset, RECORD_HEADER_BYTES), what, opened.header.salt, location.offset)
            if RECORD_HEADER_BYTES + header.body_length != location.length:
                raise CorruptionError(what, f"the record has another length than the index says ({location.length} bytes)")
            body = file.read(location.offset + RECORD_HEADER_BYTES, header.body_length)
        return header, batch_of(header, body, what)

    def scan(self, file_id: int, *, verify_bodies: bool = True) -> Iterator[tuple[EntryLocation, RecordHeader | Damage]]:
        """Every record of a file and every damaged stretch, in order, as far as the file is durable.

        Checksums are verified; without ``verify_bodies`` only those of the headers. Raises FormatVersionError,
        MissingLogError, StorageError, and CorruptionError if the file's own header is damaged.
        """
        size = self.size_of(file_id)
        with self._reading(file_id) as opened:
            scan = LogScan(opened.file, opened.header, FILE_HEADER_BYTES, size, verify_bodies=verify_bodies)
            for item in scan.items():
                if isinstance(item, Gap):
                    damage = Damage(opened.file.path, item.start, item.end, item.problem, is_below_durable=True)
                    yield EntryLocation(file_id, item.start, item.end - item.start), damage
                else:
                    start, end = item.header.place.offset, item.header.end
                    yield EntryLocation(file_id, start, end - start), item.header

    def delete(self, file_id: int) -> None:
        """Delete a file, durably. The index must know it as DEAD. Reads under way can go on. Does nothing if it is gone."""
        with self._lock:
            directory = self._directory_of(file_id)
            if directory is not None:
                assert file_id not in directory.written, "nobody appends to a file that is deleted"
                directory.delete(file_id)
            self._drop(file_id)
        if directory is not None:
            directory.disk.sync_directory(directory.path)

    def close(self) -> None:
        with self._lock:
            for file_id in list(self._open):
                self._drop(file_id)

    def _directory_of(self, file_id: int) -> LogDirectory | None:
        return next((one for one in self._directories if one.disk.exists(one.file_path(file_id))), None)

    def _existing_directory_of(self, file_id: int) -> LogDirectory:
        directory = self._directory_of(file_id)
        if directory is None:
            raise MissingLogError(f"reading entry log {file_id}", "no directory has its file any more")
        return directory

    @contextmanager
    def _reading(self, file_id: int) -> Iterator[_OpenFile]:
        with self._lock:
            opened = self._open.get(file_id) or self._opened(file_id)
            self._open.move_to_end(file_id)
            opened.users += 1
        try:
            yield opened
        finally:
            with self._lock:
                opened.users -= 1
                _close_unused(opened)

    def _opened(self, file_id: int) -> _OpenFile:
        """Called under the lock: a deletion comes before or after it, and never leaves an open file behind."""
        directory = self._existing_directory_of(file_id)
        file = directory.disk.open_read(directory.file_path(file_id))
        try:
            header = directory.verified_header(file_id, file.read(0, FILE_HEADER_BYTES))
        except BaseException:
            file.close()
            raise
        if len(self._open) >= MAX_OPEN_FILES:
            self._drop(next(iter(self._open)))
        self._open[file_id] = opened = _OpenFile(file, header)
        assert len(self._open) <= MAX_OPEN_FILES
        return opened

    def _drop(self, file_id: int) -> None:
        opened = self._open.pop(file_id, None)
        if opened is not None:
            opened.is_dropped = True
            _close_unused(opened)


def _close_unused(opened: _OpenFile) -> None:
    assert opened.users >= 0
    if opened.is_dropped and not opened.users:
        opened.file.close()
