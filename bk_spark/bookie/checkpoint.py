"""The checkpoint: what was logged since the mark goes into the index, and the mark moves with it.

The order is the whole point, each step durable before the next:

1. the mark's journal position is taken;
2. the write cache is copied into the entry log, sorted by ledger, every record with the sequence of its original;
3. the entry log is synced, with the large adds in it (rolled files were synced when they were rolled);
4. one index transaction stores the rows, the ledgers' summaries and the mark; the generation file follows;
5. journal files that end before the mark are deleted.

A crash between any two leaves the old mark, and what it needs, or the new one. The mark never moves without the rows: all that
a bookie knows of a ledger (master key, last add confirmed, fence) is in the same transaction, and a ledger that was only
fenced is written like any other.

Everything runs on the sync thread, and nothing is staged meanwhile.

Ref: docs/rules.md, "Order of syncs", protocol rules 36 and 38.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bk_spark.bookie.entry_log import EntryLog
from bk_spark.bookie.index_rows import BatchRow, LogMark
from bk_spark.bookie.journal import Journal
from bk_spark.bookie.ledger_index import LedgerChange
from bk_spark.bookie.log_writer import SequenceCounter
from bk_spark.bookie.write_cache import CachedLedger, WriteCache
from bk_spark.config import BookieConfig


@dataclass(slots=True)
class Logs:
    """What the sync thread appends to."""

    journal: Journal
    entry_log: EntryLog
    sequences: SequenceCounter

    def write(self) -> None:
        """Hand all that was appended to the operating system."""
        self.journal.write()
        self.entry_log.write()

    def sync(self) -> None:
        """Make all that was appended durable."""
        self.journal.sync()
        self.entry_log.sync()


@dataclass(slots=True)
class CheckpointTrigger:
    """When the next checkpoint is due: by bytes in either log, for under large adds alone the cache stays small."""

    config: BookieConfig
    journal_bytes: int = 0
    entry_log_bytes: int = 0

    def is_due(self, logs: Logs, cache: WriteCache) -> bool:
        return (
            cache.size_bytes >= self.config.write_cache_bytes
            or logs.journal.appended_bytes - self.journal_bytes >= self.config.checkpoint_bytes
            or logs.entry_log.appended_bytes - self.entry_log_bytes >= self.config.checkpoint_bytes
        )

    def reset(self, logs: Logs) -> None:
        """A checkpoint is done."""
        self.journal_bytes = logs.journal.appended_bytes
        self.entry_log_bytes = logs.entry_log.appended_bytes


def flush(cache: WriteCache, logs: Logs) -> tuple[list[LedgerChange], LogMark]:
    """Steps 1 to 3: what the index is to be told. All of ``logs`` must be synced."""
    journal = logs.journal.position
    changes = [_change(ledger_id, ledger, logs.entry_log) for ledger_id, ledger in cache.ledgers()]
    logs.entry_log.sync()
    mark = LogMark(
        logs.sequences.next_sequence, logs.journal.next_file_id, logs.entry_log.next_file_id, journal, logs.entry_log.position
    )
    return changes, mark


def _change(ledger_id: int, ledger: CachedLedger, entry_log: EntryLog) -> LedgerChange:
    rows = list(_placed(ledger, entry_log))
    return LedgerChange(ledger_id, ledger.master_key_hash, ledger.last_add_confirmed, rows, ledger.fenced_at is not None)


def _placed(ledger: CachedLedger, entry_log: EntryLog) -> Iterator[BatchRow]:
    for row in ledger.rows:
        if row.batch is None:
            yield row
        else:
            yield replace(row, location=entry_log.append(row.batch, ledger.master_key_hash, row.sequence), batch=None)
