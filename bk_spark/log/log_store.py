"""LogStore: everything about logs that needs only the metadata store.

One Spark write, in the order of calls:

    driver:  job = logs.jobs.begin(name)
    task:    logs.jobs.ensure(job); create a ledger that carries job.ledger_tags(), in one transaction with
             logs.jobs.creation_of_ledger(job, id); write its rows; close it
    driver:  logs.commit(job, request), then logs.jobs.finish(job, ids)       or       logs.jobs.abort(job)

Until the commit, readers see nothing of the job, nor of a log that it creates. A reader calls ``logs.reader.snapshot``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from bk_spark.errors import BookKeeperError, MetadataUnavailableError, NoSuchLogError
from bk_spark.log.changes.commit import CommitContext, commit
from bk_spark.log.changes.commit_logs import CommittedTransaction, LogCommit, commit_logs
from bk_spark.log.changes.delete import LogDeleter
from bk_spark.log.changes.jobs import WriteJob, WriteJobs
from bk_spark.log.changes.ledgers import LogLedgers
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.checkpoint import ListingCheckpoints
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.snapshot import CountRows, LogReader
from bk_spark.log.stored.values import CommitKind, LogVersion, Retention
from bk_spark.log.stream.cursors import LogCursors
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import MetadataStore, StoreError, TransactionFailedError
from bk_spark.metadata.znodes import Znodes

_PROBLEMS = (BookKeeperError, StoreError, TransactionFailedError)
"""What may go wrong while jobs are ended."""

logger = logging.getLogger(__name__)


class LogStore:
    """The logs of one cluster: a set of parts, and the operations that need several of them. Threads may share it.

    ``clock_ms`` gives the time of commits, in milliseconds since 1970. ``draw_id`` gives a unique id. ``recover_ledger``
    fences and closes an open ledger and returns its metadata; it raises what ``BookKeeper.open_ledger`` raises.
    ``count_rows`` counts the rows of a closed ledger; None where no log of rows has a leader.
    """

    def __init__(
        self,
        store: MetadataStore,
        znodes: Znodes,
        clock_ms: Callable[[], int],
        draw_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        *,
        recover_ledger: Callable[[int], LedgerMetadata],
        count_rows: CountRows | None = None,
    ) -> None:
        self.store = store
        self.znodes = znodes
        self.names = LogNames(store, znodes)
        """Names and heads: which logs there are, and where each stands."""
        self.ledgers = LogLedgers(store, znodes)
        """Metadata of the ledgers of logs: describe, claim, delete."""
        self.jobs = WriteJobs(store, self.names, self.ledgers, draw_id)
        """Write jobs: begin, refresh, finish, abort."""
        self.checkpoints = ListingCheckpoints(store, self.names)
        """Stored listings, from which readers start."""
        self.reader = LogReader(store, self.names, self.checkpoints, count_rows)
        """Snapshots, versions, listings and schemas."""
        self.cursors = LogCursors(store, self.names)
        """How far streams have read."""
        self.deleter = LogDeleter(store, znodes, self.names, self.jobs, self.ledgers)
        """Deletes whole logs."""
        self._clock_ms = clock_ms
        self._draw_id = draw_id
        self._commits = CommitContext(
            store, self.names, self.jobs, self.ledgers, self.reader, self.checkpoints, clock_ms, recover_ledger
        )

    def open(self, name: str, *, create: bool = False) -> str:
        """The uid of the log ``name``. With ``create``, a missing log is made: empty, at version 0, without a schema.

        Raises NoSuchLogError; ConfigError for an invalid name; MetadataConflictError while the log is being deleted.
        """
        uid = self.names.find_usable(name)
        if uid is None and create:
            drawn = self._draw_id()
            if self.names.create(name, drawn, self._clock_ms()):
                return drawn
            uid = self.names.find_usable(name)
        if uid is None:
            raise NoSuchLogError(name)
        return uid

    def commit(self, job: WriteJob, request: CommitRequest) -> LogVersion:
        """Make the job's ledgers part of its log, all at once. May be called again after any error: it commits once.

        The same transaction creates the log if it does not exist. If another job created it meanwhile, the ledgers move to
        that log. The result has ``duplicate_of`` set if the log already holds the application's version: then the job is
        aborted and its ledgers are deleted. All ledgers must be CLOSED before the call.

        Raises SchemaMismatchError; NoSuchLedgerError, LedgerNotClosedError or ConfigError for a ledger that cannot be
        listed; MetadataConflictError if the log does not list a ledger of ``remove`` (any more); JobEndedError after an
        abort; NoSuchLogError if the log was deleted since the job began; LedgerFencedError for a leader that was displaced;
        what the recovery of an open ledger raises; MetadataUnavailableError, which says so if the outcome is unknown. After
        any of them call ``jobs.abort``, which finds out whether the commit took effect.
        """
        return commit(self._commits, job, request)

    def commit_or_abort(self, job: WriteJob, request: CommitRequest) -> LogVersion:
        """Commit and finish the job; or abort it and raise what went wrong. Its ledgers end up either listed or deleted.

        A commit that fails may have taken effect, or may still be on its way (log rule 1). Abort finds out, and deletes only
        what no commit can list any more. If it says that the commit came first, the second commit only reads the version.
        Raises what ``commit`` raises. After MetadataUnavailableError the outcome may be unknown; the log shows it later.
        """
        try:
            version = self.commit(job, request)
        except BaseException as problem:
            if self.jobs.abort(job) or not isinstance(problem, MetadataUnavailableError):
                raise
            version = self.commit(job, request)
        if version.job_id == job.job_id:  # otherwise there was nothing to commit, and the job was aborted
            self._finish(job, request)
        return version

    def commit_logs(self, commits: Sequence[LogCommit], application: tuple[str, int] | None = None) -> CommittedTransaction:
        """Commit the jobs of several logs, all or none, and finish them; or abort them all and raise what went wrong.

        At most MAX_LOGS. As ``commit_or_abort`` does for one log; with an application, its id and version count for the whole
        transaction, and are apart from those of commits to one log. Raises what ``commit`` raises.
        """
        transaction_id = self._draw_id()
        try:
            made = commit_logs(self._commits, transaction_id, commits, application)
        except BaseException as problem:
            if self._ended(commits) or not isinstance(problem, MetadataUnavailableError):
                raise
            made = commit_logs(self._commits, transaction_id, commits, application)
        for one in commits:
            if one.job.log_name in made.versions and not made.is_duplicate:
                self._finish(one.job, one.request)
            else:
                self._leave(one.job)
        return made

    def abort_logs(self, jobs: Sequence[WriteJob]) -> bool:
        """End the jobs of one transaction, and delete their ledgers. False, and nothing is deleted, if it took effect.

        A job that the transaction had nothing to do for ends in any case.
        """
        ended, problem = [], None
        for job in jobs:
            try:
                ended.append(self.jobs.abort(job))
            except _PROBLEMS as found:
                problem = problem or found
        if problem is not None and all(ended):
            raise problem
        return all(ended)  # one that has committed tells of all

    def _ended(self, commits: Sequence[LogCommit]) -> bool:
        """Whether a transaction that failed has ended without effect, or cannot be ended now: the first failure counts."""
        try:
            return self.abort_logs([one.job for one in commits])
        except _PROBLEMS as problem:
            logger.warning("the write jobs of a transaction are left to the sweep: %s", problem)
            return True

    def _leave(self, job: WriteJob) -> None:
        """End a job for which there was nothing to commit."""
        try:
            self.jobs.abort(job)
        except _PROBLEMS as problem:
            logger.warning("write job %s on log '%s' is left to the sweep: %s", job.job_id, job.log_name, problem)

    def _finish(self, job: WriteJob, request: CommitRequest) -> None:
        """Delete what the job leaves behind. The commit has taken effect, so a failure here is only logged."""
        opened = [] if request.opened is None else [request.opened]
        try:
            self.jobs.finish(job, [ledger.ledger_id for ledger in request.ledgers] + opened)
        except _PROBLEMS as problem:
            what = "write job %s committed to log '%s'; what it leaves behind is left to 'bk-spark orphans sweep': %s"
            logger.warning(what, job.job_id, job.log_name, problem)

    def truncate(self, name: str, uid: str, before_ledger_id: int) -> LogVersion:
        """Remove all ledgers before this one from the log; older versions keep them. Returns the version without them.

        If nothing stands before the ledger, that is the newest version, and nothing is committed. Raises
        MetadataConflictError if the log does not list the ledger, or lists an open ledger before it; otherwise as ``commit``.
        """
        return self.commit_or_abort(self.jobs.begin(name, uid), CommitRequest(CommitKind.TRUNCATE, before=before_ledger_id))

    def set_retention(self, name: str, uid: str, retention: Retention) -> None:
        """Set what ``vacuum`` keeps of the log from now on. Raises NoSuchLogError, MetadataUnavailableError."""
        self.names.change_head(name, uid, lambda head: replace(head, retention=retention))

    def write_checkpoint(self, name: str, uid: str, version: int) -> None:
        """Store the whole listing of ``version``, so that reading it or a later version needs no commit up to it.

        On return the checkpoint is complete. May be called again, and by many clients at once. Raises as ``reader.listing``.
        """
        self.checkpoints.write(name, uid, version, self.reader.listing(name, uid, version))
