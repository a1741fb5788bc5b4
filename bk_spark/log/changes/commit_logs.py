"""The commit of several logs: one transaction of the metadata store makes all changes, or none.

Each log has a write job of its own, with its pages and ledgers, as if it were committed alone. The one transaction has the
operations of all of them (transaction.py). So it takes effect only if every job is still running, every head is what its plan
rests on, and the application's last transaction is the one that was read. Hence one rule covers all logs: if one of the jobs
has committed, all have; and whoever ends one of them without a commit has ended the transaction.

All versions have one time, which is not before that of any of the logs. So a reader that asks for a time finds all or none.

Ref: DESIGN.md, "Transactions".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.log.changes.commit import CommitContext, LogPart, Ready, send, until_done
from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitRequest, in_transaction
from bk_spark.log.stored.paths import application_bucket, application_path
from bk_spark.log.stored.values import LogChange, LogVersion, TransactionRecord, TransactionState
from bk_spark.metadata.store import Create, SetValue, StoreChange, StoreError, Versioned

MAX_LOGS = 100
"""Logs of one transaction: each takes some 7 KiB of the metadata store's largest request, 1 MiB, and names all others."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogCommit:
    """What a transaction does in one log. Its request carries no application: the transaction does."""

    job: WriteJob
    request: CommitRequest


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """What became of a transaction."""

    transaction_id: str
    versions: Mapping[str, int]
    """By the name of each log that it changed: the version that it made."""
    is_duplicate: bool = False
    """Nothing was changed now: the application had committed this version, or a later one, as this transaction."""


def commit_logs(
    context: CommitContext, transaction_id: str, commits: Sequence[LogCommit], application: tuple[str, int] | None
) -> CommittedTransaction:
    """See LogStore.commit_logs."""
    if not commits:
        return CommittedTransaction(transaction_id, {})
    return _LogsCommit(context, transaction_id, commits, application).run()


class _LogsCommit:
    """One call: its tries."""

    def __init__(
        self,
        context: CommitContext,
        transaction_id: str,
        commits: Sequence[LogCommit],
        application: tuple[str, int] | None,
    ) -> None:
        self._context = context
        self._store = context.store
        self._id = transaction_id
        self._application = application
        self._parts = [LogPart(context, one.job, one.request) for one in commits]

    def run(self) -> CommittedTransaction:
        return until_done(self._parts, self._try)

    def _try(self) -> CommittedTransaction:
        done = [part.done() for part in self._parts]
        if any(done):
            return self._result(done)
        bases = [part.read() for part in self._parts]
        stored = self._stored()
        last = None if stored is None else self._decoded(stored)
        if last is not None and last.transaction.transaction_id == self._id:
            raise StoreError(self._path)  # it arrived since this try looked what became of it
        if last is not None and self._application is not None and self._application[1] <= last.application_version:
            return self._drop(last, stored)
        now_ms = max([self._context.clock_ms(), *(basis.head.time_ms for basis in bases)])
        fitting = [(part, basis, part.schema_plan(basis)) for part, basis in zip(self._parts, bases, strict=True)]
        ready = [part.ready(basis, schema, now_ms) for part, basis, schema in fitting]  # which recovers open ledgers
        return self._sent(ready, stored, last)

    def _sent(self, ready: Sequence[Ready], stored: Versioned | None, last: TransactionState | None) -> CommittedTransaction:
        """Logs in which there is nothing to change are left out."""
        changing = [one for one in zip(self._parts, ready, strict=True) if not one[1].changes_nothing]
        if not changing:
            return CommittedTransaction(self._id, {})
        changes = tuple(LogChange(one.basis.uid, one.plan.version.version) for _, one in changing)
        transaction = TransactionRecord(self._id, self._application, changes)
        planned = [(part, replace(one, plan=in_transaction(one.plan, transaction))) for part, one in changing]
        operations = [change for part, one in planned for change in part.operations(one)]
        send(self._store, operations + self._of_application(transaction, stored, last), self._parts)
        for part, one in planned:
            part.committed(one.basis.uid, one.plan.version)
        return CommittedTransaction(self._id, {part.log_name: one.plan.version.version for part, one in planned})

    def _result(self, done: Sequence[LogVersion | None]) -> CommittedTransaction:
        named = zip(self._parts, done, strict=True)
        return CommittedTransaction(self._id, {part.log_name: one.version for part, one in named if one is not None})

    # The application

    def _stored(self) -> Versioned | None:
        if self._application is None:
            return None
        (stored,) = self._store.get_many([self._path])
        if stored is None:
            self._store.ensure_path(application_bucket(self._context.names.transactions, self._application[0]))
        return stored

    def _decoded(self, stored: Versioned) -> TransactionState:
        assert self._application is not None, "only an application has a state"
        return TransactionState.decode(f"the last transaction of application {self._application[0]!r}", stored.value)

    def _of_application(
        self, transaction: TransactionRecord, stored: Versioned | None, last: TransactionState | None
    ) -> list[StoreChange]:
        if self._application is None:
            return []
        value = TransactionState(*self._application, transaction, 0 if last is None else last.dropped).encode()
        return [Create(self._path, value) if stored is None else SetValue(self._path, value, stored.version)]

    def _drop(self, last: TransactionState, stored: Versioned | None) -> CommittedTransaction:
        assert stored is not None, "what is stored was decoded"
        made = {one.uid: one.version for one in last.transaction.changes}
        versions = {part.log_name: made[part.uid] for part in self._parts if part.uid in made}
        try:
            self._store.set(self._path, replace(last, dropped=last.dropped + 1).encode(), stored.version)
        except (StoreError, MetadataUnavailableError, BookKeeperError) as problem:
            logger.info("a dropped duplicate of application '%s' was not counted: %r", last.application_id, problem)
        what = (
            "a transaction of version %s of application '%s' was dropped as a duplicate, transaction %s made version %d of it"
        )
        made_by = last.transaction.transaction_id
        logger.warning(what, self._application and self._application[1], last.application_id, made_by, last.application_version)
        return CommittedTransaction(made_by, versions, is_duplicate=True)

    @property
    def _path(self) -> str:
        assert self._application is not None, "only an application has a path"
        return application_path(self._context.names.transactions, self._application[0])
