"""Handles: a ledger as the application sees it. WriteHandle appends, ReadHandle reads.

Handles may be used from several threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TypeAlias

import pyarrow as pa

from bk_spark.client.add_entries import AddEntries
from bk_spark.client.read_entries import ReadEntries, ReadLimits
from bk_spark.client.read_last_add_confirmed import ReadLastAddConfirmed
from bk_spark.client.read_queue import ReadQueue, run_to_result
from bk_spark.client.transport import Transport
from bk_spark.client.write_queue import WriteQueue
from bk_spark.config import MAX_ENTRY_BYTES
from bk_spark.digest import master_key, payload_sizes
from bk_spark.errors import ConfigError, EntryTooLargeError, NoSuchEntryError
from bk_spark.ledger_metadata import LedgerMetadata

Payloads: TypeAlias = "Sequence[bytes] | pa.BinaryArray | pa.ChunkedArray"


class WriteHandle:
    """The one writer of a ledger. Appends are confirmed in the order in which they were made.

    Appends wait while ``ClientConfig.add_window_bytes`` are on their way, so memory is bounded. After the first failure
    every further append fails with the same error, and the outcome of what was not confirmed is unknown.

    Callbacks of futures run on the client's event loop: they must be short, and a call in them that would have to wait
    raises ConfigError instead. A future cannot be cancelled: what was appended cannot be taken back.
    """

    def __init__(self, transport: Transport, metadata: LedgerMetadata, version: int) -> None:
        config = transport.config
        self._operation = AddEntries(
            metadata,
            version,
            add_timeout_ms=int(config.add_timeout_s * 1000),
            add_quorum_timeout_ms=int(config.add_quorum_timeout_s * 1000),
        )
        self._queue = WriteQueue(transport, self._operation)

    @property
    def ledger_id(self) -> int:
        return self._operation.metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        return self._operation.metadata

    @property
    def last_add_confirmed(self) -> int:
        """The last confirmed entry, -1 before the first."""
        return self._operation.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """The last entry that was sent, -1 before the first."""
        return self._operation.last_add_pushed

    @property
    def length(self) -> int:
        """Confirmed payload bytes."""
        return self._operation.length

    def append(self, payload: bytes) -> int:
        """Append one entry; gives back its id once it is confirmed."""
        return self.append_async(payload).result()

    def append_async(self, payload: bytes) -> Future[int]:
        """Append one entry; the future holds its id once it is confirmed. Entries made close together travel together."""
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise ConfigError("a payload", payload, "it must be bytes")
        _check_payload_size(len(payload))
        return self._queue.append_one(bytes(payload))

    def append_batch(self, payloads: Payloads) -> tuple[int, int]:
        """Append many entries, at least one; gives back the first and the last id, inclusive, once all are confirmed."""
        return self.append_batch_async(payloads).result()

    def append_batch_async(self, payloads: Payloads) -> Future[tuple[int, int]]:
        """As ``append_batch``; the future holds the ids once all are confirmed."""
        array = _binary_array(payloads)
        if len(array) == 0:
            raise ConfigError("payloads", [], "append at least one entry")
        _check_payload_size(int(payload_sizes(array).max()))
        return self._queue.append_many(array)

    def close(self) -> None:
        """Close the ledger after its last confirmed entry. Unconfirmed appends fail with LedgerClosedError.

        Wait for your futures first. A second close gives the result of the first.
        """
        self._queue.close()

    def __enter__(self) -> WriteHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class ReadHandle:
    """A ledger opened for reading, up to the last add confirmed that was known when it was opened or last asked for."""

    def __init__(self, transport: Transport, metadata: LedgerMetadata) -> None:
        self._transport = transport
        self._metadata = metadata
        self._master_key = master_key(metadata.password)
        self._last_add_confirmed = metadata.last_entry_id if metadata.last_entry_id is not None else -1

    @property
    def ledger_id(self) -> int:
        return self._metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        return self._metadata

    @property
    def is_closed(self) -> bool:
        """Whether the ledger had its end when this handle was opened."""
        return self._metadata.is_closed

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger, 0 of an open one."""
        return self._metadata.length

    @property
    def last_add_confirmed(self) -> int:
        """Entries up to here, inclusive, can be read; -1 for none."""
        return self._last_add_confirmed

    def read_last_add_confirmed(self) -> int:
        """Ask a quorum of bookies how far the ledger is confirmed; later reads may go that far.

        The last entries of a writer that pauses become visible with its next entry, or when it closes.
        Raises BookieUnavailableError, UnauthorizedAccessError.
        """
        if not self._metadata.is_closed:
            timeout_ms = int(self._transport.config.read_timeout_s * 1000)
            operation = ReadLastAddConfirmed(self._metadata, timeout_ms=timeout_ms)
            found = run_to_result(self._transport, self._metadata, self._master_key, operation)
            self._last_add_confirmed = max(self._last_add_confirmed, found)
        return self._last_add_confirmed

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Entries from ``first`` to ``last``, both inclusive, as record batches in ``bk_spark.entry.READ_SCHEMA``.

        Every entry is verified; a replica that is down, slow or damaged is left for the next one. Raises
        NoSuchEntryError beyond ``last_add_confirmed``, BookieUnavailableError, DigestMismatchError.
        """
        if not isinstance(first, int) or not isinstance(last, int) or first < 0 or last < first:
            raise ConfigError("the range of entries", (first, last), "it must start at 0 or above and not end before it starts")
        if last > self._last_add_confirmed:
            raise NoSuchEntryError(self.ledger_id, max(first, self._last_add_confirmed + 1))
        return self._read(first, last)

    def _read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        config = self._transport.config
        ahead_bytes = config.read_ahead_requests * config.read_batch_bytes
        limits = ReadLimits(int(config.read_timeout_s * 1000), config.read_batch_bytes, ahead_bytes)
        operation = ReadEntries(self._metadata, first, last, limits, avoid=self._transport.avoided())
        queue = ReadQueue(self._transport, self._metadata, self._master_key, operation)
        try:
            for batch in queue:
                yield batch.to_arrow()
        finally:
            queue.close()

    def close(self) -> None:
        """Release the handle. It holds nothing; this is for symmetry and ``with``."""

    def __enter__(self) -> ReadHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _check_payload_size(size_bytes: int) -> None:
    if size_bytes > MAX_ENTRY_BYTES:
        raise EntryTooLargeError(size_bytes, MAX_ENTRY_BYTES)


def _check_are_bytes(payloads: object) -> None:
    if isinstance(payloads, (str, bytes, bytearray, memoryview)) or not isinstance(payloads, Sequence):
        raise ConfigError("payloads", payloads, "it must be a sequence of bytes, one for each entry")
    for payload in payloads:
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise ConfigError("a payload", payload, "it must be bytes")


def _binary_array(payloads: Payloads) -> pa.BinaryArray:
    array = payloads
    if not isinstance(array, (pa.Array, pa.ChunkedArray)):
        _check_are_bytes(array)
    elif not (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
        raise ConfigError("payloads", f"an array of {array.type}", "it must be an array of binary")
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.binary())
    if not isinstance(array, pa.Array):
        array = pa.array(array, pa.binary())
    if array.null_count:
        raise ConfigError("payloads", f"{array.null_count} nulls", "an entry's payload may be empty, not null")
    return array if array.type == pa.binary() else array.cast(pa.binary())
