"""Reads of a log: what a descriptor stands for, how it is split into tickets, and the batches of a ticket.

A ticket pins the version of the log and, where the read is split, its part of the log. So all tickets of one answer, wherever
and whenever they are redeemed, together give each row of that version once.

A read costs this process a bounded piece of memory, however slow its reader is: see ``AHEAD_BYTES`` and
``SIDE_BY_SIDE_READS``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from bk_spark.bookkeeper import BookKeeper
from bk_spark.client.ledger.stretches import Stretch
from bk_spark.config import MIB
from bk_spark.errors import MetadataConflictError
from bk_spark.gateway.flight.messages import UNKNOWN_TOTAL, Endpoint
from bk_spark.gateway.flight.requests import AskedRead
from bk_spark.log.entry_range import LogPosition
from bk_spark.log.log_handle import Log, row_reader
from bk_spark.log.rows.latest.reader import LatestReader
from bk_spark.log.rows.read_rows import RowQuery, RowReader
from bk_spark.log.rows.side_by_side import SideBySide

AHEAD_BYTES: Final = 8 * MIB
"""Of rows that wait for one reader, beside a batch of each of the three threads that read for it."""

SIDE_BY_SIDE_READS: Final = 8
"""Reads that have such threads. Further ones read with that of their call alone, and nothing ahead: with so many reads open the
processors are busy, and a reader that stops holds a few MiB."""


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """A read of one version."""

    asked: AskedRead
    """With its version."""
    reader: RowReader
    latest: LatestReader | None
    """Where only the newest row of each key is wanted."""

    @property
    def schema(self) -> pa.Schema:
        return self.reader.query.schema

    @property
    def records(self) -> int:
        """How many rows it gives, if the metadata know."""
        asked, snapshot = self.asked, self.reader.snapshot
        is_whole = asked.start is None and asked.end is None and asked.rows.where is None and self.latest is None
        if not is_whole or snapshot.open_ledgers:
            return UNKNOWN_TOTAL
        lanes = asked.rows.lane
        return sum(one.rows for one in snapshot.ledgers if lanes is None or one.lane in lanes)

    def endpoints(self, locations: tuple[str, ...]) -> list[Endpoint]:
        """As many as were asked for, or fewer where there is less to split. In log order, but for ``view=latest``."""
        parts = [self.asked] if self.asked.endpoints == 1 else self._parts()
        return [Endpoint(part.ticket, locations) for part in parts]

    def batches(self, *, side_by_side: bool) -> Iterator[pa.RecordBatch]:
        if self.latest is not None:
            yield from self.latest.read(self.asked.start, self.asked.end)
            return
        stretches = self.reader.stretches(self.asked.start, self.asked.end)
        if side_by_side:
            yield from SideBySide(stretches, self.reader.rows_of, AHEAD_BYTES).batches()
        else:
            for stretch in stretches:
                yield from self.reader.rows_of(stretch)

    def _parts(self) -> list[AskedRead]:
        if self.latest is not None:
            return [self.asked.of_lanes(lanes) for lanes in _dealt(self._lanes(), self.asked.endpoints)]
        stretches = self.reader.stretches(self.asked.start, self.asked.end)
        if not stretches:
            return [self.asked]
        firsts = [LogPosition(one.ledger_id, one.first_entry_id) for one in _firsts(stretches, self.asked.endpoints)]
        last = stretches[-1]
        ends = [*firsts[1:], LogPosition(last.ledger_id, last.last_entry_id + 1)]
        return [self.asked.between(start, end) for start, end in zip(firsts, ends, strict=True)]

    def _lanes(self) -> tuple[int, ...]:
        asked = self.asked.rows.lane
        return tuple(range(self.reader.snapshot.lanes.count)) if asked is None else asked


def planned_read(log: Log, asked: AskedRead) -> PlannedRead:
    """Raises as ``Log.read_rows``, and MetadataConflictError for a ticket of another log of this name."""
    if asked.uid not in (None, log.uid):
        raise MetadataConflictError(f"log '{log.name}'", "it was deleted and made anew since the ticket was given: ask again")
    rows = asked.rows
    query = RowQuery(rows.columns, rows.where, rows.time_zone, rows.lane)
    reader = row_reader(log, query, asked.version, asked.timestamp)
    pinned = replace(asked, version=reader.snapshot.version, timestamp=None, uid=log.uid)
    return PlannedRead(pinned, reader, LatestReader(reader, asked.view) if asked.view.is_latest else None)


def read_of(client: BookKeeper, asked: AskedRead) -> PlannedRead:
    """Raises as ``planned_read``, and NoSuchLogError."""
    return planned_read(client.open_log(asked.log), asked)


def _firsts(stretches: list[Stretch], wanted: int) -> Iterator[Stretch]:
    """The first stretch of each of ``wanted`` parts of about equal bytes."""
    total, before, given = sum(max(1, one.length) for one in stretches), 0, 0
    for stretch in stretches:
        if before * wanted >= given * total:
            given += 1
            yield stretch
        before += max(1, stretch.length)


def _dealt(lanes: tuple[int, ...], wanted: int) -> list[tuple[int, ...]]:
    count = min(wanted, len(lanes))
    return [lanes[place::count] for place in range(count)]
