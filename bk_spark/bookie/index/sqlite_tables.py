"""The tables of the index: what is read is verified against its own CRC, what is written gets one.

Ref: docs/rules.md, storage rule 3; docs/formats.md, "Index".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from bk_spark.bookie.index.rows import (
    BatchRow,
    IndexState,
    LedgerSummary,
    Tally,
    entry_log_crc,
    pack_pattern,
    pack_state,
    row_crc,
    summary_crc,
    tally_crc,
    unpack_pattern,
    unpack_state,
)
from bk_spark.bookie.index.sqlite_database import BUCKET_OF_LEDGER, Columns, Database
from bk_spark.bookie.logs.mark import EntryLogRow, LogState
from bk_spark.bookie.logs.writer import EntryLocation

TOP_LEVELS = "level IN (0, 1, 2, 3, 4, 5) AND number < 256"
"""The segments that a ledger's summary tallies (segments.py)."""

_ROW = "ledger_id, first_entry_id, sequence, last_entry_id, pattern, body_crc32c, entry_log_id, offset, length, crc32c"
_SUMMARY = (
    "ledger_id, row_count, segment_count, segment_crc_sum, max_span, highest_entry_id, last_add_confirmed, master_key_hash, "
    "flags, deleted_at, deleted_ms, crc32c"
)
_SEGMENT_KEY = "ledger_id = ? AND level = ? AND number = ?"
_ROW_KEY = "ledger_id = ? AND first_entry_id = ? AND sequence = ?"


def _insert(table: str, columns: int, verb: str = "INSERT") -> str:
    return f"{verb} INTO {table} VALUES ({', '.join('?' * columns)})"


_INSERT_ROW = _insert("batches", 10)
_INSERT_SUMMARY = _insert("ledgers", 12)
_UPDATE_SUMMARY = (
    "UPDATE ledgers SET row_count = ?2, segment_count = ?3, segment_crc_sum = ?4, max_span = ?5, highest_entry_id = ?6, "
    "last_add_confirmed = ?7, master_key_hash = ?8, flags = ?9, deleted_at = ?10, deleted_ms = ?11, crc32c = ?12 "
    "WHERE ledger_id = ?1"
)
_PUT_SEGMENT = _insert("segments", 6, "REPLACE")
_PUT_BUCKET = _insert("buckets", 4, "REPLACE")
_PUT_LOG = _insert("entry_logs", 6, "REPLACE")
_MOVE_ROW = (
    "UPDATE batches SET entry_log_id = ?, offset = ?, length = ?, crc32c = ? "
    f"WHERE {_ROW_KEY} AND entry_log_id = ? AND offset = ? AND crc32c = ?"
)


def columns_of(row: BatchRow) -> Columns:
    """All but the CRC. The row must have a location."""
    place = row.location
    assert place is not None
    ids = (row.ledger_id, row.first_entry_id, row.sequence, row.last_entry_id, pack_pattern(row.pattern), row.body_crc32c)
    return (*ids, place.file_id, place.offset, place.length)


class Tables:
    """To be used within ``database.translated``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # --- batches

    def rows(self, where: str, values: Sequence[int]) -> Iterator[Columns]:
        """The columns of rows of the index, the CRC last, each verified."""
        for columns in self.database.every(f"SELECT {_ROW} FROM batches WHERE {where}", values):
            if row_crc(columns[:-1]) != columns[-1]:
                raise self.database.damage(f"the checksum of a row of ledger {columns[0]} is wrong")
            yield columns

    def batch_rows(self, where: str, values: Sequence[int]) -> list[BatchRow]:
        return [_batch_row(columns) for columns in self.rows(where, values)]

    def page(self, where: str, after: tuple[int, int, int], limit: int) -> list[BatchRow]:
        """The first rows above a key, by key. A damaged page may hold good rows in the wrong place: that is checked too."""
        found = self.rows(f"{where} ORDER BY ledger_id, first_entry_id, sequence LIMIT ?", (*after, limit))
        page = []
        for columns in found:
            if columns[:3] <= after:
                raise self.database.damage(f"a row of ledger {columns[0]} is in the wrong place")
            after = columns[:3]
            page.append(_batch_row(columns))
        return page

    def row(self, ledger_id: int, first: int, sequence: int) -> BatchRow | None:
        key = (ledger_id, first, sequence)
        for columns in self.rows(_ROW_KEY, key):
            if columns[:3] == key:
                return _batch_row(columns)
            raise self.database.damage(f"a row of ledger {columns[0]} is in the wrong place")
        return None

    def insert_rows(self, rows: Iterable[Columns]) -> None:
        """With their CRCs."""
        self.database.run_each(_INSERT_ROW, rows)

    def move_row(self, old: Columns, new: Columns) -> bool:
        """Put ``new`` in the place of ``old``, which differ in place and CRC; False if ``old`` is not what is there."""
        return self.database.run(_MOVE_ROW, (*new[-4:], *old[:3], *old[-4:-2], old[-1])) == 1

    def delete_row(self, columns: Columns) -> bool:
        """False if this is not what is there."""
        return self.database.run(f"DELETE FROM batches WHERE {_ROW_KEY} AND crc32c = ?", (*columns[:3], columns[-1])) == 1

    def delete_rows(self, where: str, values: Sequence[int]) -> None:
        self.database.run(f"DELETE FROM batches WHERE {where}", values)

    def row_count(self, ledger_id: int) -> int:
        found = self.database.one("SELECT COUNT(*) FROM batches WHERE ledger_id = ?", (ledger_id,))
        assert found is not None
        return int(found[0])

    def has_rows(self, ledger_id: int) -> bool:
        return self.database.one("SELECT 1 FROM batches WHERE ledger_id = ? LIMIT 1", (ledger_id,)) is not None

    def least(self, column: str, table: str, where: str, values: Sequence[int]) -> int | None:
        """The lowest value of a column."""
        found = self.database.one(f"SELECT min({column}) FROM {table} WHERE {where}", values)
        return None if found is None else found[0]

    # --- ledgers

    def summary(self, ledger_id: int) -> LedgerSummary | None:
        for summary in self.summaries("ledger_id = ?", (ledger_id,)):
            if summary.ledger_id == ledger_id:
                return summary
            raise self.database.damage(f"the summary of ledger {summary.ledger_id} is in the wrong place")
        return None

    def summaries(self, where: str, values: Sequence[int]) -> list[LedgerSummary]:
        found = self.database.every(f"SELECT {_SUMMARY} FROM ledgers WHERE {where}", values)
        return [self._summary(columns) for columns in found]

    def summaries_after(self, ledger_id: int, limit: int) -> list[LedgerSummary]:
        """The first above an id, by id. As ``page``."""
        found = self.summaries("ledger_id > ? ORDER BY ledger_id LIMIT ?", (ledger_id, limit))
        ids = [ledger_id, *(one.ledger_id for one in found)]
        if any(one >= other for one, other in pairwise(ids)):
            raise self.database.damage(f"a summary behind that of ledger {ledger_id} is in the wrong place")
        return found

    def bucket_tally(self, bucket: int) -> Tally:
        """Of the summaries that are there."""
        crcs = [summary_crc(one) for one in self.summaries(f"{BUCKET_OF_LEDGER} = ?", (bucket,))]
        return Tally(0, 0).plus(len(crcs), sum(crcs))

    def put_summary(self, one: LedgerSummary, *, is_new: bool) -> int:
        """The CRC that it has now."""
        crc = summary_crc(one)
        ids = (one.max_span, one.highest_entry_id, one.last_add_confirmed, one.master_key_hash)
        values = (one.ledger_id, one.row_count, *one.segments, *ids, one.flags, one.deleted_at, one.deleted_ms, crc)
        self.database.run(_INSERT_SUMMARY if is_new else _UPDATE_SUMMARY, values)
        return crc

    def delete_summary(self, ledger_id: int) -> None:
        self.database.run("DELETE FROM ledgers WHERE ledger_id = ?", (ledger_id,))

    def _summary(self, columns: Columns) -> LedgerSummary:
        ledger_id, row_count, count, crc_sum, *others, crc = columns
        summary = LedgerSummary(ledger_id, row_count, Tally(count, crc_sum), *others)
        if summary_crc(summary) != crc:
            raise self.database.damage(f"the checksum of the summary of ledger {ledger_id} is wrong")
        return summary

    # --- segments

    def segment(self, ledger_id: int, level: int, number: int) -> Tally | None:
        """What a segment of a ledger holds, None if it is not there."""
        key = (ledger_id, level, number)
        found = self.database.one(f"SELECT child_count, child_crc_sum, crc32c FROM segments WHERE {_SEGMENT_KEY}", key)
        return None if found is None else self._segment(key, found)

    def segments(self, where: str, values: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Level, number and CRC."""
        columns = "ledger_id, level, number, child_count, child_crc_sum, crc32c"
        for found in self.database.every(f"SELECT {columns} FROM segments WHERE {where}", values):
            self._segment(found[:3], found[3:])
            yield found[1], found[2], found[5]

    def _segment(self, key: Columns, columns: Columns) -> Tally:
        tally = Tally(columns[0], columns[1])
        if tally_crc(key, tally) != columns[2]:
            raise self.database.damage(f"the checksum of a segment of ledger {key[0]} is wrong")
        return tally

    def put_segment(self, ledger_id: int, level: int, number: int, tally: Tally) -> int:
        """The CRC that it has now; one that tallies nothing is deleted, and 0 it is then."""
        key = (ledger_id, level, number)
        if tally.size == 0:
            self.database.run(f"DELETE FROM segments WHERE {_SEGMENT_KEY}", key)
            return 0
        crc = tally_crc(key, tally)
        self.database.run(_PUT_SEGMENT, (*key, *tally, crc))
        return crc

    # --- buckets, entry logs, state

    def buckets(self) -> Iterator[tuple[int, int, Tally]]:
        """Number, CRC and tally of each."""
        for bucket, *counts, crc in self.database.every("SELECT bucket, ledger_count, ledger_crc_sum, crc32c FROM buckets"):
            tally = Tally(*counts)
            if bucket_crc(bucket, tally) != crc:
                raise self.database.damage(f"the checksum of bucket {bucket} is wrong")
            yield bucket, crc, tally

    def put_buckets(self, buckets: Iterable[tuple[int, Tally]]) -> None:
        self.database.run_each(_PUT_BUCKET, ((bucket, *tally, bucket_crc(bucket, tally)) for bucket, tally in buckets))

    def entry_logs(self) -> Iterator[EntryLogRow]:
        for columns in self.database.every("SELECT * FROM entry_logs ORDER BY file_id"):
            *numbers, crc = columns
            file_id, directory, state, total, live = numbers
            log = EntryLogRow(file_id, directory, LogState(state), total, live)
            if entry_log_crc(log) != crc:
                raise self.database.damage(f"the checksum of entry log {file_id} is wrong")
            yield log

    def put_entry_logs(self, logs: Iterable[EntryLogRow]) -> None:
        values = (
            (one.file_id, one.directory, int(one.state), one.total_bytes, one.live_bytes, entry_log_crc(one)) for one in logs
        )
        self.database.run_each(_PUT_LOG, values)

    def delete_entry_logs(self, file_ids: Iterable[int]) -> None:
        self.database.run_each("DELETE FROM entry_logs WHERE file_id = ?", ((one,) for one in file_ids))

    def state(self) -> IndexState | None:
        found = self.database.one("SELECT value FROM state WHERE name = 'state'")
        return None if found is None else unpack_state(found[0], str(self.database.path))

    def put_state(self, state: IndexState) -> None:
        self.database.run("REPLACE INTO state VALUES ('state', ?)", (pack_state(state),))


def bucket_crc(bucket: int, tally: Tally) -> int:
    """0 for one that is empty, which the state does not tally."""
    return tally_crc((bucket, 0, 0), tally) if tally.size else 0


def _batch_row(columns: tuple[Any, ...]) -> BatchRow:
    ledger_id, first, sequence, last, pattern, body_crc32c, *place, _ = columns
    return BatchRow(ledger_id, first, last, sequence, unpack_pattern(pattern), body_crc32c, EntryLocation(*place))
