"""The handle with which an application reads a ledger, and the queue through which entries reach its threads."""

from __future__ import annotations

import itertools
import queue
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

import pyarrow as pa

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_state_machine_and_wait
from bk_spark.client.driver.runner import Runner
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.ledger.read_parts import AT_ONCE, part_starts
from bk_spark.client.protocol.last_add_confirmed import AwaitLastAddConfirmed, ReadLastAddConfirmed
from bk_spark.client.protocol.limits import ReadLimits, milliseconds
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.state_machine import Command, Consumed, Deliver, Finish, Start
from bk_spark.entries.batch import NO_ENTRY, EntryBatch
from bk_spark.errors import ConfigError, NoSuchEntryError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import LedgerMetadata

MAX_WAIT_S = 24 * 3600.0
"""The longest single wait for a writer: an application that waits longer calls again, and shows that it is alive."""


class ReadQueue:
    """The batches of one read, in order, for one application thread.

    The state machine bounds the queue: it asks for more only as batches are consumed. The wait for the next batch always ends,
    because the state machine gives up silent bookies.
    """

    def __init__(self, context: ClientContext, metadata: LedgerMetadata, machine: ReadEntries) -> None:
        context.check_open()
        context.check_may_wait()
        self._loop = context.loop
        self._machine, self._started_with = machine, machine.metadata
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

    @property
    def new_metadata(self) -> LedgerMetadata | None:
        """What the read found in place of the metadata that it began with, if anything."""
        found = self._machine.metadata
        return None if found is self._started_with else found

    def close(self) -> None:
        """Stop the read, finished or not."""
        self._loop.call_soon_threadsafe(self._runner.stop)

    def _on_command(self, command: Command) -> None:
        if isinstance(command, (Deliver, Finish)):
            self._arrived.put(command)


class ReadHandle:
    """A ledger opened for reading, up to the last add confirmed that was known when it was opened or last asked for.

    The handle follows the ledger: it remembers new ensembles, and that the ledger was closed. Threads may share it.
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
        """Whether this handle knows that the ledger is closed."""
        return self._metadata.is_closed

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; 0 if the ledger is not known to be closed."""
        return self._metadata.length

    @property
    def last_add_confirmed(self) -> int:
        """Entries up to here, inclusive, can be read; -1 for none."""
        return self._last_add_confirmed

    def begin(self) -> None:
        """Ask the bookies how far the ledger is confirmed. Opening a ledger calls this just after it read the metadata."""
        self._ask_bookies(quorum=True)

    def read_last_add_confirmed(self) -> int:
        """Ask a quorum of bookies how far the ledger is confirmed; later reads may go that far.

        This misses no entry that was confirmed and followed by another one before the call. The last entries of a writer that
        pauses become visible after the writer's ``ClientConfig.explicit_lac_s``, with its next entry, or when it closes.
        Raises BookieUnavailableError, NoSuchLedgerError, MetadataUnavailableError.
        """
        return self._ask_last_add_confirmed(quorum=True)

    def try_read_last_add_confirmed(self) -> int:
        """As ``read_last_add_confirmed``, but the first answers suffice: works while any bookie answers, may be older."""
        return self._ask_last_add_confirmed(quorum=False)

    def wait_for_last_add_confirmed(self, beyond: int, timeout_s: float) -> int:
        """Wait until the last add confirmed is above ``beyond``, the ledger is closed, or ``timeout_s`` have passed.

        Returns the last add confirmed, which is above ``beyond`` only in the first case, or if the ledger ends above it.
        ``is_closed`` tells the end of the ledger from a timeout. ``beyond=last_add_confirmed`` waits for new entries. Never
        moves past confirmed entries. Raises BookieUnavailableError, NoSuchLedgerError, MetadataUnavailableError.
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

        Every entry is verified; if a replica is down, slow or damaged the next one is read. Raises NoSuchEntryError
        beyond ``last_add_confirmed``, BookieUnavailableError, DigestMismatchError.
        """
        _check_range(first, last)
        if last > self._last_add_confirmed:
            raise NoSuchEntryError(self.ledger_id, max(first, self._last_add_confirmed + 1))
        return self._read(first, last)

    def read_unconfirmed(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """As ``read``, without the bound of ``last_add_confirmed``: for entries that are otherwise known to be confirmed.

        A later recovery may cut off an entry above ``last_add_confirmed``, unless its writer was told that the entry is
        confirmed. Raises NoSuchEntryError if no bookie has an entry; it may come later.
        """
        _check_range(first, last)
        if self.is_closed and last > self._last_add_confirmed:
            raise NoSuchEntryError(self.ledger_id, max(first, self._last_add_confirmed + 1))
        return self._read(first, last)

    def close(self) -> None:
        """Release the handle. It holds nothing; this exists for symmetry and ``with``."""

    def __enter__(self) -> ReadHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        starts, limits = self._cut(first, last)
        parts = (self._begin(start, min(start + starts.step - 1, last), limits) for start in starts)
        under_way = deque(itertools.islice(parts, AT_ONCE))
        try:
            while under_way:
                for batch in under_way[0]:
                    yield batch.to_arrow()
                self._end(under_way.popleft())
                under_way.extend(itertools.islice(parts, 1))
        finally:
            for part in under_way:
                self._end(part)

    def _cut(self, first: int, last: int) -> tuple[range, ReadLimits]:
        """Where parts begin, each as long as the step, and the limits of each."""
        self._context.check_open()
        self._context.check_may_wait()
        limits = ReadLimits.of(self._context.config)
        share = replace(limits, ahead_bytes=limits.ahead_bytes // AT_ONCE)
        starts = part_starts(self._metadata, first, last, share.ahead_bytes)
        if len(starts) > 1 and self._context.are_of_apache(self._bookies_of(first, last)):
            return starts, share
        return range(first, last + 1, last - first + 1), limits

    def _bookies_of(self, first: int, last: int) -> list[str]:
        """Those that hold these entries, the first one's before the others'."""
        ranges = self._metadata.fragment_ranges(last)
        return list(dict.fromkeys(bookie for fragment, _, end in ranges if end >= first for bookie in fragment.ensemble))

    def _begin(self, first: int, last: int, limits: ReadLimits) -> ReadQueue:
        machine = ReadEntries(self._metadata, first, last, limits, avoid=self._context.avoided())
        return ReadQueue(self._context, self._metadata, machine)

    def _end(self, part: ReadQueue) -> None:
        part.close()
        if part.new_metadata is not None:
            self._learn(part.new_metadata, NO_ENTRY)

    def _ask_last_add_confirmed(self, *, quorum: bool) -> int:
        """Read the metadata first: bookies of a former ensemble have no news, and no bookie knows that a ledger is closed."""
        if not self.is_closed:
            self._context.check_open()
            current = self._ledgers.metadata(self.ledger_id)
            if not current.is_same_ledger(self._metadata):
                raise NoSuchLedgerError(self.ledger_id)
            self._learn(current, NO_ENTRY)
        self._ask_bookies(quorum=quorum)
        return self._last_add_confirmed

    def _ask_bookies(self, *, quorum: bool) -> None:
        if not self.is_closed:
            timeout_ms = milliseconds(self._context.config.read_timeout_s)
            machine = ReadLastAddConfirmed(self._metadata, timeout_ms=timeout_ms, quorum=quorum)
            self._learn(self._metadata, run_state_machine_and_wait(self._context, self._metadata, machine))

    def _learn(self, metadata: LedgerMetadata, last_add_confirmed: int) -> None:
        """Remember news, also of a closed ledger, as its bookies may be replaced (docs/rules.md, protocol rule 57).

        If several threads report at once, a known end is never taken back; an older ensemble costs the next read another look.
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
