"""The handle that reads a ledger, as the application sees it. It may be used from several threads."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import TracebackType

import pyarrow as pa

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_state_machine_and_wait
from bk_spark.client.driver.runner import Runner
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.protocol.last_add_confirmed import AwaitLastAddConfirmed, ReadLastAddConfirmed
from bk_spark.client.protocol.limits import ReadLimits, milliseconds
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.state_machine import Command, Consumed, Deliver, Finish, Start
from bk_spark.entries.batch import NO_ENTRY, EntryBatch
from bk_spark.errors import ConfigError, NoSuchEntryError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

# --- What lies between the state machines that read and the application's threads that wait for them


class ReadQueue:
    """The batches of one read, in order. Bounded by the state machine, which asks for more only as they are consumed.

    The wait for the next batch ends, because the state machine gives up on silent bookies.
    """

    def __init__(self, context: ClientContext, metadata: LedgerMetadata, machine: ReadEntries) -> None:
        context.check_open()
        context.check_may_wait()
        self._loop = context.loop
        self._arrived: queue.SimpleQueue[Deliver | Finish] = queue.SimpleQueue()
        self._runner = Runner(context, metadata, machine, self._on_command)
        self._loop.call_soon_threadsafe(self._runner.post, Start())

    def __iter__(self) -> Iterator[EntryBatch]:
        while True:
            item = self._arrived.get()
            if isinstance(item, Deliver):
                yield item.batch
                self._loop.call_soon_threadsafe(self._runner.post, Consumed(item.batch.nbytes))
            elif item.error is not None:
                raise item.error
            else:
                return

    def close(self) -> None:
        """Stop the read, finished or not."""
        self._loop.call_soon_threadsafe(self._runner.stop)

    def _on_command(self, command: Command) -> None:
        if isinstance(command, (Deliver, Finish)):
            self._arrived.put(command)


MAX_WAIT_S = 24 * 3600.0
"""The longest single wait for a writer: an application that waits longer calls again, and shows that it is alive."""


class ReadHandle:
    """A ledger opened for reading, up to the last add confirmed that was known when it was opened or last asked for.

    The handle follows the ledger: what it learns of new ensembles, and that the ledger was closed, stays known to it.
    """

    def __init__(self, context: ClientContext, ledgers: LedgerStore, metadata: LedgerMetadata) -> None:
        self._context = context
        self._ledgers = ledgers
        self._metadata = metadata
        self._last_add_confirmed = NO_ENTRY
        self._learn(metadata, NO_ENTRY)

    @property
    def ledger_id(self) -> int:
        return self._metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest that this handle saw."""
        return self._metadata

    @property
    def is_closed(self) -> bool:
        """Whether the ledger was seen to have its end."""
        return self._metadata.is_closed

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger, 0 of one that is not known to be closed."""
        return self._metadata.length

    @property
    def last_add_confirmed(self) -> int:
        """Entries up to here, inclusive, can be read; -1 for none."""
        return self._last_add_confirmed

    def begin(self) -> None:
        """Ask the bookies how far the ledger is confirmed, by metadata that was read right now: opening a ledger calls this."""
        self._ask_bookies(quorum=True)

    def read_last_add_confirmed(self) -> int:
        """Ask a quorum of bookies how far the ledger is confirmed; later reads may go that far.

        No entry is missed that was confirmed and followed by another one before the call. The last entries of a writer that
        pauses become visible after ``ClientConfig.explicit_lac_s`` of the writer, with its next entry, or when it closes.
        Raises BookieUnavailableError, UnauthorizedAccessError, NoSuchLedgerError, MetadataUnavailableError.
        """
        return self._ask_last_add_confirmed(quorum=True)

    def try_read_last_add_confirmed(self) -> int:
        """As ``read_last_add_confirmed``, with the first answers that come: available while any bookie is, may be older."""
        return self._ask_last_add_confirmed(quorum=False)

    def wait_for_last_add_confirmed(self, beyond: int, timeout_s: float) -> int:
        """Wait until the last add confirmed is above ``beyond``, the ledger is closed, or ``timeout_s`` have passed.

        Gives back the last add confirmed, which is above ``beyond`` only in the first case, or if the ledger ends above it.
        Look at ``is_closed`` to tell the end of the ledger from a time-out. ``beyond=last_add_confirmed`` waits for what is
        new. Never moves past what is confirmed. Raises BookieUnavailableError, UnauthorizedAccessError, NoSuchLedgerError,
        MetadataUnavailableError.
        """
        _check_wait(beyond, timeout_s)
        if not self.is_closed and self._last_add_confirmed <= beyond:
            wait_ms, timeout_ms = milliseconds(timeout_s), milliseconds(self._context.config.read_timeout_s)
            machine = AwaitLastAddConfirmed(self._metadata, beyond, wait_ms=wait_ms, timeout_ms=timeout_ms)
            metadata, found = run_state_machine_and_wait(self._context, self._metadata, machine)
            self._learn(metadata, found)
        return self._last_add_confirmed

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Entries from ``first`` to ``last``, both inclusive, as record batches in ``bk_spark.entries.batch.READ_SCHEMA``.

        Every entry is verified; a replica that is down, slow or damaged is left for the next one. Raises
        NoSuchEntryError beyond ``last_add_confirmed``, BookieUnavailableError, DigestMismatchError.
        """
        _check_range(first, last)
        if last > self._last_add_confirmed:
            raise NoSuchEntryError(self.ledger_id, max(first, self._last_add_confirmed + 1))
        return self._read(first, last)

    def read_unconfirmed(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """As ``read``, without the bound of ``last_add_confirmed``: for entries that are known to be confirmed otherwise.

        An entry above ``last_add_confirmed`` that this gives may be cut off by a later recovery, unless its writer was told
        that it is confirmed. Raises NoSuchEntryError where no bookie has got an entry; it may come later.
        """
        _check_range(first, last)
        if self.is_closed and last > self._last_add_confirmed:
            raise NoSuchEntryError(self.ledger_id, max(first, self._last_add_confirmed + 1))
        return self._read(first, last)

    def close(self) -> None:
        """Release the handle. It holds nothing; this is for symmetry and ``with``."""

    def __enter__(self) -> ReadHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        limits, started_with = ReadLimits.of(self._context.config), self._metadata
        machine = ReadEntries(started_with, first, last, limits, avoid=self._context.avoided())
        queue = ReadQueue(self._context, self._metadata, machine)
        try:
            for batch in queue:
                yield batch.to_arrow()
        finally:
            queue.close()
            if machine.metadata is not started_with:
                self._learn(machine.metadata, NO_ENTRY)

    def _ask_last_add_confirmed(self, *, quorum: bool) -> int:
        """The bookies of a former ensemble know nothing newer, and none knows that a ledger was closed: look it up first."""
        if not self.is_closed:
            self._context.check_open()
            self._learn(self._ledgers.metadata(self.ledger_id), NO_ENTRY)
        self._ask_bookies(quorum=quorum)
        return self._last_add_confirmed

    def _ask_bookies(self, *, quorum: bool) -> None:
        if not self.is_closed:
            timeout_ms = milliseconds(self._context.config.read_timeout_s)
            machine = ReadLastAddConfirmed(self._metadata, timeout_ms=timeout_ms, quorum=quorum)
            self._learn(self._metadata, run_state_machine_and_wait(self._context, self._metadata, machine))

    def _learn(self, metadata: LedgerMetadata, last_add_confirmed: int) -> None:
        """Take in what was seen, of a closed ledger too: its bookies are replaced (docs/rules.md, protocol rule 57).

        Of what several threads see at once the end is never taken back; an older ensemble costs the next read another look.
        """
        if metadata.is_closed or not self._metadata.is_closed:
            self._metadata = metadata
        end = NO_ENTRY if metadata.last_entry_id is None else metadata.last_entry_id
        self._last_add_confirmed = max(self._last_add_confirmed, last_add_confirmed, end)


def _check_range(first: object, last: object) -> None:
    if not isinstance(first, int) or not isinstance(last, int) or first < 0 or last < first:
        raise ConfigError("the range of entries", (first, last), "it must start at 0 or above and not end before it starts")


def _check_wait(beyond: object, timeout_s: object) -> None:
    if not isinstance(beyond, int) or isinstance(beyond, bool) or beyond < NO_ENTRY:
        raise ConfigError("beyond", beyond, "it must be an entry id, or -1")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 <= timeout_s <= MAX_WAIT_S:
        raise ConfigError("timeout_s", timeout_s, f"it must be a number of seconds from 0 to {MAX_WAIT_S:g}")
