"""Handles that write a ledger, as the application sees it. They may be used from several threads.

Callbacks of futures run on the client's event loop: they must be short, and a call in them that would have to wait raises
ConfigError instead. A future cannot be cancelled: what was appended cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeAlias

import pyarrow as pa

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.ledger.write_queue import WriteQueue
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.limits import AddLimits
from bk_spark.config import MAX_ENTRY_BYTES
from bk_spark.entries.digest import payload_sizes
from bk_spark.errors import BookKeeperError, ConfigError, EntryTooLargeError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

Payloads: TypeAlias = "Sequence[bytes] | pa.BinaryArray | pa.ChunkedArray"

MAX_ENTRY_ID = 2**63 - 1


class _Writer:
    """What all writers of a ledger have in common."""

    def __init__(self, context: ClientContext, metadata: LedgerMetadata, version: int, *, deferred_sync: bool = False) -> None:
        self._machine = AddEntries(metadata, version, AddLimits.of(context.config), deferred_sync=deferred_sync)
        self._queue = WriteQueue(context, self._machine)

    @property
    def ledger_id(self) -> int:
        return self._machine.metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """As this writer last wrote it: each ensemble change adds a fragment."""
        return self._machine.metadata

    @property
    def last_add_confirmed(self) -> int:
        """The last confirmed entry, -1 before the first. With deferred sync: the last one that ``force`` made durable."""
        return self._machine.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """The last entry that was sent, -1 before the first."""
        return self._machine.last_add_pushed

    @property
    def length(self) -> int:
        """Payload bytes up to the last add confirmed."""
        return self._machine.length

    def force(self) -> int:
        """Make durable what was appended, and give back the last add confirmed, which covers it.

        With deferred sync: every entry whose append was done before the call is on the disks of all its bookies after it,
        and the last add confirmed moves over it; until then a crash of its bookies may lose it. All bookies of the ensemble
        must take part: BookieUnavailableError where one is down, or was started again since it acked an entry. The writer
        then confirms nothing more: close it, and write on in a new ledger.

        Without deferred sync an append is done only once its entry is durable: then this returns when all that was appended
        before is confirmed. Entries beyond a gap are not waited for. Raises what ended the writer.
        """
        return self._queue.force()

    def close(self) -> None:
        """Close the ledger after its last confirmed entry. Unconfirmed appends fail with LedgerClosedError.

        Wait for your futures first, and with deferred sync call ``force`` first: a ledger that was never forced ends without
        any entry. A second close gives the result of the first. Raises LedgerFencedError where somebody recovers the ledger,
        MetadataConflictError where it was closed at another entry.
        """
        self._queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close. Where the block ended with an error, that error is the one that is raised, not what close makes of it."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except BookKeeperError as problem:
            error.add_note(f"closing ledger {self.ledger_id} failed as well: {problem}")


class WriteHandle(_Writer):
    """The one writer of a ledger. Appends are confirmed in the order in which they were made.

    A bookie that fails is replaced, and the writer goes on. Appends wait while ``ClientConfig.add_window_bytes`` are on
    their way, so memory is bounded. After the first failure of the writer itself every further append fails with the same
    error, and the outcome of what was not confirmed is unknown.
    """

    def append(self, payload: bytes) -> int:
        """Append one entry; gives back its id once it is confirmed."""
        return self.append_async(payload).result()

    def append_async(self, payload: bytes) -> Future[int]:
        """Append one entry; the future holds its id once it is confirmed. Entries made close together travel together."""
        return self._queue.append_one(checked_payload(payload))

    def append_batch(self, payloads: Payloads) -> tuple[int, int]:
        """Append many entries, at least one; gives back the first and the last id, inclusive, once all are confirmed."""
        return self.append_batch_async(payloads).result()

    def append_batch_async(self, payloads: Payloads) -> Future[tuple[int, int]]:
        """As ``append_batch``; the future holds the ids once all are confirmed."""
        return self._queue.append_many(checked_payloads(payloads))


class AdvWriteHandle(_Writer):
    """The one writer of a ledger whose entry ids the application chooses: from 0 on, in the end without gaps.

    An id may be appended before the ids below it: the entry waits, and is confirmed after them. An id that was appended
    before, confirmed or waiting, fails with DuplicateEntryError; the writer goes on. What waits beyond a gap is not sent
    yet, is bounded by ``ClientConfig.add_window_bytes``, and never keeps out the entry that fills the gap: an append beyond
    the gap for which there is no room left raises AppendWindowFullError. Close ends the ledger before the first gap.
    """

    def append(self, entry_id: int, payload: bytes) -> int:
        """Append one entry; returns, with its id, once it and all entries below it are confirmed."""
        return self.append_async(entry_id, payload).result()

    def append_async(self, entry_id: int, payload: bytes) -> Future[int]:
        """Append one entry; the future holds its id once it and all entries below it are confirmed."""
        _check_entry_id(entry_id, 1)
        return self._queue.append_one(checked_payload(payload), entry_id)

    def append_batch(self, first_entry_id: int, payloads: Payloads) -> tuple[int, int]:
        """Append consecutive entries, at least one; gives back the first and the last id, once all are confirmed.

        A large batch is cut: where it fails with DuplicateEntryError, entries below the id that the error names may have
        been appended.
        """
        return self.append_batch_async(first_entry_id, payloads).result()

    def append_batch_async(self, first_entry_id: int, payloads: Payloads) -> Future[tuple[int, int]]:
        """As ``append_batch``; the future holds the ids once all are confirmed."""
        array = checked_payloads(payloads)
        _check_entry_id(first_entry_id, len(array))
        return self._queue.append_many(array, first_entry_id)


def _check_entry_id(entry_id: object, count: int) -> None:
    if not isinstance(entry_id, int) or isinstance(entry_id, bool) or not 0 <= entry_id <= MAX_ENTRY_ID - count:
        raise ConfigError("an entry id", entry_id, f"it must be a whole number from 0 to {MAX_ENTRY_ID - count}")


def checked_payload(payload: object) -> bytes:
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise ConfigError("a payload", payload, "it must be bytes")
    _check_payload_size(len(payload))
    return bytes(payload)


def checked_payloads(payloads: Payloads) -> pa.BinaryArray:
    array = _binary_array(payloads)
    if len(array) == 0:
        raise ConfigError("payloads", [], "append at least one entry")
    _check_payload_size(int(payload_sizes(array).max()))
    return array


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
