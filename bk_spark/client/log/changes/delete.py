"""Deleting a log, in an order that a commit under way and a crash at any step both survive.

The head says *deleting* first: from then on no commit succeeds and no job begins. Then the name goes, so that a new log
may have it; then every job ends and its ledgers go; then the rest, the head last. Each step can be repeated, and as
long as the head is there a second call finds what the first left. What tells of a ledger goes after the ledger.

Every ledger of a log is in the index of its job until the job is finished, and then in the pages of the job's commit, or
opened by it, or, once a vacuum has deleted that record, in the checkpoint of a version that was vacuumed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from bk_spark.client.log.changes.jobs import WriteJob, WriteJobs, decode_state
from bk_spark.client.log.changes.ledgers import LogLedgers
from bk_spark.client.log.stored.checkpoint import CheckpointState
from bk_spark.client.log.stored.names import LogNames
from bk_spark.client.log.stored.paths import LogPaths
from bk_spark.client.log.stored.tree import chunks, remove_tree
from bk_spark.client.log.stored.values import Head, LogVersion, Page
from bk_spark.errors import MetadataConflictError, NoSuchLogError
from bk_spark.metadata.store import BadVersionError, Delete, MetadataStore, NoNodeError, TransactionFailedError
from bk_spark.metadata.znodes import Znodes

_TRIES = 100
"""Each of them means that something was written below the log meanwhile."""
_HEADS_AT_ONCE = 1000


class LogDeleter:
    """Deletes logs."""

    def __init__(self, store: MetadataStore, znodes: Znodes, names: LogNames, jobs: WriteJobs, ledgers: LogLedgers) -> None:
        self._store = store
        self._znodes = znodes
        self._names = names
        self._jobs = jobs
        self._ledgers = ledgers

    def delete(self, name: str, only: str | None) -> None:
        """Delete the log, or finish a deletion that was cut short. Raises NoSuchLogError where there is neither."""
        uid = self._names.find(name)
        named = uid is not None and only in (None, uid)
        if uid is not None and named:
            self._mark(name, uid)
            self._remove_name(name, uid)
        left = [one for one in self._marked(name) if only in (None, one)]
        if not named and not left:
            raise NoSuchLogError(name)
        for one in left:
            self._remove(name, one)

    def _mark(self, name: str, uid: str) -> None:
        with contextlib.suppress(NoSuchLogError):  # it is marked already, or gone
            self._names.change_head(name, uid, lambda head: replace(head, deleting=True))

    def _remove_name(self, name: str, uid: str) -> None:
        """Unless the name points to another log already."""
        path = self._znodes.log_name(name)
        try:
            version = self._store.get(path).version
            if self._names.find(name) == uid:
                self._store.delete(path, version)
        except (NoNodeError, BadVersionError):
            return

    def _marked(self, name: str) -> list[str]:
        """The uids under which a deletion of ``name`` was begun and not finished."""
        self._store.sync(self._znodes.log_data)
        marked = []
        for uids in chunks(self._children(self._znodes.log_data), _HEADS_AT_ONCE):
            heads = self._store.get_many([self._names.paths(uid).head for uid in uids])
            for uid, stored in zip(uids, heads, strict=True):
                head = Head.decode(f"the head of log uid {uid}", stored.value) if stored else None
                if head is not None and head.deleting and head.name == name:
                    marked.append(uid)
        return marked

    def _remove(self, name: str, uid: str) -> None:
        paths = self._names.paths(uid)
        self._remove_vacuumed(name, uid)
        for bucket in self._children(paths.jobs):
            for job_id in self._children(f"{paths.jobs}/{bucket}"):
                self._remove_job(WriteJob(name, uid, job_id, is_new_log=False))
        for _ in range(_TRIES):
            for child in self._children(paths.root):
                if f"{paths.root}/{child}" != paths.head:
                    remove_tree(self._store, f"{paths.root}/{child}")
            if self._remove_head(paths):
                return
        problem = f"something was written below {paths.root} during its deletion: try again"
        raise MetadataConflictError(f"log '{name}'", problem)

    def _remove_vacuumed(self, name: str, uid: str) -> None:
        """The ledgers whose records a vacuum deleted: they stand in checkpoints that readers start from."""
        paths = self._names.paths(uid)
        (stored,) = self._store.get_many([paths.head])
        if stored is None:
            return
        oldest = Head.decode(f"the head of log '{name}'", stored.value).oldest_version
        for bucket in self._children(paths.checkpoints):
            for version in self._children(f"{paths.checkpoints}/{bucket}"):
                if int(version) <= oldest:
                    self._remove_checkpointed(paths, uid, int(version))

    def _remove_checkpointed(self, paths: LogPaths, uid: str, version: int) -> None:
        what = f"checkpoint {version} of log uid {uid}"
        for page in self._pages(what, paths.checkpoint(version)):
            self._ledgers.delete_listed([one.ledger_id for one in page.ledgers], uid)
        (root,) = self._store.get_many([paths.checkpoint(version)])
        if root is not None and root.value:
            state = CheckpointState.decode(what, root.value)
            self._ledgers.delete_listed([one.ledger_id for one in state.open_ledgers], uid)

    def _remove_head(self, paths: LogPaths) -> bool:
        """The head and the log's own directory, at once: a directory without a head would be found by nobody."""
        try:
            self._store.transaction([Delete(paths.head), Delete(paths.root)])
        except TransactionFailedError as failure:
            return isinstance(failure.reason, NoNodeError)
        return True

    def _remove_job(self, job: WriteJob) -> None:
        paths = self._jobs.paths(job)
        self._jobs.end(job)
        self._jobs.clear(job, frozenset())
        (stored,) = self._store.get_many([paths.root])
        state = decode_state(job.job_id, stored)
        if state is not None and state.version is not None:
            self._remove_committed(job, state.version)
            if state.home is not None:
                self._remove_own(WriteJob(job.log_name, state.home, job.job_id, is_new_log=True))
        remove_tree(self._store, paths.root)

    def _remove_own(self, job: WriteJob) -> None:
        """The directory in which a job that moved here began: nobody else looks there for what it left."""
        self._jobs.clear(job, frozenset())
        remove_tree(self._store, self._jobs.paths(job).root)

    def _remove_committed(self, job: WriteJob, version: int) -> None:
        """What a commit lists, in its pages here, and what it opened. Nothing where it committed to another log."""
        paths = self._jobs.paths(job)
        for page in self._pages(f"a page of write job {job.job_id}", paths.pages):
            self._ledgers.delete([one.ledger_id for one in page.ledgers], job.job_id)
        (record,) = self._store.get_many([self._names.paths(job.uid).version(version)])
        if record is not None:
            opened = LogVersion.decode(f"version {version} of log '{job.log_name}'", record.value).opened
            self._ledgers.delete([] if opened is None else [opened], job.job_id)

    def _pages(self, what: str, directory: str) -> Iterator[Page]:
        """Those that are there: who deletes the log at the same moment deletes a page after its ledgers."""
        for index in self._children(directory):
            (stored,) = self._store.get_many([f"{directory}/{index}"])
            if stored is not None:
                yield Page.decode(what, stored.value)

    def _children(self, path: str) -> list[str]:
        try:
            return self._store.children(path)
        except NoNodeError:
            return []
