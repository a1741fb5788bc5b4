"""Spans: the ledgers that a compaction by key made, which only together tell where their rows stand.

A compaction by key leaves rows out, and puts those of each lane into a ledger of its own. All other rows keep their numbers. So
the new ledgers cover together the row numbers of those that they took the place of: ``CommittedLedger.span``. Each row has its
number beside it, in the column PLACE.

Worked example: three commits of four rows each in two lanes, numbers 0 to 11, become a span of 12 numbers. Its ledger of lane 0
has the rows 1, 8 and 10, that of lane 1 the rows 3 and 11.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bk_spark.log.stored.values import CommittedLedger, OpenLedger, Totals


@dataclass(frozen=True, slots=True)
class LedgerSpan:
    """The ledgers of one span, or some of their lanes, in the order in which the log lists them."""

    ledgers: tuple[CommittedLedger, ...]
    numbers: int
    """How many row numbers the whole span covers."""

    @staticmethod
    def of(ledgers: Sequence[CommittedLedger]) -> LedgerSpan:
        """A whole one."""
        return LedgerSpan(tuple(ledgers), ledgers[0].span or 0)

    @property
    def as_one(self) -> CommittedLedger:
        """As a stream sees it: one ledger, with the id of the first, that has an entry for each row number."""
        first, total = self.ledgers[0], Totals.of(self.ledgers)
        return CommittedLedger(first.ledger_id, self.numbers - 1, total.length, self.numbers)

    @property
    def by_lane(self) -> list[LedgerSpan]:
        """The parts of each lane that has an entry."""
        lanes: dict[int, list[CommittedLedger]] = {}
        for one in self.ledgers:
            if not one.is_empty:
                lanes.setdefault(one.lane, []).append(one)
        return [LedgerSpan(tuple(ledgers), self.numbers) for ledgers in lanes.values()]

    def in_lanes(self, lanes: Collection[int]) -> LedgerSpan:
        return LedgerSpan(tuple(one for one in self.ledgers if one.lane in lanes), self.numbers)


def units(listed: Iterable[CommittedLedger]) -> Iterator[tuple[CommittedLedger, ...]]:
    """The ledgers of a log in their order: each span as a whole, each other ledger by itself."""
    unit: list[CommittedLedger] = []
    for one in listed:
        if unit and one.span != 0:
            yield tuple(unit)
            unit = []
        unit.append(one)
    if unit:
        yield tuple(unit)


def start_of_unit(listed: Sequence[CommittedLedger | OpenLedger], place: int) -> int:
    """Where the span begins that the ledger at ``place`` is in; ``place`` itself for any other ledger."""
    while isinstance(one := listed[place], CommittedLedger) and one.span == 0:
        place -= 1
    return place


def end_of_unit(listed: Sequence[CommittedLedger | OpenLedger], place: int) -> int:
    """Behind the span, or the ledger, at ``place``."""
    place += 1
    while place < len(listed) and isinstance(one := listed[place], CommittedLedger) and one.span == 0:
        place += 1
    return place
