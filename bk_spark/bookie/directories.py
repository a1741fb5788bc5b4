"""Which directories a bookie keeps its files in.

The data directory holds the bookie's identity and the index, and, unless the configuration names others, the journals and the
entry logs. Each of those others may be a disk of its own. A directory is known by its ordinal, its place in the configured
list, for the LastLogMark has a position for each. So add new directories at the end of a list, and replace a lost one in place.

Worked example: ``journal_dirs="/nvme"``, ``ledger_dirs="/a,/b"`` on data directory ``/data`` keeps journals in
``/nvme/journal``, entry logs in ``/a/entry_log`` (ordinal 0) and ``/b/entry_log`` (ordinal 1), the index in ``/data/index``.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, "LastLogMark".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.disk import Disk
from bk_spark.config import BookieConfig
from bk_spark.errors import ConfigError

JOURNAL_DIRECTORY = "journal"
ENTRY_LOG_DIRECTORY = "entry_log"
INDEX_DIRECTORY = "index"


@dataclass(frozen=True, slots=True)
class Directories:
    """Made by ``of``."""

    data_dir: Path
    journals: tuple[Path, ...]
    """Where the journal files are, by ordinal."""
    entry_logs: tuple[Path, ...]
    """Where the entry log files are, by ordinal."""
    index: Path
    roots: tuple[Path, ...]
    """Every configured directory once, the data directory first. Each holds the cookie and the boot file."""

    @staticmethod
    def of(data_dir: Path, config: BookieConfig) -> Directories:
        """Raises ConfigError if a list has an empty part or names a directory twice."""
        journals = _parts("journal_dirs", config.journal_dirs) or [data_dir]
        entry_logs = _parts("ledger_dirs", config.ledger_dirs) or [data_dir]
        return Directories(
            data_dir,
            tuple(root / JOURNAL_DIRECTORY for root in journals),
            tuple(root / ENTRY_LOG_DIRECTORY for root in entry_logs),
            data_dir / INDEX_DIRECTORY,
            tuple(dict.fromkeys([data_dir, *journals, *entry_logs])),
        )

    def make(self, disk: Disk) -> None:
        """Make the missing directories inside the roots, durably."""
        for path in (*self.journals, *self.entry_logs, self.index):
            disk.make_directory(path)


def _parts(name: str, text: str) -> Sequence[Path]:
    if not text.strip():
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ConfigError(name, text, "it has an empty part: name directories, parted by single commas")
    paths = [Path(part) for part in parts]
    if len(set(paths)) < len(paths):
        raise ConfigError(name, text, "it names a directory twice: name each one once")
    return paths
