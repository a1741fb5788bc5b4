"""Log files over directories, without an index: what it would say of them is kept here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK, Disk
from bk_spark.bookie.log_files.all_log_files import LogFiles, LogFilesReplay
from bk_spark.bookie.log_files.log_file import LogFile
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogMark, LogState
from bk_spark.bookie.log_files.record import LedgerNote
from bk_spark.bookie.log_files.replay import Damage, ReplayedRecord
from bk_spark.bookie.log_files.witness import NOTHING, Witnessed, read_witness
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.config import BookieConfig, DigestType
from bk_spark.entries.batch import EncodedBatch, encode, seal
from bk_spark.entries.digest import Digester

KEY = bytes(range(24))
SMALL, LARGE = 10, 5000
"""Payload bytes of an entry that goes into a journal, and into an entry log."""


def make_batch(ledger_id: int, first: int, last: int, size: int = SMALL, fill: bytes = b"") -> EncodedBatch:
    payloads = [(fill or b"%d/%d;" % (ledger_id, one)) * size for one in range(first, last + 1)]
    array = pa.array([one[:size] for one in payloads], pa.binary())
    digester = Digester(DigestType.CRC32C, b"")
    sealed = seal(digester, ledger_id, first, array, length_before=first * size, last_add_confirmed=first - 1)
    encoded = encode(sealed, DigestType.CRC32C)
    assert encoded is not None
    return encoded


class LogHome:
    """The logs of one bookie through its starts. ``mark`` and ``known`` are what its index holds."""

    def __init__(self, root: Path, disk: Disk = REAL_DISK, **settings: object) -> None:
        self.disk = disk
        self.config = BookieConfig(**{"direct_add_bytes": 4096, **settings})  # type: ignore[arg-type]
        self.directories = Directories.of(root, self.config)
        self.mark = LogMark()
        self.known: dict[int, KnownEntryLog] = {}
        self.is_limbo = False
        self.witnessed: Witnessed | None = None
        """What the next start takes the witness to say; None for what it says."""
        self.records: list[ReplayedRecord] = []
        self.damages: list[Damage] = []
        self.logs: LogFiles

    def open(self) -> LogHome:
        self.directories.make(self.disk)
        replay = self.replay()
        self.records = list(replay.records())
        self.damages = replay.damages
        self.logs = replay.finish(is_limbo=self.is_limbo)
        return self

    def replay(self) -> LogFilesReplay:
        known = list(self.known.values())
        witnessed = self.witnessed or self.told()
        return LogFilesReplay(self.directories, "bookie-1", self.config, self.disk, self.mark, known, witnessed)

    def told(self) -> Witnessed:
        """What the witness says."""
        return read_witness(self.disk, self.directories.data_dir) or NOTHING

    def kill(self) -> LogHome:
        """End as SIGKILL does: what was not written is gone."""
        self.logs.close()
        return self

    def append(self, batch: EncodedBatch) -> EntryLocation | None:
        return self.logs.append(batch, KEY, self.logs.sequences.take())

    def add(self, ledger_id: int, first: int, last: int, size: int = SMALL) -> EntryLocation | None:
        """Append and sync."""
        location = self.append(make_batch(ledger_id, first, last, size))
        self.logs.sync()
        return location

    def note(self, note: LedgerNote) -> None:
        self.logs.append_note(note, KEY, self.logs.sequences.take())

    def commit(self, files: Sequence[LogFile] = ()) -> None:
        """As a checkpoint's transaction does, with ``files`` of copies."""
        self.mark = self.logs.mark()
        taken = (*self.logs.files(), *files)
        for file in taken:
            state = LogState.SEALED if file.is_sealed else LogState.OPEN
            self.known[file.file_id] = KnownEntryLog(file.file_id, file.directory, state, file.size_bytes, file.size_bytes)
        self.logs.committed(taken)
        self.logs.delete_journals(self.mark)

    def forget(self, file_id: int) -> None:
        """As garbage collection does with a log that nothing refers to."""
        self.logs.delete(file_id)
        del self.known[file_id]

    def ids(self) -> list[tuple[int, int, int]]:
        """Ledger, first and last entry id of every batch that was replayed, in order of sequence."""
        found = sorted(self.records, key=lambda one: one.header.sequence)
        batches = [one.batch.header for one in found if one.batch is not None]
        return [(one.ledger_id, one.first_entry_id, one.last_entry_id) for one in batches]

    def paths(self, kind: str, directory: int = 0) -> list[Path]:
        """``kind`` is journals or entry_logs."""
        place: Path = getattr(self.directories, kind)[directory]
        return [place / name for name in self.disk.list(place)]
