"""Judges a stream by what its logs hold in the end: each row of the source once, in the source's order.

The source is Spark's ``rate-micro-batch``, whose content follows from its settings and the number of its batches. So the
checker trusts nothing that the run says of itself but that number, which stands in the checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

_SHOWN = 5
"""Examples that a violation names."""

Row = tuple[int, int]
"""Milliseconds since 1970, value."""

_Item = TypeVar("_Item", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Source:
    """The settings of ``rate-micro-batch``."""

    rows_per_batch: int
    partitions: int
    start_ms: int
    advance_ms: int

    def rows(self, batches: int) -> list[Row]:
        """What the batches 0 to ``batches - 1`` hold, in the order of batches, and of partitions in each.

        Worked example: batch 1 of 6 rows in 2 partitions is 6, 8, 10 (partition 0), then 7, 9, 11.
        """
        return [row for batch in range(batches) for row in self._batch(batch)]

    def _batch(self, batch: int) -> list[Row]:
        first, time_ms = batch * self.rows_per_batch, self.start_ms + batch * self.advance_ms
        values = range(first, first + self.rows_per_batch)
        return [(time_ms, value) for partition in range(self.partitions) for value in values[partition :: self.partitions]]


def differences(what: str, expected: Sequence[_Item], found: Sequence[_Item]) -> list[str]:
    """One sentence for each kind of difference; none where both are equal, in order too."""
    here, there = Counter(found), Counter(expected)
    surplus = here - there
    kinds = {
        "lost": there - here,
        "doubled": Counter({item: count for item, count in surplus.items() if item in there}),
        "not of the source": Counter({item: count for item, count in surplus.items() if item not in there}),
    }
    told = [f"{what}: {kind} {counted.total()}, such as {_some(counted)}" for kind, counted in kinds.items() if counted]
    if not told and list(expected) != list(found):
        place = next(index for index, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1])
        told.append(f"{what}: out of order from number {place} on: {found[place]!r} stands where {expected[place]!r} should")
    return told


def _some(counted: Counter[_Item]) -> str:
    return ", ".join(repr(item)[:200] for item in list(counted)[:_SHOWN])
