"""The index in SQLite, the one that a bookie uses unless it is given another.

SQLite of the standard library, in a rollback journal that is synced with its directory (``synchronous=EXTRA``,
``journal_mode=TRUNCATE``): a write-ahead log drops committed rows silently when a bit flips in it. Rows, summaries and the
mark change in one transaction, never apart.

SQLite does not check its pages, so everything that is read is checked here (index_rows.py), and before a caller says "no
such entry" or "no such ledger" it calls ``verify_ledger``, which adds up all rows of the ledger, or all ledgers.

Ref: docs/rules.md, "LastLogMark" and storage rules 1, 3; docs/formats.md, "Files of a bookie".
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.index_generation import IndexGeneration, read_generation, write_generation
from bk_spark.bookie.index_rows import (
    INDEX_VERSION,
    SUM_MODULUS,
    BatchRow,
    IndexState,
    LedgerSummary,
    LogMark,
    new_summary,
    pack_pattern,
    pack_state,
    row_crc,
    summary_crc,
    unpack_pattern,
    unpack_state,
)
from bk_spark.bookie.ledger_index import LedgerChange, grown
from bk_spark.bookie.log_writer import EntryLocation
from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError, StorageError

INDEX_FILE = "ledgers.sqlite"
GENERATION_FILE = "generation"
CACHE_KIB = 8192
"""What SQLite may keep in memory: the inner pages of a few million rows."""

_SCHEMA = """
CREATE TABLE batches (ledger_id INTEGER, first_entry_id INTEGER, sequence INTEGER, last_entry_id INTEGER, pattern INTEGER,
    body_crc32c INTEGER, entry_log_id INTEGER, offset INTEGER, length INTEGER, crc32c INTEGER,
    PRIMARY KEY (ledger_id, first_entry_id, sequence)) WITHOUT ROWID;
CREATE TABLE ledgers (ledger_id INTEGER PRIMARY KEY, row_count INTEGER, row_crc_sum INTEGER, max_span INTEGER,
    highest_entry_id INTEGER, last_add_confirmed INTEGER, master_key_hash BLOB, flags INTEGER, crc32c INTEGER);
CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
"""
_ROW_COLUMNS = "ledger_id, first_entry_id, sequence, last_entry_id, pattern, body_crc32c, entry_log_id, offset, length, crc32c"
_SUMMARY_COLUMNS = (
    "ledger_id, row_count, row_crc_sum, max_span, highest_entry_id, last_add_confirmed, master_key_hash, flags, crc32c"
)
_DISK_CODES = frozenset(
    {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY}
)
_Columns = tuple[int, ...]


class SqliteIndex:
    """Made by ``open_index``."""

    def __init__(self, path: Path, connection: sqlite3.Connection, disk: Disk, state: IndexState) -> None:
        self._path = path
        self._connection = connection
        self._disk = disk
        self._state = state

    @property
    def mark(self) -> LogMark:
        return self._state.mark

    def rows(self, ledger_id: int, after: tuple[int, int], limit: int) -> list[BatchRow]:
        """The first ``limit`` rows above ``after``, a first entry id and a sequence, in the order of these two."""
        where = "WHERE ledger_id = ? AND (first_entry_id, sequence) > (?, ?) ORDER BY first_entry_id, sequence LIMIT ?"
        with _translated(self._path):
            found = self._connection.execute(f"SELECT {_ROW_COLUMNS} FROM batches {where}", (ledger_id, *after, limit))
            return [self._row(columns) for columns in found]

    def summary(self, ledger_id: int) -> LedgerSummary | None:
        """None if the ledger was never committed here. Raises CorruptionError also where its rows are there without it."""
        with _translated(self._path):
            where = "WHERE ledger_id = ?"
            found = self._connection.execute(f"SELECT {_SUMMARY_COLUMNS} FROM ledgers {where}", (ledger_id,)).fetchone()
            if found is not None:
                return self._summary(found)
            if self._connection.execute(f"SELECT 1 FROM batches {where} LIMIT 1", (ledger_id,)).fetchone():
                raise self._damage(f"it has rows of ledger {ledger_id}, and no summary of it")
        return None

    def verify_ledger(self, ledger_id: int) -> None:
        """Raise CorruptionError unless all that was committed of a ledger is here: to be called before saying no."""
        summary = self.summary(ledger_id)
        if summary is None:
            self.verify_ledgers()
            return
        count = total = 0
        with _translated(self._path):
            where = "WHERE ledger_id = ?"
            for columns in self._connection.execute(f"SELECT {_ROW_COLUMNS} FROM batches {where}", (ledger_id,)):
                self._check_row(columns)
                count, total = count + 1, total + columns[-1]
        if (count, total % SUM_MODULUS) != (summary.row_count, summary.row_crc_sum):
            raise self._damage(f"ledger {ledger_id} has {count} rows here, its summary counts {summary.row_count}")

    def verify_ledgers(self) -> None:
        """Raise CorruptionError unless the summaries of all ledgers are here."""
        count = total = 0
        with _translated(self._path):
            for columns in self._connection.execute(f"SELECT {_SUMMARY_COLUMNS} FROM ledgers"):
                self._summary(columns)
                count, total = count + 1, total + columns[-1]
        if (count, total % SUM_MODULUS) != (self._state.ledger_count, self._state.summary_crc_sum):
            raise self._damage(f"{count} ledgers are here, {self._state.ledger_count} were committed")

    def commit(self, changes: Iterable[LedgerChange], mark: LogMark) -> None:
        """Add rows, update their ledgers and move the mark, in one durable step: all of it or, after an error, nothing.

        After an error of the commit itself which of the two is known only when the index is opened again.
        """
        state = replace(self._state, generation=self._state.generation + 1, mark=mark)
        with _translated(self._path), self._transaction():
            for change in changes:
                state = self._apply(change, state)
            self._connection.execute("UPDATE state SET value = ? WHERE name = 'state'", (pack_state(state),))
        self._state = state
        _witness(self._disk, self._path, state)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _apply(self, change: LedgerChange, state: IndexState) -> IndexState:
        before = self.summary(change.ledger_id)
        packed = [_columns(row) for row in change.rows]
        crcs = [row_crc(columns) for columns in packed]
        places = ", ".join("?" * 10)
        rows = ((*columns, crc) for columns, crc in zip(packed, crcs, strict=True))
        self._connection.executemany(f"INSERT INTO batches ({_ROW_COLUMNS}) VALUES ({places})", rows)
        after = grown(before or new_summary(change.ledger_id, change.master_key_hash), change, sum(crcs))
        self._put_summary(after)
        delta = summary_crc(after) - (summary_crc(before) if before else 0)
        return replace(
            state,
            ledger_count=state.ledger_count + (before is None),
            summary_crc_sum=(state.summary_crc_sum + delta) % SUM_MODULUS,
        )

    def _put_summary(self, one: LedgerSummary) -> None:
        numbers = (one.ledger_id, one.row_count, one.row_crc_sum, one.max_span, one.highest_entry_id, one.last_add_confirmed)
        values = (*numbers, one.master_key_hash, one.flags, summary_crc(one))
        places = ", ".join("?" * len(values))
        self._connection.execute(f"INSERT OR REPLACE INTO ledgers ({_SUMMARY_COLUMNS}) VALUES ({places})", values)

    def _row(self, columns: _Columns) -> BatchRow:
        self._check_row(columns)
        ledger_id, first, sequence, last, pattern, body_crc32c, *place, _ = columns
        return BatchRow(ledger_id, first, last, sequence, unpack_pattern(pattern), body_crc32c, EntryLocation(*place))

    def _check_row(self, columns: _Columns) -> None:
        if row_crc(columns[:-1]) != columns[-1]:
            raise self._damage(f"the checksum of a row of ledger {columns[0]} is wrong")

    def _summary(self, columns: tuple[Any, ...]) -> LedgerSummary:
        *fields, crc = columns
        summary = LedgerSummary(*fields)
        if summary_crc(summary) != crc:
            raise self._damage(f"the checksum of the summary of ledger {columns[0]} is wrong")
        return summary

    def _damage(self, problem: str) -> CorruptionError:
        return CorruptionError(str(self._path), problem)


def open_index(directory: Path, bookie_id: str, disk: Disk, *, logs_exist: bool) -> SqliteIndex:
    """The index in ``directory``; a new one if there is none and nothing says that there was one.

    Raises CorruptionError (damaged, missing beside logs, older than its generation file), FormatVersionError, ConfigError
    (another bookie's).
    """
    path = directory / INDEX_FILE
    witness = read_generation(disk, directory / GENERATION_FILE)
    is_new = witness is None and not logs_exist
    if not is_new and (witness is None or not disk.exists(path)):
        raise CorruptionError(str(path if witness else directory / GENERATION_FILE), "it is missing")
    with _translated(path):
        connection = _connect(path)
        state = _load_state(path, connection) or (_create(connection, bookie_id, disk) if is_new else None)
    if state is None:
        raise CorruptionError(str(path), "it is empty")
    _check_state(path, state, bookie_id, witness)
    index = SqliteIndex(path, connection, disk, state)
    index.verify_ledgers()
    _witness(disk, path, state)
    return index


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for setting in (
        "locking_mode = EXCLUSIVE",
        "journal_mode = TRUNCATE",
        "synchronous = EXTRA",
        f"cache_size = -{CACHE_KIB}",
        "cell_size_check = ON",
    ):
        connection.execute(f"PRAGMA {setting}").fetchall()
    return connection


def _create(connection: sqlite3.Connection, bookie_id: str, disk: Disk) -> IndexState:
    state = IndexState(bookie_id, disk.random_bytes(16), 1, 0, 0, LogMark())
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO state VALUES ('state', ?)", (pack_state(state),))
    connection.execute(f"PRAGMA user_version = {INDEX_VERSION}")
    connection.execute("COMMIT")
    return state


def _load_state(path: Path, connection: sqlite3.Connection) -> IndexState | None:
    """None if the index was never made: a crash came before its first commit."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > INDEX_VERSION:
        raise FormatVersionError(str(path), version, INDEX_VERSION)
    if version == 0 and not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        return None
    found = connection.execute("SELECT value FROM state WHERE name = 'state'").fetchone()
    if version != INDEX_VERSION or found is None:
        raise CorruptionError(str(path), f"its version is {version} and its state {'there' if found else 'missing'}")
    return unpack_state(found[0], str(path))


def _check_state(path: Path, state: IndexState, bookie_id: str, witness: IndexGeneration | None) -> None:
    if state.bookie_id != bookie_id:
        raise ConfigError(str(path), state.bookie_id, f"it is the index of that bookie, not of {bookie_id}")
    if witness is None:
        return
    if witness.incarnation != state.incarnation:
        raise CorruptionError(str(path), "it is another index than the one that its generation file belongs to")
    if state.generation < witness.generation:
        problem = f"it is of generation {state.generation}, its generation file says {witness.generation}: it is an old copy"
        raise CorruptionError(str(path), problem)


def _witness(disk: Disk, path: Path, state: IndexState) -> None:
    write_generation(disk, path.with_name(GENERATION_FILE), IndexGeneration(state.incarnation, state.generation))


def _columns(row: BatchRow) -> _Columns:
    assert row.location is not None
    place = (row.location.file_id, row.location.offset, row.location.length)
    return (
        row.ledger_id,
        row.first_entry_id,
        row.sequence,
        row.last_entry_id,
        pack_pattern(row.pattern),
        row.body_crc32c,
        *place,
    )


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's complaints, and values of types that no healthy index holds, as this package's errors."""
    try:
        yield
    except sqlite3.Error as problem:
        if getattr(problem, "sqlite_errorcode", 0) & 0xFF in _DISK_CODES:
            raise StorageError(f"the index {path}", str(problem)) from problem
        raise CorruptionError(str(path), str(problem)) from problem
    except (struct.error, TypeError, ValueError) as problem:
        raise CorruptionError(str(path), str(problem)) from problem
