"""Reads the logs of a bookie as they are, for people: of a stopped bookie or of one that runs, without changing anything.

Nothing here takes a lock, and damage is a value like any other: what cannot be read is shown with its reason. The last file of
a running bookie may end inside a record that is just being written, and a file may be gone before it is opened.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, storage rules 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.disk import TEMPORARY_SUFFIX, Disk
from bk_spark.bookie.logs.log_file import FILE_HEADER_BYTES, FileHeader, FileKind, unpack_file_header
from bk_spark.bookie.logs.scan import Gap, LogScan, ScannedRecord
from bk_spark.errors import BookKeeperError


@dataclass(frozen=True, slots=True)
class InspectedFile:
    """A journal or entry log file as it was found."""

    path: Path
    size_bytes: int
    header: FileHeader | None
    """None if it is not readable."""
    problem: str
    """Why not, else empty."""


def inspect_files(directories: Iterable[Path], kind: FileKind, disk: Disk) -> Iterator[InspectedFile]:
    """Every file of a kind's suffix, by directory and name; files in progress too, as such."""
    for directory in directories:
        for name in disk.list(directory) if disk.exists(directory) else []:
            if name.removesuffix(TEMPORARY_SUFFIX).endswith(kind.suffix):
                yield _inspected(directory / name, disk)


def inspect_records(file: InspectedFile, disk: Disk) -> Iterator[ScannedRecord | Gap]:
    """Every record and every gap of a file, in order; what ends the scan is a last gap."""
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
