"""Stretches of ledgers: entries of one ledger that follow each other, which one task, thread or request chain reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from bk_spark.entries.batch import NO_ENTRY
from bk_spark.metadata.ledger_metadata import LedgerMetadata


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries of one ledger, first and last inclusive, and about how many payload bytes they have."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    length: int

    @property
    def entries(self) -> int:
        return self.last_entry_id - self.first_entry_id + 1

    def within(self, first: int, last: int) -> Stretch:
        """Some of its entries, with their share of the bytes as if all entries were equally long."""
        length = self.length * (last - first + 1) // self.entries
        return replace(self, first_entry_id=first, last_entry_id=last, length=length)


def cut(stretch: Stretch, target: int) -> list[Stretch]:
    """Even stretches of at most ``target`` bytes, if all entries are equally long."""
    count = min(stretch.entries, max(1, -(-stretch.length // target)))
    firsts = [stretch.first_entry_id + stretch.entries * number // count for number in range(count)]
    lasts = [first - 1 for first in firsts[1:]] + [stretch.last_entry_id]
    return [stretch.within(first, last) for first, last in zip(firsts, lasts, strict=True)]


def cut_at_fragments(stretch: Stretch, metadata: LedgerMetadata) -> list[Stretch]:
    """One stretch for each fragment, so that a partition need not change from one ensemble to the next."""
    ranges = [(max(first, stretch.first_entry_id), last) for _, first, last in metadata.fragment_ranges(stretch.last_entry_id)]
    return [stretch.within(first, last) for first, last in ranges if first <= last]


class ConfirmedLedger(Protocol):
    """A ledger as far as it is confirmed."""

    @property
    def ledger_id(self) -> int: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def last_add_confirmed(self) -> int: ...

    @property
    def length(self) -> int: ...

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]: ...


def confirmed_stretch(handle: ConfirmedLedger) -> Stretch:
    """All confirmed entries of a ledger. Each entry carries the payload bytes up to it: the last one gives the size."""
    last = handle.last_add_confirmed
    length = handle.length
    if not handle.is_closed and last != NO_ENTRY:
        length = sum(int(batch.column("length")[0].as_py()) for batch in handle.read(last, last))
    return Stretch(handle.ledger_id, 0, last, length)
