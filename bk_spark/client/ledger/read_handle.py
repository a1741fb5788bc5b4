"""The handle with which an application reads a ledger, and the queue through which entries reach its threads."""

from __future__ import annotations

import itertools
import queue
from collections import deque
from collections.abc import Generator, Iterator
from types import TracebackType

import pyarrow as pa

from bk_spark.calls.forks import check_process
from bk_spark.calls.resumed_iterator import ResumedIterator
from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_state_machine_and_wait
from bk_spark.client.ledger.ledger_view import LedgerView, ReadCut
from bk_spark.client.ledger.read_stretches import AT_ONCE
from bk_spark.client.ledger.running_read import RunningRead
from bk_spark.client.protocol.limits import ReadLimits
from bk_spark.client.protocol.read_entries import ReadEntries
from bk_spark.client.protocol.state_machine import Deliver, Finish
from bk_spark.entries.batch import EntryBatch
from bk_spark.metadata.ledger_metadata import LedgerMetadata


class ReadQueue(RunningRead):
    """The batches of one read, in order, for one application thread."""

    def __init__(self, context: ClientContext, metadata: LedgerMetadata, machine: ReadEntries) -> None:
        context.check_may_wait()
        self._arrived: queue.SimpleQueue[Deliver | Finish] = queue.SimpleQueue()
        """The state machine asks for no more while ``ReadLimits.ahead_bytes`` are here."""
        super().__init__(context, metadata, machine, self._arrived.put)

    def __iter__(self) -> Iterator[EntryBatch]:
        while True:
            check_process()
            item = self._arrived.get()
            if isinstance(item, Deliver):
                yield item.batch
                self.consumed(item.batch)
            elif item.error is not None:
                raise item.error
            else:
                return


class ReadHandle(LedgerView):
    """A ledger opened for reading, up to the last add confirmed that was known when it was opened or last asked for.

    The handle follows the ledger: it remembers new ensembles, and that the ledger was closed. Threads may share it.
    """

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
        machine = self._awaiting(beyond, timeout_s)
        if machine is not None:
            self._learn(*run_state_machine_and_wait(self._context, self._metadata, machine))
        return self._last_add_confirmed

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Entries from ``first`` to ``last``, both inclusive, as record batches in ``bk_spark.entries.batch.READ_SCHEMA``.

        Every entry is verified; if a replica is down, slow or damaged the next one is read. Raises NoSuchEntryError
        beyond ``last_add_confirmed``, BookieUnavailableError, DigestMismatchError. After an interrupt, or an error, the
        iterator goes on behind the last batch that it gave.
        """
        self._check_confirmed(first, last)
        return self._from(first, last)

    def read_unconfirmed(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """As ``read``, without the bound of ``last_add_confirmed``: for entries that are otherwise known to be confirmed.

        A later recovery may cut off an entry above ``last_add_confirmed``, unless its writer was told that the entry is
        confirmed. Raises NoSuchEntryError if no bookie has an entry; it may come later.
        """
        self._check_not_behind_end(first, last)
        return self._from(first, last)

    def close(self) -> None:
        """Release the handle. It holds nothing; this exists for symmetry and ``with``."""

    def __enter__(self) -> ReadHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _from(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        return ResumedIterator(lambda place: self._read(place, last), first)

    def _read(self, first: int, last: int) -> Generator[tuple[pa.RecordBatch, int], None, None]:
        """Each batch with the entry behind it."""
        if first > last:
            return
        cut = self._cut(first, last)
        reads = (self._begin(start, end, cut.limits) for start, end in cut.ranges(last))
        under_way, behind = deque(itertools.islice(reads, AT_ONCE)), first
        try:
            while under_way:
                for batch in under_way[0]:
                    behind += len(batch)
                    yield batch.to_arrow(), behind
                self._end(under_way.popleft())
                under_way.extend(itertools.islice(reads, 1))
        finally:
            for read in under_way:
                self._end(read)

    def _cut(self, first: int, last: int) -> ReadCut:
        self._context.check_open()
        self._context.check_may_wait()
        cut = self._in_stretches(first, last)
        if len(cut.starts) > 1 and self._context.are_of_apache(self._bookies_of(first, last)):
            return cut
        return self._whole(first, last)

    def _begin(self, first: int, last: int, limits: ReadLimits) -> ReadQueue:
        machine = ReadEntries(self._metadata, first, last, limits, avoid=self._context.avoided())
        return ReadQueue(self._context, self._metadata, machine)

    def _ask_last_add_confirmed(self, *, quorum: bool) -> int:
        if not self.is_closed:
            self._read_metadata()
        self._ask_bookies(quorum=quorum)
        return self._last_add_confirmed

    def _ask_bookies(self, *, quorum: bool) -> None:
        machine = self._asking(quorum=quorum)
        if machine is not None:
            self._learn(self._metadata, run_state_machine_and_wait(self._context, self._metadata, machine))
