"""Walks one lane from its newest entry to its oldest, until each key of a search has been met.

An entry of which nothing is known is read with some before it: their headers say what they may hold, and are remembered. An
entry that is known is read only if it may hold a key.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from bk_spark.config import MIB
from bk_spark.errors import NoSuchLedgerError
from bk_spark.log.lookup.kept_payloads import KeptPayloads
from bk_spark.log.lookup.keyed_versions import KeyedVersion
from bk_spark.log.lookup.known_entries import NO_PAYLOAD, KnownEntries, KnownEntry
from bk_spark.log.lookup.newest_rows import FoundRows
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.tier.opener import LogLedgerOpener, ReadableLedger
from bk_spark.log.tier.tiered_handle import TieredHandle
from bk_spark.rows.parts import whole_payloads

FIRST_BYTES, MOST_BYTES = MIB, 8 * MIB
"""Of payloads that are read at once while nothing is known of them, about: twice as much each time. The newest entries have
most keys that are asked for, and to learn of a long lane a round trip for each megabyte would take longer than reading it."""

_HANDLES = 1000
"""Opened ledgers that are kept: each is some kilobytes of metadata, and another one costs a round trip to ZooKeeper."""


class KeptHandles:
    """The ledgers of a log that were opened last. Threads may share it; at worst two open the same ledger."""

    def __init__(self) -> None:
        self._handles: OrderedDict[int, ReadableLedger] = OrderedDict()
        self._lock = threading.Lock()
        """Held for moments, around ``_handles``."""

    def opened(self, ledger_id: int, opener: LogLedgerOpener) -> ReadableLedger:
        """Raises as ``LogLedgerOpener``."""
        with self._lock:
            found = self._handles.get(ledger_id)
            if found is not None:
                self._handles.move_to_end(ledger_id)
                return found
        handle = opener(ledger_id)
        if isinstance(handle, TieredHandle):  # where its files lie may change
            return handle
        with self._lock:
            self._handles[ledger_id] = handle
            while len(self._handles) > _HANDLES:
                self._handles.popitem(last=False)
        return handle

    def forget(self, ledger_id: int) -> None:
        with self._lock:
            self._handles.pop(ledger_id, None)


@dataclass(slots=True)
class LaneWalk:
    """One walk. One thread takes it."""

    version: KeyedVersion
    known: KnownEntries
    handles: KeptHandles
    kept: KeptPayloads
    search: FoundRows
    check_wanted: Callable[[], None]
    """Raises once nobody waits for the look-up any more."""
    _step_bytes: int = field(default_factory=lambda: FIRST_BYTES, init=False)
    _next: int = field(default=-1, init=False)
    """The entry of the present ledger to look at next; those behind it were looked at."""

    def run(self, lane: int) -> None:
        """Raises what reading raises."""
        for ledger in self.version.ledgers.get(lane, ()):
            if self.search.is_over:
                return
            self._next = ledger.last_entry_id
            self._walk(ledger)

    def _walk(self, ledger: CommittedLedger) -> None:
        opener, ledger_id = self.version.opener, ledger.ledger_id
        if ledger_id in opener.places:
            self._look_into_files(ledger_id)
            return
        try:
            while self._next >= 0 and not self.search.is_over:
                self._step(ledger)
        except NoSuchLedgerError:
            self.handles.forget(ledger_id)
            self._look_into_files(ledger_id)

    def _step(self, ledger: CommittedLedger) -> None:
        at = self._next
        known = self.known.get(ledger.ledger_id, at)
        if known is None:
            first = self._first_unknown(ledger, at)
            payloads = self._payloads(ledger, first, at)
            for entry_id in range(at, first - 1, -1):
                self._meet(ledger, entry_id, payloads.get(entry_id))
                self._next = entry_id - 1
            return
        if len(self.search.candidates(known)):
            kept = self.kept.get(ledger.ledger_id, at)
            self._meet(ledger, at, self._payloads(ledger, at, at).get(at) if kept is None else kept)
        self._next = at - 1

    def _first_unknown(self, ledger: CommittedLedger, last: int) -> int:
        """Where to begin to read up to ``last``."""
        count = max(1, self._step_bytes * (ledger.last_entry_id + 1) // max(1, ledger.length))
        self._step_bytes = min(2 * self._step_bytes, MOST_BYTES)
        first = last
        while first > 0 and last - first + 1 < count and self.known.get(ledger.ledger_id, first - 1) is None:
            first -= 1
        return first

    def _payloads(self, ledger: CommittedLedger, first: int, last: int) -> dict[int, pa.Buffer]:
        """The payloads that begin in these entries."""
        self.check_wanted()
        handle = self.handles.opened(ledger.ledger_id, self.version.opener)
        if isinstance(handle, TieredHandle):
            raise NoSuchLedgerError(ledger.ledger_id)
        found: dict[int, pa.Buffer] = {}
        # The log lists the ledger's end: its entries are confirmed, which its bookies may not know.
        for batch in whole_payloads(handle.read_unconfirmed, ledger.ledger_id, first, last):
            self.check_wanted()
            ids, payloads = batch.column("entry_id").to_pylist(), batch.column("payload")
            found.update((entry_id, payload.as_buffer()) for entry_id, payload in zip(ids, payloads, strict=True))
        return found

    def _meet(self, ledger: CommittedLedger, entry_id: int, payload: pa.Buffer | None) -> None:
        """Look at an entry that was read, and remember what it says of its keys."""
        what = f"the payload of entry {entry_id} of ledger {ledger.ledger_id}"
        known = self.known.get(ledger.ledger_id, entry_id)
        if known is None:
            known = NO_PAYLOAD if payload is None else self.search.known_of(payload, what)
            self.known.put(ledger.ledger_id, entry_id, known)
        if payload is None:
            return
        candidates = self.search.candidates(known)
        if len(candidates):
            before = len(self.search.wanted)
            made = self.search.take(payload, what, candidates)
            if len(self.search.wanted) < before:
                self.kept.put(ledger.ledger_id, entry_id, payload)
            if known.filter is None and made is not None:
                self.known.put(ledger.ledger_id, entry_id, KnownEntry(known.rows, known.statistics, made))

    def _look_into_files(self, ledger_id: int) -> None:
        """Look at the entries up to ``_next`` of a ledger in the log's tier."""
        self.check_wanted()
        opener, search = self.version.opener, self.search
        ledger = opener(ledger_id) if ledger_id in opener.places else opener.tiered(ledger_id)
        search.take_older(self._checked(opener.rows(ledger, 0, self._next, search.asked_of_files())))

    def _checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.check_wanted()
            yield batch
