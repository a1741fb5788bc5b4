"""The index: ledger and entry id → place in the entry log, one row a stored batch; ledgers; the LastLogMark.

What the storage needs of one, so that a simulator can put its own in the place of the one in SQLite (sqlite_index.py). Rows,
summaries and the mark change in one transaction, never apart, and what is read was verified.

One caller at a time; LedgerStorage holds a lock.

Ref: docs/rules.md, "LastLogMark" and storage rules 1, 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.index_rows import FENCED, SUM_MODULUS, BatchRow, LedgerSummary, LogMark


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """What a commit adds to one ledger."""

    ledger_id: int
    master_key_hash: bytes
    last_add_confirmed: int
    rows: list[BatchRow]
    """Each with a location that is durable."""
    is_fenced: bool = False
    """The ledger is fenced from this commit on; False says nothing."""


class LedgerIndex(Protocol):
    @property
    def mark(self) -> LogMark: ...

    def rows(self, ledger_id: int, after: tuple[int, int], limit: int) -> list[BatchRow]:
        """The first ``limit`` rows above ``after``, a first entry id and a sequence, in the order of these two."""
        ...

    def summary(self, ledger_id: int) -> LedgerSummary | None:
        """None if the ledger was never committed here. Raises CorruptionError also where its rows are there without it."""
        ...

    def verify_ledger(self, ledger_id: int) -> None:
        """Raise CorruptionError unless all that was committed of a ledger is here: to be called before saying no."""
        ...

    def verify_ledgers(self) -> None:
        """Raise CorruptionError unless the summaries of all ledgers are here."""
        ...

    def commit(self, changes: Iterable[LedgerChange], mark: LogMark) -> None:
        """Add rows, update their ledgers and move the mark, in one durable step: all of it or, after an error, nothing.

        After an error of the commit itself which of the two is known only when the index is opened again.
        """
        ...

    def close(self) -> None: ...


class OpenIndex(Protocol):
    def __call__(self, directory: Path, bookie_id: str, disk: Disk, *, logs_exist: bool) -> LedgerIndex:
        """The index in ``directory``; a new one if there is none and nothing says that there was one.

        Raises CorruptionError (damaged, missing beside logs, an old copy), FormatVersionError, ConfigError (another bookie's).
        """
        ...


def grown(summary: LedgerSummary, change: LedgerChange, crc_sum: int) -> LedgerSummary:
    """``summary`` after ``change``, with ``crc_sum`` the sum of its rows' CRCs. The LAC and the fence never go back."""
    return replace(
        summary,
        row_count=summary.row_count + len(change.rows),
        row_crc_sum=(summary.row_crc_sum + crc_sum) % SUM_MODULUS,
        max_span=max([summary.max_span, *(row.span for row in change.rows)]),
        highest_entry_id=max([summary.highest_entry_id, *(row.last_entry_id for row in change.rows)]),
        last_add_confirmed=max(summary.last_add_confirmed, change.last_add_confirmed),
        flags=summary.flags | (FENCED if change.is_fenced else 0),
    )
