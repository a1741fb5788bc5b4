"""The boot file of each root directory: the number of the last boot, the epoch of that boot, and how the run ended.

::

    bk_spark boot
    version: 1
    confirmed: 7 0123456789abcdef 42    the last boot, and epoch of it, that is known to be in the metadata store
    pending: 7 0123456789abcdef 43      the next epoch, or the next boot; only the metadata store knows whether it got there
    phase: running                      running until a stop that left everything durable, then clean
    skipped_journal: no                 yes if a crash may lose what was acked
    index: 32 hexadecimal digits 42     incarnation and generation of the index when last seen, zeros before there was one
    crc32c: …

A root *fits* if what the metadata store holds is its confirmed or its pending one. A root that does not fit was restored
from a snapshot, is a copy of the disk, or missed a boot: what was acked since may be missing from it. A young snapshot fits
nevertheless: boot_epoch.py.

Ref: docs/rules.md, storage rules 9 and 13; docs/formats.md, "Boot file".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.identity.checked_text import Fields, decode_fields, encode_fields
from bk_spark.bookie.identity.cookie_file import BootNumber, decode_boot_number
from bk_spark.bookie.index.generation import IndexGeneration
from bk_spark.errors import CorruptionError

BOOT_FILE = "boot"
BOOT_VERSION = 1
NO_INDEX = IndexGeneration(bytes(16), 0)
"""Before there was an index."""

_MAGIC = "bk_spark boot"
_INDEX = re.compile(r"([0-9a-f]{32}) ([0-9]{1,20})")
_YES_NO = {"yes": True, "no": False}


class BootPhase(Enum):
    RUNNING = "running"
    CLEAN = "clean"


_PHASES = {phase.value: phase for phase in BootPhase}


@dataclass(frozen=True, slots=True)
class BootRecord:
    """The content of one root's boot file."""

    confirmed: BootNumber
    pending: BootNumber | None = None
    phase: BootPhase = BootPhase.CLEAN
    skipped_journal: bool = False
    """Whether a run since the last clean stop acked adds before they were durable, saw a sync fail, or followed a lost disk."""
    index: IndexGeneration = NO_INDEX
    """The index had at least this generation; with a lower one, or another incarnation, it has forgotten something."""

    def fits(self, stored: BootNumber) -> bool:
        return stored in (self.confirmed, self.pending)

    def begun(self, stored: BootNumber, pending: BootNumber) -> BootRecord:
        """This record with a boot begun. Keeps a pending number that the store confirms: the new one may never be stored."""
        return replace(self, confirmed=stored if self.fits(stored) else self.confirmed, pending=pending)


def write_boot(disk: Disk, root: Path, record: BootRecord) -> None:
    """Durable when it returns."""
    disk.replace(root / BOOT_FILE, encode_boot(record))


def read_boot(disk: Disk, root: Path) -> BootRecord | None:
    """None if the root has no boot file. Raises CorruptionError, FormatVersionError, StorageError."""
    path = root / BOOT_FILE
    data = disk.read_small(path)
    return None if data is None else decode_boot(data, str(path))


def encode_boot(record: BootRecord) -> bytes:
    pairs = {
        "confirmed": str(record.confirmed),
        "pending": str(record.pending or ""),
        "phase": record.phase.value,
        "skipped_journal": "yes" if record.skipped_journal else "no",
        "index": f"{record.index.incarnation.hex()} {record.index.generation}",
    }
    return encode_fields(_MAGIC, BOOT_VERSION, [(name, value) for name, value in pairs.items() if value])


def decode_boot(data: bytes, what: str) -> BootRecord:
    """``what`` names the file in errors. Raises CorruptionError, FormatVersionError."""
    fields = decode_fields(data, _MAGIC, BOOT_VERSION, what)
    pending = fields.all("pending")
    return BootRecord(
        decode_boot_number(fields.one("confirmed"), what),
        decode_boot_number(pending[0], what) if pending else None,
        fields.one_of("phase", _PHASES),
        fields.one_of("skipped_journal", _YES_NO),
        _index(fields),
    )


def _index(fields: Fields) -> IndexGeneration:
    match = _INDEX.fullmatch(fields.one("index"))
    if match is None:
        raise CorruptionError(fields.what, f"index is {fields.one('index')[:100]!r}")
    return IndexGeneration(bytes.fromhex(match[1]), int(match[2]))
