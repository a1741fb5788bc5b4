"""The entry logs: where batches stay. This is the side that writes them; entry_log_files.py reads them.

Two kinds of files, which many ledgers share. *Direct* ones take large adds as they come, durable with the next sync, and
are scanned at the start from the mark on. *Copies* are written by checkpoints and by compaction: every record stands
elsewhere too until an index transaction has made the copy count, so they are not scanned; what the index does not know of
them is cut off. Records of large batches start on 4 KiB boundaries in both.

A ledger goes to the directory that its id chooses among those that may be written to.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, "Order of syncs", storage rule 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.logs.log_file import FileHeader, FileKind, LogDirectory, LogFile
from bk_spark.bookie.logs.mark import EntryLogRow, LogState
from bk_spark.bookie.logs.record import Place, RecordKind, pack_mark
from bk_spark.bookie.logs.writer import UNCHAINED_SEQUENCE, EntryLocation, FileIds, RecordWriter, WriterSettings
from bk_spark.entries.batch import EncodedBatch
from bk_spark.errors import CorruptionError


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
        self._writers = [RecordWriter(one.of_kind(FileKind.COPIES), settings, file_ids, None) for one in directories]
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


def sync_writers(writers: Sequence[RecordWriter], disk: Disk) -> None:
    """Make all that was appended durable. Raises StorageError, and from then on for every file that failed."""
    dirty = [writer for writer in writers if writer.dirty_file is not None]
    for writer in dirty:
        writer.write()
    disk.sync_all([file for writer in dirty if (file := writer.dirty_file) is not None])


def forget_sealed(writers: Sequence[RecordWriter], files: Sequence[LogFile]) -> None:
    for file in files:
        if file.is_sealed:
            writers[file.directory].committed(file.file_id)


# --- What a former process left of the files that checkpoints and compaction write (COPIES), settled at the start
#
# A record in such a file counts once an index transaction refers to it, and the transaction names the file with its size:
#
# - a file that the index does not know holds nothing that counts, its records stand elsewhere: it is deleted;
# - a file that was still open is cut to the size that the index knows, and sealed;
# - what is sealed or dead is left alone.
#
# An index may stand in the place of one that was lost: one that was never written to knows no file, an older one that was
# restored, which starts in limbo, knows some of them, and others when they were shorter. Then nothing is deleted nor cut, for
# these files may hold the only copies; what is superfluous goes with the first start after the limbo.
#
# Ref: docs/rules.md, storage rules 5, 7 and 13, protocol rule 43.


def settle_copies(directory: LogDirectory, known: Mapping[int, EntryLogRow], *, keeps_all: bool) -> list[LogFile]:
    """Settle the copies in one directory. Returns those that were sealed now, durably: the index is to be told.

    With ``keeps_all`` nothing is deleted nor cut. A file whose deletion a crash takes back is deleted again by the next start.
    """
    settled = list(_settled(directory, known, keeps_all))
    unknown = [] if keeps_all else [file_id for file_id in directory.file_ids() if file_id not in known]
    for file_id in unknown:
        if _is_copies(_header(directory, file_id)):
            directory.delete(file_id)
    return settled


def _settled(directory: LogDirectory, known: Mapping[int, EntryLogRow], keeps_all: bool) -> Iterator[LogFile]:
    for file_id in directory.file_ids():
        row = known.get(file_id)
        if row is None or row.state is not LogState.OPEN:
            continue
        header = _header(directory, file_id)
        if header is None or _is_copies(header):
            size = directory.disk.size(directory.file_path(file_id))
            if header is not None and size >= row.total_bytes:
                size = _sealed_at(directory, header, size if keeps_all else row.total_bytes)
            yield LogFile(file_id, directory.ordinal, size, is_sealed=True)


def _sealed_at(directory: LogDirectory, header: FileHeader, size: int) -> int:
    """Cut and seal. Returns the size with the SEAL. A file that lost durable bytes never comes here: it stays as it is."""
    path = directory.file_path(header.file_id)
    if size < directory.disk.size(path):
        directory.disk.truncate(path, size)
    file = directory.disk.open_append(path)
    try:
        file.sync()
        file.append([pack_mark(Place(header.salt, size, size), UNCHAINED_SEQUENCE, RecordKind.SEAL)])
        file.sync()
        return file.size
    finally:
        file.close()


def _header(directory: LogDirectory, file_id: int) -> FileHeader | None:
    """None if it is damaged: nothing is done to such a file, and reads of it fail."""
    try:
        return directory.header(file_id)
    except CorruptionError:
        return None


def _is_copies(header: FileHeader | None) -> bool:
    return header is not None and header.kind is FileKind.COPIES
