"""The bookie's own index over SQLite in memory: its transactions are whole or not there, whatever crashes.

All of the index runs as shipped, its checks included; only the file is replaced by a database that belongs to the simulated
disk and outlives the bookie that opened it. The machine may stop right before and right after each commit.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.index import sqlite_database, sqlite_index
from tests.simulation.world.simulated_disk import SimulatedDisk


class KeptDatabase(sqlite3.Connection):
    """Outlives its users. ``disk`` is the one that may stop."""

    disk: SimulatedDisk | None = None
    commits = 0
    before: bytes = b""
    """What it held before the transaction under way."""

    def close(self) -> None:
        """The disk keeps it."""

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        if statement.startswith("BEGIN") and self.disk is not None and self.disk.is_copied:
            self.before = self._content()
        disk = self.disk if statement == "COMMIT" else None
        if disk is None:
            return super().execute(statement, *arguments)
        disk.step()
        cursor = super().execute(statement, *arguments)
        self.commits += 1
        disk.step()
        return cursor

    def durable(self) -> bytes:
        """What a crash now would leave."""
        return self.before if self.in_transaction else self._content()

    def _content(self) -> bytes:
        (pages,) = super().execute("PRAGMA page_count").fetchone()
        return self.serialize() if pages else b""


def new_database() -> KeptDatabase:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=KeptDatabase)


def open_simulated_index(directory: Path, bookie_id: str, disk: Disk, **settings: Any) -> sqlite_index.SqliteIndex:
    """As ``sqlite_index.open_index``, on the databases of a simulated disk."""
    assert isinstance(disk, SimulatedDisk)
    databases = disk.databases

    def connect(path: Path) -> sqlite3.Connection:
        if str(path) not in databases:
            databases[str(path)] = new_database()
        database: KeptDatabase = databases[str(path)]
        database.disk = disk
        return database

    with patch.object(sqlite_database, "_connect", connect):
        return sqlite_index.open_index(directory, bookie_id, disk, **settings)
