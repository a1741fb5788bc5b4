"""The index: ledger and entry id → place in an entry log, one row a stored batch; ledgers; entry logs; the LastLogMark; limbo.

What the storage needs of one, so that a simulator can put its own in the place of the one in SQLite (sqlite_index.py). Rows,
summaries, live bytes and the mark change in one transaction, never apart, and what is read was verified.

One caller at a time; LedgerStorage holds a lock. Whatever changes the index is durable when it returns, all of it, or, after an
error, nothing was changed; after a StorageError which of the two is known only when the index is opened again.

Ref: docs/rules.md, "LastLogMark" and storage rules 1, 3, 5, 10, 11, 14.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.index.rows import BatchRow, LedgerSummary, Limbo
from bk_spark.bookie.logs.log_file import LogFile
from bk_spark.bookie.logs.mark import EntryLogRow, LogMark
from bk_spark.bookie.logs.writer import EntryLocation


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """What a commit adds to one ledger, after what it deletes of it."""

    ledger_id: int
    master_key_hash: bytes
    last_add_confirmed: int
    rows: list[BatchRow]
    """Each with a location that is durable. Those below the ledger's last deletion are left out. Any other one makes a
    deleted ledger an ordinary, fenced one."""
    is_fenced: bool = False
    """The ledger is fenced from this commit on; False says nothing."""
    deleted_at: int = 0
    """The sequence of a deletion, 0 for none: rows below it go, the ledger is fenced and, if no row remains, a tombstone."""
    deleted_ms: int = 0
    """When that was, in milliseconds since 1970."""


class LedgerIndex(Protocol):
    @property
    def incarnation(self) -> bytes:
        """Drawn when the index was made, 16 bytes."""
        ...

    @property
    def mark(self) -> LogMark: ...

    @property
    def limbo(self) -> Limbo | None: ...

    def rows(self, ledger_id: int, after: tuple[int, int], limit: int) -> list[BatchRow]:
        """The first ``limit`` rows above ``after``, a first entry id and a sequence, in the order of these two."""
        ...

    def rows_from(self, after: tuple[int, int, int], limit: int) -> list[BatchRow]:
        """The first ``limit`` rows of all ledgers above a ledger id, a first entry id and a sequence, in that order."""
        ...

    def row(self, ledger_id: int, first: int, sequence: int) -> BatchRow | None:
        """None if it is not there, as far as the index can be believed (``verify_entry``)."""
        ...

    def summary(self, ledger_id: int) -> LedgerSummary | None:
        """None if the ledger was never committed here. Raises CorruptionError also where its rows are there without it."""
        ...

    def summaries(self, after: int, limit: int) -> list[LedgerSummary]:
        """The first ``limit`` ledgers above an id, tombstones too, ascending."""
        ...

    def entry_logs(self) -> list[EntryLogRow]:
        """By file id."""
        ...

    def verify_entry(self, ledger_id: int, entry_id: int) -> None:
        """Raise CorruptionError unless each row that may hold an entry is here: to be called before saying no.

        It reads a bounded number of rows, whatever the size of the ledger.
        """
        ...

    def verify_ledger(self, ledger_id: int) -> None:
        """Raise CorruptionError unless a ledger's summary is the last that was committed, or there was none.

        To be called before saying "no such ledger" or "not fenced". It reads a bounded number of rows.
        """
        ...

    def verify_ledgers(self) -> None:
        """Raise CorruptionError unless the tallies of all ledgers and all entry logs are here."""
        ...

    def commit(self, changes: Iterable[LedgerChange], mark: LogMark, files: Sequence[LogFile] = ()) -> None:
        """Add and delete rows, update their ledgers and move the mark. ``files``: each log that rows are new in, or more."""
        ...

    def move(self, moves: Sequence[tuple[BatchRow, EntryLocation]], files: Sequence[LogFile], emptied: int) -> bool:
        """Let rows that still are what they were point to durable copies, in ``files``, sealed ones and one still written to.

        True if no row refers to the log ``emptied``, which was sealed, any more: it is dead then.
        """
        ...

    def forget_log(self, file_id: int) -> None:
        """Its file is deleted, durably. Raises InternalError unless the log is dead or not known."""
        ...

    def remove_rows(self, rows: Sequence[BatchRow]) -> None:
        """Delete rows whose ids newer rows hold; those that are not what they were stay."""
        ...

    def purge(self, ledger_ids: Sequence[int]) -> None:
        """Forget ledgers that are tombstones without rows; others stay."""
        ...

    def set_limbo(self, limbo: Limbo | None) -> None: ...

    def check(self, full: bool) -> Iterator[int]:
        """Verify all summaries, or with ``full`` every row, in steps that other calls may come between.

        Each step yields how many rows of any table it read. Raises CorruptionError.
        """
        ...

    def close(self) -> None: ...


class OpenIndex(Protocol):
    def __call__(self, directory: Path, bookie_id: str, disk: Disk, *, logs_exist: bool) -> LedgerIndex:
        """The index in ``directory``; a new one if there is none and nothing says that there was one.

        Raises CorruptionError (damaged, missing beside logs, an old copy), FormatVersionError, ConfigError (another bookie's,
        an older version).
        """
        ...
