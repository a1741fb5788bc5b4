"""The entry logs: where batches stay. This is the side that writes them; entry_log_files.py reads them.

Two kinds of files, which many ledgers share. *Direct* ones take large adds as they come, durable with the next sync, and
are scanned at the start from the mark on. *Copies* are written by checkpoints and by compaction: every record stands
elsewhere too until an index transaction has made the copy count, so they are not scanned; what the index does not know of
them is cut off. Records of large batches start on 4 KiB boundaries in both.

A ledger goes to the directory that its id chooses among those that may be written to.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, "Order of syncs", storage rule 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.log_file import FileKind, LogDirectory, LogFile
from bk_spark.bookie.log_writer import EntryLocation, FileIds, LogWriter, WriterSettings
from bk_spark.entry import EncodedBatch


class WritableDirectories:
    """Which entry log directories take new records. Set by one thread, asked by those that write."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._ordinals = tuple(range(count))

    def set(self, ordinals: Sequence[int]) -> None:
        """Without any it stays as it was: somewhere fences and recovery adds must go."""
        if ordinals:
            self._ordinals = tuple(sorted(set(ordinals)))

    def of_ledger(self, ledger_id: int) -> int:
        ordinals = self._ordinals
        return ordinals[ledger_id % len(ordinals)]


class Copies:
    """Copies for one purpose, in files of their own. Used by one thread at a time, never by the one that closes the logs."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        settings: WriterSettings,
        file_ids: FileIds,
        writable: WritableDirectories,
    ) -> None:
        self._writers = [LogWriter(one.of_kind(FileKind.COPIES), settings, file_ids, None) for one in directories]
        self._disk: Disk = directories[0].disk
        self._writable = writable

    def append(self, batch: EncodedBatch, master_key_hash: bytes, sequence: int) -> EntryLocation:
        """Durable, and readable, after the next ``sync``. ``sequence`` is that of the original."""
        writer = self._writers[self._writable.of_ledger(batch.header.ledger_id)]
        return writer.append(batch, master_key_hash, sequence)

    def sync(self) -> None:
        """Make all that was appended durable, and the names of the files."""
        sync_writers(self._writers, self._disk)

    def files(self) -> tuple[LogFile, ...]:
        """What the index is to be told, after ``sync``: the open files, and the sealed ones that it does not know of."""
        return tuple(file for writer in self._writers for file in writer.files())

    def committed(self, files: Sequence[LogFile]) -> None:
        """The index has taken ``files``."""
        forget_sealed(self._writers, files)

    def seal(self) -> None:
        """Sync and end the open files; the next append begins new ones."""
        for writer in self._writers:
            writer.seal()

    def close(self) -> None:
        """Let go of all files as they are on the disk, also of those that the index does not know of."""
        for writer in self._writers:
            writer.close()
        self.committed(self.files())


def sync_writers(writers: Sequence[LogWriter], disk: Disk) -> None:
    """Make all that was appended durable. Raises StorageError, and from then on for every file that failed."""
    dirty = [writer for writer in writers if writer.dirty_file is not None]
    for writer in dirty:
        writer.write()
    disk.sync_all([file for writer in dirty if (file := writer.dirty_file) is not None])


def forget_sealed(writers: Sequence[LogWriter], files: Sequence[LogFile]) -> None:
    for file in files:
        if file.is_sealed:
            writers[file.directory].committed(file.file_id)
