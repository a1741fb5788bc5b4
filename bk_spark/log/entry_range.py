"""Reads a log of entries through its ledgers, including the open ones at its end.

No reader passes a ledger that is not CLOSED and read to its end (log rule 2). Entries behind the last confirmed one of an
open ledger may still be confirmed, and would then come before entries that were already read:

    ledger 5 open, confirmed up to 8    ledger 6 listed behind it, confirmed up to 2
    → 0 … 8 of ledger 5, and nothing of ledger 6 until ledger 5 is closed

Ref: docs/rules.md, log rules 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from bk_spark.calls.resumed_iterator import ResumedIterator
from bk_spark.entries.batch import int64s
from bk_spark.errors import ConfigError
from bk_spark.log.stored.values import CommittedLedger, OpenLedger


class KnownEnd(Protocol):
    """How far an opened ledger can be read."""

    @property
    def is_closed(self) -> bool: ...

    @property
    def last_add_confirmed(self) -> int: ...


class LedgerReader(KnownEnd, Protocol):
    """What reading a log needs of a ledger's ReadHandle."""

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """The entries ``first`` to ``last``, inclusive."""


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """A place in a log: an entry of one of its ledgers. Only places of one ledger compare in the log's order."""

    ledger_id: int
    entry_id: int


@dataclass(frozen=True, slots=True)
class LogRange:
    """What lies between two places of a log, from ``first`` (included) to ``beyond`` (excluded).

    Both are pairs of an index in ``ledgers`` and an entry id, so that they compare in log order.
    """

    ledgers: Sequence[CommittedLedger | OpenLedger]
    first: tuple[int, int]
    beyond: tuple[int, int]

    @staticmethod
    def of(
        log_name: str, ledgers: Sequence[CommittedLedger | OpenLedger], start: LogPosition | None, end: LogPosition | None
    ) -> LogRange:
        """From ``start``, included, to ``end``, excluded. Raises ConfigError for a place in a ledger that is not listed."""
        first, beyond = place_of(log_name, ledgers, "start", start), place_of(log_name, ledgers, "end", end)
        return LogRange(ledgers, first or (0, 0), beyond or (len(ledgers), 0))

    def read(self, open_ledger: Callable[[int], LedgerReader]) -> Iterator[pa.RecordBatch]:
        """Each open ledger is opened, and asked for its last add confirmed, only when the reading reaches it.

        After an interrupt, or an error, the iterator goes on behind the last batch that it gave.
        """
        return ResumedIterator(lambda place: replace(self, first=place)._read(open_ledger), self.first)

    def _read(
        self, open_ledger: Callable[[int], LedgerReader]
    ) -> Generator[tuple[pa.RecordBatch, tuple[int, int]], None, None]:
        """Each batch with the place behind it."""
        for index, stretch in enumerate(self.stretches(), self.first[0]):
            if stretch.is_empty:
                continue
            reader = open_ledger(stretch.ledger.ledger_id)
            last, goes_on = stretch.end(reader)
            if stretch.first <= last:
                behind = stretch.first
                for one in reader.read(stretch.first, last):
                    behind += one.num_rows
                    yield with_ledger_id(stretch.ledger.ledger_id, one), (index, behind)
            if not goes_on:
                return

    def stretches(self) -> Iterator[LedgerStretch]:
        """What is to be read of each ledger, in log order."""
        for index in range(self.first[0], min(self.beyond[0] + 1, len(self.ledgers))):
            begin = self.first[1] if index == self.first[0] else 0
            yield LedgerStretch(self.ledgers[index], begin, self.beyond[1] if index == self.beyond[0] else None)


@dataclass(frozen=True, slots=True)
class LedgerStretch:
    """What is to be read of one ledger: from entry ``first``, included, to ``beyond``, excluded; None: to its end."""

    ledger: CommittedLedger | OpenLedger
    first: int
    beyond: int | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be read, as far as that is known before the ledger is opened."""
        return isinstance(self.ledger, CommittedLedger) and self.until(self.ledger.last_entry_id) < self.first

    def end(self, reader: KnownEnd) -> tuple[int, bool]:
        """The last entry to be read, inclusive, and whether the ledger behind this one may be read.

        An open ledger ends at what its reader knows to be confirmed, and the log ends there, too.
        """
        if isinstance(self.ledger, CommittedLedger):
            return self.until(self.ledger.last_entry_id), True
        is_closed = reader.is_closed  # asked before its end: a ledger that is closed in between is not read to its end
        return self.until(reader.last_add_confirmed), is_closed

    def until(self, last: int) -> int:
        """The last entry to be read, inclusive, of a ledger that ends with ``last``."""
        return last if self.beyond is None else min(last, self.beyond - 1)


def with_ledger_id(ledger_id: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with a first column ``ledger_id``."""
    ids = int64s(np.full(batch.num_rows, ledger_id, np.int64))
    schema = batch.schema.insert(0, pa.field("ledger_id", pa.int64(), nullable=False))
    return pa.RecordBatch.from_arrays([ids, *batch.columns], schema=schema)


def place_of(
    log_name: str, ledgers: Sequence[CommittedLedger | OpenLedger], what: str, position: LogPosition | None
) -> tuple[int, int] | None:
    """A position as (index in the listing, entry id). Raises ConfigError if the log does not list its ledger."""
    if position is None:
        return None
    if not isinstance(position, LogPosition):
        raise ConfigError(what, position, "it must be a LogPosition: an entry's ledger id and entry id")
    for index, ledger in enumerate(ledgers):
        if ledger.ledger_id == position.ledger_id:
            return index, position.entry_id
    gone = "it was truncated or replaced, ended without an entry, or was never there"
    raise ConfigError(what, position, f"log '{log_name}' does not list ledger {position.ledger_id}: {gone}")
