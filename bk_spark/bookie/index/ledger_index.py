"""The interface of the index: ledger and entry id → its stored batch, with the place in an entry log.

The index also holds summaries of ledgers, the entry logs, the LastLogMark and limbo. The one of a bookie is in SQLite
(sqlite_index.py); a simulator can put its own in its place. Stored batches, summaries, live bytes and the mark always change in
one transaction, and every read is verified.

One caller at a time: LedgerStorage holds a lock. A change is durable when its method returns. An error means that nothing was
changed. Only after a StorageError may all of the change be there or nothing; who opens the index again finds out.

Ref: docs/rules.md, "LastLogMark" and storage rules 1, 3, 5, 10, 11, 14.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.index.generation import IndexGeneration
from bk_spark.bookie.index.values import LedgerSummary, Limbo, ProvenConfirmation, StoredBatch
from bk_spark.bookie.log_files.log_file import LogFile
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogMark
from bk_spark.bookie.log_files.writer import EntryLocation


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """What a commit changes in one ledger: first it deletes, then it adds."""

    ledger_id: int
    master_key_hash: bytes
    last_add_confirmed: int
    batches: list[StoredBatch]
    """Each with a durable location. Stored batches below the ledger's last deletion are left out. Any other one makes a deleted
    ledger an ordinary, fenced one."""
    is_fenced: bool = False
    """Fence the ledger. False changes nothing."""
    deleted_at: int = 0
    """The sequence of a deletion, 0 for none. It removes the stored batches below it, and fences the ledger. A ledger without
    other batches becomes a tombstone."""
    deleted_ms: int = 0
    """The time of that deletion, in milliseconds since 1970."""
    proven: ProvenConfirmation | None = None
    """Replaces the one that is stored; None leaves it."""
    has_chosen_id: bool = False
    """The ledger's creator chose its id. False changes nothing."""


class LedgerIndex(Protocol):
    @property
    def mark(self) -> LogMark: ...

    @property
    def generation(self) -> IndexGeneration:
        """Of the last change."""

    @property
    def limbo(self) -> Limbo | None: ...

    def batches(self, ledger_id: int, after: tuple[int, int], limit: int) -> list[StoredBatch]:
        """The first ``limit`` stored batches of a ledger above ``after`` (first entry id, sequence), in the order of these
        two."""

    def batches_from(self, after: tuple[int, int, int], limit: int) -> list[StoredBatch]:
        """The first ``limit`` stored batches above ``after`` (ledger id, first entry id, sequence), in the order of these
        three."""

    def find(self, ledger_id: int, first: int, sequence: int) -> StoredBatch | None:
        """None if it is missing; only ``verify_entry`` proves that."""

    def summary(self, ledger_id: int) -> LedgerSummary | None:
        """None if the ledger was never committed here. Raises CorruptionError also if there are batches without a summary."""

    def proven(self, ledger_id: int) -> ProvenConfirmation | None:
        """The highest last add confirmed that came by itself, with its proof; None if there is none, or it was lost."""

    def summaries(self, after: int, limit: int) -> list[LedgerSummary]:
        """The first ``limit`` ledgers above an id, ascending, with tombstones."""

    def highest_ledger_id(self) -> int:
        """Tombstones count; -1 if there is no ledger."""

    def highest_issued_id(self, others: Collection[int]) -> int:
        """The same without ledgers whose creators chose their ids, and without ``others``."""

    def entry_logs(self) -> list[KnownEntryLog]:
        """By file id."""

    def verify_entry(self, ledger_id: int, entry_id: int) -> None:
        """Raise CorruptionError unless every stored batch that may hold an entry is here. Call it before denying the entry.

        It reads a bounded number of rows of its tables, whatever the size of the ledger.
        """

    def verify_ledger(self, ledger_id: int) -> None:
        """Raise CorruptionError unless a ledger's summary is the last committed one, or there never was one.

        Call it before answering "no such ledger" or "not fenced". It reads a bounded number of rows of its tables.
        """

    def commit(self, changes: Iterable[LedgerChange], mark: LogMark, files: Sequence[LogFile] = ()) -> None:
        """Delete and add stored batches, update their ledgers and move the mark. ``files``: all entry logs of new ones, or
        more."""

    def move(self, moves: Sequence[tuple[StoredBatch, EntryLocation]], files: Sequence[LogFile], emptied: int) -> bool:
        """Let stored batches that are still what they were point to durable copies in ``files``, which may be sealed or open.

        True if no stored batch refers to the sealed entry log ``emptied`` any more. It is dead then.
        """

    def forget_log(self, file_id: int) -> None:
        """Forget an entry log whose file is durably deleted. Raises InternalError unless it is dead or unknown."""

    def remove_batches(self, batches: Sequence[StoredBatch]) -> None:
        """Delete stored batches whose ids newer ones hold. Those that are not what they were stay."""

    def purge(self, ledger_ids: Sequence[int]) -> None:
        """Forget those of the ledgers that are tombstones without stored batches."""

    def set_limbo(self, limbo: Limbo | None) -> None: ...

    def check(self, full: bool) -> Iterator[int]:
        """Verify all summaries, or with ``full`` every stored batch, in steps. Other calls may come between them.

        Each step yields how many rows of the tables it read. Raises CorruptionError.
        """

    def close(self) -> None: ...


class OpenIndex(Protocol):
    def __call__(
        self, directory: Path, bookie_id: str, disk: Disk, *, logs_exist: bool, is_frozen: bool = False
    ) -> LedgerIndex:
        """The index in ``directory``, or a new one if there is none and nothing indicates that there was one.

        One that ``is_frozen`` is only read: opening it takes no space on the disk, and nothing may be changed or deleted.

        Raises CorruptionError (damaged, missing beside logs, an old copy), FormatVersionError, ConfigError (another bookie's,
        an older version).
        """


def proven_summary(index: LedgerIndex, ledger_id: int) -> LedgerSummary | None:
    """The summary of a ledger. Before the ledger counts as new or not fenced, the index proves that it lost no fence."""
    summary = index.summary(ledger_id)
    if summary is None or not summary.is_fenced:
        index.verify_ledger(ledger_id)
    return summary
