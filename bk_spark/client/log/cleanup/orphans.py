"""Orphans: what writes that failed, lost or were cut short have left in the metadata store. Log rule 1.

None of it was ever visible to a reader, and nothing that may still become visible is an orphan:

- a job whose ``running`` nobody has set for the given age. Tasks set it while they write;
- the ledgers of a committed job that its version does not list: those of losing attempts;
- the directory of an aborted job, which keeps late tasks out: one age after a sweep has first seen it;
- log data without a head, which first jobs of a log leave, when it holds no job any more;
- a deletion of a log that was begun and not finished.

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
from bk_spark.client.log.stored.names import LogNames
from bk_spark.client.log.stored.paths import JobPaths, LogPaths
from bk_spark.client.log.stored.tree import READS_AT_ONCE, chunks
from bk_spark.client.log.stored.values import Head, JobState
from bk_spark.client.progress import Progress, no_progress
from bk_spark.errors import BookKeeperError, ConfigError, CorruptionError, FormatVersionError, NoSuchLogError
from bk_spark.metadata.store import MetadataStore, NoNodeError, Versioned
from bk_spark.metadata.znodes import Znodes

OLDER_THAN_S = 24 * 3600
"""Tasks set ``running`` every few minutes for as long as they write."""

MAX_AGE_S = 100 * 365 * 24 * 3600


class OrphanKind(Enum):
    """What is left over."""

    RUNNING_JOB = "running job"
    """A write that nobody goes on with: its driver was killed before it could commit or abort."""
    LOSING_ATTEMPTS = "losing attempts"
    """Ledgers of a committed write that the log does not list."""
    ABORTED_JOB = "aborted job"
    """Its ledgers, if any are left; its directory is marked, and goes with a later sweep."""
    JOB_DIRECTORY = "job directory"
    """Of an aborted job that an earlier sweep has marked, or of a job that moved to another log."""
    LOG_DATA = "log data"
    """Of a log that never came to be."""
    DELETION = "deletion"
    """Of a log, begun and not finished."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something that a sweep of its age removes."""

    kind: OrphanKind
    log: str | None
    """The log's name, where its head tells it."""
    uid: str
    job_id: str | None
    age_s: int
    ledgers: tuple[int, ...]
    """What goes with it; of a deletion it is not known before."""
    znode_version: int
    """Of what its age was read from: a change of that means that somebody is at work there."""


@dataclass(frozen=True, slots=True)
class _Log:
    """One directory of log data."""

    uid: str
    paths: LogPaths
    head: Head | None

    @property
    def name(self) -> str | None:
        return None if self.head is None else self.head.name


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
class _Search:
    """What is old, by the store's clock."""

    now_ms: int
    older_than_ms: int

    def is_old(self, stored: Versioned) -> bool:
        return self.now_ms - stored.modified_ms >= self.older_than_ms

    def age_s(self, stored: Versioned) -> int:
        return max(0, (self.now_ms - stored.modified_ms) // 1000)


class OrphanSearch:
    """Finds orphans; changes nothing of any log."""

    def __init__(self, store: MetadataStore, znodes: Znodes, logs: LogStore, progress: Progress = no_progress) -> None:
        self._store = store
        self._znodes = znodes
        self._logs = logs
        self._progress = progress
        self._names = LogNames(store, znodes)
        self._times = StoreTimes(store, znodes)

    def find(self, older_than_s: int = OLDER_THAN_S) -> Iterator[Orphan]:
        """What a sweep would remove now. Raises ConfigError for an age that is none, MetadataUnavailableError.

        A log that cannot be read keeps no other one waiting: its CorruptionError or FormatVersionError is raised in the end.
        """
        if type(older_than_s) is not int or not 0 <= older_than_s <= MAX_AGE_S:
            raise ConfigError("the age of orphans", older_than_s, f"it must be a number of seconds from 0 to {MAX_AGE_S}")
        search = _Search(self._times.now_ms(), older_than_s * 1000)
        self._store.sync(self._znodes.log_data)
        uids = self._children(self._znodes.log_data)
        unreadable: BookKeeperError | None = None
        for place, uid in enumerate(uids):
            self._progress("logs looked at", place, len(uids))
            try:
                yield from self._of_log(uid, search)
            except (CorruptionError, FormatVersionError) as problem:
                unreadable = unreadable or problem
        if unreadable is not None:
            raise unreadable

    def _of_log(self, uid: str, search: _Search) -> Iterator[Orphan]:
        paths = self._names.paths(uid)
        root, stored = self._store.get_many([paths.root, paths.head])
        head = None if stored is None else Head.decode(f"the head of log uid {uid}", stored.value)
        if stored is not None and head is not None and head.deleting:
            if search.is_old(stored):
                yield Orphan(OrphanKind.DELETION, head.name, uid, None, search.age_s(stored), (), stored.version)
            return
        log = _Log(uid, paths, head)
        for bucket in self._children(paths.jobs):
            for job_ids in chunks(self._children(f"{paths.jobs}/{bucket}"), READS_AT_ONCE):
                yield from self._of_jobs(log, job_ids, search)
        if root is not None and stored is None and search.is_old(root) and self._is_abandoned(log):
            yield Orphan(OrphanKind.LOG_DATA, None, uid, None, search.age_s(root), (), root.version)

    def _is_abandoned(self, log: _Log) -> bool:
        """Without any job, and without a name: a name that points to data without a head is damage."""
        if any(self._children(f"{log.paths.jobs}/{bucket}") for bucket in self._children(log.paths.jobs)):
            return False
        return all(self._names.find(name) != log.uid for name in self._names.all())

    def _of_jobs(self, log: _Log, job_ids: Sequence[str], search: _Search) -> Iterator[Orphan]:
        roots = self._store.get_many([log.paths.job(one).root for one in job_ids])
        states = [decode_state(job_id, root) for job_id, root in zip(job_ids, roots, strict=True)]
        for job_id, root, state in zip(job_ids, roots, states, strict=True):
            if root is None or state is None or _is_clean(root, state):
                continue
            paths = log.paths.job(job_id)
            running, ledgers = self._store.get_many([paths.running, paths.ledgers])
            orphan = self._of_job(_Job(log, job_id, state, root, running, ledgers), search)
            if orphan is not None:
                yield orphan

    def _of_job(self, job: _Job, search: _Search) -> Orphan | None:
        if job.state.home is not None:
            return self._of_moved_job(job, job.state.home, search)
        if job.running is not None:
            return self._orphan(job, OrphanKind.RUNNING_JOB, job.running, search)
        if job.state.version is not None:
            return None if job.ledgers is None else self._of_committed_job(job, search)
        is_done = job.ledgers is None and job.root.version > 0
        return self._orphan(job, OrphanKind.JOB_DIRECTORY if is_done else OrphanKind.ABORTED_JOB, job.root, search)

    def _of_moved_job(self, job: _Job, home: str, search: _Search) -> Orphan | None:
        """In the log to which a first job of the same name moved its ledgers. Its own directory says how it ended."""
        own = self._names.paths(home).job(job.job_id)
        if job.state.version is not None or self._store.get_many([own.running]) != [None]:
            return None
        return self._orphan(job, OrphanKind.JOB_DIRECTORY, job.root, search)

    def _of_committed_job(self, job: _Job, search: _Search) -> Orphan | None:
        """None where the version's record is gone: what it lists is not known then."""
        keep = self.kept_ledgers(job.log.uid, job.job_id)
        orphan = self._orphan(job, OrphanKind.LOSING_ATTEMPTS, job.root, search)
        if keep is None or orphan is None:
            return None
        return replace(orphan, ledgers=tuple(one for one in orphan.ledgers if one not in keep))

    def _orphan(self, job: _Job, kind: OrphanKind, aged: Versioned, search: _Search) -> Orphan | None:
        if not search.is_old(aged):
            return None
        ledgers = () if job.ledgers is None else tuple(self._index(job.log.paths.job(job.job_id)))
        return Orphan(kind, job.log.name, job.log.uid, job.job_id, search.age_s(aged), ledgers, aged.version)

    def kept_ledgers(self, uid: str, job_id: str) -> frozenset[int] | None:
        """What the version of a committed job lists, none where its log is deleted; None where that is not known."""
        state = decode_state(job_id, self._store.get_many([self._names.paths(uid).job(job_id).root])[0])
        if state is None or state.version is None or state.log_uid is None:
            return None
        try:
            return frozenset(committed_ledgers(self._logs.reader, f"uid {state.log_uid}", state.log_uid, state.version))
        except NoSuchLogError:
            return frozenset()
        except ConfigError:
            return None  # vacuumed; the vacuum has deleted what the job left

    def _index(self, job: JobPaths) -> Iterator[int]:
        for bucket in self._children(job.ledgers):
            yield from (int(one) for one in self._children(f"{job.ledgers}/{bucket}"))

    def _children(self, path: str) -> list[str]:
        try:
            return self._store.children(path)
        except NoNodeError:
            return []


def _is_clean(root: Versioned, state: JobState) -> bool:
    """A committed job that has nothing but its pages left, as nearly all have: told without another look."""
    return state.version is not None and root.children <= 1
