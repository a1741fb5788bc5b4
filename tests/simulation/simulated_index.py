"""The bookie's own index over SQLite in memory: its transactions are whole or not there, whatever crashes.

All of ``sqlite_index.py`` runs as shipped, its checks included; only the file is replaced by a database that belongs to the
simulated disk and outlives the bookie that opened it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bk_spark.bookie import sqlite_index
from bk_spark.bookie.disk import Disk
from tests.simulation.simulated_disk import SimulatedDisk


class _KeptDatabase(sqlite3.Connection):
    """Outlives its users."""

    def close(self) -> None:
        """The disk keeps it."""


def new_database() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=_KeptDatabase)


def open_simulated_index(directory: Path, bookie_id: str, disk: Disk, **settings: Any) -> sqlite_index.SqliteIndex:
    """As ``sqlite_index.open_index``, on the databases of a simulated disk."""
    assert isinstance(disk, SimulatedDisk)
    databases = disk.databases

    def connect(path: Path) -> sqlite3.Connection:
        if str(path) not in databases:
            databases[str(path)] = new_database()
        database: sqlite3.Connection = databases[str(path)]
        return database

    with patch.object(sqlite_index, "_connect", connect):
        return sqlite_index.open_index(directory, bookie_id, disk, **settings)
