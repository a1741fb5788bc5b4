"""Reading a log through its closed and open ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from bk_spark.errors import ConfigError
from bk_spark.log.entry_range import LogPosition, LogRange
from bk_spark.log.stored.values import CommittedLedger, OpenLedger


@dataclass
class Shelf:
    """Ledgers in log order, and which parts of them were read."""

    ledgers: list[CommittedLedger | OpenLedger] = field(default_factory=list)
    last_add_confirmed: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    reads: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, entries: int) -> int:
        ledger_id = 11 + len(self.ledgers)
        self.ledgers.append(CommittedLedger(ledger_id, entries - 1, entries, entries))
        return ledger_id

    def add_open(self, last_add_confirmed: int, *, is_closed: bool = False) -> int:
        """``is_closed``: by its leader, and no version has recorded it."""
        ledger_id = 11 + len(self.ledgers)
        self.ledgers.append(OpenLedger(ledger_id, 1))
        self.last_add_confirmed[ledger_id] = last_add_confirmed
        if is_closed:
            self.closed.add(ledger_id)
        return ledger_id

    def open(self, ledger_id: int) -> ShelfReader:
        return ShelfReader(self, ledger_id)

    def range(self, start: LogPosition | None = None, end: LogPosition | None = None) -> LogRange:
        return LogRange.of("orders", tuple(self.ledgers), start, end)

    def read(self, start: LogPosition | None = None, end: LogPosition | None = None) -> list[tuple[int, int]]:
        """The places of the entries that are read, in order."""
        batches = list(self.range(start, end).read(self.open))
        return [place for batch in batches for place in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


@dataclass
class ShelfReader:
    shelf: Shelf
    ledger_id: int

    @property
    def is_closed(self) -> bool:
        return self.ledger_id in self.shelf.closed

    @property
    def last_add_confirmed(self) -> int:
        return self.shelf.last_add_confirmed[self.ledger_id]

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        self.shelf.reads.append((self.ledger_id, first, last))
        for one in range(first, last + 1):
            yield pa.record_batch({"entry_id": [one]})


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def test_a_log_is_read_in_its_own_order_each_row_with_its_place_and_empty_ledgers_are_not_opened(shelf: Shelf) -> None:
    a, _, b = shelf.add(2), shelf.add(0), shelf.add(3)
    assert shelf.read() == [(a, 0), (a, 1), (b, 0), (b, 1), (b, 2)]
    assert shelf.reads == [(a, 0, 1), (b, 0, 2)]


def test_reading_starts_at_start_and_ends_before_end(shelf: Shelf) -> None:
    a, b, c = (shelf.add(5) for _ in range(3))
    shelf.read(LogPosition(a, 3), LogPosition(c, 2))
    shelf.read(LogPosition(b, 1), LogPosition(b, 3))
    shelf.read(LogPosition(b, 5), LogPosition(c, 0))
    shelf.read(LogPosition(c, 1), LogPosition(b, 3))
    assert shelf.reads == [(a, 3, 4), (b, 0, 4), (c, 0, 1), (b, 1, 2)]


def test_a_position_in_a_ledger_that_the_log_does_not_list_is_refused_at_the_call(shelf: Shelf) -> None:
    shelf.add(3)
    with pytest.raises(ConfigError, match=r"start is .*: log 'orders' does not list ledger 99"):
        shelf.range(start=LogPosition(99, 0))


def test_an_open_ledger_is_read_as_far_as_it_is_confirmed(shelf: Shelf) -> None:
    a, b = shelf.add(1), shelf.add_open(1)
    assert shelf.read() == [(a, 0), (b, 0), (b, 1)]
    assert shelf.read(LogPosition(b, 1)) == [(b, 1)]
    assert shelf.read(LogPosition(b, 2)) == []
    assert shelf.read(end=LogPosition(b, 1)) == [(a, 0), (b, 0)]


def test_an_open_ledger_without_confirmed_entries_is_no_error(shelf: Shelf) -> None:
    shelf.add_open(-1)
    assert shelf.read() == []


def test_reading_passes_a_ledger_that_is_closed_though_no_version_has_recorded_its_end(shelf: Shelf) -> None:
    a, b = shelf.add_open(1, is_closed=True), shelf.add_open(0)
    assert shelf.read() == [(a, 0), (a, 1), (b, 0)]


@pytest.mark.parametrize("holds", [True, False], ids=["as shipped", "without the rule"])
def test_no_reader_passes_a_ledger_that_is_not_closed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, holds: bool) -> None:
    """Log rule 2: it would read entries before which others are confirmed later, and so another order than who reads later."""
    if not holds:
        monkeypatch.setattr(ShelfReader, "is_closed", True)
    a, b = shelf.add_open(0), shelf.add_open(0)
    before = shelf.read()
    shelf.last_add_confirmed[a] = 1
    shelf.closed |= {a, b}
    after = shelf.read()
    assert after == [(a, 0), (a, 1), (b, 0)]
    assert (before == after[: len(before)]) == holds


def test_a_ledger_that_is_closed_while_it_is_read_is_not_passed_for_what_was_read_is_not_its_end(shelf: Shelf) -> None:
    """Log rule 2."""
    a, b = shelf.add_open(0), shelf.add_open(0)
    reading = shelf.range().read(shelf.open)
    assert next(reading).column("entry_id").to_pylist() == [0]
    shelf.last_add_confirmed[a] = 1
    shelf.closed |= {a, b}
    assert list(reading) == []
