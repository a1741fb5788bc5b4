"""A topic without partitions, or one partition of a topic, as it stands: its ledgers, as far as they can be read. Pure.

Ledger ids grow along a topic, so positions compare as pairs. No reader passes a ledger that is not closed: entries behind the
last confirmed one of an open ledger may still be confirmed, and come before those of the next ledger.

    ledger 5 closed with 100 entries, ledger 8 open, confirmed up to entry 2
    first position 5:0, end 8:3; the position 5:100 means the same as 8:0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bk_spark.client.ledger.stretches import Stretch
from bk_spark.errors import ConfigError
from bk_spark.pulsar.positions import Position

BEGINNING = Position(-1, -1)
"""Before all entries that a topic ever has, as Pulsar writes it: where a reader stands in a topic that has no ledger yet."""


@dataclass(frozen=True, slots=True)
class TopicLedger:
    """A ledger of a topic."""

    ledger_id: int
    last_entry_id: int
    """The last entry that can be read, inclusive; -1 for none."""
    length: int
    """Payload bytes up to there, or about as many."""
    is_closed: bool
    unreadable: str | None = None
    """Why its entries cannot be read here, though they exist; None if they can."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """What there is to read of a topic, or of one of its partitions. ``ledgers`` ascend; only the last one may be open."""

    topic: str
    ledgers: tuple[TopicLedger, ...]

    @property
    def first(self) -> Position:
        """The first entry that there is, or that will be written next."""
        return Position(self.ledgers[0].ledger_id, 0) if self.ledgers else BEGINNING

    @property
    def end(self) -> Position:
        """Behind the last entry that can be read."""
        return Position(self.ledgers[-1].ledger_id, self.ledgers[-1].last_entry_id + 1) if self.ledgers else BEGINNING

    @property
    def entries(self) -> int:
        """Entries that can be read."""
        return sum(ledger.last_entry_id + 1 for ledger in self.ledgers)

    def place(self, entry: int) -> Position:
        """The position of entry number ``entry``, counted from the first one; ``end`` for ``entries``."""
        for ledger in self.ledgers:
            if entry <= ledger.last_entry_id:
                return Position(ledger.ledger_id, entry)
            entry -= ledger.last_entry_id + 1
        return self.end

    def forward(self, position: Position) -> Position:
        """The same place, told by the ledger that holds the next entry, if that is listed: the end of a closed ledger is the
        start of the next one."""
        for index, ledger in enumerate(self.ledgers[:-1]):
            if ledger.ledger_id == position.ledger_id and position.entry_id > ledger.last_entry_id:
                return self.forward(Position(self.ledgers[index + 1].ledger_id, 0))
        return position

    def reaching(self, end: Position) -> TopicView:
        """The view up to an end that was seen before. Bookies may tell less of an open ledger now than they told then."""
        last = end.entry_id - 1
        ledgers = (
            replace(one, last_entry_id=last) if one.ledger_id == end.ledger_id and one.last_entry_id < last else one
            for one in self.ledgers
        )
        return replace(self, ledgers=tuple(ledgers))

    def missing_before(self, start: Position) -> str | None:
        """Why entries from ``start`` on may be gone; None if all are there.

        A ledger that is not listed any more may have held entries behind the position that was its end once.
        """
        if start == BEGINNING or (self.ledgers and start.ledger_id >= self.ledgers[0].ledger_id):
            return None
        listed = f"the first ledger that Pulsar lists is {self.ledgers[0].ledger_id}" if self.ledgers else "it has no ledgers"
        return f"retention trimmed ledger {start.ledger_id}, or the topic was deleted: {listed}"

    def check_listed(self, what: str, position: Position) -> None:
        """Raise ConfigError for a position in a ledger that is not the topic's. Those before the first one may be trimmed."""
        ids = [ledger.ledger_id for ledger in self.ledgers]
        if position.ledger_id not in ids and position > self.first:
            known = f"its ledgers are {', '.join(map(str, ids[:20]))}{' …' if len(ids) > 20 else ''}"
            raise ConfigError(what, str(position), f"topic '{self.topic}' has no ledger {position.ledger_id}: {known}")

    def stretches(self, start: Position, end: Position) -> Iterator[tuple[TopicLedger, Stretch]]:
        """The entries from ``start``, included, to ``end``, excluded, of each ledger that has some."""
        for ledger in self.ledgers:
            first = start.entry_id if ledger.ledger_id == start.ledger_id else 0
            last = min(ledger.last_entry_id, end.entry_id - 1) if ledger.ledger_id == end.ledger_id else ledger.last_entry_id
            if start.ledger_id <= ledger.ledger_id <= end.ledger_id and first <= last:
                yield ledger, Stretch(ledger.ledger_id, 0, ledger.last_entry_id, ledger.length).within(first, last)
