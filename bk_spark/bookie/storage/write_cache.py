"""The write cache: what is not in the index yet. Batches since the mark, small adds with their bodies, and facts about ledgers.

There are two layers. Adds go into the *active* cache. A checkpoint *freezes* it, puts an empty one in its place, and drops the
frozen one when all of it is in the index. When a ledger enters the active cache, it takes over what the frozen cache, or else
the index, knows of it. So the uppermost layer that has a ledger knows everything about it except its batches.

A deletion stays as a *tombstone*: the sequence of its record. Everything with a lower sequence is gone, in every layer and in
whatever order records come. What recovery adds after the deletion stays.

Sizes in memory are estimates: bodies, plus BATCH_OVERHEAD_BYTES for each batch and each ledger. There are no locks here:
LedgerStorage shares the layers between the sync thread, the checkpoint's and the readers, and holds a lock.

Ref: docs/rules.md, "Order of syncs", protocol rule 36, storage rules 1 and 14.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from bk_spark.bookie.index.values import LedgerSummary, ProvenConfirmation, StoredBatch
from bk_spark.entries.batch import NO_ENTRY

BATCH_OVERHEAD_BYTES = 1024
"""The Python objects of a stored batch and its header take about 500 bytes, and as much again while a checkpoint writes its
place. Those of a ledger take about the same."""


def _order(stored: StoredBatch) -> tuple[int, int]:
    return stored.first_entry_id, stored.sequence


@dataclass(slots=True)
class CachedLedger:
    """All that is known of a ledger as a whole, and its stored batches in this cache, sorted by first entry id and sequence."""

    master_key_hash: bytes
    highest_below: int = NO_ENTRY
    """The highest entry id in the layers below. Only this cache can hold higher ones."""
    highest_cached: int = NO_ENTRY
    last_add_confirmed: int = NO_ENTRY
    fenced_at: int | None = None
    """The sequence of the record that fenced the ledger, 0 if the index has the fence, None if the ledger is not fenced."""
    deleted_at: int = 0
    """The sequence of the last deletion, 0 if there was none. Stored batches with lower sequences are gone."""
    deleted_ms: int = 0
    is_deleted: bool = False
    """Nothing came after the deletion."""
    proven: ProvenConfirmation | None = None
    """The highest last add confirmed that came by itself, with its proof. None: the layers below may know one."""
    is_deletion_new: bool = False
    """The layers below do not know of the deletion."""
    has_chosen_id: bool = False
    """Its creator chose the id, so that it says nothing of the ids that the metadata store gives out."""
    batches: list[StoredBatch] = field(default_factory=list)
    max_span: int = 0

    def add(self, stored: StoredBatch, last_add_confirmed: int) -> None:
        """Does nothing if a deletion has removed it."""
        if stored.sequence < self.deleted_at:
            return
        if not self.batches or _order(self.batches[-1]) < _order(stored):
            self.batches.append(stored)
        else:
            insort(self.batches, stored, key=_order)
        self.max_span = max(self.max_span, stored.span)
        self.highest_cached = max(self.highest_cached, stored.last_entry_id)
        self.is_deleted = False
        self.confirm(last_add_confirmed)

    def confirm(self, last_add_confirmed: int) -> None:
        """Keeps the highest value given: batches come in any order."""
        self.last_add_confirmed = max(self.last_add_confirmed, last_add_confirmed)

    def prove(self, proven: ProvenConfirmation) -> None:
        """Keeps the proof of the highest value given."""
        if self.proven is None or proven.last_add_confirmed >= self.proven.last_add_confirmed:
            self.proven = proven

    def fence(self, sequence: int) -> None:
        """Keeps the first value given."""
        if self.fenced_at is None:
            self.fenced_at = sequence

    def delete(self, sequence: int, deleted_ms: int) -> None:
        """Fence the ledger, and drop its batches below ``sequence``."""
        self.fence(sequence)
        if sequence > self.deleted_at:
            self.deleted_at, self.deleted_ms, self.is_deletion_new = sequence, deleted_ms, True
            self.batches = [stored for stored in self.batches if stored.sequence > sequence]
            self.proven = None
            self.is_deleted = not self.batches

    def overlapping(self, first: int, last: int) -> list[StoredBatch]:
        """The stored batches with intervals that meet ``first`` to ``last``, inclusive."""
        start = bisect_right(self.batches, (first - self.max_span, 0), key=_order)
        end = bisect_right(self.batches, (last + 1, 0), key=_order)
        return [stored for stored in self.batches[start:end] if stored.last_entry_id >= first]


class WriteCache:
    """One layer."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.highest_ledger_id = -1
        self._ledgers: dict[int, CachedLedger] = {}

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def ledger(self, ledger_id: int) -> CachedLedger | None:
        return self._ledgers.get(ledger_id)

    def begin(self, ledger_id: int, ledger: CachedLedger) -> CachedLedger:
        """Take in a ledger that is not here."""
        assert ledger_id not in self._ledgers
        assert not ledger.batches, "batches come by add, which counts their bytes"
        self._ledgers[ledger_id] = ledger
        self.highest_ledger_id = max(self.highest_ledger_id, ledger_id)
        self.size_bytes += BATCH_OVERHEAD_BYTES
        return ledger

    def highest_issued_id(self, others: Collection[int]) -> int:
        """Without ledgers whose creators chose their ids, and without ``others``; -1 if no ledger is left."""
        return max((one for one, ledger in self._ledgers.items() if not ledger.has_chosen_id and one not in others), default=-1)

    def add(self, ledger: CachedLedger, stored: StoredBatch, last_add_confirmed: int) -> None:
        assert self._ledgers.get(stored.ledger_id) is ledger, "no batch goes to another layer, which may be written out already"
        ledger.add(stored, last_add_confirmed)
        self.size_bytes += BATCH_OVERHEAD_BYTES + (len(stored.batch.body) if stored.batch is not None else 0)

    def ledgers(self) -> Iterator[tuple[int, CachedLedger]]:
        """By ledger id."""
        return iter(sorted(self._ledgers.items()))


class CacheLayers:
    """The active cache, and the frozen one while a checkpoint writes it out."""

    def __init__(self, active: WriteCache) -> None:
        self.active = active
        self.frozen: WriteCache | None = None

    def freeze(self) -> WriteCache:
        """Returns the cache with all that was put so far. From now on another one is filled."""
        assert self.frozen is None
        self.frozen, self.active = self.active, WriteCache()
        return self.frozen

    def drop_frozen(self) -> None:
        """Call it when all of the frozen cache is in the index."""
        assert self.frozen is not None
        self.frozen = None

    def ledger(self, ledger_id: int) -> CachedLedger | None:
        """The uppermost layer's ledger, which knows everything but older batches. None if only the index may know the
        ledger."""
        found = self.active.ledger(ledger_id)
        return found if found is not None or self.frozen is None else self.frozen.ledger(ledger_id)

    def begin(self, ledger_id: int, master_key_hash: bytes, indexed: LedgerSummary | None) -> CachedLedger:
        """Take a ledger into the active cache, with all that is known of it.

        ``indexed`` is what the index knows. If nobody knows the ledger, it is new and has this master key.
        """
        frozen = None if self.frozen is None else self.frozen.ledger(ledger_id)
        if frozen is not None:
            highest = max(frozen.highest_below, frozen.highest_cached)
            ledger = replace(frozen, highest_below=highest, highest_cached=NO_ENTRY, batches=[], max_span=0)
            ledger.is_deletion_new, ledger.proven = False, None  # the frozen cache tells both
        else:
            ledger = from_summary(indexed) or CachedLedger(master_key_hash)
        return self.active.begin(ledger_id, ledger)

    def highest_ledger_id(self) -> int:
        """Of both caches; -1 if they are empty."""
        return max(self.active.highest_ledger_id, -1 if self.frozen is None else self.frozen.highest_ledger_id)

    def highest_issued_id(self, others: Collection[int]) -> int:
        """As WriteCache's, of both caches."""
        return max(layer.highest_issued_id(others) for layer in (self.active, self.frozen or self.active))

    def has_batches(self, ledger_id: int) -> bool:
        """Whether a batch of the ledger is not in the index yet."""
        return any(ledger.batches for ledger in self._cached(ledger_id))

    def overlapping(self, ledger_id: int, first: int, last: int) -> list[StoredBatch]:
        """The stored batches of both caches with intervals that meet ``first`` to ``last``, inclusive, by first entry id."""
        ledgers = self._cached(ledger_id)
        batches = [stored for ledger in ledgers for stored in ledger.overlapping(first, last)]
        return batches if len(ledgers) < 2 else sorted(batches, key=_order)

    def proven(self, ledger_id: int) -> ProvenConfirmation | None:
        """What the caches have of it."""
        return next((ledger.proven for ledger in self._cached(ledger_id) if ledger.proven is not None), None)

    def _cached(self, ledger_id: int) -> list[CachedLedger]:
        layers = [self.active] if self.frozen is None else [self.active, self.frozen]
        return [ledger for layer in layers if (ledger := layer.ledger(ledger_id)) is not None]


def from_summary(summary: LedgerSummary | None) -> CachedLedger | None:
    """A ledger as the index knows it, without stored batches."""
    if summary is None:
        return None
    return CachedLedger(
        summary.master_key_hash,
        highest_below=summary.highest_entry_id,
        last_add_confirmed=summary.last_add_confirmed,
        fenced_at=0 if summary.is_fenced else None,
        deleted_at=summary.deleted_at,
        deleted_ms=summary.deleted_ms,
        is_deleted=summary.is_deleted,
        has_chosen_id=summary.has_chosen_id,
    )
