"""What all log files, journals and entry logs, have in common: names, the file header, positions.

A file header takes the first 4096 bytes::

    offset  size
         0     8  magic "bkLogFil"
         8     4  format version
        12     4  kind: 1 journal, 2 entry log, 3 copies
        16     8  file id                 from 1 on, never used again
        24     8  salt                    random; every record of the file repeats it
        32     8  predecessor's file id   0 if this is the first file of its kind in its directory, and in copies
        40     8  predecessor's sealed length
        48     8  predecessor's last sequence
        56     4  length of the bookie id
        60        bookie id, UTF-8, then zeros
      4092     4  CRC32C of the bytes 0 to 4091

All numbers are little-endian. The predecessor was sealed and synced before this file was made, so it must match exactly.
Copies are entry log files too, written by checkpoints and compaction. Until the index refers to a record of theirs, the same
record stands elsewhere. They have no predecessors, and a start does not scan them.

Later versions keep the magic, the version and the CRC in their places.

Ref: docs/rules.md, storage rules 2 and 7; docs/formats.md, "Files of a bookie".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from bk_spark.bookie.disk import TEMPORARY_SUFFIX, AppendFile, Disk
from bk_spark.entries.crc import crc32c
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError

FILE_VERSION = 3
FILE_HEADER_BYTES = 4096
ALIGNMENT_BYTES = 4096
"""Large records start on multiples of this."""

_MAGIC = b"bkLogFil"
_FIELDS = struct.Struct("<8sII5QI")
_CRC = struct.Struct("<I")
_CRC_OFFSET = FILE_HEADER_BYTES - _CRC.size


class FileKind(IntEnum):
    JOURNAL = 1
    ENTRY_LOG = 2
    COPIES = 3

    @property
    def suffix(self) -> str:
        return ".journal" if self is FileKind.JOURNAL else ".log"


@dataclass(frozen=True, slots=True, order=True)
class FilePosition:
    """A file id and an offset in a journal or entry log. ``file_id`` 0 is before the first file."""

    file_id: int
    offset: int


LOG_START = FilePosition(0, 0)


@dataclass(frozen=True, slots=True)
class LogFile:
    """What the index stores about an entry log file."""

    file_id: int
    directory: int
    """The ordinal of its directory."""
    size_bytes: int
    """Its durable bytes, header included."""
    is_sealed: bool


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The sealed file before this one."""

    file_id: int
    sealed_bytes: int
    last_sequence: int
    """0 if the end of the file is lost."""

    @property
    def is_lost(self) -> bool:
        return self.file_id > 0 and self.last_sequence == 0


NO_PREDECESSOR = Predecessor(0, 0, 0)


@dataclass(frozen=True, slots=True)
class FileHeader:
    kind: FileKind
    file_id: int
    salt: int
    predecessor: Predecessor
    bookie_id: str


def pack_file_header(header: FileHeader) -> bytes:
    before, name = header.predecessor, header.bookie_id.encode()
    numbers = (header.file_id, header.salt, before.file_id, before.sealed_bytes, before.last_sequence, len(name))
    packed = (_FIELDS.pack(_MAGIC, FILE_VERSION, header.kind, *numbers) + name).ljust(_CRC_OFFSET, b"\0")
    return packed + _CRC.pack(crc32c(packed))


def unpack_file_header(data: bytes, what: str) -> FileHeader:
    """Raises FormatVersionError or CorruptionError; ``what`` names the file."""
    if len(data) < FILE_HEADER_BYTES or crc32c(data[:_CRC_OFFSET]) != _CRC.unpack_from(data, _CRC_OFFSET)[0]:
        raise CorruptionError(what, "the checksum of its file header is wrong")
    magic, version, kind, file_id, salt, before_id, before_bytes, before_sequence, length = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptionError(what, "it is not a journal or entry log file")
    if version > FILE_VERSION:
        raise FormatVersionError(what, version, FILE_VERSION)
    if version < FILE_VERSION:
        remedy = f"this bk_spark reads version {FILE_VERSION} only: read the data with the release that wrote it"
        raise ConfigError(f"the format version of {what}", version, remedy)
    if kind not in set(FileKind):
        raise CorruptionError(what, f"its header names a kind of file that there is not, {kind}")
    try:
        bookie_id = data[_FIELDS.size : min(_FIELDS.size + length, _CRC_OFFSET)].decode()
    except UnicodeDecodeError:
        raise CorruptionError(what, "its header names a bookie whose id is not UTF-8") from None
    return FileHeader(FileKind(kind), file_id, salt, Predecessor(before_id, before_bytes, before_sequence), bookie_id)


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A bookie's log files of one kind in one directory. Entry logs and copies share their directories."""

    disk: Disk
    path: Path
    kind: FileKind
    bookie_id: str
    ordinal: int = 0
    """Its place among the bookie's directories for this kind of file."""
    written: dict[int, AppendFile] = field(default_factory=dict)
    """The files that this process has open for appends, by id. Any thread may ask how much of them is durable."""

    def file_path(self, file_id: int) -> Path:
        return self.path / f"{file_id:010d}{self.kind.suffix}"

    def file_ids(self) -> list[int]:
        """Ascending. Of entry logs and copies together."""
        suffix = self.kind.suffix
        stems = [name[: -len(suffix)] for name in self.disk.list(self.path) if name.endswith(suffix)]
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def remove_unfinished(self) -> None:
        """Delete the files that a crash left without their final names."""
        for name in self.disk.list(self.path):
            if name.endswith(TEMPORARY_SUFFIX):
                self.disk.unlink(self.path / name)

    def header(self, file_id: int) -> FileHeader:
        """The verified header of a file. Raises CorruptionError, FormatVersionError, ConfigError (another bookie's file)."""
        path = self.file_path(file_id)
        with self.disk.open_read(path) as file:
            return self.verified_header(file_id, file.read(0, FILE_HEADER_BYTES))

    def verified_header(self, file_id: int, data: bytes) -> FileHeader:
        """As ``header``, from bytes already read."""
        path = self.file_path(file_id)
        header = unpack_file_header(data, str(path))
        if header.bookie_id != self.bookie_id:
            raise ConfigError(str(path), header.bookie_id, f"it is a file of that bookie, not of {self.bookie_id}")
        if (header.kind.suffix, header.file_id) != (self.kind.suffix, file_id):
            raise CorruptionError(str(path), f"its header says that it is {header.kind.name} file {header.file_id}")
        return header

    def delete(self, file_id: int) -> None:
        self.disk.unlink(self.file_path(file_id))
