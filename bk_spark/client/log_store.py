"""Everything about logs that needs only the metadata store: write jobs, commits, snapshots, deletion.

One Spark write, in the order of calls:

    driver:  job = begin_job(name)
    task:    ensure_job(job); the ledger is created in one transaction with ledger_operations(job, id),
             carrying job.ledger_tags(); its rows are written; it is closed
    driver:  commit(job, request), then finish(job, ids)       or       abort(job)

Until ``commit`` nothing of the job is visible, and no log is made. A reader calls ``snapshot``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

from bk_spark.client.log_commit import CommitContext, commit
from bk_spark.client.log_delete import LogDeleter
from bk_spark.client.log_jobs import WriteJob, WriteJobs
from bk_spark.client.log_layout import LogVersion
from bk_spark.client.log_ledgers import LogLedgers
from bk_spark.client.log_names import LogNames
from bk_spark.client.log_plan import CommitRequest
from bk_spark.client.log_snapshot import LogReader, LogSnapshot
from bk_spark.errors import ConfigError, JobEndedError, NoSuchLogError
from bk_spark.ledger_metadata import LedgerMetadata
from bk_spark.metadata_store import MetadataStore, Operation, TransactionFailedError
from bk_spark.znodes import Znodes


def _random_id() -> str:
    return uuid.uuid4().hex


class LogStore:
    """The logs of one cluster. Holds no state of its own; safe to call from several threads.

    ``clock_ms`` gives the time of commits, in milliseconds since 1970; ``draw_id`` an id that nobody else draws.
    """

    def __init__(
        self, store: MetadataStore, znodes: Znodes, clock_ms: Callable[[], int], draw_id: Callable[[], str] = _random_id
    ) -> None:
        self._clock_ms = clock_ms
        self._draw_id = draw_id
        self._names = LogNames(store, znodes)
        self._ledgers = LogLedgers(store, znodes)
        self._jobs = WriteJobs(store, self._names, self._ledgers, draw_id)
        self._reader = LogReader(store, self._names)
        self._deleter = LogDeleter(store, znodes, self._names, self._jobs, self._ledgers)
        self._commits = CommitContext(store, self._names, self._jobs, self._ledgers, self._reader, clock_ms)

    def open(self, name: str, *, create: bool = False) -> str:
        """The uid of the log ``name``. ``create`` makes an empty one, version 0 without schema, where there is none.

        Raises NoSuchLogError; ConfigError for an invalid name; MetadataConflictError while the log is being deleted.
        """
        uid = self._names.find(name)
        if uid is None and create:
            drawn = self._draw_id()
            if self._names.create(name, drawn, self._clock_ms()):
                return drawn
            uid = self._names.find(name)
        if uid is None:
            raise NoSuchLogError(name)
        self._names.check_not_deleting(name, uid)
        return uid

    def names(self) -> list[str]:
        """The name of every log, sorted."""
        return self._names.all()

    def begin_job(self, name: str) -> WriteJob:
        """A write job on the log ``name``, which need not exist: on the driver, before any task. Changes nothing.

        Raises ConfigError for a name that cannot be a log's; MetadataConflictError while the log is being deleted.
        """
        return self._jobs.begin(name)

    def ensure_job(self, job: WriteJob) -> None:
        """Called before ``ledger_operations`` by every task that creates a ledger. One read, save for the first task.

        Raises JobEndedError where the job was committed or aborted, NoSuchLogError where its log was deleted.
        """
        self._jobs.ensure(job)

    def ledger_operations(self, job: WriteJob, ledger_id: int) -> list[Operation]:
        """What the creation of a ledger adds to its transaction: refused once the job has ended, and indexed until then.

        The ledger must carry ``job.ledger_tags()``. ``creation_refused`` explains a refusal. Raises JobEndedError.
        """
        return self._jobs.creation_of_ledger(job, ledger_id)

    def creation_refused(self, job: WriteJob, failure: TransactionFailedError) -> JobEndedError | None:
        """The error where a creation with ``ledger_operations`` failed because the job has ended; None for other reasons."""
        return self._jobs.explain(job, failure)

    def commit(self, job: WriteJob, request: CommitRequest) -> LogVersion:
        """Make the job's ledgers part of its log, all at once. May be called again after any error: it commits once.

        A log that does not exist is made by the same transaction. If another job made it meanwhile, the ledgers move to
        that one. ``duplicate_of`` is set in the result where the application's version was there already: then the job
        is aborted, its ledgers are deleted. All ledgers must be CLOSED before.

        Raises SchemaMismatchError; NoSuchLedgerError, LedgerNotClosedError or ConfigError for a ledger that cannot be
        listed; MetadataConflictError where ``remove`` is not listed (any more); JobEndedError after an abort;
        NoSuchLogError where the log was deleted since the job began; MetadataUnavailableError, whose sentence says so
        where the outcome is unknown. After any of them: ``abort``, which knows whether the commit took effect.
        """
        return commit(self._commits, job, request)

    def finish(self, job: WriteJob, committed_ids: Iterable[int]) -> None:
        """After a commit: delete the ledgers of losing attempts, all that the job created save ``committed_ids``.

        May be called again. Raises ConfigError if the job is not committed: nothing is deleted that could still be listed.
        """
        state = self._jobs.state(job)
        if state is None or state.version is None:
            raise ConfigError(f"write job on log '{job.log_name}'", job.job_id, "it is not committed: commit or abort it")
        self._jobs.clear(job, frozenset(committed_ids))

    def abort(self, job: WriteJob) -> bool:
        """End the job and delete its ledgers; False, and nothing is deleted, where its commit took effect before.

        Once it returns True, no task can create a ledger of this job any more, also one that comes to life late.
        May be called again: it goes on where it was cut short.
        """
        return self._jobs.abort(job)

    def snapshot(self, name: str, version: int | None = None) -> LogSnapshot:
        """The log as it stands at ``version``, by default the newest.

        Raises NoSuchLogError; ConfigError for a version that the log does not have.
        """
        return self._reader.snapshot(name, version)

    def versions(self, name: str) -> list[LogVersion]:
        """Every commit, oldest first; empty for a log without any. Raises NoSuchLogError."""
        uid = self._names.uid(name)
        return list(self._reader.versions(name, uid, 1, self._names.head(name, uid).head.version))

    def describe_ledgers(self, ledger_ids: list[int]) -> list[LedgerMetadata]:
        """The metadata of ledgers that are to be committed. Raises NoSuchLedgerError, LedgerNotClosedError."""
        return self._ledgers.describe(ledger_ids)

    def delete(self, name: str, uid: str | None = None) -> None:
        """Delete the log with its ledgers, or finish a deletion that was cut short; with ``uid``, that log alone.

        Raises NoSuchLogError where there is neither. A commit under way fails with NoSuchLogError.
        """
        self._deleter.delete(name, uid)
