"""What a former process left of the files that checkpoints and compaction write (COPIES), settled at the start.

A record in such a file counts once an index transaction refers to it, and the transaction names the file with its size:

- a file that the index does not know holds nothing that counts, its records stand elsewhere: it is deleted;
- a file that was still open is cut to the size that the index knows, and sealed;
- what is sealed or dead is left alone.

An index may stand in the place of one that was lost: one that was never written to knows no file, an older one that was
restored, which starts in limbo, knows some of them, and others when they were shorter. Then nothing is deleted nor cut, for
these files may hold the only copies; what is superfluous goes with the first start after the limbo.

Ref: docs/rules.md, storage rules 5, 7 and 13, protocol rule 43.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bk_spark.bookie.index_rows import EntryLogRow, LogState
from bk_spark.bookie.log_file import FileHeader, FileKind, LogDirectory, LogFile
from bk_spark.bookie.log_writer import UNCHAINED_SEQUENCE
from bk_spark.bookie.record import Place, RecordKind, pack_mark
from bk_spark.errors import CorruptionError


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
