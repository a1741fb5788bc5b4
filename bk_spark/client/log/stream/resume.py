"""Old positions: where a stream goes on whose version cannot be read any more.

Below a log's oldest readable version, ledgers that were replaced since may be deleted. A position there is carried over to
the listing of the oldest readable version: its ledger may still be listed, and so may its row, as a compaction keeps every
row and its number. Rows inside an entry cannot be pointed at: where a compaction has put an entry's boundary elsewhere,
the position is lost.

Ref: docs/rules.md, log rule 6.
"""

from __future__ import annotations

from bk_spark.client.log.stored.values import CommitKind, Content, Head, LogVersion
from bk_spark.client.log.stream.order import FAIL, READ, SKIP, Given, StreamOrder
from bk_spark.client.log.stream.positions import StreamPosition, behind
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import DataLossError, LogReplacedError


def resumed(
    order: StreamOrder, start: StreamPosition, end: StreamPosition, head: Head, *, skips: bool = False
) -> tuple[StreamPosition, StreamPosition]:
    """Both, or where the same places are in the listing of the oldest readable version.

    With ``skips``, a place that is not there any more is the next one that is: between two positions that follow each other,
    nothing is read twice. Raises DataLossError; LogReplacedError where other content was put in their place since.
    """
    if is_readable(order, start, head) and is_readable(order, end, head):
        return start, end
    return _resumed(order, start, head, skips), _resumed(order, end, head, skips)


def is_readable(order: StreamOrder, position: StreamPosition, head: Head) -> bool:
    """A ledger that is open is listed, also if the version that opened it is old; no listing is needed to find it there.

    Save for a stream that reads replacements: with the newest one it reads the ledger again, at another place.
    """
    if position.version >= head.oldest_version:
        return True
    replaced_version = head.replaced_version if order.overwrites == READ else 0
    return (
        _is_open(position, head) and position.index >= 0 and position.version >= max(replaced_version + 1, head.oldest_record)
    )


def _is_open(position: StreamPosition, head: Head) -> bool:
    return position.ledger_id in [one.ledger_id for one in head.writer.open_ledgers]


def _resumed(order: StreamOrder, position: StreamPosition, head: Head, skips: bool) -> StreamPosition:
    if position.version >= head.oldest_version:
        return position
    record = order.record(head.oldest_version)
    listed = order.listed(record)
    is_same_content = position.version >= record.replaced_version or (
        order.overwrites == SKIP and _is_listed_by(order, position, head, record.replaced_version)
    )
    same = next((one for one in listed if one.ledger_id == position.ledger_id), None) if is_same_content else None
    if same is not None:
        return same.at(position.entry_id)
    if not is_same_content and order.overwrites == FAIL:
        raise LogReplacedError(order.name, _replacements(order, position.version, head.oldest_version)[0].version)
    row = _row(order, position, head, skips)
    if row is None and order.overwrites == READ and not is_same_content:
        row = _row_where_it_is_listed(order, position, head)
    if row is None:
        raise _loss(order, position, head, "what it was to read next is deleted")
    if not is_same_content:
        row = _row_in_new_content(order, position, head, row, skips)
    first_row = record.end_row - record.total.rows
    if row < first_row and not skips:
        raise _loss(order, position, head, f"row {row} was truncated")
    return _at_row(order, position, head, listed, max(row, first_row), skips)


def _row_in_new_content(order: StreamOrder, position: StreamPosition, head: Head, row: int, skips: bool) -> int:
    """Where a stream goes on whose content was replaced since. What it had not read of what came between is deleted."""
    for replacing in _replacements(order, position.version, head.oldest_version):
        first_row = replacing.end_row - replacing.total.rows
        if row < first_row and not skips:
            raise _loss(order, position, head, f"row {row} was replaced by version {replacing.version}")
        row = first_row if order.overwrites == READ else max(row, replacing.end_row)
    return row


def _row_where_it_is_listed(order: StreamOrder, position: StreamPosition, head: Head) -> int | None:
    """The first row of the content that replaced that of a position and lists its ledger: there, all of it is read again."""
    replacing = _replacements(order, position.version, head.oldest_version)[0]
    is_listed = _is_listed_by(order, position, head, replacing.version)
    return replacing.end_row - replacing.total.rows if is_listed else None


def _is_listed_by(order: StreamOrder, position: StreamPosition, head: Head, replacing: int) -> bool:
    """Whether a position is in a leader's ledger that no version below ``replacing`` recorded the end of.

    A replacement lists such a ledger behind all that it put in the place of others; an overwrite does not.
    """
    if position.is_behind or position.index < 0 or position.version < max(1, head.oldest_record):
        return False
    record = order.record(position.version)
    if record.opened != position.ledger_id or order.record(replacing).kind is not CommitKind.REPLACE:
        return False
    below = order.reader.versions(order.name, order.uid, position.version + 1, replacing - 1)
    return not any(position.ledger_id == one.ledger_id for version in below for one in version.closed)


def _replacements(order: StreamOrder, after: int, last: int) -> list[LogVersion]:
    """The versions above ``after``, up to ``last``, that replaced content, in order."""
    found: list[LogVersion] = []
    while (version := order.record(last).replaced_version) > after:
        found.append(order.record(version))
        last = version - 1
        if last <= after:
            break
    return found[::-1]


def _at_row(
    order: StreamOrder, position: StreamPosition, head: Head, listed: list[Given], row: int, skips: bool
) -> StreamPosition:
    for given in listed:
        if given.row == row and (given.ledger is None or given.ledger.last_entry_id != NO_ENTRY):
            return given.at(0)
        if given.end_row is not None and given.row < row < given.end_row:
            if given.version.content is Content.ENTRIES:
                return given.at(row - given.row)
            if skips and given.ledger is not None:
                return given.at(given.ledger.last_entry_id + 1)
            raise _loss(order, position, head, f"row {row} is inside ledger {given.ledger_id}")
    return behind(head.oldest_version)


def _row(order: StreamOrder, position: StreamPosition, head: Head, skips: bool) -> int | None:
    """The exact row number of a position, or with ``skips`` of its ledger's end; None where it cannot be told."""
    if position.version < head.oldest_record or position.index < 0:
        return None
    if position.version == 0 or position.is_behind:
        return order.record(position.version).end_row if position.version else 0
    if order.record(position.version).kind is CommitKind.REPLACE:
        return None  # only its listing, which is too old, says which ledger stands where
    given = order.recorded(next(order.walk(position, position.version)), head.version)
    if given is None or given.ledger is None:
        return None
    if given.version.content is Content.ENTRIES or position.entry_id == 0:
        return given.row + position.entry_id
    return given.end_row if skips or position.entry_id == given.ledger.last_entry_id + 1 else None


def _loss(order: StreamOrder, position: StreamPosition, head: Head, problem: str) -> DataLossError:
    where = f"the stream stands at version {position.version}, the oldest that can be read is {head.oldest_version}"
    return DataLossError(order.name, f"{where}: {problem}")
