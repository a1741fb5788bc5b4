"""The journals: small adds, fences, deletions and explicit LACs, in order of arrival.

Their content is also in the write cache until a checkpoint has put it into an entry log, so a journal is read only after a
crash. Each directory has its own journal, and a ledger always uses the same one. Files before the mark are deleted.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, protocol rules 37, 38 and 40.
"""

from __future__ import annotations

from collections.abc import Sequence

from bk_spark.bookie.logs.log_file import FilePosition, LogDirectory, Predecessor
from bk_spark.bookie.logs.mark import LogMark
from bk_spark.bookie.logs.writer import FileIds, RecordWriter, SequenceCounter, WriterSettings
from bk_spark.config import MAX_BATCH_BYTES


class Journals:
    """Only the sync thread uses it, but any thread may call ``delete_before``."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        file_bytes: int,
        file_ids: FileIds,
        sequences: SequenceCounter,
        predecessors: Sequence[Predecessor],
    ) -> None:
        """``predecessors``: each directory's last file."""
        self.file_ids = file_ids
        settings = WriterSettings(file_bytes, aligned_from_bytes=MAX_BATCH_BYTES + 1)
        pairs = zip(directories, predecessors, strict=True)
        self.writers = [RecordWriter(directory, settings, file_ids, sequences, before) for directory, before in pairs]
        self._directories = directories

    def writer_of(self, ledger_id: int) -> RecordWriter:
        return self.writers[ledger_id % len(self.writers)]

    def positions(self) -> tuple[FilePosition, ...]:
        return tuple(writer.position for writer in self.writers)

    def delete_before(self, mark: LogMark) -> None:
        """Delete the files that end before their directory's position in ``mark``, which must be durable."""
        for directory in self._directories:
            for file_id in directory.file_ids():
                if file_id < mark.journal(directory.ordinal).file_id:
                    directory.delete(file_id)
