"""Where replay begins, and what the index knows of each entry log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from bk_spark.bookie.log_files.log_file import LOG_START, FilePosition


class LogState(IntEnum):
    OPEN = 1
    SEALED = 2
    DEAD = 3
    """No stored batch refers to it, and none ever will. Its file may be deleted."""


@dataclass(frozen=True, slots=True)
class KnownEntryLog:
    """An entry log as the index knows it."""

    file_id: int
    directory: int
    state: LogState
    total_bytes: int
    live_bytes: int
    """Bytes of the records that stored batches refer to, headers included."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """The LastLogMark. For each directory the position before which the index has everything, and the next unused numbers.

    Positions stand in the order of the directories. Missing ones at the end are LOG_START.
    """

    next_sequence: int = 1
    next_journal_id: int = 1
    next_entry_log_id: int = 1
    journals: tuple[FilePosition, ...] = ()
    entry_logs: tuple[FilePosition, ...] = ()

    def journal(self, directory: int) -> FilePosition:
        return self.journals[directory] if directory < len(self.journals) else LOG_START

    def entry_log(self, directory: int) -> FilePosition:
        return self.entry_logs[directory] if directory < len(self.entry_logs) else LOG_START

    def is_behind(self, other: LogMark) -> bool:
        """Whether any of it lies before what ``other`` says of the same.

        The next id of entry logs is left out: compaction begins files beside the checkpoint that stores this mark.
        """
        pairs = (*zip(self.journals, other.journals, strict=False), *zip(self.entry_logs, other.entry_logs, strict=False))
        has_lower_numbers = self.next_sequence < other.next_sequence or self.next_journal_id < other.next_journal_id
        return has_lower_numbers or any(own < theirs for own, theirs in pairs)


NO_MARK = LogMark()
"""The mark of a bookie that has logged nothing yet."""
