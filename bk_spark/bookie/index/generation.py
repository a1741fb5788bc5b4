"""The generation file: a witness beside the index, which reveals that an older index took its place.

Every commit of the index increments its generation. This file is synced to the same number before anything is deleted that the
commit made superfluous. An index with a lower number than the file's was restored from a copy or lost commits: acked entries
may be missing from it.

::

    offset  size
         0     8  magic "bkIdxGen"
         8     4  format version
        12    16  incarnation of the index, drawn when it was made
        28     8  generation
        36     4  CRC32C of the bytes 0 to 35

Little-endian. Later versions keep the magic and the version in place, and at the end the CRC of all bytes before it.

Ref: docs/rules.md, storage rule 3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.disk import Disk
from bk_spark.entries.crc import crc32c
from bk_spark.errors import CorruptionError, FormatVersionError

GENERATION_VERSION = 1
_MAGIC = b"bkIdxGen"
_FIELDS = struct.Struct("<8sI16sQ")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class IndexGeneration:
    incarnation: bytes
    generation: int


def problem_of_index(told: IndexGeneration, found: IndexGeneration) -> str:
    """What a witness, which tells of an index, says against the one that was found; "" if nothing, or if it tells of none."""
    if not told.generation:
        return ""
    if told.incarnation != found.incarnation:
        return "the index is another one than the witness tells of: it was rebuilt, or taken from elsewhere"
    if found.generation < told.generation:
        return f"the index has generation {found.generation}, the witness tells of {told.generation}: it is old"
    return ""


@contextmanager
def writing_generation(disk: Disk, path: Path) -> Iterator[Callable[[IndexGeneration], None]]:
    """Open what a write needs; the function that it gives writes, durably when it returns. Commit the index inside."""
    with disk.creating(path) as create:

        def write(value: IndexGeneration) -> None:
            packed = _FIELDS.pack(_MAGIC, GENERATION_VERSION, value.incarnation, value.generation)
            create(packed + _CRC.pack(crc32c(packed))).close()

        yield write


def read_generation(disk: Disk, path: Path) -> IndexGeneration | None:
    """None if the file does not exist. Raises CorruptionError, FormatVersionError."""
    data = disk.read_small(path)
    if data is None:
        return None
    if len(data) < _FIELDS.size + _CRC.size or crc32c(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise CorruptionError(str(path), "its checksum is wrong")
    magic, version, incarnation, generation = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptionError(str(path), "it is not an index generation file")
    if version > GENERATION_VERSION:
        raise FormatVersionError(str(path), version, GENERATION_VERSION)
    return IndexGeneration(incarnation, generation)
