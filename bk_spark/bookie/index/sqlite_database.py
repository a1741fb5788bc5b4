"""A SQLite file with the tables of the index, its settings, and its complaints as errors of this package.

SQLite of the standard library, in a rollback journal that is synced with its directory (``synchronous=EXTRA``,
``journal_mode=TRUNCATE``): a write-ahead log drops committed rows silently when a bit flips in it. SQLite does not check its
pages: whoever reads checks what it gets (sqlite_tables.py). What is deleted is overwritten (``secure_delete``), so that a
damaged page leads to no older version of a row.

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

from bk_spark.bookie.index.rows import INDEX_VERSION, check_index_version
from bk_spark.errors import CorruptionError, StorageError

CACHE_KIB = 32 * 1024
"""What SQLite may keep in memory: the inner pages of 40 million rows, which take 0.8 bytes a row. A transaction that changes
more pages than that writes them early."""

BUCKET_OF_LEDGER = "(ledger_id >> 4) & 65535"
"""index_memory.bucket_of."""

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
    """Every call must stand within ``translated``, which also takes what a decoder makes of values of wrong types."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """With ``read_only`` no lock is asked for, and what another process commits meanwhile may be seen in part.

        Raises CorruptionError, StorageError.
        """
        self.path = path
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        with self.translated():
            self._connection = _connect_to_read(path) if read_only else _connect(path)

    def every(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """What a statement finds; to be used up before the next change."""
        found = self._connection.execute(statement, values)
        self._cursors.add(found)
        return found

    def one(self, statement: str, values: Sequence[object] = ()) -> Columns | None:
        found: Columns | None = self._connection.execute(statement, values).fetchone()
        return found

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        """The number of rows that it changed."""
        return self._connection.execute(statement, values).rowcount

    def run_each(self, statement: str, values: Iterable[Sequence[object]]) -> None:
        self._connection.executemany(statement, values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it, durable at the end, or nothing."""
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
        """SQLite's complaints, and values of types that no healthy index holds, as this package's errors."""
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
        """False if there are none: a crash came before the first commit.

        Raises CorruptionError if they are not those of this version, FormatVersionError, ConfigError (an older version).
        """
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
        """With all that was not used up: an error that somebody keeps would else keep the file's lock."""
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
    """``immutable``: neither the lock of a running bookie nor a rollback journal is looked at, and nothing is written."""
    connection = sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True, isolation_level=None)
    connection.execute("PRAGMA cell_size_check = ON").fetchall()
    return connection
