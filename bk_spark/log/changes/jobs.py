"""Write jobs: how one Spark job creates its ledgers, and how a job ends exactly once.

The danger (log rule 1): a commit's transaction is on its way, abort runs, and then the transaction takes effect.

The invariant: a job ends when its ``running`` is deleted, and there are only two ways. The commit's transaction deletes
``running`` *and* writes into the job's directory where it committed. Abort deletes only ``running``. So whoever finds
``running`` gone, and then reads the directory, knows how the job ended. Only without a commit may its ledgers be deleted.

Every ledger is created in a transaction that checks ``running``, so after the end there are no new ones. The directory of
an aborted job stays: a late task finds it and cannot begin the job again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from bk_spark.entries.log_secret import LogSecret, decode_secret
from bk_spark.errors import (
    ConfigError,
    JobEndedError,
    MetadataAccessError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLogError,
)
from bk_spark.log.changes.ledgers import LogLedgers
from bk_spark.log.stored.names import LogNames, decode_head
from bk_spark.log.stored.paths import JobPaths
from bk_spark.log.stored.tree import grandchildren_of, number_of, remove_tree
from bk_spark.log.stored.values import JOB_TAG, JobState
from bk_spark.metadata.ledger_metadata import LOG_TAG
from bk_spark.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    StoreChange,
    TransactionFailedError,
    Versioned,
)

_TRIES = 10
"""Each further try means that another task or a commit came first; after a sync the next try sees what it did."""
_UNAVAILABLE_TRIES = 3
"""A store that fails three calls in a row, each with its own time-out, is down."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """One job that writes to a log: created on the Spark driver, pickled to every task."""

    log_name: str
    uid: str
    """The log that the job found; or, if there was none, the uid that the log gets if this job creates it."""
    job_id: str
    is_new_log: bool
    """There was no log of this name: the job's commit creates it."""

    def ledger_tags(self) -> dict[str, bytes]:
        """Custom metadata for every ledger of the job, from its creation on."""
        return {LOG_TAG: self.uid.encode(), JOB_TAG: self.job_id.encode()}


class WriteJobs:
    """What tasks and drivers do with write jobs."""

    def __init__(self, store: MetadataStore, names: LogNames, ledgers: LogLedgers, draw_id: Callable[[], str]) -> None:
        self._store = store
        self._names = names
        self._ledgers = ledgers
        self._draw_id = draw_id

    def begin(self, name: str, only_uid: str | None = None) -> WriteJob:
        """A job that writes to the log ``name``, which need not exist: for the driver, before any task. Writes nothing.

        Raises ConfigError for a name that no log can have; MetadataConflictError while the log is being deleted;
        NoSuchLogError if ``only_uid`` is given and the name does not point to it.
        """
        uid = self._names.find_usable(name)
        if only_uid not in (None, uid):
            raise NoSuchLogError(name)
        return WriteJob(name, uid or self._draw_id(), self._draw_id(), is_new_log=uid is None)

    def paths(self, job: WriteJob) -> JobPaths:
        return self._names.paths(job.uid).job(job.job_id)

    def ensure(self, job: WriteJob) -> LogSecret | None:
        """Make the job's directory and ``running``, unless they exist. Each task calls it before it creates a ledger.

        Returns the secret of the job's log, from which the ledger's keys come, with the log's direct readers; None if the log
        is not secured. Costs one read, except for the first task. Raises JobEndedError after a commit or abort; NoSuchLogError.
        """
        paths, secret_path = self.paths(job), self._names.paths(job.uid).secret
        for _ in range(_TRIES):
            try:
                state, running, stored = self._store.get_many([paths.root, paths.running, secret_path])
            except MetadataAccessError as refused:  # a task knows the log by its uid, as the store does
                remedy = f"{refused.remedy} (in a write to log '{job.log_name}')"
                raise MetadataAccessError(refused.what, refused.value, remedy) from refused.__cause__
            secret = None if stored is None else decode_secret(job.uid, stored.value, stored.version)
            if running is not None:
                return secret
            if state is not None:
                raise JobEndedError(job.log_name, job.job_id)
            if self._make(job, running=True):
                return secret
            self._store.sync(self.paths(job).root)
        raise self._too_busy(job)

    def refresh(self, job: WriteJob) -> None:
        """Set ``running`` anew: the sweep removes jobs by its age. Does nothing before a task began. Raises JobEndedError."""
        state, running = self._store.get_many([self.paths(job).root, self.paths(job).running])
        if running is None:
            if state is None:
                return
            raise JobEndedError(job.log_name, job.job_id)
        try:
            self._store.set(self.paths(job).running, b"", running.version)
        except NoNodeError:
            raise JobEndedError(job.log_name, job.job_id) from None
        except BadVersionError:
            return  # another task did so right now

    def creation_of_ledger(self, job: WriteJob, ledger_id: int, secret: LogSecret | None = None) -> list[StoreChange]:
        """Changes for the transaction that creates a ledger with ``job.ledger_tags()``, for the readers in ``secret``.

        They let the creation fail once the job has ended, and once the log has other direct readers, and add the ledger to the
        job's index. ``explain`` tells why a creation failed. Raises JobEndedError if the job's directory is gone.
        """
        paths = self.paths(job)
        self._make_bucket(job, paths.ledger_bucket(ledger_id))
        changes: list[StoreChange] = [Check(paths.running, ANY_VERSION), Create(paths.ledger(ledger_id))]
        if secret is not None:
            changes.append(Check(self._names.paths(job.uid).secret, secret.version))
        return changes

    def has_other_readers(self, job: WriteJob, failure: TransactionFailedError) -> bool:
        """Whether the creation of a ledger failed because the log's direct readers changed: it is to be tried again."""
        return failure.reason.path == self._names.paths(job.uid).secret and isinstance(failure.reason, BadVersionError)

    def explain(self, job: WriteJob, failure: TransactionFailedError) -> JobEndedError | None:
        """The error, if the creation of a ledger failed because the job has ended; None if it failed for another reason."""
        mine = failure.reason.path.startswith(self.paths(job).root + "/")
        ended = mine and isinstance(failure.reason, NoNodeError)
        return JobEndedError(job.log_name, job.job_id) if ended else None

    def state(self, job: WriteJob) -> JobState | None:
        """None if no task has begun the job. Sees everything that was committed before this call."""
        root = self.paths(job).root
        self._store.sync(root)
        (stored,) = self._store.get_many([root])
        return decode_state(job.job_id, stored)

    def finish(self, job: WriteJob, committed_ids: Iterable[int]) -> None:
        """After a commit: delete all ledgers that the job created except ``committed_ids``, which losing attempts left.

        May be called again. Raises ConfigError if the job is not committed: what could still be listed is not deleted.
        """
        state = self.state(job)
        if state is None or state.version is None:
            raise ConfigError(f"write job on log '{job.log_name}'", job.job_id, "it is not committed: commit or abort it")
        self.clear(job, frozenset(committed_ids))

    def abort(self, job: WriteJob) -> bool:
        """End the job and delete its ledgers. False, and nothing is deleted, if its commit took effect before.

        Once it returns True, no task can create a ledger of this job any more, however late it runs.
        May be called again at any time: it continues where it was cut short.
        """
        for _ in range(_UNAVAILABLE_TRIES - 1):
            with suppress(MetadataUnavailableError):
                return self._abort(job)
        return self._abort(job)

    def end(self, job: WriteJob) -> bool:
        """End the job without a commit; False if it has committed. Once True, no commit of it can ever take effect.

        A missing ``running`` proves nothing unless the directory existed before: a first task may create both at any time.
        """
        was_begun = False
        for _ in range(_TRIES):
            try:
                self._store.delete(self.paths(job).running, ANY_VERSION)
                return True
            except NoNodeError:
                state = self.state(job)
            if state is None and self._leave_tombstone(job):
                return True
            if state is not None and (was_begun or state.version is not None):
                return state.version is None
            was_begun = state is not None
        raise self._too_busy(job)

    def clear(self, job: WriteJob, keep: frozenset[int]) -> None:
        """Delete the ledgers that the ended job created, except ``keep``, and its index of ledgers."""
        paths = self.paths(job)
        ids = map(number_of, grandchildren_of(self._store, paths.ledgers))
        self._ledgers.delete([ledger_id for ledger_id in ids if ledger_id not in keep], job.job_id, paths.ledger)
        remove_tree(self._store, paths.ledgers)

    def _abort(self, job: WriteJob) -> bool:
        if not self.end(job):
            return False
        self.clear(job, frozenset())
        remove_tree(self._store, self.paths(job).pages)
        return True

    def _leave_tombstone(self, job: WriteJob) -> bool:
        """Make the job's directory without ``running``, so that no task can begin it. False if somebody came first."""
        try:
            return self._make(job, running=False)
        except NoSuchLogError:
            return True  # the job's directory went with its log: nobody can begin it

    def _make(self, job: WriteJob, *, running: bool) -> bool:
        """False if somebody came first."""
        paths = self.paths(job)
        changes = [*self._guard(job), Create(paths.root, JobState().encode())]
        if running:
            changes += [Create(path) for path in (paths.running, paths.pages, paths.ledgers)]
        try:
            self._store.transaction(changes)
        except TransactionFailedError:
            return False
        return True

    def _guard(self, job: WriteJob) -> list[StoreChange]:
        """Keeps a job from beginning on a log whose deletion has begun: the deletion would not see its ledgers."""
        log = self._names.paths(job.uid)
        head, bucket = self._store.get_many([log.head, log.job_bucket(job.job_id)])
        if head is None and not job.is_new_log:
            raise NoSuchLogError(job.log_name)
        if head is not None:
            decode_head(job.log_name, head)
        if bucket is None:
            self._store.ensure_path(log.job_bucket(job.job_id))
        return [] if head is None else [Check(log.head, head.version)]

    def _make_bucket(self, job: WriteJob, path: str) -> None:
        if self._store.get_many([path])[0] is not None:
            return
        try:
            self._store.create(path)
        except NodeExistsError:
            return
        except NoNodeError:
            raise JobEndedError(job.log_name, job.job_id) from None

    def _too_busy(self, job: WriteJob) -> MetadataConflictError:
        return MetadataConflictError(f"write job {job.job_id} on log '{job.log_name}'", f"{_TRIES} tries met another change")


def decode_state(job_id: str, stored: Versioned | None) -> JobState | None:
    return None if stored is None else JobState.decode(f"the state of write job {job_id}", stored.value)
