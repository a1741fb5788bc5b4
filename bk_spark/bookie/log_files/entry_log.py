"""Writes the entry logs, where batches stay for good. ``entry_log_files.py`` reads them.

Many ledgers share an entry log file. There are two kinds:

- *Direct* entry logs take large adds as they arrive, durable with the next sync. A start scans them from the mark on.
- *Copies* are written by checkpoints and by compaction. Each record also stands elsewhere until an index transaction has made
  the copy count, so a start does not scan them: it deletes or cuts off what the index does not know (``settle_copies``).

In both, records of large batches start on 4 KiB boundaries. The ledger id chooses the directory, among the writable ones.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, "Order of syncs", storage rule 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bk_spark.bookie.log_files.log_file import FileHeader, FileKind, LogDirectory, LogFile
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogState
from bk_spark.bookie.log_files.writer import UNCHAINED_SEQUENCE, EntryLocation, RecordWriter, WriterSettings, end_file
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import CorruptionError


class WritableDirectories:
    """Which entry log directories take new records. One thread sets them, the writing threads read them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._ordinals = tuple(range(count))

    def set(self, ordinals: Sequence[int]) -> None:
        """An empty list changes nothing: fences and recovery adds must go somewhere."""
        if ordinals:
            assert 0 <= min(ordinals) <= max(ordinals) < self._count
            self._ordinals = tuple(sorted(set(ordinals)))

    def of_ledger(self, ledger_id: int) -> int:
        ordinals = self._ordinals
        return ordinals[ledger_id % len(ordinals)]


class Copies:
    """The files of copies for one purpose. Used by one thread at a time, never by the one that closes the log files."""

    def __init__(self, directories: Sequence[LogDirectory], settings: WriterSettings, writable: WritableDirectories) -> None:
        self._writers = [RecordWriter(replace(one, kind=FileKind.COPIES), settings, None) for one in directories]
        self._writable = writable

    def append(self, batch: EncodedBatch, master_key_hash: bytes, sequence: int) -> EntryLocation:
        """Append a copy with the ``sequence`` of the original. Durable and readable after the next ``sync``."""
        writer = self._writers[self._writable.of_ledger(batch.header.ledger_id)]
        return writer.append(batch, master_key_hash, sequence)

    def sync(self) -> None:
        """Make all that was appended durable, with the names of the files."""
        sync_writers(self._writers)

    def files(self) -> tuple[LogFile, ...]:
        """What the index must store, after ``sync``: the open files, and the sealed ones that it does not know as sealed."""
        return tuple(file for writer in self._writers for file in writer.files())

    def committed(self, files: Sequence[LogFile]) -> None:
        """The index has stored ``files``."""
        forget_sealed(self._writers, files)

    def seal(self) -> None:
        """Sync and seal the open files. The next append begins new ones."""
        for writer in self._writers:
            writer.seal()

    def close(self) -> None:
        """Close all files as they are on the disk, also those that the index does not know."""
        for writer in self._writers:
            writer.close()
        self.committed(self.files())


def sync_writers(writers: Sequence[RecordWriter]) -> None:
    """Make all that was appended durable. Raises StorageError, and from then on again for every file that failed."""
    dirty = [writer for writer in writers if writer.dirty_file is not None]
    for writer in dirty:
        writer.write()
    writers[0].directory.disk.sync_all([file for writer in dirty if (file := writer.dirty_file) is not None])
    assert all(writer.dirty_file is None for writer in dirty), "what failed has raised"


def forget_sealed(writers: Sequence[RecordWriter], files: Sequence[LogFile]) -> None:
    for file in files:
        if file.is_sealed:
            writers[file.directory].committed(file.file_id)


def settle_copies(directory: LogDirectory, known: Mapping[int, KnownEntryLog], *, keeps_all: bool) -> list[LogFile]:
    """Settle the copies that a former process left in one directory. Returns the files that it sealed, for the index.

    A copy counts once an index transaction refers to it, and that transaction names the file with its size. So:

    - A file that the index does not know holds nothing that counts: its records stand elsewhere. It is deleted, and deleted
      again by the next start if a crash takes the deletion back.
    - A file that was still open is cut to the size that the index knows, and sealed.
    - Sealed and dead files are left alone.

    ``keeps_all`` means that the index may have replaced a lost one: it was never written to and knows no file, or it is a
    restored older one, which starts in limbo and does not know all files or their full sizes. Then nothing is deleted or cut,
    for these files may hold the only copies. The first start after the limbo removes what is superfluous.

    Ref: docs/rules.md, storage rules 5, 7 and 13, protocol rule 43.
    """
    settled = list(_settled(directory, known, keeps_all))
    unknown = [] if keeps_all else [file_id for file_id in directory.file_ids() if file_id not in known]
    for file_id in unknown:
        header = _header(directory, file_id)
        if header is not None and header.kind is FileKind.COPIES:
            directory.delete(file_id)
    return settled


def _settled(directory: LogDirectory, known: Mapping[int, KnownEntryLog], keeps_all: bool) -> Iterator[LogFile]:
    for file_id in directory.file_ids():
        known_log = known.get(file_id)
        if known_log is None or known_log.state is not LogState.OPEN:
            continue
        header = _header(directory, file_id)
        if header is None or header.kind is FileKind.COPIES:
            path = directory.file_path(file_id)
            size = directory.disk.size(path)
            if header is not None and size >= known_log.total_bytes:  # a file that lost durable bytes stays as it is
                if size > known_log.total_bytes and not keeps_all:
                    directory.disk.truncate(path, known_log.total_bytes)
                size = end_file(directory.disk, path, header.salt, UNCHAINED_SEQUENCE)
            yield LogFile(file_id, directory.ordinal, size, is_sealed=True)


def _header(directory: LogDirectory, file_id: int) -> FileHeader | None:
    """None if it is damaged. Such a file stays as it is, and reads of it fail."""
    try:
        return directory.header(file_id)
    except CorruptionError:
        return None
