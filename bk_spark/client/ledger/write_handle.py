"""Handles that write a ledger, for applications. Several threads may use one handle.

Callbacks of futures run on the client's event loop. They must be short, and a call in them that would have to wait raises
ConfigError. A future cannot be cancelled: what was appended cannot be taken back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from types import TracebackType
from typing import Generic, Self, TypeVar

from bk_spark.client.driver.client_context import ClientContext, EndsWithClient
from bk_spark.client.driver.event_loop import EventLoop, check_may_wait
from bk_spark.client.ledger.payloads import CheckedPayloads, Payload, Payloads, checked_payload, checked_payloads
from bk_spark.client.ledger.write_queue import WriteQueue
from bk_spark.client.protocol.add_entries import AddEntries
from bk_spark.client.protocol.limits import AddLimits
from bk_spark.config import MAX_ENTRY_BYTES
from bk_spark.errors import BookKeeperError, ConfigError, LedgerClosedError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

MAX_ENTRY_ID = 2**63 - 1

_Place = TypeVar("_Place")


class ClosedAfterBlock(ABC):
    """A writer that the end of a ``with`` block closes."""

    @property
    @abstractmethod
    def _title(self) -> str:
        """What a message calls this writer."""

    @property
    @abstractmethod
    def _standing(self) -> str:
        """How it stands, for whoever looks at it."""

    @abstractmethod
    def close(self) -> None: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._title}, {self._standing}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close. If the block raised an error, that error is raised, and an error of close becomes a note on it."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except BookKeeperError as problem:
            error.add_note(f"closing {self._title} failed as well: {problem}")


class InOrderWriter(ClosedAfterBlock, Generic[_Place]):
    """Appends of a writer that puts each entry behind the one before, in a ledger or in a log.

    An entry's place is its id in the ledger, or its LogPosition in the log. Appends are confirmed in the order they were made.
    """

    def append(self, payload: Payload) -> _Place:
        """Append one entry. Returns its place once it is confirmed."""
        check_may_wait(EventLoop.get())
        return self.append_async(payload).result()

    @abstractmethod
    def append_async(self, payload: Payload) -> Future[_Place]:
        """Append one entry. The future holds its place once it is confirmed. Entries made close together travel together.

        The bytes are taken during the call: memory that was handed over may be changed after it, here and in all appends.
        """

    def append_batch(self, payloads: Payloads) -> tuple[_Place, _Place]:
        """Append many entries, at least one. Returns the first and the last place, inclusive, once all are confirmed.

        In a log they all go to one ledger, with nothing else between them.
        """
        check_may_wait(EventLoop.get())
        return self.append_batch_async(payloads).result()

    @abstractmethod
    def append_batch_async(self, payloads: Payloads) -> Future[tuple[_Place, _Place]]:
        """As ``append_batch``; the future holds the places once all entries are confirmed."""


def standing_after(error: BaseException | None) -> str:
    """How a writer stands whose further appends fail with ``error``; None while it takes them."""
    if error is None:
        return "open"
    return "closed" if isinstance(error, LedgerClosedError) else f"ended by {type(error).__name__}"


class LedgerWriter:
    """What all writers of a ledger tell of it, and ask of a payload."""

    def __init__(self, context: ClientContext, machine: AddEntries) -> None:
        self._context = context
        self._machine = machine
        self._small_bytes = min(MAX_ENTRY_BYTES, context.most_apache_bytes)
        """Every bookie takes a payload of so many bytes."""

    def _checked(self, payload: object) -> bytes:
        """Raises ConfigError, EntryTooLargeError."""
        if type(payload) is bytes and len(payload) <= self._small_bytes:
            return payload  # most are, and need no further look
        checked = checked_payload(payload)
        self._context.check_payload_size(len(checked), self.metadata.fragments[-1].ensemble)
        return checked

    def _checked_many(self, payloads: Payloads) -> CheckedPayloads:
        """Raises ConfigError, EntryTooLargeError."""
        checked = checked_payloads(payloads)
        self._context.check_payload_size(int(checked.sizes.max()), self.metadata.fragments[-1].ensemble)
        return checked

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

    @property
    def _title(self) -> str:
        return f"ledger {self.ledger_id}"

    @property
    def _standing(self) -> str:
        return f"{standing_after(self._machine.error)}, last add confirmed {self.last_add_confirmed}"


class _BlockingWriter(LedgerWriter, ClosedAfterBlock):
    """What the writers of threads have in common."""

    def __init__(self, context: ClientContext, metadata: LedgerMetadata, version: int, *, deferred_sync: bool = False) -> None:
        super().__init__(context, AddEntries(metadata, version, AddLimits.of(context.config), deferred_sync=deferred_sync))
        self._queue = WriteQueue(context, self._machine)

    def _write_for(self, log: str, leader: EndsWithClient) -> None:
        """Serve the leader of a log, which appends on the event loop, and hears of the beat and the end of the client."""
        self._queue.write_for(log)
        self._context.end_with_client(leader)

    def _check_takes(self, nbytes: int) -> None:
        """Raise what refuses an entry of this size: EntryTooLargeError, or ConfigError after the end of the client."""
        self._context.check_open()
        self._context.check_payload_size(nbytes, self.metadata.fragments[-1].ensemble)

    @property
    def _is_client_closed(self) -> bool:
        return self._context.is_closed

    def force(self) -> int:
        """Make durable what was appended. Returns the last add confirmed, which covers it.

        With deferred sync: on return every entry whose append was done before the call is on the disks of all its bookies,
        and the last add confirmed has moved over it. Until then a crash of its bookies may lose it. All bookies of the
        ensemble must take part. If one is down, or was restarted since it acked an entry, NotForcedError is raised
        and the writer confirms nothing more: close it, and write on in a new ledger.

        Without deferred sync an append is done only once its entry is durable, so this waits until everything appended
        before is confirmed. Entries beyond a gap are not waited for. Raises what ended the writer.
        """
        return self._queue.force()

    def close(self) -> None:
        """Close the ledger after its last confirmed entry. Unconfirmed appends fail with LedgerClosedError.

        Wait for your futures first. With deferred sync also call ``force`` first: a ledger that was never forced ends
        without any entry. A second close gives the result of the first. Raises LedgerFencedError if somebody recovers the
        ledger, MetadataConflictError if it was closed at another entry.
        """
        self._queue.close()


class WriteHandle(_BlockingWriter, InOrderWriter[int]):
    """The one writer of a ledger.

    It replaces a bookie that fails, and goes on. Appends wait while ``ClientConfig.add_window_bytes`` are on their way, so
    memory is bounded. After the first failure of the writer itself every further append fails with the same error, and the
    outcome of what was not confirmed is unknown.
    """

    def append_async(self, payload: Payload) -> Future[int]:
        return self._queue.append_one(self._checked(payload))

    def append_batch_async(self, payloads: Payloads) -> Future[tuple[int, int]]:
        return self._queue.append_many(self._checked_many(payloads))


class AdvWriteHandle(_BlockingWriter):
    """The one writer of a ledger whose entry ids the application chooses: from 0 on, in the end without gaps.

    An id may be appended before the ids below it: the entry waits, and is confirmed after them. An id that was appended
    before, confirmed or waiting, fails with DuplicateEntryError; the writer goes on. Entries beyond a gap wait unsent. They
    are bounded by ``ClientConfig.add_window_bytes`` and never keep out the entry that fills the gap: an append beyond the gap
    for which there is no room raises AppendWindowFullError. Close ends the ledger before the first gap.
    """

    def append(self, entry_id: int, payload: Payload) -> int:
        """Append one entry. Returns its id once it and all entries below it are confirmed."""
        check_may_wait(EventLoop.get())
        return self.append_async(entry_id, payload).result()

    def append_async(self, entry_id: int, payload: Payload) -> Future[int]:
        """Append one entry. The future holds its id once it and all entries below it are confirmed."""
        check_entry_id(entry_id, 1)
        return self._queue.append_one(self._checked(payload), entry_id)

    def append_batch(self, first_entry_id: int, payloads: Payloads) -> tuple[int, int]:
        """Append consecutive entries, at least one. Returns the first and the last id once all are confirmed.

        A large batch is cut: if it fails with DuplicateEntryError, entries below the error's id may have been appended.
        """
        check_may_wait(EventLoop.get())
        return self.append_batch_async(first_entry_id, payloads).result()

    def append_batch_async(self, first_entry_id: int, payloads: Payloads) -> Future[tuple[int, int]]:
        """As ``append_batch``; the future holds the ids once all entries are confirmed."""
        checked = self._checked_many(payloads)
        check_entry_id(first_entry_id, len(checked))
        return self._queue.append_many(checked, first_entry_id)


def check_entry_id(entry_id: object, count: int) -> None:
    if not isinstance(entry_id, int) or isinstance(entry_id, bool) or not 0 <= entry_id <= MAX_ENTRY_ID - count:
        raise ConfigError("an entry id", entry_id, f"it must be a whole number from 0 to {MAX_ENTRY_ID - count}")
