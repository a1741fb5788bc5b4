"""How many entries one micro-batch takes under the options ``maxRowsPerTrigger`` and ``maxBytesPerTrigger``, exactly.

Whole ledgers are counted by the totals in their commits. Where a ledger is cut, or a batch starts inside one, its entries are
read but not decoded. Their bytes come from the running length that each entry carries, found by binary search; their rows
from the headers of the row payloads, one entry after the other. That reads at most what the batch itself is going to read.

Worked example, at most 100 rows, ledgers of 60 and 80 rows in entries of 20: the batch ends behind the second entry of the
second ledger. With entries of 50 rows it ends behind the first ledger. With at most 10 rows it takes one entry, because a
batch without entries would make no progress.

Ref: docs/rules.md, log rule 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.datasource.options import SourceOptions
from bk_spark.errors import ConfigError
from bk_spark.log.spans.span_handle import SpanHandle
from bk_spark.log.stored.by_key.spans import LedgerSpan
from bk_spark.log.stored.values import Content, Totals
from bk_spark.log.stream.follow import PlacedStretch
from bk_spark.log.stream.positions import StreamPosition
from bk_spark.log.tier.opener import ReadableLedger
from bk_spark.log.tier.tiered_handle import TieredHandle
from bk_spark.rows.parts import rows_begun

_Position = TypeVar("_Position")


class StoredSizes:
    """Sizes of confirmed entries, read from the bookies, or from the log's tier."""

    def __init__(
        self, open_ledger: Callable[[int], ReadableLedger], open_in_span: Callable[[int], ReadHandle] | None = None
    ) -> None:
        """``open_in_span`` opens the ledgers of spans, which no tier has."""
        self._open_ledger = open_ledger
        self._open_in_span = open_in_span
        self._span: tuple[LedgerSpan, SpanHandle] | None = None
        """The last one that was asked about: its handle knows where some entries begin."""

    def in_span(self, span: LedgerSpan) -> SpanHandle:
        """Its handle."""
        if self._span is None or self._span[0] != span:
            assert self._open_in_span is not None, "only logs have spans"
            self._span = span, SpanHandle(span, self._open_in_span)
        return self._span[1]

    def length_up_to(self, ledger_id: int, entry_id: int) -> int:
        """Payload bytes of all entries up to this one, inclusive; 0 for entry -1. In a tier about so many."""
        if entry_id < 0:
            return 0
        ledger = self._open_ledger(ledger_id)
        if isinstance(ledger, TieredHandle):
            return ledger.length_up_to(entry_id)
        batches = list(ledger.read_unconfirmed(entry_id, entry_id))
        return int(batches[0].column("length")[0].as_py())

    def rows(self, ledger_id: int, first: int, last: int) -> Iterator[int]:
        """The number of rows in each entry of a log of rows, in order. A payload in parts counts in the entry of the first."""
        ledger = self._open_ledger(ledger_id)
        if isinstance(ledger, TieredHandle):
            yield from ledger.row_counts(first, last)
            return
        for batch in ledger.read_unconfirmed(first, last):
            for entry_id, payload in zip(batch.column("entry_id").to_pylist(), batch.column("payload"), strict=True):
                yield rows_begun(payload.as_buffer(), f"the payload of entry {entry_id} of ledger {ledger_id}")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one micro-batch; None for no limit."""

    max_rows: int | None
    max_bytes: int | None

    @staticmethod
    def of(limit: ReadLimit, options: SourceOptions) -> Limits:
        """Spark's limit of one trigger, with the option's limit of the other kind."""
        if isinstance(limit, ReadAllAvailable):
            return Limits(None, None)
        if isinstance(limit, ReadMaxRows):
            return Limits(limit.max_rows, options.max_bytes_per_trigger)
        if isinstance(limit, ReadMaxBytes):
            return Limits(options.max_rows_per_trigger, limit.max_bytes)
        raise ConfigError("the read limit of a trigger", limit, "the format 'bookkeeper' knows limits of rows and of bytes")

    @property
    def is_unlimited(self) -> bool:
        return self.max_rows is None and self.max_bytes is None

    @property
    def is_used_up(self) -> bool:
        return 0 in (self.max_rows, self.max_bytes)

    def without(self, rows: int, nbytes: int) -> Limits:
        """What is left of them."""
        return Limits(_left(self.max_rows, rows), _left(self.max_bytes, nbytes))

    def used(self, left: Limits) -> tuple[int, int]:
        """The rows and bytes that were taken of them, so that ``left`` is left; 0 where there is no limit."""
        return (self.max_rows or 0) - (left.max_rows or 0), (self.max_bytes or 0) - (left.max_bytes or 0)

    def share(self, logs: int) -> Limits:
        """An equal part of them for one of so many logs."""
        rows, nbytes = self.max_rows, self.max_bytes
        return Limits(None if rows is None else rows // logs, None if nbytes is None else nbytes // logs)


@dataclass(frozen=True, slots=True)
class Admitted(Generic[_Position]):
    """What a batch takes of one log, or of one topic."""

    end: _Position
    """Behind the last entry; where the batch began if it takes none."""
    left: Limits
    """What is left of the limits, or a little less."""
    is_cut: bool
    """Whether the limits left entries out."""
    is_nothing: bool
    """Whether it takes no entry."""


def default_limit(options: SourceOptions) -> ReadLimit:
    """Spark takes one limit of a trigger; ``Limits.of`` adds the other one."""
    if options.max_rows_per_trigger is not None:
        return ReadMaxRows(options.max_rows_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    return ReadAllAvailable()


def admitted(
    stretches: Iterable[PlacedStretch], start: StreamPosition, limits: Limits, sizes: StoredSizes, *, least: int = 1
) -> Admitted[StreamPosition]:
    """What the batch takes of ``stretches``, which follow ``start``: as many entries as fit, and ``least`` of them (0 or 1)."""
    end, left = start, limits
    for stretch in stretches:
        rows, nbytes, entries = _fitting(stretch, left.max_rows, left.max_bytes, sizes)
        left = left.without(rows, nbytes)
        if entries < stretch.entries:
            taken = max(entries, least) if end == start else entries
            if taken:
                end = StreamPosition(stretch.version, stretch.index, stretch.ledger_id, stretch.first_entry_id + taken)
            return Admitted(end, left, is_cut=True, is_nothing=end == start)
        end = stretch.position_after
        if left.is_used_up:
            break
    return Admitted(end, left, is_cut=False, is_nothing=end == start)


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - used)


def _fitting(stretch: PlacedStretch, rows_left: int | None, bytes_left: int | None, sizes: StoredSizes) -> tuple[int, int, int]:
    """How many rows, bytes and entries of a stretch fit. Rows and bytes are exact where all entries fit and have a limit.

    Where only some fit, rows and bytes are those that would fit by one of the limits alone: never less than what is taken.
    """
    if stretch.span is not None and (rows_left is not None or bytes_left is not None):
        return _of_span(stretch, stretch.span, rows_left, bytes_left, sizes)
    rows, by_rows = (stretch.rows, stretch.entries) if rows_left is None else _by_rows(stretch, rows_left, sizes)
    nbytes, by_bytes = (stretch.nbytes, stretch.entries) if bytes_left is None else _by_bytes(stretch, bytes_left, sizes)
    return rows, nbytes, min(by_rows, by_bytes)


def _of_span(
    stretch: PlacedStretch, span: LedgerSpan, rows_left: int | None, bytes_left: int | None, sizes: StoredSizes
) -> tuple[int, int, int]:
    """Rows are counted, and are taken to be equally long."""
    total = Totals.of(span.ledgers)
    row_bytes = -(-total.length // max(1, total.rows))
    limits = [one for one in (rows_left, None if bytes_left is None else bytes_left // max(1, row_bytes)) if one is not None]
    if stretch.is_whole and total.rows <= min(limits):
        return total.rows, total.length, stretch.entries
    rows, places = sizes.in_span(span).fitting(stretch.first_entry_id, stretch.last_entry_id, min(limits))
    return rows, rows * row_bytes, places


def _by_rows(stretch: PlacedStretch, rows_left: int, sizes: StoredSizes) -> tuple[int, int]:
    if stretch.content is Content.ENTRIES:
        return (entries := min(stretch.entries, rows_left)), entries
    if stretch.is_whole and stretch.rows <= rows_left:
        return stretch.rows, stretch.entries
    rows = entries = 0
    for rows_of_entry in sizes.rows(stretch.ledger_id, stretch.first_entry_id, stretch.last_entry_id):
        if rows + rows_of_entry > rows_left:
            break
        rows, entries = rows + rows_of_entry, entries + 1
    return rows, entries


def _by_bytes(stretch: PlacedStretch, bytes_left: int, sizes: StoredSizes) -> tuple[int, int]:
    if stretch.is_whole and stretch.nbytes <= bytes_left:
        return stretch.nbytes, stretch.entries
    before = sizes.length_up_to(stretch.ledger_id, stretch.first_entry_id - 1)

    def nbytes(entries: int) -> int:
        return sizes.length_up_to(stretch.ledger_id, stretch.first_entry_id + entries - 1) - before

    total = nbytes(stretch.entries)
    if total <= bytes_left:
        return total, stretch.entries
    taken, fitting, too_many = 0, 0, stretch.entries
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if (up_to_here := nbytes(middle)) <= bytes_left:
            taken, fitting = up_to_here, middle
        else:
            too_many = middle
    return taken, fitting
