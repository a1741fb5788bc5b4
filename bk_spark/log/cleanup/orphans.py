"""Orphans: what writes that failed, lost or were cut short have left in the metadata store (log rule 1).

No reader ever saw any of it, and nothing that may still become visible is an orphan:

- a job whose ``running`` nobody has set for the given age. Tasks set it while they write;
- ledgers of a committed job that its version does not list: those of losing attempts;
- the directory of an aborted job, which keeps late tasks out: once it is as old as the given age after a sweep has seen it;
- log data without a head and without a job: first jobs of a log leave it;
- a deletion of a log that has begun and not ended.

Ages are by ZooKeeper's time.

A sweep removes orphans. It ends a job by deleting ``running`` at the version that it read. So a task that sets ``running``
at the same moment, or a commit that deletes it, wins. The job's ledgers are deleted only after that. Every step can be
repeated, and several sweeps may run at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError, FormatVersionError, NoSuchLogError
from bk_spark.log.changes.jobs import WriteJob, decode_state
from bk_spark.log.cleanup.records import committed_ledgers
from bk_spark.log.cleanup.store_clock import StoreTimes
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.paths import JobPaths, LogPaths
from bk_spark.log.stored.tree import READS_AT_ONCE, children_of, chunks, grandchildren_of, number_of, remove_tree
from bk_spark.log.stored.values import Head, JobState
from bk_spark.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Delete,
    NoNodeError,
    NotEmptyError,
    TransactionFailedError,
    Versioned,
    name_of,
)
from bk_spark.progress import Progress, no_progress

OLDER_THAN_S = 24 * 3600
"""Tasks set ``running`` every few minutes for as long as they write."""

MAX_AGE_S = 100 * 365 * 24 * 3600
"""A century. A larger age is a mistake, such as milliseconds for seconds, and is refused."""


class OrphanKind(Enum):
    """What is left over."""

    RUNNING_JOB = "running job"
    """A write that nobody continues: its driver was killed before it could commit or abort."""
    LOSING_ATTEMPTS = "losing attempts"
    """Ledgers of a committed write that the log does not list."""
    ABORTED_JOB = "aborted job"
    """What an aborted job left. A sweep deletes its ledgers, if any, and marks its directory for a later sweep."""
    JOB_DIRECTORY = "job directory"
    """The directory of an aborted job that an earlier sweep has marked, or of a job that moved to another log."""
    LOG_DATA = "log data"
    """Directories of a log that never came to be."""
    DELETION = "deletion"
    """A deletion of a log that has begun and not ended."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something that a sweep with the given age removes."""

    kind: OrphanKind
    log: str | None
    """The log's name; None if there is no head that tells it."""
    uid: str
    job_id: str | None
    age_s: int
    ledgers: tuple[int, ...]
    """Ledgers that go with it. Those of a deletion are not known beforehand."""
    znode_version: int
    """Version of the znode whose time gives the age. If it changes, somebody is at work there."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One job's directory, as it was read."""

    log: str | None
    uid: str
    job_id: str
    paths: JobPaths
    state: JobState
    root: Versioned
    running: Versioned | None
    ledgers: Versioned | None


@dataclass(frozen=True, slots=True)
class _Age:
    """Tells what is old, by the store's clock."""

    now_ms: int
    older_than_ms: int

    def is_old(self, stored: Versioned) -> bool:
        return self.now_ms - stored.modified_ms >= self.older_than_ms

    def of(self, stored: Versioned) -> int:
        """In seconds."""
        return max(0, (self.now_ms - stored.modified_ms) // 1000)


class Orphans:
    """Finds and sweeps the orphans of all logs in one cluster."""

    def __init__(self, logs: LogStore, progress: Progress = no_progress) -> None:
        self._logs = logs
        self._store = logs.store
        self._names = logs.names
        self._progress = progress
        self._named: frozenset[str] | None = None
        """The uids that names point to, once one search has needed them."""

    def find(self, older_than_s: int = OLDER_THAN_S) -> Iterator[Orphan]:
        """What a sweep would remove now. Raises ConfigError for an age out of range, MetadataUnavailableError.

        A log that cannot be read does not stop the search: its CorruptionError or FormatVersionError is raised at the end.
        """
        if type(older_than_s) is not int or not 0 <= older_than_s <= MAX_AGE_S:
            raise ConfigError("the age of orphans", older_than_s, f"it must be a number of seconds from 0 to {MAX_AGE_S}")
        age = _Age(StoreTimes(self._store, self._logs.znodes).now_ms(), older_than_s * 1000)
        log_data, self._named = self._logs.znodes.log_data, None
        self._store.sync(log_data)
        uids = children_of(self._store, log_data)
        unreadable: BookKeeperError | None = None
        for place, uid in enumerate(uids):
            self._progress("logs looked at", place, len(uids))
            try:
                yield from self._of_log(uid, age)
            except (CorruptionError, FormatVersionError) as problem:
                unreadable = unreadable or problem
        if unreadable is not None:
            raise unreadable

    def sweep(self, older_than_s: int = OLDER_THAN_S) -> Iterator[Orphan]:
        """Remove what ``find`` finds, and yield each orphan that was removed.

        An orphan that somebody is at work with stays. May be called again after any error. Raises as ``find``.
        """
        for orphan in self.find(older_than_s):
            if self._remove(orphan):
                yield orphan

    # Finding

    def _of_log(self, uid: str, age: _Age) -> Iterator[Orphan]:
        paths = self._names.paths(uid)
        root, stored = self._store.get_many([paths.root, paths.head])
        head = None if stored is None else Head.decode(f"the head of log uid {uid}", stored.value)
        if stored is not None and head is not None and head.deleting:
            if age.is_old(stored):
                yield Orphan(OrphanKind.DELETION, head.name, uid, None, age.of(stored), (), stored.version)
            return
        name = None if head is None else head.name
        for bucket in children_of(self._store, paths.jobs):
            for job_ids in chunks(children_of(self._store, f"{paths.jobs}/{bucket}"), READS_AT_ONCE):
                yield from self._of_jobs(name, uid, job_ids, age)
        if root is not None and stored is None and age.is_old(root) and self._is_abandoned(uid, paths):
            yield Orphan(OrphanKind.LOG_DATA, None, uid, None, age.of(root), (), root.version)

    def _is_abandoned(self, uid: str, paths: LogPaths) -> bool:
        """Whether there is no job and no name. A name that points to data without a head is damage.

        The names are read once for all logs. One that comes later comes with a head, which ``_remove_empty`` finds.
        """
        if any(grandchildren_of(self._store, paths.jobs)):
            return False
        if self._named is None:
            self._named = frozenset(self._names.find_many(self._names.all()).values())
        return uid not in self._named

    def _of_jobs(self, name: str | None, uid: str, job_ids: Sequence[str], age: _Age) -> Iterator[Orphan]:
        paths = [self._names.paths(uid).job(job_id) for job_id in job_ids]
        roots = self._store.get_many([one.root for one in paths])
        states = [decode_state(job_id, root) for job_id, root in zip(job_ids, roots, strict=True)]
        for job_id, job, root, state in zip(job_ids, paths, roots, states, strict=True):
            if root is None or state is None or _is_clean(root, state):
                continue
            running, ledgers = self._store.get_many([job.running, job.ledgers])
            orphan = self._of_job(_Job(name, uid, job_id, job, state, root, running, ledgers), age)
            if orphan is not None:
                yield orphan

    def _of_job(self, job: _Job, age: _Age) -> Orphan | None:
        if job.state.home is not None:
            return self._of_moved_job(job, job.state.home, age)
        if job.running is not None:
            return self._orphan(job, OrphanKind.RUNNING_JOB, job.running, age)
        if job.state.version is not None:
            return None if job.ledgers is None else self._of_committed_job(job, age)
        is_done = job.ledgers is None and job.root.version > 0
        return self._orphan(job, OrphanKind.JOB_DIRECTORY if is_done else OrphanKind.ABORTED_JOB, job.root, age)

    def _of_moved_job(self, job: _Job, home: str, age: _Age) -> Orphan | None:
        """For a job that began under the uid ``home`` and moved to this log. Its directory there says how it ended."""
        own = self._names.paths(home).job(job.job_id)
        if job.state.version is not None or self._store.get_many([own.running]) != [None]:
            return None
        return self._orphan(job, OrphanKind.JOB_DIRECTORY, job.root, age)

    def _of_committed_job(self, job: _Job, age: _Age) -> Orphan | None:
        """None if the version's record is gone: then nobody knows what it lists."""
        keep = self._kept_ledgers(job.uid, job.job_id)
        orphan = self._orphan(job, OrphanKind.LOSING_ATTEMPTS, job.root, age)
        if keep is None or orphan is None:
            return None
        return replace(orphan, ledgers=tuple(one for one in orphan.ledgers if one not in keep))

    def _orphan(self, job: _Job, kind: OrphanKind, aged: Versioned, age: _Age) -> Orphan | None:
        """None if ``aged`` is too young."""
        if not age.is_old(aged):
            return None
        index = () if job.ledgers is None else grandchildren_of(self._store, job.paths.ledgers)
        return Orphan(kind, job.log, job.uid, job.job_id, age.of(aged), tuple(map(number_of, index)), aged.version)

    def _kept_ledgers(self, uid: str, job_id: str) -> frozenset[int] | None:
        """What the version of a committed job lists: nothing if its log is deleted; None if nobody knows."""
        state = decode_state(job_id, self._store.get_many([self._names.paths(uid).job(job_id).root])[0])
        if state is None or state.version is None or state.log_uid is None:
            return None
        try:
            return frozenset(committed_ledgers(self._logs.reader, f"uid {state.log_uid}", state.log_uid, state.version))
        except NoSuchLogError:
            return frozenset()
        except ConfigError:
            return None  # vacuumed; the vacuum has deleted what the job left

    # Removing: each method returns False if somebody was at work with the orphan

    def _remove(self, orphan: Orphan) -> bool:
        try:
            if orphan.job_id is None:
                return self._remove_log(orphan)
            return self._remove_job(orphan, WriteJob(orphan.log or "", orphan.uid, orphan.job_id, is_new_log=False))
        except (BadVersionError, NoNodeError, NotEmptyError, TransactionFailedError, NoSuchLogError):
            return False

    def _remove_job(self, orphan: Orphan, job: WriteJob) -> bool:
        paths = self._logs.jobs.paths(job)
        if orphan.kind is OrphanKind.LOSING_ATTEMPTS:
            keep = self._kept_ledgers(job.uid, job.job_id)
            if keep is not None:
                self._logs.jobs.finish(job, keep)
            return keep is not None
        if orphan.kind is OrphanKind.JOB_DIRECTORY:
            if self._store.get(paths.root).version != orphan.znode_version:
                return False  # the job committed after the search read its directory: that is why ``running`` was gone
            remove_tree(self._store, paths.pages)
            self._store.delete(paths.root, orphan.znode_version)
            return True
        if orphan.kind is OrphanKind.RUNNING_JOB:
            self._store.delete(paths.running, orphan.znode_version)
        if not self._logs.jobs.abort(job):
            return False
        stored = self._store.get(paths.root)
        self._store.set(paths.root, stored.value, stored.version)  # the mark: the age of its directory begins here
        return True

    def _remove_log(self, orphan: Orphan) -> bool:
        if orphan.kind is OrphanKind.DELETION:
            assert orphan.log is not None, "the head that says so has a name"
            self._logs.deleter.delete(orphan.log, orphan.uid)
        else:
            self._remove_empty(self._names.paths(orphan.uid))
        return True

    def _remove_empty(self, paths: LogPaths) -> None:
        """Remove log data that consists of directories alone, in one transaction.

        So a log that is created from them at this moment gets all of them, or none. The transaction is refused if a late
        task or commit has made something there. Checkpoints are only of logs that were deleted. Raises NotEmptyError for a
        log that was created meanwhile.
        """
        names = self._store.children(paths.root)
        if name_of(paths.head) in names:
            raise NotEmptyError(paths.root)
        for name in children_of(self._store, paths.checkpoints):
            remove_tree(self._store, f"{paths.checkpoints}/{name}")
        found = []
        for name in names:
            directory = f"{paths.root}/{name}"
            found += [f"{directory}/{child}" for child in children_of(self._store, directory)] + [directory]
        self._store.transaction([Delete(path, ANY_VERSION) for path in [*found, paths.root]])


def _is_clean(root: Versioned, state: JobState) -> bool:
    """Whether a committed job has nothing but its pages left. Nearly all have, and this needs no further read."""
    return state.version is not None and root.children <= 1
