"""The witness: what must exist of a bookie's log files and index, kept outside of them.

A log file names its predecessor, but nothing names the newest file, and no record tells that another one stood behind it.
Without a witness the loss of the newest file, or of a durable tail, would look as if nothing had been there. The file
``witness`` in the data directory says for each directory of journals and of entry logs: the newest file, and how much of it is
durable. It also says which commit of the index was the last one that journals were deleted after. Copies are not here, because
the index names them with their sizes.

The file consists of sectors of 512 bytes, little-endian; the rest of each sector is zeros::

    sector 0    magic "bkWitnes", format version (4), numbers of journal and of entry log directories (4, 4)
    sector 1    incarnation of the index (16), its generation (8)
    from 2 on   one sector each for the journal directories, then for the entry log directories: file id (8), durable bytes (8)

Each sector has behind its fields the CRC32C of them (4). A sector is overwritten in place: a disk writes it as a whole or not.
Later versions keep sector 0 as it is but for the version.

**How exact it is.** What the witness says was true when it was written, and files only grow, so it never asks for too much.

- Each group commit writes it before its replies leave, but syncs it only if a file was begun. Another sync for each commit
  would cost more than the rest of the commit. So it is exact after a stop and after a kill.
- It is durable at each new file, at each checkpoint, when the bookie is idle and when it stops. After a power cut it may be as
  old as the last of these, or as the kernel's last write of it. So if a power cut also takes bytes at the end of a newest file
  that the disk had reported as synced, they can look like a tear. Whole files do not vanish unnoticed.

Only the mark bounds it: what the index has is no longer asked of the log files, for compaction deletes entry logs.

Ref: docs/rules.md, storage rule 15; docs/formats.md, "Witness".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.disk import SECTOR_BYTES, Disk
from bk_spark.bookie.log_files.log_file import LOG_START, FilePosition
from bk_spark.entries.crc import crc32c
from bk_spark.errors import CorruptionError, FormatVersionError

WITNESS_FILE = "witness"
WITNESS_VERSION = 1
_MAGIC = b"bkWitnes"
_HEAD = struct.Struct("<8sIII")
_INDEX = struct.Struct("<16sQ")
_POSITION = struct.Struct("<QQ")
_CRC = struct.Struct("<I")
_INDEX_SECTOR = 1
_FIRST_POSITION = 2


@dataclass(frozen=True, slots=True)
class Witnessed:
    """The content of the witness. Positions stand in the order of the directories. Missing ones at the end are LOG_START."""

    journals: tuple[FilePosition, ...] = ()
    """For each directory the newest file, and up to where it is known to be durable."""
    entry_logs: tuple[FilePosition, ...] = ()
    incarnation: bytes = bytes(16)
    generation: int = 0
    """The index has this incarnation and at least this generation. 0: there may be none yet."""

    def journal(self, directory: int) -> FilePosition:
        return self.journals[directory] if directory < len(self.journals) else LOG_START

    def entry_log(self, directory: int) -> FilePosition:
        return self.entry_logs[directory] if directory < len(self.entry_logs) else LOG_START


NOTHING = Witnessed()
"""Nothing has to exist."""


class Witness:
    """The witness of an open bookie. The sync thread notes the log files, and any one thread at a time the index."""

    def __init__(self, disk: Disk, data_dir: Path, content: Witnessed) -> None:
        """Replace the file, durably. What it said before must be dealt with durably. Raises StorageError."""
        write_witness(disk, data_dir, content)
        self._noted = [(position.file_id, position.offset) for position in (*content.journals, *content.entry_logs)]
        self._is_dirty = False
        self._is_sync_due = False
        self._file = disk.open_slots(data_dir / WITNESS_FILE)

    def note(self, durable: Sequence[tuple[int, int]]) -> None:
        """File ids and offsets that are durable: of each journal, then of each entry log. Only a new file is synced at once.

        Call it before any reply that relies on them. Raises StorageError, and then again at every call.
        """
        assert len(durable) == len(self._noted)
        for place, position in enumerate(durable):
            noted = self._noted[place]
            if position != noted:
                assert position > noted, "files only grow, and their ids ascend"
                self._is_dirty = True
                self._is_sync_due |= position[0] != noted[0]
                self._file.write(_FIRST_POSITION + place, _packed_position(position))
                self._noted[place] = position
        if self._is_sync_due:
            self.sync()

    def note_index(self, incarnation: bytes, generation: int) -> None:
        """The index has this generation, durably, and what it made superfluous is about to be deleted. Durable at return."""
        self._file.write(_INDEX_SECTOR, _with_crc(_INDEX.pack(incarnation, generation)))
        self._file.sync()

    def sync(self) -> None:
        """Make durable all that was noted of the log files."""
        if self._is_dirty:
            self._file.sync()
            self._is_dirty = self._is_sync_due = False

    def close(self) -> None:
        self._file.close()


class NoWitness(Witness):
    """Of logs that nobody appends to: the file stays as it is."""

    def __init__(self) -> None:
        """Writes nothing."""

    def note(self, durable: Sequence[tuple[int, int]]) -> None:
        """Nothing new is durable."""

    def note_index(self, incarnation: bytes, generation: int) -> None:
        """The index does not change."""

    def sync(self) -> None:
        """Nothing was noted."""

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class FoundWitness:
    """The witness as a start finds it."""

    content: Witnessed
    problem: str
    """Why it cannot tell what has to exist; "" if it can."""


def find_witness(disk: Disk, data_dir: Path, *, has_past: bool) -> FoundWitness:
    """``has_past``: there are log files or an index, so there was a witness. Raises FormatVersionError, StorageError."""
    try:
        content = read_witness(disk, data_dir)
    except CorruptionError as damage:
        return FoundWitness(NOTHING, str(damage))
    missing = f"{data_dir / WITNESS_FILE} is missing" if content is None and has_past else ""
    return FoundWitness(content or NOTHING, missing)


def write_witness(disk: Disk, data_dir: Path, content: Witnessed) -> None:
    """Replace the file. Durable when it returns. Raises StorageError."""
    head = _HEAD.pack(_MAGIC, WITNESS_VERSION, len(content.journals), len(content.entry_logs))
    index = _INDEX.pack(content.incarnation, content.generation)
    positions = [_packed_position((one.file_id, one.offset)) for one in (*content.journals, *content.entry_logs)]
    sectors = [_with_crc(head), _with_crc(index), *positions]
    disk.replace(data_dir / WITNESS_FILE, b"".join(sector.ljust(SECTOR_BYTES, b"\0") for sector in sectors))


def read_witness(disk: Disk, data_dir: Path) -> Witnessed | None:
    """None if the file does not exist. Raises CorruptionError, FormatVersionError, StorageError."""
    path = data_dir / WITNESS_FILE
    data = disk.read_small(path)
    if data is None:
        return None
    magic, version, journals, entry_logs = _HEAD.unpack(_sector(data, 0, _HEAD, path))
    if magic != _MAGIC:
        raise CorruptionError(str(path), "it is not a witness file")
    if version > WITNESS_VERSION:
        raise FormatVersionError(str(path), version, WITNESS_VERSION)
    incarnation, generation = _INDEX.unpack(_sector(data, _INDEX_SECTOR, _INDEX, path))
    sectors = range(_FIRST_POSITION, _FIRST_POSITION + journals + entry_logs)
    positions = [FilePosition(*_POSITION.unpack(_sector(data, one, _POSITION, path))) for one in sectors]
    return Witnessed(tuple(positions[:journals]), tuple(positions[journals:]), incarnation, generation)


def _sector(data: bytes, number: int, fields: struct.Struct, path: Path) -> bytes:
    """The fields of a sector, verified."""
    start = number * SECTOR_BYTES
    end = start + fields.size
    if len(data) < end + _CRC.size or crc32c(data[start:end]) != _CRC.unpack_from(data, end)[0]:
        raise CorruptionError(str(path), f"the checksum of its sector {number} is wrong")
    return data[start:end]


def _packed_position(position: tuple[int, int]) -> bytes:
    return _with_crc(_POSITION.pack(*position))


def _with_crc(fields: bytes) -> bytes:
    return fields + _CRC.pack(crc32c(fields))
