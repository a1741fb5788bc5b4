"""LogFollower: plans where a stream starts, how far it can read now, and what lies between two positions.

Planning uses immutable versions, and two things that can change, both given by the caller: the head, and how far the open
ledgers are confirmed (``LedgerEnd``). It costs as much as the versions that it looks at, however many are below.

Ref: docs/rules.md, log rules 2, 6, 7 and 10.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from bk_spark.client.ledger.read_handle import ReadHandle
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import ConfigError, DataLossError, LogReplacedError
from bk_spark.log.stored.by_key.spans import LedgerSpan
from bk_spark.log.stored.snapshot import LogReader
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Content, Head, LogVersion, OpenLedger, Totals
from bk_spark.log.stream.order import FAIL, READ, Describe, Given, StreamOrder
from bk_spark.log.stream.positions import StreamPosition, behind
from bk_spark.log.stream.resume import is_readable, resumed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """How far an open ledger can be read, according to its bookies or its metadata."""

    last_entry_id: int
    """-1 for none."""
    is_closed: bool

    @staticmethod
    def of(handle: ReadHandle) -> LedgerEnd:
        """As a handle knows it. Its metadata counts first: another thread may have updated that, but not yet the LAC."""
        end = handle.metadata.last_entry_id
        return LedgerEnd(handle.last_add_confirmed, is_closed=False) if end is None else LedgerEnd(end, is_closed=True)


@dataclass(frozen=True, slots=True)
class PlacedStretch:
    """A stretch of a ledger, first and last entry inclusive, with its place in the stream."""

    version: int
    index: int
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    rows: int
    """Exact for a whole ledger or span, and for entries; otherwise estimated as if rows were spread evenly over entries."""
    nbytes: int
    """Payload bytes, estimated in the same way; 0 if the ledger is open."""
    end_row: int | None
    """The row number behind the ledger's last row; None if it is open."""
    content: Content
    schema_id: int | None
    is_whole: bool
    span: LedgerSpan | None = None
    """Set for a span: its ledgers in the lanes to read. Entries are then row numbers, the first one of the span is 0."""

    @property
    def position_after(self) -> StreamPosition:
        """Where a stream stands after it has read this stretch."""
        return StreamPosition(self.version, self.index, self.ledger_id, self.last_entry_id + 1)

    @property
    def entries(self) -> int:
        return self.last_entry_id - self.first_entry_id + 1

    @property
    def ledger_ids(self) -> list[int]:
        """The ledgers that are read."""
        return [self.ledger_id] if self.span is None else [one.ledger_id for one in self.span.ledgers]


@dataclass(frozen=True, slots=True)
class Newest:
    """How far a stream can read now. ``replaced_by`` is the version that stops it there, if any, with overwrites=fail."""

    position: StreamPosition
    replaced_by: int | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """What lies between a position and the log's end, in ledgers whose end is known."""

    nbytes: int
    """Payload bytes; of a ledger that is partly read, estimated as if its entries were equally long."""
    since_ms: int | None
    """When the oldest commit of it was made, in milliseconds since 1970; None if there is nothing."""


LanesOf: TypeAlias = Callable[[LogVersion], Collection[int] | None]
"""The lanes of a version that a reader reads; None for all."""

MOST_UNREAD = 1000
"""Versions that are looked at to tell how much is unread: two rounds of reads."""


class LogFollower:
    """Plans streams over one log. Threads may share it.

    ``overwrites`` is fail, read or skip. ``describe`` gives the metadata of those ledgers that still exist. Every method
    raises NoSuchLogError if the log was deleted, and MetadataUnavailableError.
    """

    def __init__(self, reader: LogReader, name: str, uid: str, overwrites: str, describe: Describe) -> None:
        self._order = StreamOrder(reader, name, uid, overwrites, describe)

    # Where a stream starts

    def earliest(self, head: Head) -> StreamPosition:
        """Before the first row that a stream can read: a row of the newest content, neither truncated nor vacuumed."""
        first = max(head.oldest_version, head.replaced_version)
        if first == 0 and head.first_row == 0:
            return behind(0)
        listed = self._order.listed(self._order.record(first)) if first else []
        kept = [one for one in listed if one.end_row is None or one.end_row > head.first_row]
        return kept[0].at(0) if kept else self._before_row(head, first)

    def latest(self, head: Head, ends: Mapping[int, LedgerEnd]) -> StreamPosition:
        """Behind the last entry. ``ends`` has the end of every open ledger of ``head``, as a quorum of its bookies says now."""
        places = [(self._place(one, head, head.replaced_version), ends[one.ledger_id]) for one in head.writer.open_ledgers]
        for place, end in places:
            if not end.is_closed or place == places[-1][0]:
                return StreamPosition(place.version, place.index, place.ledger_id, end.last_entry_id + 1)
        return behind(head.version)

    def at_time(self, head: Head, time_ms: int) -> StreamPosition:
        """Before the first commit at or after ``time_ms`` (since 1970) that can still be read.

        A ledger that was open at that time is read from its beginning, because entries have no times of their own.
        """
        earliest = self.earliest(head)
        if earliest.version and self._order.record(max(head.oldest_version, 1)).time_ms >= time_ms:
            return earliest
        version = self._order.reader.version_at(self._order.name, self._order.uid, time_ms - 1, head)
        return max(earliest, self._before_open(head, version) or behind(version))

    # How far it can read, and what lies between two positions

    def newest(self, head: Head, ends: Mapping[int, LedgerEnd], start: StreamPosition) -> Newest:
        """The position behind the last entry that a stream at ``start`` can read, in normal form; never below ``start``.

        ``ends`` has the end of every open ledger of ``head``.
        """
        replaced_by = None
        if self._order.overwrites == FAIL and head.replaced_version > start.version:
            replaced_by = self._order.first_replacing(max(start.version, head.oldest_record), head.version)
            replaced_by = replaced_by or head.replaced_version
        last = head.version if replaced_by is None else replaced_by - 1
        origin = start if replaced_by is not None else self._carried_over(start, head)
        found = self._last_open(head, ends, origin, last) or self._last_closed(head, origin, last)
        return Newest(start if found is None or found <= origin else max(start, found), replaced_by)

    def stretches(
        self,
        start: StreamPosition,
        end: StreamPosition,
        head: Head,
        *,
        fail_on_data_loss: bool,
        lanes_of: LanesOf = lambda _: None,
    ) -> Iterator[PlacedStretch]:
        """What lies between two positions (``start`` included, ``end`` excluded) in the lanes to read, in stream order.

        The result is always the same, except for what was truncated or vacuumed meanwhile: that raises DataLossError, or is
        left out with a warning. Raises LogReplacedError; ConfigError if an offset does not fit the log; as ``lanes_of``.
        """
        if end.version > head.version:
            raise self._order.misfit(end, f"log '{self._order.name}' has the versions up to {head.version}")
        try:
            start, end = resumed(self._order, start, end, head)
        except DataLossError as loss:
            if fail_on_data_loss:
                raise
            start, end = self._past_loss(start, end, head)
            logger.warning("%s; going on at version %d", loss.warning, start.version)
        if start < end:
            for given, stretch in _in_lanes(self._between(start, end), lanes_of):
                if self._is_kept(given, head, fail_on_data_loss):
                    yield stretch

    def end_of_version(self, version: int, lanes_of: LanesOf) -> StreamPosition | None:
        """Behind all that a version without open ledgers gives to read in the lanes to read; None if that is nothing."""
        try:
            given = self._order.given_by(version)
        except LogReplacedError:
            return behind(version)  # nobody gets there
        lanes = lanes_of(given[0].version) if given else None
        return _behind_closed([one for one in given if lanes is None or _is_in(one, lanes)], set())

    def row_number(self, position: StreamPosition, head: Head) -> int:
        """How many rows come before a position. Inside a ledger of rows, estimated as if rows were spread evenly over entries.

        In a ledger that was opened behind another open one this is a lower bound, until ``head`` knows the end of the other.
        """
        if position.version == 0 or position.is_behind:
            return self._order.record(position.version).end_row if position.version else 0
        if (row := self._order.row_in_span(position)) is not None:
            return row
        is_old = position.index < 0 and max(1, head.oldest_record) <= position.version < head.oldest_version
        listed = self._order.found_before(position, head.oldest_record) if is_old else None
        found = listed or next(self._order.walk(position, position.version))
        given = self._order.recorded(found, head.version) or found
        if given.ledger is None or given.version.content is Content.ENTRIES:
            return given.row + position.entry_id
        return given.row + _share(given.ledger.rows, position.entry_id, given.ledger)

    def unread(self, position: StreamPosition, head: Head) -> Unread | None:
        """How much follows a position. None if that is not known: too much follows, it is not kept, or content was replaced."""
        if head.version - position.version > MOST_UNREAD or position.version < head.oldest_record:
            return None
        nbytes, since_ms = 0, None
        try:
            for given in self._order.walk(position, head.version):
                if given.ledger is None:
                    break  # an open one: only its bookies know
                read = position.entry_id if given.at(position.entry_id) == position else 0
                left = given.ledger.last_entry_id + 1 - read
                if left > 0:
                    nbytes += _share(given.ledger.length, left, given.ledger)
                    since_ms = given.version.time_ms if since_ms is None else since_ms
        except (ConfigError, DataLossError, LogReplacedError):
            return None
        return Unread(nbytes, since_ms)

    def _past_loss(self, start: StreamPosition, end: StreamPosition, head: Head) -> tuple[StreamPosition, StreamPosition]:
        """Both positions, moved past what is gone; or, if not even their row numbers are known, from the first row on."""
        try:
            return resumed(self._order, start, end, head, skips=True)
        except DataLossError:
            return self.earliest(head), end

    # Parts of starts

    def _before_row(self, head: Head, low: int) -> StreamPosition:
        """Before the first row after version ``low`` that is still listed. A truncation may remove only a part of a commit."""
        high = head.version
        while low < high:
            middle = (low + high + 1) // 2
            is_before = self._order.record(middle).end_row <= head.first_row
            low, high = (middle, high) if is_before else (low, middle - 1)
        start = self._before_open(head, low) or behind(low)
        came = self._order.walk(start, min(low + 1, head.version))
        return next((given.at(0) for given in came if not self._is_truncated(given, head)), start)

    def _before_open(self, head: Head, version: int) -> StreamPosition | None:
        """Before the first ledger that was open at a version. Its rows come after that version, though it was opened before."""
        opened = self._order.listing(version).open
        return self._place(opened[0], head, self._order.record(version).replaced_version) if opened else None

    def _place(self, opened: OpenLedger, head: Head, replaced_version: int) -> StreamPosition:
        """The first entry of an open ledger: in the version that opened it; or in a later replacement that the stream reads."""
        if replaced_version <= opened.version:
            return StreamPosition(opened.version, 0, opened.ledger_id, 0)
        listed = self._order.listed(self._order.record(max(replaced_version, head.oldest_version)))
        return next(one.at(0) for one in listed if one.ledger_id == opened.ledger_id)

    # Parts of ends

    def _carried_over(self, start: StreamPosition, head: Head) -> StreamPosition:
        """Where ``stretches`` will start for ``start``. If that is data loss, ``stretches`` reports it."""
        try:
            return resumed(self._order, start, start, head)[0]
        except DataLossError:
            return self.earliest(head)

    def _last_open(self, head: Head, ends: Mapping[int, LedgerEnd], start: StreamPosition, last: int) -> StreamPosition | None:
        """Behind the last entry of the head's open ledgers, up to the first that is not closed; None if they hold none."""
        found = None
        for opened in head.writer.open_ledgers:
            if opened.version > last:
                break
            end = ends[opened.ledger_id]
            if end.last_entry_id != NO_ENTRY:
                place = self._place_after(opened, head, start)
                found = StreamPosition(place.version, place.index, place.ledger_id, end.last_entry_id + 1)
            if not end.is_closed:
                break
        return found

    def _place_after(self, opened: OpenLedger, head: Head, start: StreamPosition) -> StreamPosition:
        """``_place`` for a stream at ``start``. One that reads the listing of a version reads the ledger in that listing."""
        replaced_version = self._replacement_read(head, start)
        if start.index < 0 and start.version > max(opened.version, replaced_version):
            listed = self._order.listed(self._order.record(start.version))
            return next(one.at(0) for one in listed if one.ledger_id == opened.ledger_id)
        return self._place(opened, head, replaced_version)

    def _replacement_read(self, head: Head, start: StreamPosition) -> int:
        """The last replacement that a stream at ``start`` reads, or has read; 0 for none."""
        if self._order.overwrites == READ or start.version >= head.replaced_version:
            return head.replaced_version
        return self._order.record(start.version).replaced_version if start.version >= max(1, head.oldest_record) else 0

    def _last_closed(self, head: Head, start: StreamPosition, last: int) -> StreamPosition | None:
        """Behind the last entry in closed ledgers up to version ``last``; None if there is none behind ``start``."""
        open_ids = {one.ledger_id for one in head.writer.open_ledgers}
        for record in self._order.records_back(last, max(start.version + 1, head.oldest_record)):
            if not self._may_give(record):
                continue
            found = _behind_closed(self._order.given_by(record.version), open_ids)
            if found is not None:
                return found
        if start.version == 0 or start.is_behind or not is_readable(self._order, start, head):
            return None
        return _behind_closed(list(self._order.walk(start, start.version)), open_ids)

    def _may_give(self, record: LogVersion) -> bool:
        if record.kind is CommitKind.APPEND:
            return record.added.ledgers > 0 or record.opened is not None
        return record.kind in (CommitKind.OVERWRITE, CommitKind.REPLACE) and self._order.overwrites == READ

    # Parts of ranges

    def _between(self, start: StreamPosition, end: StreamPosition) -> Iterator[tuple[Given, PlacedStretch]]:
        for given in self._order.walk(start, end.version):
            is_end = given.at(end.entry_id) == end
            first = start.entry_id if given.at(start.entry_id) == start else 0
            if is_end:
                self._order.check_entry(given, end)
                last: int | None = end.entry_id - 1
            else:
                last = given.ledger.last_entry_id if given.ledger else None
            if last is None:
                raise self._unknown_end(given, end)
            if first <= last:
                yield given, _stretch(given, first, last)
            if is_end:
                return
        if not end.is_behind:
            raise self._order.misfit(end, f"nothing stands there in version {end.version} of log '{self._order.name}'")

    def _is_truncated(self, given: Given, head: Head) -> bool:
        """Whether the ledger's rows were truncated since."""
        if given.version.version < head.replaced_version or given.end_row is None or given.end_row > head.first_row:
            return False
        recorded = self._order.recorded(given, head.version)
        return recorded is not None and recorded.end_row is not None and recorded.end_row <= head.first_row

    def _is_kept(self, given: Given, head: Head, fail_on_data_loss: bool) -> bool:
        """Whether the ledger's rows are to be read. Warns if they were truncated, or raises DataLossError."""
        if not self._is_truncated(given, head):
            return True
        loss = DataLossError(self._order.name, f"ledger {given.ledger_id} of version {given.version.version} was truncated")
        if fail_on_data_loss:
            raise loss
        logger.warning("%s", loss.warning)
        return False

    def _unknown_end(self, given: Given, end: StreamPosition) -> Exception:
        what = f"ledger {given.ledger_id} of version {given.version.version}"
        if given.version.version <= end.version and self._order.is_gone(given.ledger_id):
            return DataLossError(self._order.name, f"{what} was deleted")
        return self._order.misfit(end, f"it lies behind {what}, which is still open")


def _in_lanes(found: Iterable[tuple[Given, PlacedStretch]], lanes_of: LanesOf) -> Iterator[tuple[Given, PlacedStretch]]:
    """Those in the lanes to read. An open ledger is the one lane of a log without keys."""
    version, lanes = None, None
    for given, stretch in found:
        if given.version is not version:
            version, lanes = given.version, lanes_of(given.version)
        if lanes is None:
            yield given, stretch
        elif _is_in(given, lanes):
            in_lanes = given.span and replace(given, span=given.span.in_lanes(lanes))
            yield given, _stretch(in_lanes, stretch.first_entry_id, stretch.last_entry_id) if in_lanes else stretch


def _is_in(given: Given, lanes: Collection[int]) -> bool:
    if given.span is not None:
        return bool(given.span.in_lanes(lanes).ledgers)
    return (given.ledger.lane if given.ledger else 0) in lanes


def _behind_closed(ledgers: Sequence[Given], open_ids: set[int]) -> StreamPosition | None:
    """Behind the last entry of those that are closed; None if they hold none."""
    for given in reversed(ledgers):
        if given.ledger_id not in open_ids and given.ledger and given.ledger.last_entry_id != NO_ENTRY:
            return given.at(given.ledger.last_entry_id + 1)
    return None


def _stretch(given: Given, first: int, last: int) -> PlacedStretch:
    record, ledger, entries = given.version, given.ledger, last - first + 1
    is_whole = ledger is not None and first == 0 and last == ledger.last_entry_id
    total = Totals.of(given.span.ledgers if given.span else [ledger] if ledger else [])
    rows = entries if ledger is None or record.content is Content.ENTRIES else _share(total.rows, entries, ledger)
    nbytes = _share(total.length, entries, ledger) if ledger else 0
    place = (record.version, given.index, given.ledger_id, first, last)
    return PlacedStretch(*place, rows, nbytes, given.end_row, record.content, record.schema_id, is_whole, given.span)


def _share(amount: int, entries: int, ledger: CommittedLedger) -> int:
    return amount * min(entries, ledger.last_entry_id + 1) // max(1, ledger.last_entry_id + 1)
