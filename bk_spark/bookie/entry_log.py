"""The entry log: where batches stay, and are read from.

Large adds are appended as they come and are durable with the next ``sync``; small ones are copied here by checkpoints. Many
ledgers share a file. Records of large batches start on 4 KiB boundaries.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, "Order of syncs".
"""

from __future__ import annotations

from bk_spark.bookie.log_file import LogDirectory, LogPosition, Predecessor
from bk_spark.bookie.log_writer import EntryLocation, LogWriter, SequenceCounter
from bk_spark.bookie.record import RECORD_HEADER_BYTES, RecordHeader, batch_of, unpack
from bk_spark.entry import EncodedBatch
from bk_spark.errors import CorruptionError


class EntryLog:
    """Appends are the sync thread's; any thread may read what is durable."""

    def __init__(
        self,
        directory: LogDirectory,
        file_bytes: int,
        aligned_from_bytes: int,
        sequences: SequenceCounter,
        next_file_id: int,
        predecessor: Predecessor,
    ) -> None:
        self._directory = directory
        self._writer = LogWriter(directory, file_bytes, sequences, next_file_id, predecessor, aligned_from_bytes)

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

    def append(self, batch: EncodedBatch, master_key_hash: bytes, sequence: int) -> EntryLocation:
        """Durable, and readable, after the next ``sync``."""
        return self._writer.append(batch, master_key_hash, sequence)

    def read(self, location: EntryLocation) -> tuple[RecordHeader, EncodedBatch]:
        """The record at ``location``, its checksums verified. Raises CorruptionError or StorageError, never "not found"."""
        path = self._directory.file_path(location.file_id)
        what = f"{path} at byte {location.offset}"
        salt = self._directory.salt(location.file_id)
        with self._directory.disk.open_read(path) as file:
            header = unpack(file.read(location.offset, RECORD_HEADER_BYTES), what, salt, location.offset)
            if RECORD_HEADER_BYTES + header.body_length != location.length:
                raise CorruptionError(what, f"the record has another length than the index says ({location.length} bytes)")
            body = file.read(location.offset + RECORD_HEADER_BYTES, header.body_length)
        return header, batch_of(header, body, what)

    def write(self) -> None:
        """Hand all that was appended to the operating system."""
        self._writer.write()

    def sync(self) -> None:
        self._writer.sync()

    def idle(self) -> None:
        self._writer.idle()

    def seal(self) -> None:
        self._writer.seal()

    def close(self) -> None:
        self._writer.close()
