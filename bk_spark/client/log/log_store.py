"""Everything about logs that needs only the metadata store: write jobs, commits, snapshots, deletion.

One Spark write, in the order of calls:

    driver:  job = begin_job(name)
    task:    ensure_job(job); the ledger is created in one transaction with ledger_operations(job, id),
             carrying job.ledger_tags(); its rows are written; it is closed
    driver:  commit(job, request), then finish(job, ids)       or       abort(job)

Until ``commit`` nothing of the job is visible, and no log is made. A reader calls ``snapshot``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from bk_spark.client.log.changes.commit import CommitContext, commit
from bk_spark.client.log.changes.delete import LogDeleter
from bk_spark.client.log.changes.jobs import WriteJob, WriteJobs
from bk_spark.client.log.changes.ledgers import LogLedgers
from bk_spark.client.log.changes.plan import CommitRequest
from bk_spark.client.log.stored.checkpoint import ListingCheckpoints
from bk_spark.client.log.stored.names import LogNames
from bk_spark.client.log.stored.snapshot import LogReader, LogSnapshot
from bk_spark.client.log.stored.values import CommitKind, Head, LogVersion, Retention
from bk_spark.client.log.stream.cursors import LogCursors
from bk_spark.errors import BookKeeperError, ConfigError, JobEndedError, MetadataUnavailableError, NoSuchLogError
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import MetadataStore, StoreChange, StoreError, TransactionFailedError
from bk_spark.metadata.znodes import Znodes

if TYPE_CHECKING:
    pass

# --- Being told when a log changes, instead of asking again and again


class LogWatch:
    """Watches of heads and of ledgers. Each gives back the function that ends it; callbacks must be brief."""

    def __init__(self, store: MetadataStore, znodes: Znodes, names: LogNames) -> None:
        self._store = store
        self._znodes = znodes
        self._names = names

    def head(self, uid: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after every commit to the log, after other changes of its head, and when it goes."""
        return self._store.watch(self._names.paths(uid).head, on_change)

    def ledger(self, ledger_id: int, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` when a ledger's metadata changes, as when it is closed, and when it goes."""
        return self._store.watch(self._znodes.ledger(ledger_id), on_change)

    def fresh_head(self, name: str, uid: str) -> Head:
        """The head with every commit that was done before the call, whichever server this client talks to.

        Raises NoSuchLogError, MetadataUnavailableError.
        """
        self._store.sync(self._names.paths(uid).head)
        return self._names.head(name, uid).head


# --- Committing a write job from a client, so that whatever happens its ledgers end up either listed or deleted

logger = logging.getLogger(__name__)


def commit_job(logs: LogStore, job: WriteJob, request: CommitRequest) -> LogVersion:
    """Commit, or end the job without a commit and raise why.

    A commit that fails may have taken effect, or still be on its way (log rule 1). Abort finds out, and deletes only what
    no commit can list any more; where it says that the commit came first, committing again only reads as which version.
    Raises what LogStore.commit does. After MetadataUnavailableError the outcome may be unknown: the log tells it later.
    """
    try:
        version = logs.commit(job, request)
    except BaseException as problem:
        if logs.abort(job) or not isinstance(problem, MetadataUnavailableError):
            raise
        version = logs.commit(job, request)
    if version.job_id == job.job_id:  # else there was nothing to commit, and the job was aborted
        _clear(logs, job, request)
    return version


def _clear(logs: LogStore, job: WriteJob, request: CommitRequest) -> None:
    """Delete the job's index and what it created and did not list. The commit is done, so a failure here is none of it."""
    opened = [] if request.opened is None else [request.opened]
    try:
        logs.finish(job, [one.ledger_id for one in request.ledgers] + opened)
    except (BookKeeperError, StoreError, TransactionFailedError) as problem:
        what = "write job %s committed to log '%s'; what it leaves behind is left to 'bk-spark orphans sweep': %s"
        logger.warning(what, job.job_id, job.log_name, problem)


def _random_id() -> str:
    return uuid.uuid4().hex


class LogStore:
    """The logs of one cluster. Holds no state of its own; safe to call from several threads.

    ``clock_ms`` gives the time of commits, in milliseconds since 1970; ``draw_id`` an id that nobody else draws;
    ``recover_ledger`` fences and closes an open ledger, and gives its metadata (errors as ``BookKeeper.open_ledger``).
    """

    def __init__(
        self,
        store: MetadataStore,
        znodes: Znodes,
        clock_ms: Callable[[], int],
        draw_id: Callable[[], str] = _random_id,
        *,
        recover_ledger: Callable[[int], LedgerMetadata],
    ) -> None:
        self._clock_ms = clock_ms
        self._draw_id = draw_id
        self._names = LogNames(store, znodes)
        self._ledgers = LogLedgers(store, znodes)
        self._jobs = WriteJobs(store, self._names, self._ledgers, draw_id)
        self._checkpoints = ListingCheckpoints(store, self._names)
        self.reader = LogReader(store, self._names, self._checkpoints)
        """Versions, listings and pages."""
        self.cursors = LogCursors(store, self._names)
        """How far streams have read."""
        self.watch = LogWatch(store, znodes, self._names)
        """Being told of changes."""
        self._deleter = LogDeleter(store, znodes, self._names, self._jobs, self._ledgers)
        self._commits = CommitContext(
            store, self._names, self._jobs, self._ledgers, self.reader, self._checkpoints, clock_ms, recover_ledger
        )

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

    def uid(self, name: str) -> str:
        """The uid that the name points to now. Raises NoSuchLogError."""
        return self._names.uid(name)

    def head(self, name: str, uid: str) -> Head:
        """Where the log stands. Raises NoSuchLogError where it is gone or being deleted."""
        return self.reader.head(name, uid)

    def change_head(self, name: str, uid: str, change: Callable[[Head], Head]) -> Head:
        """Compare-and-set what ``change``, a pure function, makes of the head, on each try anew; gives the new head.

        Raises NoSuchLogError; MetadataUnavailableError, then whether it took effect is unknown; MetadataConflictError.
        """
        return self._names.change_head(name, uid, change)

    def set_retention(self, name: str, uid: str, retention: Retention) -> None:
        """What ``vacuum`` keeps of the log from now on. Raises NoSuchLogError, MetadataUnavailableError."""
        self.change_head(name, uid, lambda head: replace(head, retention=retention))

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

    def refresh_job(self, job: WriteJob) -> None:
        """Tell the sweep, which takes jobs by the age of this sign of life, that the job goes on.

        Nothing to do while no task has begun the job. Raises JobEndedError.
        """
        self._jobs.refresh(job)

    def ledger_operations(self, job: WriteJob, ledger_id: int) -> list[StoreChange]:
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
        NoSuchLogError where the log was deleted since the job began; LedgerFencedError for a leader that lost the log; what
        the recovery of an open ledger raises; MetadataUnavailableError, whose sentence says so where the outcome is
        unknown. After any of them: ``abort``, which knows whether the commit took effect.
        """
        return commit(self._commits, job, request)

    def truncate(self, name: str, uid: str, before_ledger_id: int) -> LogVersion:
        """Remove all ledgers before this one from the log; older versions keep them. Gives the version without them:
        the newest one, and no commit, where nothing stands before it.

        Raises MetadataConflictError where the log does not list the ledger, or an open ledger stands before it; as
        ``commit`` otherwise.
        """
        job = self.begin_job(name)
        if job.uid != uid:
            raise NoSuchLogError(name)
        return commit_job(self, job, CommitRequest(CommitKind.TRUNCATE, before=before_ledger_id))

    def write_checkpoint(self, name: str, uid: str, version: int) -> None:
        """Write down the whole listing of ``version``: no reader of it, or of a later one, needs a commit up to it.

        Once it returns the checkpoint is whole. May be called again, and by many at once. Raises as ``reader.listing``.
        """
        self._checkpoints.write(name, uid, version, self.reader.listing(name, uid, version))

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

        Raises NoSuchLogError; ConfigError for a version that the log does not have, or does not keep any more.
        """
        return self.reader.snapshot(name, version)

    def versions(self, name: str) -> list[LogVersion]:
        """Every version that can be read, oldest first; empty for a log without any commit. Raises NoSuchLogError."""
        uid = self._names.uid(name)
        head = self.reader.head(name, uid)
        return list(self.reader.versions(name, uid, max(head.oldest_version, 1), head.version))

    def describe_ledgers(self, ledger_ids: list[int]) -> list[LedgerMetadata]:
        """The metadata of ledgers that are to be committed. Raises NoSuchLedgerError, LedgerNotClosedError."""
        return self._ledgers.describe(ledger_ids)

    def delete(self, name: str, uid: str | None = None) -> None:
        """Delete the log with its ledgers, or finish a deletion that was cut short; with ``uid``, that log alone.

        Raises NoSuchLogError where there is neither. A commit under way fails with NoSuchLogError.
        """
        self._deleter.delete(name, uid)
