"""A span as streams read it: in the place of the handle of a ledger that has an entry for each row number.

Most entries have no row, for a compaction left it out. Rows come in the order of their numbers, whatever lane they are of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.config import MIB
from bk_spark.errors import CorruptionError
from bk_spark.log.spans.merged import merged, places_of
from bk_spark.log.stored.by_key.settings import PLACE
from bk_spark.log.stored.by_key.spans import LedgerSpan
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.log.stream.follow import PlacedStretch
from bk_spark.log.tier.asked_rows import AskedRows
from bk_spark.log.tier.opener import LogLedgerOpener, ReadableLedger
from bk_spark.log.tier.tiered_handle import TieredHandle
from bk_spark.rows.codec import RowDecoder
from bk_spark.rows.parts import whole_payloads
from bk_spark.rows.reading import Converter

PLACE_FIELD = pa.field(PLACE, pa.int64())

_Open: TypeAlias = Callable[[int], ReadHandle]


AHEAD_BYTES = 64 * MIB
"""Of payloads that are read ahead for all lanes together. Each lane has one entry at least."""


class SpanHandle:
    """Reads the ledgers of a span, or of some of its lanes, from bookies: no tier has them. Not thread-safe."""

    def __init__(self, span: LedgerSpan, open_ledger: _Open) -> None:
        self._span = span
        self._open_ledger = open_ledger
        self._handles: dict[int, ReadHandle] = {}
        self._first_places: dict[tuple[int, int], tuple[int, int]] = {}
        """Ledger and entry → where the payload begins that stands there, and the place of its first row."""

    def rows(self, first: int, last: int, asked: AskedRows) -> Iterator[pa.RecordBatch]:
        """The rows with the places ``first`` to ``last``, both inclusive, in their order.

        Raises NoSuchLedgerError, CorruptionError, BookieUnavailableError.
        """
        for rows in self._placed(first, last, asked):
            yield _without_places(rows, asked.schema)

    def rows_of_entries(self, first: int, last: int, asked: AskedRows) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        """The same rows, each batch with the first place behind it; None at the end, if no row stands there."""
        behind = first
        for rows in self._placed(first, last, asked):
            behind = int(places_of(rows)[-1]) + 1
            yield _without_places(rows, asked.schema), behind
        if behind <= last:
            yield None, last + 1

    def fitting(self, first: int, last: int, most: int) -> tuple[int, int]:
        """How many rows, up to ``most``, and how many places a reader takes from ``first`` to ``last``, both inclusive."""
        rows = 0
        for found in self._placed(first, last, AskedRows(pa.schema([]))):
            if rows + found.num_rows > most:
                return most, int(places_of(found)[most - rows]) - first
            rows += found.num_rows
        return rows, last - first + 1

    def _placed(self, first: int, last: int, asked: AskedRows) -> Iterator[pa.RecordBatch]:
        wanted = AskedRows(pa.schema([*asked.schema, PLACE_FIELD]), asked.where, asked.added, asked.checks_values)
        lanes = self._span.by_lane
        ahead = AHEAD_BYTES // max(1, len(lanes))
        return merged([self._of_lane(lane, first, last, wanted.of_entries(), ahead) for lane in lanes])

    def _of_lane(self, lane: LedgerSpan, first: int, last: int, convert: Converter, ahead: int) -> Iterator[pa.RecordBatch]:
        for ledger in lane.ledgers:
            for rows in self._of_ledger(ledger, first, ahead, convert):
                places = places_of(rows)
                if places[0] > last:
                    return
                start, end = (int(one) for one in np.searchsorted(places, [first, last + 1]))
                if end > start:
                    yield rows.slice(start, end - start)

    def _of_ledger(self, ledger: CommittedLedger, first: int, ahead: int, convert: Converter) -> Iterator[pa.RecordBatch]:
        """The rows from an entry on that has none behind ``first`` before it, some entries at a time."""
        entries = ledger.last_entry_id + 1
        step = max(1, ahead * entries // max(1, ledger.length))
        for begin in range(self._entry_of(ledger, first) if first else 0, entries, step):
            place = (begin, min(begin + step, entries) - 1)
            # The ledger was CLOSED before the commit that listed it.
            for payloads in whole_payloads(self._handle(ledger).read_unconfirmed, ledger.ledger_id, *place):
                yield from convert(ledger.ledger_id, payloads)

    def _entry_of(self, ledger: CommittedLedger, place: int) -> int:
        """Where the last payload begins whose first row stands at ``place`` or before it; the first one where there is none."""
        low, high = 0, ledger.last_entry_id
        while low < high:
            middle = (low + high + 1) // 2
            begun, first = self._first_place(ledger, middle)
            low, high = (middle, high) if first <= place else (low, max(low, begun - 1))
        return self._first_place(ledger, low)[0]

    def _first_place(self, ledger: CommittedLedger, entry_id: int) -> tuple[int, int]:
        known = (ledger.ledger_id, entry_id)
        if known not in self._first_places:
            self._first_places[known] = self._read_first_place(ledger, entry_id)
        return self._first_places[known]

    def _read_first_place(self, ledger: CommittedLedger, entry_id: int) -> tuple[int, int]:
        for begun in range(entry_id, -1, -1):  # before a part of a large payload comes the first one
            for payloads in whole_payloads(self._handle(ledger).read_unconfirmed, ledger.ledger_id, begun, begun):
                what = f"the payload of entry {begun} of ledger {ledger.ledger_id}"
                decoder = RowDecoder(pa.schema([PLACE_FIELD]), checks_values=False)
                return begun, int(places_of(decoder.decode(payloads.column("payload")[0].as_buffer(), what))[0])
        raise CorruptionError(f"entry {entry_id} of ledger {ledger.ledger_id}", "no payload begins before this part of one")

    def _handle(self, ledger: CommittedLedger) -> ReadHandle:
        found = self._handles.get(ledger.ledger_id)
        if found is None:
            found = self._handles[ledger.ledger_id] = self._open_ledger(ledger.ledger_id)
        return found


Readable: TypeAlias = ReadableLedger | SpanHandle
ROWS_ALONE = (TieredHandle, SpanHandle)
"""Handles that give rows, and no payloads."""


def opened(opener: LogLedgerOpener, stretch: PlacedStretch) -> Readable:
    """What a stretch lies in: a ledger of the log, or a span. Raises NoSuchLedgerError."""
    return opener(stretch.ledger_id) if stretch.span is None else SpanHandle(stretch.span, opener.on_bookies)


def _without_places(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch without columns does not know how many rows it has."""
    return rows.select(schema.names) if len(schema) else pa.record_batch([pa.nulls(rows.num_rows)], ["rows"])
