"""Stretches of ledgers → the partitions that Spark reads. Pure arithmetic.

Stretches stay in log order, across partitions and within each, so that ``collect()`` without a shuffle gives log order.
Stretches above the target size are cut by entry ids, as if all entries were equally long; smaller neighbours are packed
together.

Worked example, target 100 MB: ledgers of 250, 30 and 20 MB become 83, 83, and 83 MB, then one partition of 30 + 20 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bk_spark.metadata.ledger_metadata import LedgerMetadata

MAX_STRETCHES = 256
"""Ledgers in one partition: opening one takes a few milliseconds, so a task spends about a second on that at most."""


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


def plan(stretches: Sequence[Stretch], max_bytes: int, min_partitions: int) -> list[tuple[Stretch, ...]]:
    """Partitions of at most ``max_bytes`` but at least one entry; ``min_partitions`` of them or more if entries suffice."""
    filled = [stretch for stretch in stretches if stretch.entries]
    total = sum(stretch.length for stretch in filled)
    target = max(1, min(max_bytes, -(-total // min_partitions)))
    return list(_packed([piece for stretch in filled for piece in cut(stretch, target)], target))


def cut(stretch: Stretch, target: int) -> list[Stretch]:
    """Even parts of at most ``target`` bytes, if all entries are equally long."""
    parts = min(stretch.entries, max(1, -(-stretch.length // target)))
    firsts = [stretch.first_entry_id + stretch.entries * part // parts for part in range(parts)]
    lasts = [first - 1 for first in firsts[1:]] + [stretch.last_entry_id]
    return [_part(stretch, first, last) for first, last in zip(firsts, lasts, strict=True)]


def cut_large(
    stretches: Sequence[Stretch], max_bytes: int, describe: Callable[[list[int]], Iterable[LedgerMetadata]]
) -> list[Stretch]:
    """``stretches``, with the ledgers above ``max_bytes`` cut at their fragments where ``describe`` gives their metadata."""
    large = {stretch.ledger_id for stretch in stretches if stretch.length > max_bytes}
    metadata = {ledger.ledger_id: ledger for ledger in describe(sorted(large))}
    pieces: list[Stretch] = []
    for stretch in stretches:
        found = metadata.get(stretch.ledger_id)
        pieces += [stretch] if found is None else cut_at_fragments(stretch, found)
    return pieces


def cut_at_fragments(stretch: Stretch, metadata: LedgerMetadata) -> list[Stretch]:
    """One stretch for each fragment, so that a partition need not change from one ensemble to the next."""
    ranges = [(max(first, stretch.first_entry_id), last) for _, first, last in metadata.fragment_ranges(stretch.last_entry_id)]
    return [_part(stretch, first, last) for first, last in ranges if first <= last]


def _part(stretch: Stretch, first: int, last: int) -> Stretch:
    length = stretch.length * (last - first + 1) // stretch.entries
    return replace(stretch, first_entry_id=first, last_entry_id=last, length=length)


def _packed(pieces: Sequence[Stretch], target: int) -> Iterator[tuple[Stretch, ...]]:
    packed: list[Stretch] = []
    size = 0
    for piece in pieces:
        if packed and (size + piece.length > target or len(packed) == MAX_STRETCHES):
            yield tuple(packed)
            packed, size = [], 0
        packed.append(piece)
        size += piece.length
    if packed:
        yield tuple(packed)
