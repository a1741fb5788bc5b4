"""StreamOrder: the ledgers that the versions of a log give a stream to read, in stream order.

``positions.py`` says what a version gives, and how its ledgers are numbered. Everything here follows from immutable
versions, so a range is the same whenever it is planned. One thing comes from elsewhere: if no version in sight has recorded
where a ledger ends, the end is taken from the ledger's own metadata, once it is CLOSED.

One more rule, for streams that read a REPLACE: a ledger that stayed open through the REPLACE is listed by it, and is read
there from its beginning. What the stream had not read of it before is skipped, or it would wait there while the leader lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bk_spark.errors import ConfigError, LogReplacedError
from bk_spark.log.stored.by_key.entry_rows import rows_before
from bk_spark.log.stored.by_key.spans import LedgerSpan, end_of_unit
from bk_spark.log.stored.listing import Listing
from bk_spark.log.stored.snapshot import LogReader
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Content, LogVersion, OpenLedger, Page
from bk_spark.log.stream.positions import StreamPosition
from bk_spark.metadata.ledger_metadata import LedgerMetadata

FAIL, READ, SKIP = "fail", "read", "skip"
"""What a stream does at a version that replaces content: option ``overwrites``."""

_FIRST_LOOK, _LARGEST_LOOK = 4, 1000
"""Versions read ahead at once. Each look ahead is twice as large as the one before, since a stream may need few."""

_REPLACING = (CommitKind.OVERWRITE, CommitKind.REPLACE)
_ADDING = (CommitKind.OVERWRITE, CommitKind.APPEND)

Describe = Callable[[Sequence[int]], list[LedgerMetadata]]
"""The metadata of those ledgers that still exist, such as ``BookKeeper.existing_ledgers``."""


@dataclass(frozen=True, slots=True)
class Given:
    """One ledger that a version gives a stream to read."""

    version: LogVersion
    index: int
    ledger_id: int
    ledger: CommittedLedger | None
    """None if its end is not known: it is open, or was deleted since."""
    row: int
    """The row number of its first row. If a walk starts with a ledger opened behind another open one: only a lower bound."""
    span: LedgerSpan | None = None
    """Set for a span, which is one ledger here, with an entry for each row number: ``LedgerSpan.as_one``."""

    @property
    def counts_rows(self) -> bool:
        """Whether an entry is a row number."""
        return self.version.content is Content.ENTRIES or self.span is not None

    @property
    def end_row(self) -> int | None:
        return None if self.ledger is None else self.row + self.ledger.rows

    def at(self, entry_id: int) -> StreamPosition:
        return StreamPosition(self.version.version, self.index, self.ledger_id, entry_id)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The parts of a version's listing that can never change."""

    version: int
    closed: list[Given]
    open: tuple[OpenLedger, ...]
    found_before: int


class StreamOrder:
    """One log, as a stream with one value of ``overwrites`` reads it. Each call reads what it needs; threads may share it.

    It keeps the last listing that it read: a stream that reads through a long listing asks for it at each batch.
    """

    def __init__(self, reader: LogReader, name: str, uid: str, overwrites: str, describe: Describe) -> None:
        self.reader = reader
        self.name = name
        self.uid = uid
        self.overwrites = overwrites
        self._describe = describe
        self._kept: _Listed | None = None

    def walk(self, start: StreamPosition, last: int) -> Iterator[Given]:
        """The ledgers from that of ``start`` (included, even if all of it was read) through those of version ``last``.

        Raises LogReplacedError when it reaches a version that replaces content; ConfigError if no ledger stands at ``start``.
        """
        row = 0
        last_replacing = self.record(last).replaced_version if self.overwrites == READ and last > start.version else 0
        for given in self._walk(start, last):
            if self._is_read_later(given, last, last_replacing):
                continue
            known = replace(given, row=max(given.row, row)) if given.version.opened == given.ledger_id else given
            row = known.row if known.ledger is None else known.row + known.ledger.rows
            yield known

    def record(self, version: int) -> LogVersion:
        return self.reader.version(self.name, self.uid, version)

    def listing(self, version: int) -> Listing:
        return self.reader.listing(self.name, self.uid, version)

    def row_in_span(self, position: StreamPosition) -> int | None:
        """The row number of a position in a span; None for any other. Needs no listing."""
        record = self.record(position.version)
        return record.first_row + position.entry_id if record.span_ledger == position.ledger_id else None

    def found_before(self, position: StreamPosition, oldest_record: int) -> Given | None:
        """The ledger of a position that its version found in the log, also if its listing is too old to be read.

        None where the records that it was made of may be deleted. Raises as ``LogReader.versions``.
        """
        listing = self.reader.recorded_listing(self.name, self.uid, position.version, oldest_record)
        if listing is None:
            return None
        opened = next((one.version for one in listing.open if one.ledger_id == position.ledger_id), None)
        if opened is not None:
            return Given(self.record(opened), 0, position.ledger_id, None, 0) if opened >= oldest_record else None
        record = self.record(position.version)
        closed = _numbered(_given(record, listing.closed), 0, record.first_row)
        return next((one for one in closed if one.ledger_id == position.ledger_id), None)

    def listed(self, record: LogVersion) -> list[Given]:
        """All that a version lists, with the indexes that positions in it have."""
        listed = self._listed(record)
        still_open = self._with_ends([Given(record, 0, one.ledger_id, None, 0) for one in listed.open])
        return [*listed.closed, *_numbered(still_open, listed.found_before - len(listed.closed), record.end_row)]

    def first_replacing(self, after: int, last: int) -> int | None:
        """The first version above ``after``, up to ``last``, that replaces content."""
        if last <= after or self.record(last).replaced_version <= after:
            return None
        low, high = after + 1, last
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.record(middle).replaced_version > after else (middle + 1, high)
        return low

    def records_back(self, last: int, first: int) -> Iterator[LogVersion]:
        """The commits ``last`` down to ``first``, with a growing look ahead."""
        count = _FIRST_LOOK
        while last >= first:
            low = max(first, last - count + 1)
            yield from reversed(list(self.reader.versions(self.name, self.uid, low, last)))
            last, count = low - 1, min(2 * count, _LARGEST_LOOK)

    def recorded(self, given: Given, last: int) -> Given | None:
        """``given`` with its exact row and end; None if it is an opened ledger whose end no version up to ``last`` records."""
        if given.version.opened != given.ledger_id:
            return given
        for record, _ in (commit for chunk in self._chunks(given.version.version + 1, last) for commit in chunk):
            ids = [ledger.ledger_id for ledger in record.closed]
            if given.ledger_id in ids and record.kind is not CommitKind.REPLACE:
                and_behind = record.closed[ids.index(given.ledger_id) :]
                added = record.added.rows if record.kind in _ADDING else 0
                row = record.end_row - added - sum(ledger.rows for ledger in and_behind)
                return replace(given, ledger=and_behind[0], row=row)
        return None

    def rows_before(self, position: StreamPosition, last: int) -> int | None:
        """How many rows its ledger had before a position, if a version above the position's, up to ``last``, says so."""
        for record, pages in (commit for chunk in self._chunks(position.version + 1, last) for commit in chunk):
            if record.kind is CommitKind.COMPACT_KEYS:
                found = rows_before([one for page in pages for one in page.entries], position.ledger_id, position.entry_id)
                if found is not None:
                    return found
        return None

    def check_entry(self, given: Given, position: StreamPosition) -> None:
        """Raise ConfigError for a position behind the end of its ledger, which is ``given``."""
        if given.ledger is not None and position.entry_id > given.ledger.last_entry_id + 1:
            raise self.misfit(position, f"ledger {given.ledger_id} ends with entry {given.ledger.last_entry_id}")

    def misfit(self, position: StreamPosition, problem: str) -> ConfigError:
        """The error for an offset that this log never gave."""
        return ConfigError("the offset", position.to_json(self.uid), f"{problem}: take an offset that this log gave")

    def is_gone(self, ledger_id: int) -> bool:
        """Whether the ledger was deleted, and its rows are not in the log's tier."""
        return not self._describe([ledger_id]) and not self.reader.tier.find(self.name, self.uid, [ledger_id])

    def given_by(self, version: int) -> list[Given]:
        """What one version gives a stream that comes from the version below it. Raises LogReplacedError."""
        return self._given_by(*self._commit(version), {})

    def _listed(self, record: LogVersion) -> _Listed:
        kept = self._kept
        if kept is None or kept.version != record.version:
            listing = self.listing(record.version)
            closed = _given(record, listing.closed)
            found_before = _found_before(record, len(closed) + len(listing.open))
            numbered = _numbered(closed, found_before, record.first_row)
            self._kept = kept = _Listed(record.version, numbered, listing.open, found_before)
        return kept

    def _walk(self, start: StreamPosition, last: int) -> Iterator[Given]:
        if start.version > 0 and not start.is_behind:
            yield from self._of_start(start)
        for chunk in self._chunks(start.version + 1, last):
            ends = {ledger.ledger_id: ledger for record, _ in chunk for ledger in record.closed}
            for record, pages in chunk:
                yield from self._given_by(record, pages, ends)

    def _chunks(self, first: int, last: int) -> Iterator[list[tuple[LogVersion, list[Page]]]]:
        """The commits ``first`` to ``last``, with a growing look ahead."""
        count = _FIRST_LOOK
        while first <= last:
            yield list(self.reader.commits(self.name, self.uid, first, min(last, first + count - 1)))
            first, count = first + count, min(2 * count, _LARGEST_LOOK)

    def _given_by(self, record: LogVersion, pages: Sequence[Page], ends: Mapping[int, CommittedLedger]) -> list[Given]:
        if record.kind in _REPLACING and self.overwrites == FAIL:
            raise LogReplacedError(self.name, record.version)
        if record.kind in _REPLACING and self.overwrites == SKIP:
            return []
        if record.kind is CommitKind.REPLACE:
            return self.listed(record)
        return self._added(record, pages, ends) if record.kind in _ADDING else []

    def _of_start(self, start: StreamPosition) -> list[Given]:
        record, pages = self._commit(start.version)
        is_own = record.kind in _ADDING and start.index >= 0  # then no listing is needed, which may be too old to be read
        given = self._added(record, pages, {}) if is_own else self.listed(record)
        rest = given[max(0, start.index - given[0].index) :] if given else []
        if not rest or (rest[0].index, rest[0].ledger_id) != (start.index, start.ledger_id):
            stands = f"ledger {rest[0].ledger_id} stands there" if rest else "nothing stands there"
            raise self.misfit(start, f"{stands} in version {start.version} of log '{self.name}'")
        self.check_entry(rest[0], start)
        return rest

    def _commit(self, version: int) -> tuple[LogVersion, list[Page]]:
        return next(self.reader.commits(self.name, self.uid, version, version))

    def _added(self, record: LogVersion, pages: Sequence[Page], ends: Mapping[int, CommittedLedger]) -> list[Given]:
        found = [Given(record, 0, ledger.ledger_id, ledger, 0) for page in pages for ledger in page.ledgers]
        if record.opened is not None:
            found.append(Given(record, 0, record.opened, ends.get(record.opened), 0))
        return _numbered(self._with_ends(found), 0, record.end_row - record.added.rows)

    def _is_read_later(self, given: Given, last: int, last_replacing: int) -> bool:
        """Whether a later REPLACE lists a ledger that was opened here, so that it is read there."""
        if given.version.opened != given.ledger_id or last_replacing <= given.version.version:
            return False
        replacing = self.first_replacing(given.version.version, last)
        return replacing is not None and given.ledger_id in [one.ledger_id for one in self.listing(replacing).open]

    def _with_ends(self, found: list[Given]) -> list[Given]:
        """Adds the ends of CLOSED ledgers from their own metadata, where no version gave them."""
        wanted = [one.ledger_id for one in found if one.ledger is None]
        if not wanted:
            return found
        content = found[0].version.content
        described = self._describe(wanted)
        closed = [metadata for metadata in described if metadata.last_entry_id is not None]
        ends = {metadata.ledger_id: self.reader.end_of(metadata, content) for metadata in closed}
        gone = set(wanted) - {metadata.ledger_id for metadata in described}
        if gone:
            tiered = self.reader.tier.find(self.name, self.uid, gone)
            ends |= {ledger_id: place.ledger.listed for ledger_id, place in tiered.items()}
        return [one if one.ledger else replace(one, ledger=ends.get(one.ledger_id)) for one in found]


def _given(record: LogVersion, listed: Sequence[CommittedLedger]) -> list[Given]:
    """Without indexes and row numbers. A span, which is one ledger, comes first."""
    count = end_of_unit(listed, 0) if record.span_ledger is not None else 0
    plain = [Given(record, 0, one.ledger_id, one, 0) for one in listed[count:]]
    if not count:
        return plain
    span = LedgerSpan.of(listed[:count])
    return [Given(record, 0, listed[0].ledger_id, span.as_one, 0, span), *plain]


def _found_before(record: LogVersion, listed: int) -> int:
    """How many of the listed ledgers the version found in the log, and did not itself give a stream to read."""
    if record.kind in _REPLACING:
        return 0
    given = record.added.ledgers + (record.opened is not None) if record.kind is CommitKind.APPEND else 0
    return listed - given


def _numbered(found: Sequence[Given], found_before: int, row: int) -> list[Given]:
    """Sets indexes and row numbers, the first of which are ``-found_before`` and ``row``."""
    numbered = []
    for place, one in enumerate(found):
        numbered.append(replace(one, index=place - found_before, row=row))
        row += one.ledger.rows if one.ledger else 0
    return numbered
