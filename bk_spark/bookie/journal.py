"""The journal: small adds, fences and explicit LACs, durable in the order in which they came.

What stands in it is also in the write cache until a checkpoint has put it into the entry log; it is read after a crash
only. Files before the mark are deleted.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, protocol rules 37, 38 and 40.
"""

from __future__ import annotations

from bk_spark.bookie.log_file import LogDirectory, LogPosition, Predecessor
from bk_spark.bookie.log_writer import LogWriter, SequenceCounter
from bk_spark.bookie.record import LedgerNote
from bk_spark.config import MAX_BATCH_BYTES
from bk_spark.entry import EncodedBatch


class Journal:
    """Used by the sync thread alone."""

    def __init__(
        self, directory: LogDirectory, file_bytes: int, sequences: SequenceCounter, next_file_id: int, predecessor: Predecessor
    ) -> None:
        self._directory = directory
        self._writer = LogWriter(directory, file_bytes, sequences, next_file_id, predecessor, MAX_BATCH_BYTES + 1)

    @property
    def position(self) -> LogPosition:
        return self._writer.position

    @property
    def next_file_id(self) -> int:
        return self._writer.next_file_id

    @property
    def appended_bytes(self) -> int:
        """Bytes appended by this process."""
        return self._writer.appended_bytes

    def append(self, batch: EncodedBatch, master_key_hash: bytes, sequence: int) -> None:
        """Durable after the next ``sync``."""
        self._writer.append(batch, master_key_hash, sequence)

    def append_note(self, note: LedgerNote, master_key_hash: bytes, sequence: int) -> None:
        """Durable after the next ``sync``."""
        self._writer.append_note(note, master_key_hash, sequence)

    def write(self) -> None:
        """Hand all that was appended to the operating system."""
        self._writer.write()

    def sync(self) -> None:
        self._writer.sync()

    def idle(self) -> None:
        self._writer.idle()

    def delete_before(self, mark: LogPosition) -> None:
        """Delete the files that end before ``mark``, which must be durable in the index."""
        for file_id in self._directory.file_ids():
            if file_id < mark.file_id:
                self._directory.delete(file_id)

    def seal(self) -> None:
        self._writer.seal()

    def close(self) -> None:
        self._writer.close()
