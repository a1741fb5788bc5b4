"""The SQLite file of the index: its schema, its settings, and SQLite's complaints as errors of this package.

SQLite of the standard library, with a rollback journal that is synced together with its directory (``synchronous=EXTRA``,
``journal_mode=TRUNCATE``): a write-ahead log silently drops committed rows when a bit in it flips. SQLite does not check its
pages, so readers check what they get (sqlite_tables.py). Deleted content is overwritten (``secure_delete``), so that a damaged
page leads to no older version of a row.

Ref: docs/rules.md, storage rule 3; docs/formats.md, "Index".
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from bk_spark.bookie.index.values import INDEX_VERSION, check_index_version
from bk_spark.errors import CorruptionError, StorageError

CACHE_KIB = 32 * 1024
"""The size of SQLite's cache. It holds the inner pages of 40 million rows, which take 0.8 bytes a row. A transaction that
changes more pages writes some of them early."""

BUCKET_OF_LEDGER = "(ledger_id >> 4) & 65535"
"""segments.bucket_of."""

_SCHEMA = {
    "batches": """CREATE TABLE batches (ledger_id INTEGER, first_entry_id INTEGER, sequence INTEGER, last_entry_id INTEGER,
    pattern INTEGER, body_crc32c INTEGER, entry_log_id INTEGER, offset INTEGER, length INTEGER, crc32c INTEGER,
    PRIMARY KEY (ledger_id, first_entry_id, sequence)) WITHOUT ROWID""",
    "segments": """CREATE TABLE segments (ledger_id INTEGER, level INTEGER, number INTEGER, child_count INTEGER,
    child_crc_sum INTEGER, crc32c INTEGER, PRIMARY KEY (ledger_id, level, number)) WITHOUT ROWID""",
    "ledgers": """CREATE TABLE ledgers (ledger_id INTEGER PRIMARY KEY, row_count INTEGER, segment_count INTEGER,
    segment_crc_sum INTEGER, max_span INTEGER, highest_entry_id INTEGER, last_add_confirmed INTEGER, master_key_hash BLOB,
    flags INTEGER, deleted_at INTEGER, deleted_ms INTEGER, crc32c INTEGER)""",
    "ledgers_by_bucket": f"CREATE INDEX ledgers_by_bucket ON ledgers ({BUCKET_OF_LEDGER})",
    "buckets": """CREATE TABLE buckets (bucket INTEGER PRIMARY KEY, ledger_count INTEGER, ledger_crc_sum INTEGER,
    crc32c INTEGER)""",
    "entry_logs": """CREATE TABLE entry_logs (file_id INTEGER PRIMARY KEY, directory INTEGER, state INTEGER,
    total_bytes INTEGER, live_bytes INTEGER, crc32c INTEGER)""",
    "state": "CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID",
}
_SETTINGS = (
    "locking_mode = EXCLUSIVE",
    "journal_mode = TRUNCATE",
    "synchronous = EXTRA",
    "secure_delete = ON",
    f"cache_size = -{CACHE_KIB}",
    "cell_size_check = ON",
)
_DISK_CODES = frozenset(
    {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY}
)
Columns = tuple[Any, ...]


class Database:
    """All methods but ``every`` raise this package's errors for SQLite's: CorruptionError, StorageError."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """``read_only`` asks for no lock, and may see parts of what another process commits meanwhile."""
        self.path = path
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        with self.translated():
            self._connection = _connect_to_read(path) if read_only else _connect(path)

    def every(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """The rows that a statement finds. Use it within ``translated``, and read all rows before the next change."""
        found = self._connection.execute(statement, values)
        self._cursors.add(found)
        return found

    def one(self, statement: str, values: Sequence[object] = ()) -> Columns | None:
        with self.translated():
            found: Columns | None = self._connection.execute(statement, values).fetchone()
            return found

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        """Returns how many rows it changed."""
        with self.translated():
            return self._connection.execute(statement, values).rowcount

    def run_each(self, statement: str, values: Iterable[Sequence[object]]) -> None:
        with self.translated():
            self._connection.executemany(statement, values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside are durable at the end, or none if one fails."""
        with self.translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise this package's errors for SQLite's, and for values whose types no healthy index holds."""
        try:
            yield
        except sqlite3.Error as problem:
            if getattr(problem, "sqlite_errorcode", 0) & 0xFF in _DISK_CODES:
                raise StorageError(f"the index {self.path}", str(problem)) from problem
            raise self.damage(str(problem)) from problem
        except (struct.error, TypeError, ValueError, OverflowError) as problem:
            raise self.damage(str(problem)) from problem

    def damage(self, problem: str) -> CorruptionError:
        return CorruptionError(str(self.path), problem)

    def create_tables(self) -> None:
        """Within a transaction."""
        for statement in _SCHEMA.values():
            self.run(statement)
        self.run(f"PRAGMA user_version = {INDEX_VERSION}")

    def check_tables(self) -> bool:
        """False if there are no tables: a crash came before the first commit.

        Raises CorruptionError if the tables are not those of this version, FormatVersionError, ConfigError (an older version).
        """
        with self.translated():
            found = dict(self.every("SELECT name, sql FROM sqlite_master"))
        version = self.one("PRAGMA user_version")
        assert version is not None
        if not found and version[0] == 0:
            return False
        check_index_version(str(self.path), version[0])
        if found != _SCHEMA:
            raise self.damage("its tables are not those of an index")
        return True

    def close(self) -> None:
        """Closes unread cursors too: one that the traceback of an error holds would keep the file locked."""
        for cursor in list(self._cursors):
            cursor.close()
        self._connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """``immutable``: SQLite ignores the lock of a running bookie and the rollback journal, and writes nothing."""
    connection = sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True, isolation_level=None)
    connection.execute("PRAGMA cell_size_check = ON").fetchall()
    return connection
