"""What the index does not have yet: rows since the mark, with the bodies of small adds; fences, deletions, last adds confirmed.

Two layers. Adds go into the *active* cache; a checkpoint *freezes* it, puts an empty one in its place, and drops the frozen
one when all of it is in the index. A ledger that comes into the active cache takes over what is known of it, from the frozen
one or else from the index, so that the uppermost layer that has a ledger tells everything of it but its rows.

A deletion stays as a *tombstone*: the sequence of its record. What has a lower one is gone, in every layer and in whatever
order records come; what recovery adds behind it stays.

Sizes in memory are estimated, bodies plus ROW_OVERHEAD_BYTES a row and a ledger. There are no locks here: LedgerStorage, which
shares the layers between the sync thread, the checkpoint's and the readers, holds one.

Ref: docs/rules.md, "Order of syncs", protocol rule 36, storage rules 1 and 14.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from bk_spark.bookie.index.rows import BatchRow, LedgerSummary
from bk_spark.entries.batch import NO_ENTRY

ROW_OVERHEAD_BYTES = 1024
"""Python objects of one row and its header, about 500 bytes, and as much again while a checkpoint writes its place; of one
ledger about the same."""


def _order(row: BatchRow) -> tuple[int, int]:
    return row.first_entry_id, row.sequence


@dataclass(slots=True)
class CachedLedger:
    """All that is known of a ledger as a whole, and its rows in this cache, by first entry id, then sequence."""

    master_key_hash: bytes
    highest_below: int = NO_ENTRY
    """The highest entry id in the layers below: what is above it can be stored in this cache only."""
    highest_cached: int = NO_ENTRY
    last_add_confirmed: int = NO_ENTRY
    fenced_at: int | None = None
    """The sequence of the record that fenced the ledger, 0 if the index says so, None if it is not fenced."""
    deleted_at: int = 0
    """The sequence of the last deletion, 0 if there was none: rows with lower ones are gone."""
    deleted_ms: int = 0
    is_deleted: bool = False
    """Nothing came after the deletion."""
    is_deletion_new: bool = False
    """The layers below do not know of the deletion."""
    rows: list[BatchRow] = field(default_factory=list)
    max_span: int = 0

    def add(self, row: BatchRow, last_add_confirmed: int) -> None:
        """Nothing, if the row was deleted."""
        if row.sequence < self.deleted_at:
            return
        if not self.rows or _order(self.rows[-1]) < _order(row):
            self.rows.append(row)
        else:
            insort(self.rows, row, key=_order)
        self.max_span = max(self.max_span, row.span)
        self.highest_cached = max(self.highest_cached, row.last_entry_id)
        self.is_deleted = False
        self.confirm(last_add_confirmed)

    def confirm(self, last_add_confirmed: int) -> None:
        """Batches come in any order: the highest stays."""
        self.last_add_confirmed = max(self.last_add_confirmed, last_add_confirmed)

    def fence(self, sequence: int) -> None:
        """The first one stays."""
        if self.fenced_at is None:
            self.fenced_at = sequence

    def delete(self, sequence: int, deleted_ms: int) -> None:
        """Forget the rows before ``sequence``; the ledger is fenced from then on."""
        self.fence(sequence)
        if sequence > self.deleted_at:
            self.deleted_at, self.deleted_ms, self.is_deletion_new = sequence, deleted_ms, True
            self.rows = [row for row in self.rows if row.sequence > sequence]
            self.is_deleted = not self.rows

    def overlapping(self, first: int, last: int) -> list[BatchRow]:
        """The rows with intervals that meet ``first`` to ``last``, inclusive."""
        start = bisect_right(self.rows, (first - self.max_span, 0), key=_order)
        end = bisect_right(self.rows, (last + 1, 0), key=_order)
        return [row for row in self.rows[start:end] if row.last_entry_id >= first]


class WriteCache:
    """One layer."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._ledgers: dict[int, CachedLedger] = {}

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def ledger(self, ledger_id: int) -> CachedLedger | None:
        return self._ledgers.get(ledger_id)

    def begin(self, ledger_id: int, ledger: CachedLedger) -> CachedLedger:
        """Make room for a ledger that is not here."""
        self._ledgers[ledger_id] = ledger
        self.size_bytes += ROW_OVERHEAD_BYTES
        return ledger

    def add(self, ledger: CachedLedger, row: BatchRow, last_add_confirmed: int) -> None:
        ledger.add(row, last_add_confirmed)
        self.size_bytes += ROW_OVERHEAD_BYTES + (len(row.batch.body) if row.batch is not None else 0)

    def ledgers(self) -> Iterator[tuple[int, CachedLedger]]:
        """By ledger id."""
        return iter(sorted(self._ledgers.items()))


class CacheLayers:
    """The active cache, and the frozen one while a checkpoint writes it out."""

    def __init__(self, active: WriteCache) -> None:
        self.active = active
        self.frozen: WriteCache | None = None

    def freeze(self) -> WriteCache:
        """The cache with all that was put so far; from now on another one is filled."""
        assert self.frozen is None
        self.frozen, self.active = self.active, WriteCache()
        return self.frozen

    def drop_frozen(self) -> None:
        """All of it is in the index."""
        self.frozen = None

    def ledger(self, ledger_id: int) -> CachedLedger | None:
        """What tells all of a ledger but its rows; None if only the index may know of it."""
        found = self.active.ledger(ledger_id)
        return found if found is not None or self.frozen is None else self.frozen.ledger(ledger_id)

    def begin(self, ledger_id: int, master_key_hash: bytes, indexed: LedgerSummary | None) -> CachedLedger:
        """Make room in the active cache for a ledger that is not there, with all that is known of it.

        ``indexed`` as the index has it; if nobody has it, it is new and has this master key.
        """
        frozen = None if self.frozen is None else self.frozen.ledger(ledger_id)
        if frozen is not None:
            ledger = _above(frozen)
        else:
            ledger = CachedLedger(master_key_hash) if indexed is None else from_summary(indexed)
        return self.active.begin(ledger_id, ledger)

    def has_rows(self, ledger_id: int) -> bool:
        """Whether something of the ledger's batches is not in the index yet."""
        layers = [self.active] if self.frozen is None else [self.active, self.frozen]
        return any(ledger.rows for layer in layers if (ledger := layer.ledger(ledger_id)) is not None)

    def overlapping(self, ledger_id: int, first: int, last: int) -> list[BatchRow]:
        """The rows of both caches with intervals that meet ``first`` to ``last``, inclusive, by first entry id."""
        layers = [self.active] if self.frozen is None else [self.active, self.frozen]
        ledgers = [ledger for layer in layers if (ledger := layer.ledger(ledger_id)) is not None]
        rows = [row for ledger in ledgers for row in ledger.overlapping(first, last)]
        return rows if len(ledgers) < 2 else sorted(rows, key=_order)


def from_summary(summary: LedgerSummary) -> CachedLedger:
    """A ledger that the index knows, without rows."""
    return CachedLedger(
        summary.master_key_hash,
        highest_below=summary.highest_entry_id,
        last_add_confirmed=summary.last_add_confirmed,
        fenced_at=0 if summary.is_fenced else None,
        deleted_at=summary.deleted_at,
        deleted_ms=summary.deleted_ms,
        is_deleted=summary.is_deleted,
    )


def _above(frozen: CachedLedger) -> CachedLedger:
    """A ledger of which the frozen cache has all that the index does not."""
    return CachedLedger(
        frozen.master_key_hash,
        highest_below=max(frozen.highest_below, frozen.highest_cached),
        last_add_confirmed=frozen.last_add_confirmed,
        fenced_at=frozen.fenced_at,
        deleted_at=frozen.deleted_at,
        deleted_ms=frozen.deleted_ms,
        is_deleted=frozen.is_deleted,
    )
