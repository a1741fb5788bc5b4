"""The index in SQLite, which a bookie uses unless it is given another one.

Stored batches, summaries, live bytes and the mark always change in one transaction (sqlite_transaction.py). SQLite does not
check its pages, so every read is checked (sqlite_tables.py), and before a caller says no the index must prove that nothing is
missing (verification.py). A generation file reveals a copy of an older index (generation.py).

Memory, whatever the size of the index: SQLite's cache (sqlite_database.CACHE_KIB), a mebibyte for the buckets, 200 bytes an
entry log, and the arguments and results of a call.

Ref: docs/rules.md, "LastLogMark" and storage rules 1, 3; docs/formats.md, "Index".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bk_spark.bookie.disk import Disk
from bk_spark.bookie.index.generation import IndexGeneration, read_generation, writing_generation
from bk_spark.bookie.index.ledger_index import LedgerChange
from bk_spark.bookie.index.sqlite_database import Database
from bk_spark.bookie.index.sqlite_tables import BATCHES, Tables, batch_of_columns
from bk_spark.bookie.index.sqlite_transaction import Transaction
from bk_spark.bookie.index.values import IndexState, LedgerSummary, Limbo, ProvenConfirmation, StoredBatch
from bk_spark.bookie.index.verification import VerifiedIndex, load
from bk_spark.bookie.log_files.log_file import LogFile
from bk_spark.bookie.log_files.mark import KnownEntryLog, LogMark
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.errors import ConfigError, CorruptionError

INDEX_FILE = "ledgers.sqlite"
GENERATION_FILE = "generation"
WAY_OUT = "bring back the right one, or run 'bk-spark bookie rebuild-index --data-dir D', which makes a new index from the logs"


class SqliteIndex(VerifiedIndex):
    """Made by ``open_index``. LedgerIndex describes the methods."""

    def __init__(self, database: Database, disk: Disk, state: IndexState, *, is_frozen: bool = False) -> None:
        """Raises CorruptionError unless the tallies of all ledgers and entry logs are those of ``state``."""
        tables = Tables(database)
        super().__init__(tables, load(tables, state))
        self._database = database
        self._disk = disk
        if not is_frozen:
            with writing_generation(self._disk, self._generation_file) as write:
                write(self.generation)

    @property
    def mark(self) -> LogMark:
        return self._memory.state.mark

    @property
    def generation(self) -> IndexGeneration:
        state = self._memory.state
        return IndexGeneration(state.incarnation, state.generation)

    @property
    def limbo(self) -> Limbo | None:
        return self._memory.state.limbo

    def batches(self, ledger_id: int, after: tuple[int, int], limit: int) -> list[StoredBatch]:
        found = self._tables.batches("ledger_id = ? AND (first_entry_id, sequence) > (?, ?)", (ledger_id, *after), limit)
        if found and found[-1].ledger_id != ledger_id:
            raise self._database.damage(f"a batch of ledger {found[-1].ledger_id} is in the wrong place")
        return found

    def batches_from(self, after: tuple[int, int, int], limit: int) -> list[StoredBatch]:
        return self._tables.batches("(ledger_id, first_entry_id, sequence) > (?, ?, ?)", after, limit)

    def find(self, ledger_id: int, first: int, sequence: int) -> StoredBatch | None:
        columns = self._tables.find(BATCHES, (ledger_id, first, sequence))
        return None if columns is None else batch_of_columns(columns)

    def proven(self, ledger_id: int) -> ProvenConfirmation | None:
        return self._tables.proven(ledger_id)

    def summaries(self, after: int, limit: int) -> list[LedgerSummary]:
        return self._tables.summaries(after, limit)

    def highest_ledger_id(self) -> int:
        return self._tables.highest_ledger_id()

    def highest_issued_id(self, others: Collection[int]) -> int:
        return self._tables.highest_issued_id(others)

    def entry_logs(self) -> list[KnownEntryLog]:
        return sorted(self._memory.entry_logs.values(), key=lambda log: log.file_id)

    def commit(self, changes: Iterable[LedgerChange], mark: LogMark, files: Sequence[LogFile] = ()) -> None:
        with self._changing() as transaction:
            transaction.add_files(files)
            for change in changes:
                transaction.apply(change)
            transaction.mark = mark

    def move(self, moves: Sequence[tuple[StoredBatch, EntryLocation]], files: Sequence[LogFile], emptied: int) -> bool:
        with self._changing() as transaction:
            transaction.add_files(files)
            for stored, place in moves:
                transaction.move(stored, place)
            return transaction.bury(emptied)

    def forget_log(self, file_id: int) -> None:
        with self._changing() as transaction:
            transaction.forget_log(file_id)

    def remove_batches(self, batches: Sequence[StoredBatch]) -> None:
        with self._changing() as transaction:
            for stored in batches:
                transaction.remove(stored)

    def purge(self, ledger_ids: Sequence[int]) -> None:
        with self._changing() as transaction:
            for ledger_id in ledger_ids:
                transaction.purge(ledger_id)

    def set_limbo(self, limbo: Limbo | None) -> None:
        with self._changing() as transaction:
            transaction.limbo = limbo

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _changing(self) -> Iterator[Transaction]:
        """Opens the generation file first: without a descriptor for it nothing is changed."""
        with writing_generation(self._disk, self._generation_file) as write:
            with self._database.transaction():
                transaction = Transaction(self._tables, self._memory)
                yield transaction
                transaction.write()
            transaction.take_effect()
            write(self.generation)

    @property
    def _generation_file(self) -> Path:
        return self._database.path.with_name(GENERATION_FILE)


@contextmanager
def with_way_out() -> Iterator[None]:
    """Errors of a damaged index tell what to do."""
    try:
        yield
    except CorruptionError as damage:
        raise CorruptionError(damage.what, f"{damage.problem}; {WAY_OUT}") from damage


def index_exists(directory: Path, disk: Disk) -> bool:
    """Whether there is any file of an index."""
    return any(disk.exists(directory / name) for name in (INDEX_FILE, GENERATION_FILE))


@with_way_out()
def open_index(directory: Path, bookie_id: str, disk: Disk, *, logs_exist: bool, is_frozen: bool = False) -> SqliteIndex:
    """Described by OpenIndex."""
    path = directory / INDEX_FILE
    witness = read_generation(disk, directory / GENERATION_FILE)
    is_new = witness is None and not logs_exist
    if not is_new and (witness is None or not disk.exists(path)):
        raise CorruptionError(str(path if witness else directory / GENERATION_FILE), "it is missing")
    if not disk.exists(path):
        disk.claim(path)  # SQLite would let others read it; its rollback journal gets this file's permissions
    database = Database(path)
    try:
        state = load_state(database) or (_create(database, bookie_id, disk) if is_new else None)
        if state is None:
            raise database.damage("it is empty")
        check_state(path, state, bookie_id, witness)
        return SqliteIndex(database, disk, state, is_frozen=is_frozen)
    except BaseException:
        database.close()
        raise


def _create(database: Database, bookie_id: str, disk: Disk) -> IndexState:
    state = IndexState(bookie_id, disk.random_bytes(16), 1)
    with database.transaction():
        database.create_tables()
        Tables(database).put_state(state)
    return state


def load_state(database: Database) -> IndexState | None:
    """None if a crash came before the index's first commit. Raises CorruptionError, FormatVersionError, ConfigError."""
    if not database.check_tables():
        return None
    state = Tables(database).state()
    if state is None:
        raise database.damage("its state is missing")
    return state


def check_state(path: Path, state: IndexState, bookie_id: str, witness: IndexGeneration | None) -> None:
    """Raises ConfigError if the index is another bookie's, CorruptionError if it does not fit its generation file."""
    if state.bookie_id != bookie_id:
        raise ConfigError(str(path), state.bookie_id, f"it is the index of that bookie, not of {bookie_id}")
    if witness is None:
        return
    if witness.incarnation != state.incarnation:
        raise CorruptionError(str(path), "it is another index than the one that its generation file belongs to")
    if state.generation < witness.generation:
        problem = f"it is of generation {state.generation}, its generation file says {witness.generation}: it is an old copy"
        raise CorruptionError(str(path), problem)
