"""Deliberate bugs of transactions, each of which duels must find: one of their guards is taken out.

``seeds`` is how many duels, from seed 0 on, may be played until one meets a violation of the named invariants: at least
three times as many as it took when it was measured.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from bk_spark.log.changes import commit_logs
from bk_spark.log.changes.commit import LogPart, Ready
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import SchemaPlan
from bk_spark.log.changes.transaction import Basis
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.values import TransactionRecord
from bk_spark.metadata.store import Create, Delete, MetadataStore, SetValue, StoreChange
from tests.simulation.engines.choices import SeededChoices
from tests.simulation.logs import transactions
from tests.simulation.logs.transactions import run_transaction_duel


@dataclass(frozen=True, slots=True)
class TransactionMutant:
    patch: Callable[[], AbstractContextManager[object]]
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
            violation = run_transaction_duel(SeededChoices(seed)).violation
        return violation is not None and violation.invariant in self.invariants


def logs_are_committed_one_after_the_other() -> AbstractContextManager[object]:
    def send(store: MetadataStore, changes: Sequence[StoreChange], parts: Sequence[LogPart]) -> None:
        heads = [n for n, one in enumerate(changes) if isinstance(one, (SetValue, Create)) and one.path.endswith("/head")]
        for first, end in zip(heads, [*heads[1:], len(changes)], strict=True):
            _send(store, changes[first:end], parts)

    return patch.object(commit_logs, "send", send)


def only_the_first_job_ends_with_the_transaction() -> AbstractContextManager[object]:
    def send(store: MetadataStore, changes: Sequence[StoreChange], parts: Sequence[LogPart]) -> None:
        ends = [one for one in changes if isinstance(one, Delete)]
        _send(store, [one for one in changes if one not in ends[1:]], parts)

    return patch.object(commit_logs, "send", send)


def heads_are_read_once() -> AbstractContextManager[object]:
    return patch.object(LogNames, "heads", LogNames._heads)


def each_log_has_its_own_time() -> AbstractContextManager[object]:
    def ready(self: LogPart, basis: Basis, schema: SchemaPlan, now_ms: int) -> Ready:
        return _ready(self, basis, schema, self._context.clock_ms())

    return patch.object(LogPart, "ready", ready)


@contextmanager
def the_application_is_set_before_the_transaction() -> Iterator[None]:
    def apart(self: commit_logs._LogsCommit, made: TransactionRecord, *stored: object) -> list[StoreChange]:
        for change in _of_application(self, made, *stored):  # type: ignore[arg-type]
            self._store.transaction([change])
        return []

    with patch.object(commit_logs._LogsCommit, "_of_application", apart):
        yield


@contextmanager
def the_application_is_only_looked_at() -> Iterator[None]:
    """Nothing is set with the transaction, but behind it."""

    def sent(self: commit_logs._LogsCommit, *arguments: object) -> commit_logs.CommittedTransaction:
        made = _sent(self, *arguments)  # type: ignore[arg-type]
        for change in left:
            self._store.transaction([change])
        left.clear()
        return made

    def later(self: commit_logs._LogsCommit, made: TransactionRecord, *stored: object) -> list[StoreChange]:
        left[:] = _of_application(self, made, *stored)  # type: ignore[arg-type]
        return []

    left: list[StoreChange] = []
    with (
        patch.object(commit_logs._LogsCommit, "_sent", sent),
        patch.object(commit_logs._LogsCommit, "_of_application", later),
    ):
        yield


def giving_up_deletes_ledgers_without_a_look() -> AbstractContextManager[object]:
    def abort(self: LogStore, jobs: Sequence[WriteJob]) -> bool:
        for job in jobs:
            self.jobs.clear(job, frozenset())
        return True

    return patch.object(LogStore, "abort_logs", abort)


def batches_end_where_limits_say() -> AbstractContextManager[object]:
    return patch.object(transactions, "whole_ends", lambda logs, starts, ends, newest: ends)


_send = commit_logs.send
_ready = LogPart.ready
_sent = commit_logs._LogsCommit._sent
_of_application = commit_logs._LogsCommit._of_application

TRANSACTION_MUTANTS = (
    TransactionMutant(logs_are_committed_one_after_the_other, ("T1", "T2"), 200, 9),
    TransactionMutant(only_the_first_job_ends_with_the_transaction, ("T3", "L0"), 200, 7),
    TransactionMutant(heads_are_read_once, ("T1",), 600, 84),
    TransactionMutant(each_log_has_its_own_time, ("T1",), 600, 67),
    TransactionMutant(the_application_is_set_before_the_transaction, ("T2",), 200, 5),
    TransactionMutant(the_application_is_only_looked_at, ("T1", "T2"), 200, 9),
    TransactionMutant(giving_up_deletes_ledgers_without_a_look, ("T3",), 600, 185),
    TransactionMutant(batches_end_where_limits_say, ("T1",), 650, 201),
)


def table(processes: int) -> Iterator[tuple[str, bool]]:
    """Search for all mutants: a line each, and whether it was caught."""
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_line, range(len(TRANSACTION_MUTANTS)))


def _line(number: int) -> tuple[str, bool]:
    mutant = TRANSACTION_MUTANTS[number]
    duels = mutant.caught()
    return f"{mutant.name:<60} transactions, duels: {duels or 'not caught'}", duels is not None
