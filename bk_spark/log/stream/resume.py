"""Old positions: where a stream continues if the version of its position cannot be read any more.

Below a log's oldest readable version, ledgers that were replaced since may be deleted. Such a position is carried over to
the listing of the oldest readable version. Its ledger may still be listed there. If not, its row may, since a compaction
keeps the number of every row. One by key leaves rows out: then the next row that is left comes next.

The row of a position inside a ledger is known where entries are rows, in a span, and where a compaction by key has replaced the
ledger, because that notes the rows of its entries. One that merges ledgers does not, so such a position may be lost. A position
in a listing, where a stream began in the middle of a log, needs the records of that listing. They stay for long.

Ref: docs/rules.md, log rule 6.
"""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import DataLossError, LogReplacedError
from bk_spark.log.stored.values import CommitKind, Head, LogVersion
from bk_spark.log.stream.order import FAIL, READ, SKIP, Given, StreamOrder
from bk_spark.log.stream.positions import StreamPosition, behind


def resumed(
    order: StreamOrder, start: StreamPosition, end: StreamPosition, head: Head, *, skips: bool = False
) -> tuple[StreamPosition, StreamPosition]:
    """Both positions; or the same places in the listing of the oldest readable version.

    With ``skips``, a place that does not exist any more becomes the next one that does. Consecutive ranges still read nothing
    twice. Raises DataLossError; LogReplacedError if the content at a position was replaced since.
    """
    if is_readable(order, start, head) and is_readable(order, end, head):
        return start, end
    resume = _Resume(order, head, skips)
    return resume.position(start), resume.position(end)


def is_readable(order: StreamOrder, position: StreamPosition, head: Head) -> bool:
    """Whether a position can be used as it is.

    That includes positions in a ledger that is still open, even if the version that opened it is old: no listing is needed to
    find it. Except for a stream that reads replacements: with the newest one it reads the ledger again, at another place.
    """
    if position.version >= head.oldest_version:
        return True
    replaced_version = head.replaced_version if order.overwrites == READ else 0
    is_open = position.ledger_id in [one.ledger_id for one in head.writer.open_ledgers]
    return is_open and position.index >= 0 and position.version >= max(replaced_version + 1, head.oldest_record)


@dataclass(frozen=True, slots=True)
class _Resume:
    """Carries positions over to the oldest readable version of one log."""

    order: StreamOrder
    head: Head
    skips: bool

    def position(self, old: StreamPosition) -> StreamPosition:
        order, oldest = self.order, self.head.oldest_version
        if old.version >= oldest:
            return old
        record = order.record(oldest)
        listed = order.listed(record)
        is_same_content = old.version >= record.replaced_version or (
            order.overwrites == SKIP and self._is_listed_by(old, record.replaced_version)
        )
        same = next((one for one in listed if one.ledger_id == old.ledger_id), None) if is_same_content else None
        if same is not None:
            return same.at(old.entry_id)
        if not is_same_content and order.overwrites == FAIL:
            raise LogReplacedError(order.name, self._replacements(old.version)[0].version)
        row = self._row(old)
        if row is None and order.overwrites == READ and not is_same_content:
            row = self._row_where_it_is_listed(old)
        if row is None:
            raise self._loss(old, "what it was to read next is deleted")
        if not is_same_content:
            row = self._row_in_new_content(old, row)
        first_row = record.first_row
        if row < first_row and not self.skips:
            raise self._loss(old, f"row {row} was truncated")
        return self._at_row(old, listed, max(row, first_row))

    def _row_in_new_content(self, old: StreamPosition, row: int) -> int:
        """Where a stream continues whose content was replaced since. What it had not read of the old content is deleted."""
        for replacing in self._replacements(old.version):
            first_row = replacing.first_row
            if row < first_row and not self.skips:
                raise self._loss(old, f"row {row} was replaced by version {replacing.version}")
            row = first_row if self.order.overwrites == READ else max(row, replacing.end_row)
        return row

    def _row_where_it_is_listed(self, old: StreamPosition) -> int | None:
        """The first row of the replacement, if that lists the position's ledger: the stream reads all of it again there."""
        replacing = self._replacements(old.version)[0]
        return replacing.first_row if self._is_listed_by(old, replacing.version) else None

    def _is_listed_by(self, old: StreamPosition, replacing: int) -> bool:
        """Whether version ``replacing`` lists the position's ledger because the ledger was still open then.

        A REPLACE lists open ledgers behind all that it put in the place of others; an OVERWRITE does not.
        """
        if old.is_behind or old.index < 0 or old.version < max(1, self.head.oldest_record):
            return False
        order = self.order
        if order.record(old.version).opened != old.ledger_id or order.record(replacing).kind is not CommitKind.REPLACE:
            return False
        below = order.reader.versions(order.name, order.uid, old.version + 1, replacing - 1)
        return not any(old.ledger_id == ledger.ledger_id for version in below for ledger in version.closed)

    def _replacements(self, after: int) -> list[LogVersion]:
        """The versions above ``after``, up to the oldest readable one, that replaced content, in order."""
        last = self.head.oldest_version
        found: list[LogVersion] = []
        while (version := self.order.record(last).replaced_version) > after:
            found.append(self.order.record(version))
            last = version - 1
            if last <= after:
                break
        return found[::-1]

    def _at_row(self, old: StreamPosition, listed: list[Given], row: int) -> StreamPosition:
        for given in listed:
            if given.row == row and (given.ledger is None or given.ledger.last_entry_id != NO_ENTRY):
                return given.at(0)
            if given.end_row is not None and given.row < row < given.end_row:
                if given.counts_rows:
                    return given.at(row - given.row)
                if self.skips and given.ledger is not None:
                    return given.at(given.ledger.last_entry_id + 1)
                raise self._loss(old, f"row {row} is inside ledger {given.ledger_id}")
        return behind(self.head.oldest_version)

    def _row(self, old: StreamPosition) -> int | None:
        """The exact row number of a position, or with ``skips`` of its ledger's end; None if it is not known."""
        if old.version < self.head.oldest_record:
            return None
        if old.version == 0 or old.is_behind:
            return self.order.record(old.version).end_row if old.version else 0
        if (row := self.order.row_in_span(old)) is not None:
            return row
        if self.order.record(old.version).kind is CommitKind.REPLACE:
            return None  # only its listing, which is too old, says which ledger stands where
        is_found = old.index < 0
        given = self.order.found_before(old, self.head.oldest_record) if is_found else next(self.order.walk(old, old.version))
        # A plan that is made again may have a head from before the oldest version that can be read now.
        given = None if given is None else self.order.recorded(given, max(self.head.version, self.head.oldest_version))
        if given is None or given.ledger is None:
            return None
        if given.counts_rows or old.entry_id == 0:
            return given.row + old.entry_id
        if old.entry_id == given.ledger.last_entry_id + 1:
            return given.end_row
        before = self.order.rows_before(old, self.head.oldest_version)
        if before is not None:
            return given.row + before
        return given.end_row if self.skips else None

    def _loss(self, old: StreamPosition, problem: str) -> DataLossError:
        where = f"the stream stands at version {old.version}, the oldest that can be read is {self.head.oldest_version}"
        return DataLossError(self.order.name, f"{where}: {problem}")
