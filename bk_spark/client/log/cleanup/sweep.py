"""The sweep: removes orphans (``orphans.py``). Log rule 1.

It ends a job by deleting ``running`` at the version that it read. So a task that sets ``running`` at the same moment, or a
commit that deletes it, wins. The job's ledgers are deleted only after that. Every step can be repeated, and several sweeps
may run at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from bk_spark.client.log.changes.jobs import WriteJob
from bk_spark.client.log.cleanup.orphans import OLDER_THAN_S, Orphan, OrphanKind, OrphanSearch
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.stored.paths import JobPaths, LogPaths
from bk_spark.client.log.stored.tree import children_of, remove_tree
from bk_spark.client.progress import Progress, no_progress
from bk_spark.errors import NoSuchLogError
from bk_spark.metadata.store import BadVersionError, Delete, NoNodeError, NotEmptyError, TransactionFailedError


class LogSweep:
    """Removes orphans of all logs in one cluster."""

    def __init__(self, logs: LogStore, progress: Progress = no_progress) -> None:
        self._logs = logs
        self._store = logs.store
        self._search = OrphanSearch(logs, progress)

    def run(self, older_than_s: int = OLDER_THAN_S) -> Iterator[Orphan]:
        """Remove what ``OrphanSearch.find`` finds, and yield each orphan that was removed.

        An orphan that somebody is at work with stays. May be called again after any error. Raises as ``find``.
        """
        for orphan in self._search.find(older_than_s):
            if self._remove(orphan):
                yield orphan

    def _remove(self, orphan: Orphan) -> bool:
        """False if somebody was at work with it."""
        try:
            if orphan.job_id is None:
                return self._remove_log(orphan)
            return self._remove_job(orphan, WriteJob(orphan.log or "", orphan.uid, orphan.job_id, is_new_log=False))
        except (BadVersionError, NoNodeError, NotEmptyError, TransactionFailedError, NoSuchLogError):
            return False

    def _remove_job(self, orphan: Orphan, job: WriteJob) -> bool:
        paths = self._logs.jobs.paths(job)
        if orphan.kind is OrphanKind.LOSING_ATTEMPTS:
            keep = self._search.kept_ledgers(job.uid, job.job_id)
            if keep is not None:
                self._logs.jobs.finish(job, keep)
            return keep is not None
        if orphan.kind is OrphanKind.JOB_DIRECTORY:
            return self._remove_directory(paths, orphan.znode_version)
        if orphan.kind is OrphanKind.RUNNING_JOB:
            self._store.delete(paths.running, orphan.znode_version)
        if not self._logs.jobs.abort(job):
            return False
        stored = self._store.get(paths.root)
        self._store.set(paths.root, stored.value, stored.version)  # the mark: the age of its directory begins here
        return True

    def _remove_directory(self, paths: JobPaths, version: int) -> bool:
        """False if the job committed after the search had read its directory, which is why its ``running`` was gone."""
        if self._store.get(paths.root).version != version:
            return False
        remove_tree(self._store, paths.pages)
        self._store.delete(paths.root, version)
        return True

    def _remove_log(self, orphan: Orphan) -> bool:
        if orphan.kind is OrphanKind.DELETION:
            assert orphan.log is not None, "the head that says so has a name"
            self._logs.deleter.delete(orphan.log, orphan.uid)
        else:
            self._remove_empty(self._logs.names.paths(orphan.uid))
        return True

    def _remove_empty(self, paths: LogPaths) -> None:
        """Remove log data that consists of directories alone, in one transaction.

        So a log that is created from them at this moment gets all of them, or none. The transaction is refused if a late
        task or commit has made something there. Checkpoints are only of logs that were deleted.
        """
        for name in children_of(self._store, paths.checkpoints):
            remove_tree(self._store, f"{paths.checkpoints}/{name}")
        found = []
        for name in self._store.children(paths.root):
            directory = f"{paths.root}/{name}"
            found += [f"{directory}/{child}" for child in children_of(self._store, directory)] + [directory]
        self._store.transaction([Delete(path) for path in [*found, paths.root]])
