"""Orphans: what writes that failed, lost or were cut short have left in the metadata store (log rule 1).

No reader ever saw any of it, and nothing that may still become visible is an orphan:

- a job whose ``running`` nobody has set for the given age. Tasks set it while they write;
- ledgers of a committed job that its version does not list: those of losing attempts;
- the directory of an aborted job, which keeps late tasks out: once it is as old as the given age after a sweep has seen it;
- log data without a head and without a job: first jobs of a log leave it;
- a deletion of a log that has begun and not ended.

Ages are by ZooKeeper's time. ``sweep.py`` removes what is found here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from bk_spark.client.log.changes.jobs import decode_state
from bk_spark.client.log.cleanup.records import committed_ledgers
from bk_spark.client.log.cleanup.store_clock import StoreTimes
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.stored.paths import LogPaths
from bk_spark.client.log.stored.tree import READS_AT_ONCE, children_of, chunks, grandchildren_of, number_of
from bk_spark.client.log.stored.values import Head, JobState
from bk_spark.client.progress import Progress, no_progress
from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError, FormatVersionError, NoSuchLogError
from bk_spark.metadata.store import Versioned

OLDER_THAN_S = 24 * 3600
"""Tasks set ``running`` every few minutes for as long as they write."""

MAX_AGE_S = 100 * 365 * 24 * 3600


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
class _Log:
    """One directory of log data."""

    uid: str
    paths: LogPaths
    head: Head | None


@dataclass(frozen=True, slots=True)
class _Job:
    """One job's directory, as it was read."""

    log: _Log
    job_id: str
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


class OrphanSearch:
    """Finds orphans; changes nothing of any log."""

    def __init__(self, logs: LogStore, progress: Progress = no_progress) -> None:
        self._logs = logs
        self._store = logs.store
        self._names = logs.names
        self._progress = progress
        self._times = StoreTimes(logs.store, logs.znodes)

    def find(self, older_than_s: int = OLDER_THAN_S) -> Iterator[Orphan]:
        """What a sweep would remove now. Raises ConfigError for an age out of range, MetadataUnavailableError.

        A log that cannot be read does not stop the search: its CorruptionError or FormatVersionError is raised at the end.
        """
        if type(older_than_s) is not int or not 0 <= older_than_s <= MAX_AGE_S:
            raise ConfigError("the age of orphans", older_than_s, f"it must be a number of seconds from 0 to {MAX_AGE_S}")
        age = _Age(self._times.now_ms(), older_than_s * 1000)
        log_data = self._logs.znodes.log_data
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

    def _of_log(self, uid: str, age: _Age) -> Iterator[Orphan]:
        paths = self._names.paths(uid)
        root, stored = self._store.get_many([paths.root, paths.head])
        head = None if stored is None else Head.decode(f"the head of log uid {uid}", stored.value)
        if stored is not None and head is not None and head.deleting:
            if age.is_old(stored):
                yield Orphan(OrphanKind.DELETION, head.name, uid, None, age.of(stored), (), stored.version)
            return
        log = _Log(uid, paths, head)
        for bucket in children_of(self._store, paths.jobs):
            for job_ids in chunks(children_of(self._store, f"{paths.jobs}/{bucket}"), READS_AT_ONCE):
                yield from self._of_jobs(log, job_ids, age)
        if root is not None and stored is None and age.is_old(root) and self._is_abandoned(log):
            yield Orphan(OrphanKind.LOG_DATA, None, uid, None, age.of(root), (), root.version)

    def _is_abandoned(self, log: _Log) -> bool:
        """Whether there is no job and no name. A name that points to data without a head is damage."""
        if any(grandchildren_of(self._store, log.paths.jobs)):
            return False
        return all(self._names.find(name) != log.uid for name in self._names.all())

    def _of_jobs(self, log: _Log, job_ids: Sequence[str], age: _Age) -> Iterator[Orphan]:
        roots = self._store.get_many([log.paths.job(job_id).root for job_id in job_ids])
        states = [decode_state(job_id, root) for job_id, root in zip(job_ids, roots, strict=True)]
        for job_id, root, state in zip(job_ids, roots, states, strict=True):
            if root is None or state is None or _is_clean(root, state):
                continue
            paths = log.paths.job(job_id)
            running, ledgers = self._store.get_many([paths.running, paths.ledgers])
            orphan = self._of_job(_Job(log, job_id, state, root, running, ledgers), age)
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
        keep = self.kept_ledgers(job.log.uid, job.job_id)
        orphan = self._orphan(job, OrphanKind.LOSING_ATTEMPTS, job.root, age)
        if keep is None or orphan is None:
            return None
        return replace(orphan, ledgers=tuple(one for one in orphan.ledgers if one not in keep))

    def _orphan(self, job: _Job, kind: OrphanKind, aged: Versioned, age: _Age) -> Orphan | None:
        """None if ``aged`` is too young."""
        if not age.is_old(aged):
            return None
        log = job.log
        index = () if job.ledgers is None else grandchildren_of(self._store, log.paths.job(job.job_id).ledgers)
        name = None if log.head is None else log.head.name
        return Orphan(kind, name, log.uid, job.job_id, age.of(aged), tuple(map(number_of, index)), aged.version)

    def kept_ledgers(self, uid: str, job_id: str) -> frozenset[int] | None:
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


def _is_clean(root: Versioned, state: JobState) -> bool:
    """Whether a committed job has nothing but its pages left. Nearly all have, and this needs no further read."""
    return state.version is not None and root.children <= 1
