"""Stretches of ledgers → the partitions that Spark reads. Pure arithmetic.

Stretches stay in log order, across partitions and within each, so that ``collect()`` without a shuffle gives log order.
Stretches above the target size are cut by entry ids, as if all entries were equally long; smaller neighbours are packed
together.

Worked example, target 100 MB: ledgers of 250, 30 and 20 MB become 83, 83, and 83 MB, then one partition of 30 + 20 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from bk_spark.client.ledger.stretches import Stretch, cut, cut_at_fragments
from bk_spark.metadata.ledger_metadata import LedgerMetadata

MAX_STRETCHES = 256
"""Ledgers in one partition: opening one takes a few milliseconds, so a task spends about a second on that at most."""


def plan(stretches: Sequence[Stretch], max_bytes: int, min_partitions: int) -> list[tuple[Stretch, ...]]:
    """Partitions of at most ``max_bytes`` but at least one entry; ``min_partitions`` of them or more if entries suffice."""
    filled = [stretch for stretch in stretches if stretch.entries]
    total = sum(stretch.length for stretch in filled)
    target = max(1, min(max_bytes, -(-total // min_partitions)))
    return list(_packed([short for stretch in filled for short in cut(stretch, target)], target))


def cut_large(
    stretches: Sequence[Stretch], max_bytes: int, describe: Callable[[list[int]], Iterable[LedgerMetadata]]
) -> list[Stretch]:
    """``stretches``, with the ledgers above ``max_bytes`` cut at their fragments where ``describe`` gives their metadata."""
    large = {stretch.ledger_id for stretch in stretches if stretch.length > max_bytes}
    metadata = {ledger.ledger_id: ledger for ledger in describe(sorted(large))}
    shorter: list[Stretch] = []
    for stretch in stretches:
        found = metadata.get(stretch.ledger_id)
        shorter += [stretch] if found is None else cut_at_fragments(stretch, found)
    return shorter


def _packed(stretches: Sequence[Stretch], target: int) -> Iterator[tuple[Stretch, ...]]:
    packed: list[Stretch] = []
    size = 0
    for stretch in stretches:
        if packed and (size + stretch.length > target or len(packed) == MAX_STRETCHES):
            yield tuple(packed)
            packed, size = [], 0
        packed.append(stretch)
        size += stretch.length
    if packed:
        yield tuple(packed)
