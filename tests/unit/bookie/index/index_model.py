"""What an index must answer, kept in dicts, and the questions that are put to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from bk_spark.bookie.index.ledger_index import LedgerChange
from bk_spark.bookie.index.look_up import BatchWindow, newest_holding
from bk_spark.bookie.index.values import Limbo, StoredBatch
from bk_spark.bookie.log_files.log_file import LogFile
from bk_spark.bookie.log_files.mark import LogMark, LogState
from bk_spark.bookie.log_files.writer import EntryLocation
from bk_spark.errors import CorruptionError
from bk_spark.quorum import DENSE, IdPattern

KEY = bytes(range(24))


def stored(ledger_id: int, first: int, last: int, sequence: int, pattern: IdPattern = DENSE, file_id: int = 1) -> StoredBatch:
    """A stored batch whose place follows from its sequence."""
    place = EntryLocation(file_id, 4096 * sequence, 200 + sequence % 7)
    return StoredBatch(ledger_id, first, last, sequence, pattern, sequence * 2654435761 % (1 << 32), place)


def log(file_id: int, *, is_sealed: bool = False, size: int = 1 << 20, directory: int = 0) -> LogFile:
    return LogFile(file_id, directory, size, is_sealed)


def look_up(index, ledger_id: int, entry_id: int) -> StoredBatch | None:
    """As the storage does it: the newest stored batch that holds an entry, among those that the index gives."""
    summary = index.summary(ledger_id)
    window = BatchWindow((), lambda *page: index.batches(ledger_id, *page), entry_id, summary.max_span if summary else 0)
    return newest_holding(window.overlapping(entry_id, entry_id), entry_id)


@dataclass(slots=True)
class ModelLedger:
    last_add_confirmed: int = -1
    is_fenced: bool = False
    is_deleted: bool = False
    deleted_at: int = 0
    deleted_ms: int = 0


@dataclass(slots=True)
class IndexModel:
    batches: dict[tuple[int, int, int], StoredBatch] = field(default_factory=dict)
    ledgers: dict[int, ModelLedger] = field(default_factory=dict)
    entry_logs: dict[int, tuple[int, LogState, int]] = field(default_factory=dict)
    mark: LogMark = field(default_factory=LogMark)
    limbo: Limbo | None = None

    # --- changes

    def commit(self, changes: Iterable[LedgerChange], mark: LogMark, files: Sequence[LogFile] = ()) -> None:
        self._add_files(files)
        for change in changes:
            self._apply(change)
        self.mark = replace(mark, next_entry_log_id=max([mark.next_entry_log_id, *(one + 1 for one in self.entry_logs)]))

    def move(self, moves: Sequence[tuple[StoredBatch, EntryLocation]], files: Sequence[LogFile], emptied: int) -> bool:
        self._add_files(files)
        for old, place in moves:
            if self.batches.get(_key(old)) == old:
                self.batches[_key(old)] = replace(old, location=place)
        if emptied not in self.entry_logs or self.entry_logs[emptied][1] is LogState.OPEN or self.live_bytes(emptied):
            return False
        directory, _, size = self.entry_logs[emptied]
        self.entry_logs[emptied] = (directory, LogState.DEAD, size)
        return True

    def remove_batches(self, batches: Sequence[StoredBatch]) -> None:
        for one in batches:
            if self.batches.get(_key(one)) == one:
                del self.batches[_key(one)]

    def purge(self, ledger_ids: Sequence[int]) -> None:
        for ledger_id in ledger_ids:
            if ledger_id in self.ledgers and self.ledgers[ledger_id].is_deleted and not self.batches_of(ledger_id):
                del self.ledgers[ledger_id]

    def _apply(self, change: LedgerChange) -> None:
        ledger = self.ledgers.setdefault(change.ledger_id, ModelLedger())
        if change.deleted_at > ledger.deleted_at:
            ledger.deleted_at, ledger.deleted_ms = change.deleted_at, change.deleted_ms
            ledger.is_fenced = ledger.is_deleted = True
            self.batches = {
                key: one for key, one in self.batches.items() if key[0] != change.ledger_id or key[2] > change.deleted_at
            }
        ledger.is_fenced |= change.is_fenced
        ledger.last_add_confirmed = max(ledger.last_add_confirmed, change.last_add_confirmed)
        self.batches.update({_key(one): one for one in change.batches if one.sequence > ledger.deleted_at})
        ledger.is_deleted &= not self.batches_of(change.ledger_id)

    def _add_files(self, files: Sequence[LogFile]) -> None:
        for file in files:
            before = self.entry_logs[file.file_id][1] if file.file_id in self.entry_logs else LogState.OPEN
            state = max(before, LogState.SEALED if file.is_sealed else LogState.OPEN)
            self.entry_logs[file.file_id] = (file.directory, state, file.size_bytes)

    # --- answers

    def batches_of(self, ledger_id: int) -> list[StoredBatch]:
        return [one for key, one in sorted(self.batches.items()) if key[0] == ledger_id]

    def live_bytes(self, file_id: int) -> int:
        return sum(one.location.length for one in self.batches.values() if one.location.file_id == file_id)

    def newest(self, ledger_id: int, entry_id: int) -> StoredBatch | None:
        return newest_holding(self.batches_of(ledger_id), entry_id)

    def check(self, index, entry_ids: Iterable[tuple[int, int]], ledger_ids: Iterable[int]) -> None:
        """``index`` answers everything as this does, and finds itself whole."""
        assert (index.mark, index.limbo) == (self.mark, self.limbo)
        assert index.batches_from((-1, 0, 0), 1 << 20) == [one for _, one in sorted(self.batches.items())]
        assert [one.ledger_id for one in index.summaries(-1, 1 << 20)] == sorted(self.ledgers)
        for ledger_id in ledger_ids:
            self._check_ledger(index, ledger_id)
        for ledger_id, entry_id in entry_ids:
            assert look_up(index, ledger_id, entry_id) == self.newest(ledger_id, entry_id)
            index.verify_entry(ledger_id, entry_id)
        found = [(one.file_id, (one.directory, one.state, one.total_bytes), one.live_bytes) for one in index.entry_logs()]
        assert found == [(file_id, values, self.live_bytes(file_id)) for file_id, values in sorted(self.entry_logs.items())]
        assert sum(index.check(True)) >= len(self.batches)

    def _check_ledger(self, index, ledger_id: int) -> None:
        index.verify_ledger(ledger_id)
        summary, ledger, batches = index.summary(ledger_id), self.ledgers.get(ledger_id), self.batches_of(ledger_id)
        assert index.batches(ledger_id, (-1, 0), 1 << 20) == batches
        assert (summary is None) == (ledger is None)
        if summary is not None and ledger is not None:
            assert (summary.is_fenced, summary.is_deleted) == (ledger.is_fenced, ledger.is_deleted)
            assert (summary.deleted_at, summary.deleted_ms) == (ledger.deleted_at, ledger.deleted_ms)
            assert (summary.last_add_confirmed, summary.batch_count) == (ledger.last_add_confirmed, len(batches))
            assert summary.max_span >= max((one.span for one in batches), default=0)
            assert summary.highest_entry_id >= max((one.last_entry_id for one in batches), default=-1)


class Answers:
    """What a model answers to some questions, worked out once: to be held against a damaged index many times."""

    def __init__(self, model: IndexModel, entry_ids: Iterable[tuple[int, int]], ledger_ids: Iterable[int]) -> None:
        self._model = model
        self._right = dict(model.batches)
        self._newest = {question: model.newest(*question) for question in entry_ids}
        self._ledger_ids = list(ledger_ids)
        self._logs = [(file_id, values[1], model.live_bytes(file_id)) for file_id, values in sorted(model.entry_logs.items())]

    def accept(self, batches: Iterable[StoredBatch]) -> None:
        """These may be there, too."""
        self._right |= {_key(one): one for one in batches}

    def is_caught(self, index) -> bool:
        """Whether ``index`` raised something. What it answers must be right, and what it denies must not be there."""
        assert (index.mark, index.limbo) == (self._model.mark, self._model.limbo)
        assert [(one.file_id, one.state, one.live_bytes) for one in index.entry_logs()] == self._logs
        errors: list[CorruptionError] = []
        for question in self._newest:
            with _keeping(errors):
                self._ask_entry(index, *question)
        for ledger_id in self._ledger_ids:
            with _keeping(errors):
                self._ask_ledger(index, ledger_id)
        return bool(errors)

    def _ask_entry(self, index, ledger_id: int, entry_id: int) -> None:
        found = look_up(index, ledger_id, entry_id)
        if found is None:
            index.verify_entry(ledger_id, entry_id)
            assert self._newest[ledger_id, entry_id] is None
        else:
            assert self._right.get(_key(found)) == found
            assert found.ledger_id == ledger_id
            assert found.holds(entry_id)

    def _ask_ledger(self, index, ledger_id: int) -> None:
        summary, ledger = index.summary(ledger_id), self._model.ledgers.get(ledger_id)
        if summary is not None:
            assert ledger is not None
            assert summary.is_fenced <= ledger.is_fenced
            assert summary.is_deleted <= ledger.is_deleted
            assert summary.last_add_confirmed == ledger.last_add_confirmed
        index.verify_ledger(ledger_id)
        assert (summary is None) == (ledger is None)
        if summary is not None and ledger is not None:
            assert (summary.is_fenced, summary.is_deleted) == (ledger.is_fenced, ledger.is_deleted)


@contextlib.contextmanager
def _keeping(errors: list[CorruptionError]) -> Iterator[None]:
    try:
        yield
    except CorruptionError as problem:
        errors.append(problem)


def _key(one: StoredBatch) -> tuple[int, int, int]:
    return one.ledger_id, one.first_entry_id, one.sequence
