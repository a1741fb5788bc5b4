"""What the index does not have yet: rows since the mark, with the bodies of small adds, fences and last adds confirmed.

It grows until a checkpoint writes it out; its size in memory is estimated, bodies plus ROW_OVERHEAD_BYTES a row and a ledger.
It has no lock of its own: LedgerStorage, which shares it between the sync thread and the readers, holds one.

Ref: docs/rules.md, "Order of syncs", protocol rule 36 and storage rule 1.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from bk_spark.bookie.index_rows import BatchRow, LedgerSummary
from bk_spark.entry import NO_ENTRY

ROW_OVERHEAD_BYTES = 1024
"""Python objects of one row and its header, about 500 bytes, and as much again while a checkpoint writes its place; of one
ledger about the same."""


def _order(row: BatchRow) -> tuple[int, int]:
    return row.first_entry_id, row.sequence


@dataclass(slots=True)
class CachedLedger:
    """All that is known of a ledger as a whole, and its rows since the mark, by first entry id, then sequence."""

    master_key_hash: bytes
    highest_indexed: int = NO_ENTRY
    """The highest entry id that the index has of this ledger: what is above it can be stored in this cache only."""
    highest_cached: int = NO_ENTRY
    last_add_confirmed: int = NO_ENTRY
    fenced_at: int | None = None
    """The sequence of the record that fenced the ledger, 0 if the index says so, None if it is not fenced."""
    rows: list[BatchRow] = field(default_factory=list)
    max_span: int = 0

    def add(self, row: BatchRow, last_add_confirmed: int) -> None:
        if not self.rows or _order(self.rows[-1]) < _order(row):
            self.rows.append(row)
        else:
            insort(self.rows, row, key=_order)
        self.max_span = max(self.max_span, row.span)
        self.highest_cached = max(self.highest_cached, row.last_entry_id)
        self.confirm(last_add_confirmed)

    def confirm(self, last_add_confirmed: int) -> None:
        """Batches come in any order: the highest stays."""
        self.last_add_confirmed = max(self.last_add_confirmed, last_add_confirmed)

    def fence(self, sequence: int) -> None:
        """The first one stays."""
        if self.fenced_at is None:
            self.fenced_at = sequence

    def overlapping(self, first: int, last: int) -> list[BatchRow]:
        """The rows with intervals that meet ``first`` to ``last``, inclusive."""
        start = bisect_right(self.rows, (first - self.max_span, 0), key=_order)
        end = bisect_right(self.rows, (last + 1, 0), key=_order)
        return [row for row in self.rows[start:end] if row.last_entry_id >= first]


class WriteCache:
    def __init__(self) -> None:
        self.size_bytes = 0
        self._ledgers: dict[int, CachedLedger] = {}

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def ledger(self, ledger_id: int) -> CachedLedger | None:
        return self._ledgers.get(ledger_id)

    def begin(self, ledger_id: int, master_key_hash: bytes, indexed: LedgerSummary | None) -> CachedLedger:
        """Make room for a ledger that is not here: ``indexed`` as the index has it, else one of this master key."""
        if indexed is None:
            ledger = CachedLedger(master_key_hash)
        else:
            fenced_at = 0 if indexed.is_fenced else None
            known = (indexed.highest_entry_id, NO_ENTRY, indexed.last_add_confirmed, fenced_at)
            ledger = CachedLedger(indexed.master_key_hash, *known)
        self._ledgers[ledger_id] = ledger
        self.size_bytes += ROW_OVERHEAD_BYTES
        return ledger

    def add(self, ledger: CachedLedger, row: BatchRow, last_add_confirmed: int) -> None:
        ledger.add(row, last_add_confirmed)
        self.size_bytes += ROW_OVERHEAD_BYTES + (len(row.batch.body) if row.batch is not None else 0)

    def ledgers(self) -> Iterator[tuple[int, CachedLedger]]:
        """By ledger id."""
        return iter(sorted(self._ledgers.items()))
