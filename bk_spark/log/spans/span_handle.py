"""A span as streams read it: in the place of the handle of a ledger that has an entry for each row number.

Most entries have no row, for a compaction left it out. Rows come in the order of their numbers, whatever lane they are of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.entries.batch import NO_ENTRY
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


class SpanHandle:
    """Reads the ledgers of a span, or of some of its lanes, from bookies: no tier has them. Not thread-safe."""

    def __init__(self, span: LedgerSpan, open_ledger: _Open) -> None:
        self._span = span
        self._open_ledger = open_ledger
        self._handles: dict[int, ReadHandle] = {}

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

    def row_counts(self, first: int, last: int) -> Iterator[int]:
        """1 for each place that has a row, and 0 for the others, in order."""
        behind = first
        for rows in self._placed(first, last, AskedRows(pa.schema([]))):
            counts = np.zeros(int(places_of(rows)[-1]) + 1 - behind, np.int64)
            counts[places_of(rows) - behind] = 1
            behind += len(counts)
            yield from counts.tolist()
        yield from (0 for _ in range(behind, last + 1))

    def length_up_to(self, place: int) -> int:
        """About how many payload bytes the rows up to this place have, as if each place had an equal share."""
        return sum(one.length for one in self._span.ledgers) * (place + 1) // self._span.numbers

    def _placed(self, first: int, last: int, asked: AskedRows) -> Iterator[pa.RecordBatch]:
        wanted = AskedRows(pa.schema([*asked.schema, PLACE_FIELD]), asked.where, asked.added, asked.checks_values)
        lanes: dict[int, list[CommittedLedger]] = {}
        for one in self._span.ledgers:
            if one.last_entry_id != NO_ENTRY:
                lanes.setdefault(one.lane, []).append(one)
        return merged([self._of_lane(some, first, last, wanted) for some in lanes.values()])

    def _of_lane(self, ledgers: list[CommittedLedger], first: int, last: int, wanted: AskedRows) -> Iterator[pa.RecordBatch]:
        convert = wanted.of_entries()
        for ledger in ledgers:
            for rows in self._of_ledger(ledger, first, last, convert):
                places = places_of(rows)
                start, end = (int(one) for one in np.searchsorted(places, [first, last + 1]))
                if end > start:
                    yield rows.slice(start, end - start)

    def _of_ledger(self, ledger: CommittedLedger, first: int, last: int, convert: Converter) -> Iterator[pa.RecordBatch]:
        is_whole = first == 0 and last >= self._span.numbers - 1
        entries = range(ledger.last_entry_id + 1)
        begin = entries[0] if is_whole else self._entry_of(ledger, first)
        end = entries[-1] if is_whole else self._entry_of(ledger, last)
        # The ledger was CLOSED before the commit that listed it.
        for payloads in whole_payloads(self._handle(ledger).read_unconfirmed, ledger.ledger_id, begin, end):
            yield from convert(ledger.ledger_id, payloads)

    def _entry_of(self, ledger: CommittedLedger, place: int) -> int:
        """Where the last payload begins whose first row stands at ``place`` or before it; the first one where there is none."""
        decoder = RowDecoder(pa.schema([PLACE_FIELD]), checks_values=False)
        low, high = 0, ledger.last_entry_id
        while low < high:
            middle = (low + high + 1) // 2
            begun, first = self._first_place(ledger, middle, decoder)
            low, high = (middle, high) if first <= place else (low, max(low, begun - 1))
        return self._first_place(ledger, low, decoder)[0]

    def _first_place(self, ledger: CommittedLedger, entry_id: int, decoder: RowDecoder) -> tuple[int, int]:
        """The entry in which the payload begins that stands at ``entry_id``, and the place of its first row."""
        begun = entry_id
        while begun >= 0:
            for payloads in whole_payloads(self._handle(ledger).read_unconfirmed, ledger.ledger_id, begun, begun):
                what = f"the payload of entry {begun} of ledger {ledger.ledger_id}"
                rows = decoder.decode(payloads.column("payload")[0].as_buffer(), what)
                return begun, int(places_of(rows)[0])
            begun -= 1  # a part of a large payload, which begins before
        raise CorruptionError(f"entry {entry_id} of ledger {ledger.ledger_id}", "no payload begins before this part of one")

    def _handle(self, ledger: CommittedLedger) -> ReadHandle:
        found = self._handles.get(ledger.ledger_id)
        if found is None:
            found = self._handles[ledger.ledger_id] = self._open_ledger(ledger.ledger_id)
        return found


Readable: TypeAlias = ReadableLedger | SpanHandle
ROWS_ALONE = (TieredHandle, SpanHandle)
"""Handles that give rows, and no entries."""


def opened(opener: LogLedgerOpener, stretch: PlacedStretch) -> Readable:
    """What a stretch lies in: a ledger of the log, or a span. Raises NoSuchLedgerError."""
    return opener(stretch.ledger_id) if stretch.span is None else SpanHandle(stretch.span, opener.on_bookies)


def _without_places(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch without columns does not know how many rows it has."""
    return rows.select(schema.names) if len(schema) else pa.record_batch([pa.nulls(rows.num_rows)], ["rows"])
