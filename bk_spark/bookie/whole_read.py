"""Reads for Apache's clients: single entries and runs of entries, each entry in one piece, whatever form it is stored in.

Apache's clients read entry by entry what may be stored in batches of thousands. So batches that were decoded are kept for the
next reads.

A read needs no key here, as at Apache's bookies. In limbo a missing entry is UNKNOWN, and so is the last entry.

Ref: Apache BookKeeper's ReadEntryProcessor, BatchedReadEntryProcessor; docs/rules.md, protocol rules 39 and 50.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bk_spark.bookie.admission import Admission, status_of
from bk_spark.bookie.batch_read import ReportDamage
from bk_spark.bookie.index.look_up import BatchWindow, newest_holding, stretch_end
from bk_spark.bookie.index.values import ProvenConfirmation, StoredBatch
from bk_spark.bookie.storage.kept_batches import KeptBatches
from bk_spark.bookie.storage.stored_ledgers import LedgerFacts, StoredLedgers
from bk_spark.entries.apache_entries import ApacheEntries, apache_entries
from bk_spark.entries.batch import NO_ENTRY, binaries
from bk_spark.entries.digest import payload_bytes, payload_sizes
from bk_spark.errors import BookKeeperError, CorruptionError, StorageError
from bk_spark.quorum import DENSE
from bk_spark.wire.apache.availability import pack_availability
from bk_spark.wire.apache.version_3 import LAST_ENTRY
from bk_spark.wire.messages import Status


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """The answer to a read of one entry."""

    status: Status
    entry: bytes = b""
    """Empty unless the status is OK."""
    confirmed: int = NO_ENTRY
    """The ledger's last add confirmed, as this bookie knows it."""


class _RefusedError(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status.name)
        self.status = status


class WholeReads:
    """Any thread may call these. They may wait for the disk, and for a sync that is under way."""

    def __init__(self, storage: StoredLedgers, admission: Admission, report: ReportDamage) -> None:
        self._storage = storage
        self._admission = admission
        self._report = report
        self._kept = KeptBatches()

    def each(self, ledger_id: int, entry_ids: Sequence[int]) -> Iterator[FoundEntry]:
        """The answers to reads of single entries of a ledger, one by one; LAST_ENTRY asks for the last one."""
        run, begun = None, 0
        for entry_id in entry_ids:
            if entry_id == LAST_ENTRY:
                yield self.last(ledger_id)
                continue
            try:
                if run is None or entry_id < begun:
                    run = self._begin(ledger_id, entry_id, max(entry_ids))
                begun = entry_id
                found = run.from_(entry_id)[0].as_py()
                yield FoundEntry(Status.OK, found, run.facts.last_add_confirmed)
            except (_RefusedError, BookKeeperError) as problem:
                yield FoundEntry(_status_of(problem), confirmed=NO_ENTRY if run is None else run.facts.last_add_confirmed)

    def last(self, ledger_id: int) -> FoundEntry:
        """The last entry of a ledger."""
        confirmed = NO_ENTRY
        try:
            if self._admission.is_limbo(ledger_id):
                return FoundEntry(Status.UNKNOWN)
            facts = self._facts(ledger_id)
            confirmed, highest = facts.last_add_confirmed, facts.highest_entry_id
            if facts.deleted_at:
                highest = self._highest_left(ledger_id, highest)
            if highest == NO_ENTRY:
                self._storage.verify_missing(ledger_id)
                return FoundEntry(Status.NO_SUCH_ENTRY, confirmed=confirmed)
            entry = self._begin(ledger_id, highest, highest).from_(highest)[0].as_py()
            return FoundEntry(Status.OK, entry, confirmed)
        except (_RefusedError, BookKeeperError) as problem:
            return FoundEntry(_status_of(problem), confirmed=confirmed)

    def run(self, ledger_id: int, first: int, most_entries: int, most_bytes: int) -> tuple[Status, list[pa.BinaryArray]]:
        """Consecutive entries from ``first`` on, of ``most_bytes`` at most with four bytes for each, but at least one.

        The status is not OK if there is not even one.
        """
        found: list[pa.BinaryArray] = []
        try:
            run = self._begin(ledger_id, first, first + most_entries - 1)
            while most_entries > 0 and (most_bytes > 0 or not found):
                entries = run.from_(first)
                fitting = _fitting(entries, most_entries, most_bytes, at_least=0 if found else 1)
                found += [entries.slice(0, fitting)] if fitting else []
                most_bytes = most_bytes - payload_bytes(entries) - 4 * fitting if fitting == len(entries) else 0
                most_entries, first = most_entries - fitting, first + fitting
        except (_RefusedError, BookKeeperError) as problem:
            return (Status.OK if found else _status_of(problem)), found
        return Status.OK, found

    def proven(self, ledger_id: int) -> ProvenConfirmation | None:
        """The last add confirmed that a writer gave by itself; None if there is none, or it cannot be read."""
        try:
            return self._storage.proven(ledger_id)
        except BookKeeperError:
            return None

    def availability(self, ledger_id: int) -> tuple[Status, bytes]:
        """Which entries of a ledger are here, as Apache's clients are told (availability.py)."""
        try:
            if self._admission.is_limbo(ledger_id):
                return Status.UNKNOWN, b""
            facts = self._facts(ledger_id)
            batches = self._storage.batches(ledger_id, 0, facts.highest_entry_id).overlapping(0, facts.highest_entry_id)
            durable = [stored for stored in batches if self._storage.wait_durable(stored)]
            return Status.OK, pack_availability(
                (stored.first_entry_id, stored.last_entry_id, stored.pattern) for stored in durable
            )
        except (_RefusedError, BookKeeperError) as problem:
            return _status_of(problem), b""

    def _facts(self, ledger_id: int) -> LedgerFacts:
        is_limbo = self._admission.is_limbo(ledger_id)
        facts = self._storage.facts(ledger_id)
        if facts is None or facts.is_deleted:
            if is_limbo:
                raise _RefusedError(Status.UNKNOWN)
            self._storage.verify_missing(ledger_id)
            raise _RefusedError(Status.NO_SUCH_LEDGER)
        if facts.is_keyed:
            raise _RefusedError(Status.UNAUTHORIZED)  # these reads have no key
        return facts

    def _begin(self, ledger_id: int, first: int, last: int) -> _Run:
        is_limbo = self._admission.is_limbo(ledger_id)  # before the ledger is looked up: it may be settled in between
        facts = self._facts(ledger_id)
        if first < 0:
            raise _RefusedError(Status.BAD_REQUEST)
        last = min(last, facts.highest_entry_id)
        return _Run(self._storage, self._report, self._kept, facts, ledger_id, first, max(first, last), is_limbo)

    def _highest_left(self, ledger_id: int, highest: int) -> int:
        """The highest id of a ledger of which a part was deleted."""
        batches = self._storage.batches(ledger_id, 0, highest).overlapping(0, highest)
        return max((stored.last_entry_id for stored in batches), default=NO_ENTRY)


class _Run:
    """Entries of one ledger from ``first`` to ``last``, from one thread."""

    def __init__(
        self,
        storage: StoredLedgers,
        report: ReportDamage,
        kept: KeptBatches,
        facts: LedgerFacts,
        ledger_id: int,
        first: int,
        last: int,
        is_limbo: bool,
    ) -> None:
        self._storage = storage
        self._report = report
        self._kept = kept
        self.facts = facts
        self._ledger_id = ledger_id
        self._last = last
        self._is_limbo = is_limbo
        self._window: BatchWindow = storage.batches(ledger_id, first, last)
        self._entries = binaries([])
        self._begin, self._end = first, first
        """The ids of ``_entries``; the end is exclusive."""

    def from_(self, position: int) -> pa.BinaryArray:
        """The entries from ``position`` on, as many as one batch holds in a row. Positions ascend.

        Raises _RefusedError, BookKeeperError.
        """
        if not self._begin <= position < self._end:
            self._entries, self._end = self._stretch(position)
            self._begin = position
        return self._entries.slice(position - self._begin)

    def _stretch(self, position: int) -> tuple[pa.BinaryArray, int]:
        """Entries, and the id behind the last one."""
        last = max(position, self._last)
        stored = newest_holding(self._window.overlapping(position, position), position)
        if stored is None:  # one that begins further back may have replaced it meanwhile
            self._window = self._storage.batches(self._ledger_id, position, last)
            stored = newest_holding(self._window.overlapping(position, position), position)
        if stored is None:
            self._deny(position)
        assert stored is not None
        if not self._storage.wait_durable(stored):
            raise _RefusedError(Status.UNKNOWN)
        batches = self._window.overlapping(position, min(stored.last_entry_id, last))
        end = stretch_end(stored, batches, DENSE, position, last) + 1
        whole = self._whole(stored)
        begin = int(whole.entry_ids.searchsorted(position))
        return whole.entries.slice(begin, end - position), end

    def _deny(self, position: int) -> None:
        if self._is_limbo:
            raise _RefusedError(Status.UNKNOWN)
        self._storage.verify_missing(self._ledger_id, position)
        raise _RefusedError(Status.NO_SUCH_ENTRY)

    def _whole(self, stored: StoredBatch) -> ApacheEntries:
        found = self._kept.get(stored)
        if found is None:
            try:
                found = apache_entries(self._storage.get(stored))
            except (CorruptionError, StorageError):
                self._report([stored])
                raise
            if len(found) > 1:
                self._kept.put(stored, found)
        return found


def _status_of(problem: _RefusedError | BookKeeperError) -> Status:
    return problem.status if isinstance(problem, _RefusedError) else status_of(problem)


def _fitting(entries: pa.BinaryArray, most_entries: int, most_bytes: int, *, at_least: int) -> int:
    """How many entries, from the first on, do not exceed the limits."""
    ends = (payload_sizes(entries) + 4).cumsum()
    fitting = int(ends.searchsorted(most_bytes, side="right"))
    return min(max(fitting, at_least), most_entries, len(entries))
