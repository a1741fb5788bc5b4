"""The tables of the index. A row's last column is a CRC32C over its other columns: every read verifies it.

SQLite does not check its pages, and a damaged page may also hold good rows in the wrong place. So reads check the keys of what
they find, too.

Ref: docs/rules.md, storage rule 3; docs/formats.md, "Index".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from bk_spark.bookie.index.sqlite_database import Columns, Database
from bk_spark.bookie.index.values import (
    CHOSEN_ID,
    INDEX_VERSION,
    IndexState,
    LedgerSummary,
    ProvenConfirmation,
    StoredBatch,
    Tally,
    pack_proven,
    pack_state,
    unpack_proven,
    unpack_state,
)
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogState
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.entries.crc import crc32c
from bk_spark.errors import CorruptionError
from bk_spark.quorum import DENSE, IdPattern


@dataclass(frozen=True)
class Table:
    """A table whose last column is the CRC of the others."""

    name: str
    key: tuple[str, ...]
    """The names of its first columns, which are its primary key."""
    width: int
    """How many columns it has."""
    row_name: str
    """What a row is called in errors, with its first column."""
    crc: Callable[[Columns], int]
    """Of all columns but the last."""

    @cached_property
    def has_key(self) -> str:
        return " AND ".join(f"{column} = ?" for column in self.key)

    @cached_property
    def into(self) -> str:
        return f"INTO {self.name} VALUES ({', '.join('?' * self.width)})"

    def with_crc(self, columns: Columns) -> Columns:
        return (*columns, self.crc(columns))


def _crc(layout: str) -> Callable[[Columns], int]:
    """The CRC of columns that are packed in this ``layout``, with the version behind them."""
    packer = struct.Struct(layout)
    return lambda columns: crc32c(packer.pack(*columns, INDEX_VERSION))


_tally_crc = _crc("<5qI")
_SUMMARY = struct.Struct("<11q24s")


def _bucket_crc(columns: Columns) -> int:
    """0 for an empty bucket, which the state does not tally."""
    bucket, size, crc_sum = columns
    return _tally_crc((bucket, 0, 0, size, crc_sum)) if size else 0


def _summary_crc(columns: Columns) -> int:
    *numbers, master_key_hash, flags, deleted_at, deleted_ms = columns
    crc: int = crc32c(_SUMMARY.pack(*numbers, flags, deleted_at, deleted_ms, INDEX_VERSION, master_key_hash))
    return crc


BATCHES = Table("batches", ("ledger_id", "first_entry_id", "sequence"), 10, "a batch of ledger {}", _crc("<5qIqqqI"))
SEGMENTS = Table("segments", ("ledger_id", "level", "number"), 6, "a segment of ledger {}", _tally_crc)
LEDGERS = Table("ledgers", ("ledger_id",), 12, "the summary of ledger {}", _summary_crc)
BUCKETS = Table("buckets", ("bucket",), 4, "bucket {}", _bucket_crc)
ENTRY_LOGS = Table("entry_logs", ("file_id",), 6, "entry log {}", _crc("<qIIqqI"))

_UPDATE_SUMMARY = (
    "UPDATE ledgers SET row_count = ?2, segment_count = ?3, segment_crc_sum = ?4, max_span = ?5, highest_entry_id = ?6, "
    "last_add_confirmed = ?7, master_key_hash = ?8, flags = ?9, deleted_at = ?10, deleted_ms = ?11, crc32c = ?12 "
    "WHERE ledger_id = ?1"
)
_MOVE_BATCH = (
    "UPDATE batches SET entry_log_id = ?, offset = ?, length = ?, crc32c = ? "
    f"WHERE {BATCHES.has_key} AND entry_log_id = ? AND offset = ? AND crc32c = ?"
)


def columns_of_batch(stored: StoredBatch) -> Columns:
    """With the CRC. The batch must have a location."""
    place, slot = stored.location, stored.pattern
    assert place is not None
    pattern = slot.ensemble_size << 16 | slot.write_quorum << 8 | slot.slot
    ids = (stored.ledger_id, stored.first_entry_id, stored.sequence, stored.last_entry_id, pattern, stored.body_crc32c)
    return BATCHES.with_crc((*ids, place.file_id, place.offset, place.length))


def columns_of_summary(one: LedgerSummary) -> Columns:
    """With the CRC."""
    ids = (one.max_span, one.highest_entry_id, one.last_add_confirmed, one.master_key_hash)
    return LEDGERS.with_crc((one.ledger_id, one.batch_count, *one.segments, *ids, one.flags, one.deleted_at, one.deleted_ms))


def columns_of_entry_log(one: KnownEntryLog) -> Columns:
    """With the CRC."""
    return ENTRY_LOGS.with_crc((one.file_id, one.directory, int(one.state), one.total_bytes, one.live_bytes))


class Tables:
    def __init__(self, database: Database) -> None:
        self.database = database

    def select(self, table: Table, where: str = "TRUE", values: Sequence[int] = ()) -> Iterator[Columns]:
        """Rows of a table, each verified."""
        with self.database.translated():
            for columns in self.database.every(f"SELECT * FROM {table.name} WHERE {where}", values):
                if table.crc(columns[:-1]) != columns[-1]:
                    raise self.database.damage(f"the checksum of {table.row_name.format(columns[0])} is wrong")
                yield columns

    def find(self, table: Table, key: tuple[int, ...]) -> Columns | None:
        """The row that has ``key``."""
        for columns in self.select(table, table.has_key, key):
            if columns[: len(key)] != key:
                raise self._misplaced(table, columns)
            return columns
        return None

    def page(self, table: Table, where: str, after: tuple[int, ...], limit: int) -> Iterator[Columns]:
        """The first rows above the key ``after``, by key. ``after`` is what ``where`` asks for."""
        for columns in self.select(table, f"{where} ORDER BY {', '.join(table.key)} LIMIT ?", (*after, limit)):
            key = columns[: len(after)]
            if key <= after:
                raise self._misplaced(table, columns)
            after = key
            yield columns

    def insert(self, table: Table, rows: Iterable[Columns], verb: str = "INSERT") -> None:
        """``rows`` have their CRCs."""
        self.database.run_each(f"{verb} {table.into}", rows)

    def delete(self, table: Table, keys: Iterable[tuple[int, ...]]) -> None:
        self.database.run_each(f"DELETE FROM {table.name} WHERE {table.has_key}", keys)

    def least(self, column: str, table: Table, where: str, values: Sequence[int]) -> int | None:
        """The lowest value of a column."""
        (found,) = self.database.one(f"SELECT min({column}) FROM {table.name} WHERE {where}", values) or (None,)
        if found is not None and not isinstance(found, int):
            raise self.database.damage(f"{column} {found!r} in {table.name} is no number")
        return found

    def _misplaced(self, table: Table, columns: Columns) -> CorruptionError:
        return self.database.damage(f"{table.row_name.format(columns[0])} is in the wrong place")

    def batches(self, where: str, after: tuple[int, int, int], limit: int) -> list[StoredBatch]:
        """As ``page``."""
        return [batch_of_columns(columns) for columns in self.page(BATCHES, where, after, limit)]

    def move_batch(self, old: Columns, new: Columns) -> bool:
        """Replace ``old`` by ``new``, which has another place and CRC. False if ``old`` is not what the table has."""
        return self.database.run(_MOVE_BATCH, (*new[-4:], *old[:3], *old[-4:-2], old[-1])) == 1

    def delete_batch(self, columns: Columns) -> bool:
        """False if this is not what the table has."""
        delete = f"DELETE FROM batches WHERE {BATCHES.has_key} AND crc32c = ?"
        return self.database.run(delete, (*columns[:3], columns[-1])) == 1

    def delete_batches_below(self, ledger_id: int, sequence: int) -> None:
        self.database.run("DELETE FROM batches WHERE ledger_id = ? AND sequence < ?", (ledger_id, sequence))

    def batch_count(self, ledger_id: int) -> int:
        found = self.database.one("SELECT COUNT(*) FROM batches WHERE ledger_id = ?", (ledger_id,))
        assert found is not None
        return int(found[0])

    def summary(self, ledger_id: int) -> LedgerSummary | None:
        columns = self.find(LEDGERS, (ledger_id,))
        return None if columns is None else _summary(columns)

    def summaries(self, after: int, limit: int) -> list[LedgerSummary]:
        """The first ledgers above an id, by id."""
        return [_summary(columns) for columns in self.page(LEDGERS, "ledger_id > ?", (after,), limit)]

    def highest_ledger_id(self) -> int:
        """-1 if there is no ledger."""
        found = self.database.one("SELECT max(ledger_id) FROM ledgers")
        return -1 if found is None or found[0] is None else int(found[0])

    def highest_issued_id(self, others: Collection[int]) -> int:
        where = f"flags & {CHOSEN_ID} = 0 ORDER BY ledger_id DESC LIMIT ?"
        found = (columns[0] for columns in self.select(LEDGERS, where, (len(others) + 1,)))
        return next((ledger_id for ledger_id in found if ledger_id not in others), -1)

    def put_summary(self, columns: Columns, *, is_new: bool) -> None:
        if is_new:
            self.insert(LEDGERS, [columns])
        else:
            self.database.run(_UPDATE_SUMMARY, columns)

    def segment(self, ledger_id: int, level: int, number: int) -> Tally | None:
        """What a segment of a ledger tallies."""
        columns = self.find(SEGMENTS, (ledger_id, level, number))
        return None if columns is None else Tally(*columns[3:5])

    def entry_logs(self) -> Iterator[KnownEntryLog]:
        """By file id."""
        for file_id, directory, state, total_bytes, live_bytes, _ in self.select(ENTRY_LOGS, "TRUE ORDER BY file_id"):
            yield KnownEntryLog(file_id, directory, LogState(state), total_bytes, live_bytes)

    def state(self) -> IndexState | None:
        found = self.database.one("SELECT value FROM state WHERE name = 'state'")
        with self.database.translated():
            return None if found is None else unpack_state(found[0], str(self.database.path))

    def put_state(self, state: IndexState) -> None:
        self.database.run("REPLACE INTO state VALUES ('state', ?)", (pack_state(state),))

    def proven(self, ledger_id: int) -> ProvenConfirmation | None:
        found = self.database.one("SELECT value FROM state WHERE name = ?", (_proven_name(ledger_id),))
        with self.database.translated():
            return None if found is None else unpack_proven(ledger_id, found[0])

    def put_proven(self, ledger_id: int, proven: ProvenConfirmation) -> None:
        self.database.run("REPLACE INTO state VALUES (?, ?)", (_proven_name(ledger_id), pack_proven(ledger_id, proven)))

    def forget_proven(self, ledger_id: int) -> None:
        self.database.run("DELETE FROM state WHERE name = ?", (_proven_name(ledger_id),))


def _proven_name(ledger_id: int) -> str:
    return f"proven/{ledger_id}"


def batch_of_columns(columns: Columns) -> StoredBatch:
    ledger_id, first, sequence, last, number, body_crc32c, *place, _ = columns
    parts = (number >> 16, number >> 8 & 255, number & 255)
    pattern = DENSE if parts == (1, 1, 0) else IdPattern(*parts)
    return StoredBatch(ledger_id, first, last, sequence, pattern, body_crc32c, EntryLocation(*place))


def _summary(columns: Columns) -> LedgerSummary:
    ledger_id, batch_count, count, crc_sum, *others, _ = columns
    return LedgerSummary(ledger_id, batch_count, Tally(count, crc_sum), *others)
