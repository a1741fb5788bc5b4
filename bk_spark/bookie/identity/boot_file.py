"""The boot file: in each root directory, the number of the last boot and how that run ended.

::

    bk_spark boot
    version: 1
    confirmed: 7 0123456789abcdef       the boot that is known to have its number in the metadata store
    pending: 8 fedcba9876543210         one that was begun after it; whether it got its number, the metadata store knows
    phase: running                      running until a stop that left everything durable, then clean
    skipped_journal: no                 yes if a crash may lose what was acked
    index: 32 hexadecimal digits 42     incarnation and generation of the index at the last look, zeros before there was one
    crc32c: …

A root *fits* if the metadata store's number is its confirmed or its pending one. One that does not was restored from a
snapshot, is a copy of the disk, or missed a boot: what was acked since may be missing from it.

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


@dataclass(frozen=True, slots=True)
class BootRecord:
    """The content of one root's boot file."""

    confirmed: BootNumber
    pending: BootNumber | None = None
    phase: BootPhase = BootPhase.CLEAN
    skipped_journal: bool = False
    """Whether a run since the last clean stop acked what was not durable, saw a failed sync, or followed the loss of a disk."""
    index: IndexGeneration = NO_INDEX
    """What the index was at least; a lower generation or another incarnation has forgotten something."""

    def fits(self, stored: BootNumber) -> bool:
        return stored in (self.confirmed, self.pending)

    def begun(self, stored: BootNumber, pending: BootNumber) -> BootRecord:
        """The same, with a boot begun. A number that the store confirms is kept: the begun one may never be stored."""
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
    pairs = [("confirmed", str(record.confirmed))]
    if record.pending is not None:
        pairs.append(("pending", str(record.pending)))
    skipped = "yes" if record.skipped_journal else "no"
    pairs += [
        ("phase", record.phase.value),
        ("skipped_journal", skipped),
        ("index", f"{record.index.incarnation.hex()} {record.index.generation}"),
    ]
    return encode_fields(_MAGIC, BOOT_VERSION, pairs)


def decode_boot(data: bytes, what: str) -> BootRecord:
    """``what`` names the file in errors. Raises CorruptionError, FormatVersionError."""
    fields = decode_fields(data, _MAGIC, BOOT_VERSION, what)
    pending = fields.all("pending")
    skipped = fields.one("skipped_journal")
    if skipped not in _YES_NO:
        raise CorruptionError(what, f"skipped_journal is {skipped!r}")
    return BootRecord(
        decode_boot_number(fields.one("confirmed"), what),
        decode_boot_number(pending[0], what) if pending else None,
        _phase(fields),
        _YES_NO[skipped],
        _index(fields),
    )


def _phase(fields: Fields) -> BootPhase:
    try:
        return BootPhase(fields.one("phase"))
    except ValueError:
        raise CorruptionError(fields.what, f"phase is {fields.one('phase')!r}") from None


def _index(fields: Fields) -> IndexGeneration:
    match = _INDEX.fullmatch(fields.one("index"))
    if match is None:
        raise CorruptionError(fields.what, f"index is {fields.one('index')[:100]!r}")
    return IndexGeneration(bytes.fromhex(match[1]), int(match[2]))
