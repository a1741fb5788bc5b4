"""Deliberate bugs of the log's code, each of which duels must find: a guard of a log rule is taken out.

``seeds`` is how many duels, from seed 0 on, may be played until one meets a violation of the named invariants: at least
three times as many as it took when it was measured.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

import pyarrow as pa

from bk_spark.log.changes import commit, plan, transaction
from bk_spark.log.changes.jobs import WriteJob, WriteJobs
from bk_spark.log.changes.open_ledgers import OpenLedgerEnds
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup import vacuum
from bk_spark.log.cleanup.vacuum import LogVacuum
from bk_spark.log.entry_range import LedgerReader, LogRange
from bk_spark.log.leader.log_write_handle import LogWriteHandle
from bk_spark.log.leader.roll_log import RollLog
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Head, LogVersion, Page, Totals
from bk_spark.log.stream.order import Given, StreamOrder
from bk_spark.metadata.store import Delete, NoNodeError, StoreChange
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.logs.duel import run_duel


@dataclass(frozen=True, slots=True)
class LogMutant:
    patch: Callable[[], AbstractContextManager[object]]
    rule: int
    invariants: tuple[str, ...]
    seeds: int
    caught_by: int
    """The first seed that caught it when it was measured: a short run begins with it."""

    @property
    def name(self) -> str:
        return self.patch.__name__.replace("_", " ")

    def caught(self) -> int | None:
        """After how many duels; None if none of ``seeds`` found it."""
        return next((seed + 1 for seed in range(self.seeds) if self.is_caught_by(seed)), None)

    def is_caught_by(self, seed: int) -> bool:
        with self.patch():
            violation = run_duel(SeededChoices(seed)).violation
        return violation is not None and violation.invariant in self.invariants


def commit_leaves_running() -> AbstractContextManager[object]:
    def changes(*arguments: object) -> list[StoreChange]:
        return [one for one in _end_of_job(*arguments) if not isinstance(one, Delete)]  # type: ignore[arg-type]

    return patch.object(transaction, "_end_of_job", changes)


def abort_deletes_first() -> AbstractContextManager[object]:
    def abort(self: WriteJobs, job: WriteJob) -> bool:
        self.clear(job, frozenset())
        return self.end(job)

    return patch.object(WriteJobs, "_abort", abort)


def abort_takes_absence_for_its_own_doing() -> AbstractContextManager[object]:
    def end(self: WriteJobs, job: WriteJob) -> bool:
        try:
            self._store.delete(self.paths(job).running)
        except NoNodeError:
            return True
        return True

    return patch.object(WriteJobs, "end", end)


def tasks_create_ledgers_without_their_job() -> AbstractContextManager[object]:
    return patch.object(WriteJobs, "creation_of_ledger", lambda self, job, ledger_id: [])


@contextmanager
def takeover_does_not_fence() -> Iterator[None]:
    """What is open stays open, however many there are."""
    with (
        patch.object(OpenLedgerEnds, "find", lambda self, head: self._closed_already(head.writer.open_ledgers, head.content)),
        patch.object(plan, "MAX_OPEN_LEDGERS", 1000),
    ):
        yield


@contextmanager
def commit_ignores_the_epoch() -> Iterator[None]:
    with (
        patch.object(OpenLedgerEnds, "check_leader", lambda self, head: None),
        patch.object(plan, "MAX_OPEN_LEDGERS", 1000),
    ):
        yield


def roll_does_not_wait_for_the_old_ledger() -> AbstractContextManager[object]:
    return patch.object(RollLog, "is_queueing", False)


@contextmanager
def old_ledgers_are_not_closed_before_the_next_roll() -> Iterator[None]:
    def roll(self: LogWriteHandle) -> None:
        created = self._create()
        with self._failing():
            self._leadership.list_next(created)
            self._move_to(created.ledger)
            self._tell(self._rolls.closed)

    with patch.object(LogWriteHandle, "_roll", roll), patch.object(plan, "MAX_OPEN_LEDGERS", 1000):
        yield


def reader_passes_open_ledgers() -> AbstractContextManager[object]:
    def read(self: LogRange, open_ledger: Callable[[int], LedgerReader]) -> Iterator[pa.RecordBatch]:
        for one in self.ledgers:
            ledger = open_ledger(one.ledger_id)
            if ledger.last_add_confirmed >= 0:
                yield from ledger.read(0, ledger.last_add_confirmed)

    return patch.object(LogRange, "read", read)


def application_is_tested_on_the_first_try_only() -> AbstractContextManager[object]:
    test = commit.LogPart._is_duplicate
    tested: list[object] = []

    def is_duplicate(self: commit.LogPart, basis: transaction.Basis) -> bool:
        if any(one is self for one in tested):
            return False
        tested.append(self)
        return test(self, basis)

    return patch.object(commit.LogPart, "_is_duplicate", is_duplicate)


def compaction_takes_what_is_left_of_its_stretch() -> AbstractContextManager[object]:
    def removal(head: Head, request: CommitRequest, found: plan.Findings) -> Totals:
        if request.kind is not CommitKind.COMPACT:
            return _plan_removal(head, request, found)
        return Totals.of([one for one in found.listed + found.closed if one.ledger_id in request.remove])

    return patch.object(plan, "plan_removal", removal)


def stream_reads_what_compactions_add() -> AbstractContextManager[object]:
    def given_by(self: StreamOrder, record: LogVersion, pages: list[Page], ends: dict[int, CommittedLedger]) -> list[Given]:
        as_append = replace(record, kind=CommitKind.APPEND) if record.kind is CommitKind.COMPACT else record
        return _given_by(self, as_append, pages, ends)

    return patch.object(StreamOrder, "_given_by", given_by)


def a_ledger_with_one_entry_is_taken_for_an_empty_one() -> AbstractContextManager[object]:
    return patch.object(CommittedLedger, "is_empty", property(lambda ledger: ledger.last_entry_id < 1))


def vacuum_deletes_before_it_tells() -> AbstractContextManager[object]:
    def raise_oldest_version(self: LogVacuum, log: vacuum._Log, now_ms: int) -> None:
        head = self._logs.names.head(log.name, log.uid)
        kept = self._logs.reader.listing(log.name, log.uid, self._oldest_version(log, head, now_ms))
        commits = self._logs.reader.commits(log.name, log.uid, max(head.vacuumed_version, 1), head.version)
        added = {one.ledger_id for _, pages in commits for page in pages for one in page.ledgers}
        self._logs.ledgers.delete_listed(sorted(added - vacuum._ids(kept)), log.uid)
        _raise_oldest_version(self, log, now_ms)

    return patch.object(LogVacuum, "_raise_oldest_version", raise_oldest_version)


_plan_removal = plan.plan_removal
_given_by = StreamOrder._given_by
_raise_oldest_version = LogVacuum._raise_oldest_version
_end_of_job = transaction._end_of_job

LOG_MUTANTS = (
    LogMutant(commit_leaves_running, 1, ("L6", "L8"), 600, 32),
    LogMutant(abort_deletes_first, 1, ("L6", "L8"), 600, 11),
    LogMutant(abort_takes_absence_for_its_own_doing, 1, ("L6", "L8"), 600, 55),
    LogMutant(tasks_create_ledgers_without_their_job, 1, ("L7",), 600, 0),
    LogMutant(takeover_does_not_fence, 2, ("L2", "L9"), 200, 0),
    LogMutant(commit_ignores_the_epoch, 2, ("L1", "L2", "L9"), 200, 8),
    LogMutant(reader_passes_open_ledgers, 2, ("L5",), 600, 198),
    LogMutant(roll_does_not_wait_for_the_old_ledger, 3, ("L1", "L3"), 2600, 849),
    LogMutant(old_ledgers_are_not_closed_before_the_next_roll, 3, ("L9",), 200, 1),
    LogMutant(compaction_takes_what_is_left_of_its_stretch, 4, ("L4", "L9"), 600, 107),
    LogMutant(application_is_tested_on_the_first_try_only, 4, ("L4",), 200, 12),
    LogMutant(stream_reads_what_compactions_add, 6, ("L5",), 200, 33),
    LogMutant(a_ledger_with_one_entry_is_taken_for_an_empty_one, 2, ("L1", "L4", "L9"), 200, 0),
    LogMutant(vacuum_deletes_before_it_tells, 8, ("L6",), 200, 15),
)


def table(processes: int) -> Iterator[tuple[str, bool]]:
    """Search for all mutants: a line each, and whether it was caught."""
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_line, range(len(LOG_MUTANTS)))


def _line(number: int) -> tuple[str, bool]:
    mutant = LOG_MUTANTS[number]
    duels = mutant.caught()
    return f"{mutant.name:<60} log rule {mutant.rule}, duels: {duels or 'not caught'}", duels is not None
