"""Reads the index as it is, for people, of a stopped bookie or of a running one, whose lock it does not need.

SQLite changes pages in place and keeps their old content in a rollback journal until the commit. So a reading shows one state
of the index only if that journal was empty and the generation the same before and after. Otherwise the index is read again, a
few times. If commits leave no gap, or a crash has left a rollback journal for the next start to undo, the last reading is
returned anyway, marked as no single state. Damage is a result like any other.

Ref: docs/formats.md, "Index"; docs/rules.md, storage rule 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.index.generation import read_generation
from bk_spark.bookie.index.sqlite_database import Database
from bk_spark.bookie.index.sqlite_index import GENERATION_FILE, INDEX_FILE, load_state
from bk_spark.bookie.index.sqlite_tables import Tables
from bk_spark.bookie.index.values import IndexState, LedgerSummary, StoredBatch
from bk_spark.bookie.index.verification import VerifiedIndex, load
from bk_spark.bookie.log_files.mark import KnownEntryLog
from bk_spark.errors import BookKeeperError

T = TypeVar("T")

PAGE_BATCHES = 5_000
"""Stored batches to read at a time, a few megabytes."""

_ABOVE = "(ledger_id, first_entry_id, sequence) > (?, ?, ?)"

MAX_READINGS = 5
"""Attempts to read between two commits. A bookie commits every few seconds, and most readings take less."""


class IndexView:
    """One look at an index. All that it returns was verified by its own CRC. Raises CorruptionError."""

    def __init__(self, database: Database, state: IndexState) -> None:
        self.state = state
        self._tables = Tables(database)

    def entry_logs(self) -> list[KnownEntryLog]:
        return list(self._tables.entry_logs())

    def ledgers(self, first: int, limit: int) -> list[LedgerSummary]:
        """By id, from ``first`` on."""
        return self._tables.summaries(first - 1, limit)

    def highest_ledger_id(self) -> int:
        """-1 if there is no ledger."""
        return self._tables.highest_ledger_id()

    def batches(self, ledger_id: int) -> list[StoredBatch]:
        """By first entry id and sequence."""
        return list(self._pages(f"ledger_id = {ledger_id:d} AND {_ABOVE}", (ledger_id, -1, 0)))

    def live_bytes(self) -> dict[tuple[int, int], int]:
        """Bytes that stored batches refer to, by entry log and ledger. Reads all of them."""
        found: defaultdict[tuple[int, int], int] = defaultdict(int)
        for stored in self._pages(_ABOVE, (-1, 0, 0)):
            if stored.location is not None:
                found[stored.location.file_id, stored.ledger_id] += stored.location.length
        return dict(sorted(found.items()))

    def _pages(self, where: str, after: tuple[int, int, int]) -> Iterator[StoredBatch]:
        """Stored batches by ledger, first entry id and sequence, some thousand at a time."""
        while True:
            page = self._tables.batches(where, after, PAGE_BATCHES)
            yield from page
            if len(page) < PAGE_BATCHES:
                return
            after = (page[-1].ledger_id, page[-1].first_entry_id, page[-1].sequence)

    def verify(self, *, full: bool, progress: Callable[[int], None] = lambda rows: None) -> None:
        """Raise CorruptionError unless all tallies fit, with ``full`` also those of stored batches. ``progress``: rows of the
        tables so far."""
        done = 0
        for rows in VerifiedIndex(self._tables, load(self._tables, self.state)).check(full):
            done += rows
            progress(done)


@dataclass(frozen=True, slots=True)
class IndexReading(Generic[T]):
    value: T | None
    """None if it could not be read."""
    problem: str
    """Why not, else empty."""
    rollback_bytes: int
    """The size of the rollback journal: of a commit under way, or of one cut short by a crash, which the next start undoes."""
    is_one_state: bool
    """No commit came between."""


def read_index(directory: Path, disk: Disk, read: Callable[[IndexView], T]) -> IndexReading[T]:
    """Call ``read`` with the index in ``directory``, if possible in one state. Returns errors of this package as a problem."""
    reading = _read_once(directory, disk, read)
    for _ in range(1, MAX_READINGS):
        if reading.is_one_state:
            break
        reading = _read_once(directory, disk, read)
    return reading


def _read_once(directory: Path, disk: Disk, read: Callable[[IndexView], T]) -> IndexReading[T]:
    before, value, problem = _traces(directory, disk), None, ""
    try:
        value = _with_view(directory, disk, read)
    except BookKeeperError as error:
        problem = str(error)
    after = _traces(directory, disk)
    return IndexReading(value, problem, after[0], is_one_state=before == after and after[0] == 0)


def _with_view(directory: Path, disk: Disk, read: Callable[[IndexView], T]) -> T:
    path = directory / INDEX_FILE
    with disk.open_read(path):  # SQLite's error for a missing file says less
        database = Database(path, read_only=True)
    try:
        state = load_state(database)
        if state is None:
            raise database.damage("it is empty")
        return read(IndexView(database, state))
    finally:
        database.close()


def _traces(directory: Path, disk: Disk) -> tuple[int, str]:
    """What a commit changes: the size of the rollback journal, and the generations in the index and in its file."""
    rollback = directory / f"{INDEX_FILE}-journal"
    try:
        size = disk.size(rollback) if disk.exists(rollback) else 0
        witness = read_generation(disk, directory / GENERATION_FILE)
        return size, f"{witness} {_with_view(directory, disk, lambda view: view.state.generation)}"
    except BookKeeperError as problem:
        return 0, str(problem)
