"""A disk that measures how often it syncs files, and how long that takes, by the kind of file.

Ref: docs/metrics.md.
"""

from __future__ import annotations

from pathlib import Path

from bk_spark.bookie.disk import AppendFile, Disk
from bk_spark.bookie.logs.log_file import FileKind
from bk_spark.bookie.pace import SYSTEM_CLOCKS
from bk_spark.telemetry.metrics import BOOKIE_SYNC_S
from bk_spark.telemetry.registry import by_label

OTHER = "other"

_SYNC_S = by_label(BOOKIE_SYNC_S, ["journal", "entry_log", OTHER])
_KINDS = {FileKind.JOURNAL.suffix: "journal", FileKind.ENTRY_LOG.suffix: "entry_log"}


class MeasuredFile(AppendFile):
    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        super().__init__(path, descriptor, size)
        self._measured_path = path
        self._sync_s = _SYNC_S[kind_of(path)]

    def _fdatasync(self) -> None:
        began_s = SYSTEM_CLOCKS.steady_s()
        super()._fdatasync()
        if self.path is not self._measured_path:  # the file was renamed from its temporary name
            self._measured_path, self._sync_s = self.path, _SYNC_S[kind_of(self.path)]
        self._sync_s.observe(SYSTEM_CLOCKS.steady_s() - began_s)


class MeasuredDisk(Disk):
    """The real disk. Syncs of directories and of SQLite are not measured: they happen only with checkpoints."""

    append_file = MeasuredFile


def kind_of(path: Path) -> str:
    """The label of a file in the metric."""
    return _KINDS.get(path.suffix, OTHER)
