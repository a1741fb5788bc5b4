"""Reads the log files of a stopped or running bookie as they are, for people, and changes nothing.

Nothing here takes a lock. Damage is a result like any other: what cannot be read is shown with the reason. The last file of a
running bookie may end inside a record that is being written, and a file may be gone before it is opened.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, storage rules 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.disk import TEMPORARY_SUFFIX, Disk
from bk_spark.bookie.log_files.log_file import FILE_HEADER_BYTES, FileHeader, FileKind, unpack_file_header
from bk_spark.bookie.log_files.scan import Gap, LogScan, ScannedRecord
from bk_spark.errors import BookKeeperError


@dataclass(frozen=True, slots=True)
class InspectedFile:
    """A journal or entry log file as it was found."""

    path: Path
    size_bytes: int
    header: FileHeader | None
    """None if it is unreadable."""
    problem: str
    """Why it is unreadable, else empty."""


def inspect_files(directories: Iterable[Path], kind: FileKind, disk: Disk) -> Iterator[InspectedFile]:
    """Every file with the suffix of ``kind``, by directory and name, unfinished files included."""
    for directory in directories:
        for name in disk.list(directory) if disk.exists(directory) else []:
            if name.removesuffix(TEMPORARY_SUFFIX).endswith(kind.suffix):
                yield _inspected(directory / name, disk)


def inspect_records(file: InspectedFile, disk: Disk) -> Iterator[ScannedRecord | Gap]:
    """Every record and every gap of a file, in order. An error that ends the scan becomes a last gap."""
    if file.header is None:
        return
    end = FILE_HEADER_BYTES
    try:
        with disk.open_read(file.path) as opened:
            for item in LogScan(opened, file.header, FILE_HEADER_BYTES, file.size_bytes).items():
                end = item.end if isinstance(item, Gap) else item.header.end
                yield item
    except BookKeeperError as problem:
        yield Gap(end, file.size_bytes, str(problem), looks_torn=False)


def _inspected(path: Path, disk: Disk) -> InspectedFile:
    size = 0
    try:
        with disk.open_read(path) as file:
            size = file.size
            header = unpack_file_header(file.read(0, FILE_HEADER_BYTES), str(path))
    except BookKeeperError as problem:
        return InspectedFile(path, size, None, str(problem))
    if path.name.endswith(TEMPORARY_SUFFIX):
        return InspectedFile(path, size, None, "it is a file in progress, which means nothing")
    return InspectedFile(path, size, header, "")
