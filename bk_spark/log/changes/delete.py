"""Deletes a log, in an order that survives a concurrent commit and a crash at any step.

1. The head says *deleting*: from then on no commit succeeds and no job begins. In the same transaction the name is deleted, so
   that a new log may have it. Apart from that, a second deletion could delete a new log's name: its znode has the same version.
2. Every job ends, and its ledgers are deleted.
3. The rest is deleted, the head last.

Each step can be repeated, and as long as the head exists a second call finds what the first one left. A ledger is deleted
before whatever points to it.

Every ledger of a log is in the index of its job until the job is finished. After that it is in the pages of the job's
commit, or was opened by that commit, or, once a vacuum has deleted that record, is in the checkpoint of a vacuumed version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bk_spark.errors import MetadataConflictError, NoSuchLogError
from bk_spark.log.changes.jobs import WriteJob, WriteJobs, decode_state
from bk_spark.log.changes.ledgers import LogLedgers
from bk_spark.log.stored.checkpoint import CheckpointState
from bk_spark.log.stored.names import LogNames, decode_name
from bk_spark.log.stored.paths import LogPaths
from bk_spark.log.stored.tree import READS_AT_ONCE, children_of, chunks, grandchildren_of, number_of, remove_tree
from bk_spark.log.stored.values import Head, LogVersion, Page
from bk_spark.metadata.store import (
    ANY_VERSION,
    Delete,
    MetadataStore,
    NoNodeError,
    SetValue,
    StoreChange,
    TransactionFailedError,
)
from bk_spark.metadata.znodes import Znodes

_TRIES = 100
"""Each further try means that something was written below the log meanwhile."""


class LogDeleter:
    """Deletes logs."""

    def __init__(self, store: MetadataStore, znodes: Znodes, names: LogNames, jobs: WriteJobs, ledgers: LogLedgers) -> None:
        self._store = store
        self._znodes = znodes
        self._names = names
        self._jobs = jobs
        self._ledgers = ledgers

    def delete(self, name: str, uid: str | None = None) -> None:
        """Delete the log with its ledgers, or finish a deletion that was cut short; with ``uid``, only the log with that uid.

        Raises NoSuchLogError if there is neither. A commit that is under way fails with NoSuchLogError.
        """
        named = self._names.find(name)
        if named is not None and uid in (None, named):
            self._mark(name, named)
        else:
            named = None
        marked = [one for one in self._marked(name) if uid in (None, one)]
        if named is None and not marked:
            raise NoSuchLogError(name)
        for one in marked:
            self._remove(name, one)

    def _mark(self, name: str, uid: str) -> None:
        """Step 1, unless the name is gone or points to another log already."""
        head, pointer = self._names.paths(uid).head, self._znodes.log_name(name)
        for _ in range(_TRIES):
            self._store.sync(head)
            stored, pointing = self._store.get_many([head, pointer])  # in this order: a name outlives its head only by damage
            if pointing is None or decode_name(f"the name of log '{name}'", pointing.value) != uid:
                return None
            changes: list[StoreChange] = [Delete(pointer, pointing.version)]
            if stored is not None:
                marked = replace(Head.decode(f"the head of log '{name}'", stored.value), deleting=True)
                changes.append(SetValue(head, marked.encode(), stored.version))
            try:
                return self._store.transaction(changes)
            except TransactionFailedError:
                continue  # a commit, or another deletion
        raise MetadataConflictError(f"log '{name}'", f"{_TRIES} commits came between: stop its writers for a moment, try again")

    def _marked(self, name: str) -> list[str]:
        """The uids of logs that had this name and whose deletion has begun and not ended."""
        self._store.sync(self._znodes.log_data)
        marked = []
        for uids in chunks(children_of(self._store, self._znodes.log_data), READS_AT_ONCE):
            heads = self._store.get_many([self._names.paths(uid).head for uid in uids])
            for uid, stored in zip(uids, heads, strict=True):
                head = Head.decode(f"the head of log uid {uid}", stored.value) if stored else None
                if head is not None and head.deleting and head.name == name:
                    marked.append(uid)
        return marked

    def _remove(self, name: str, uid: str) -> None:
        paths = self._names.paths(uid)
        self._remove_vacuumed(name, uid)
        for path in grandchildren_of(self._store, paths.jobs):
            self._remove_job(WriteJob(name, uid, path.rsplit("/", 1)[1], is_new_log=False))
        for _ in range(_TRIES):
            for child in children_of(self._store, paths.root):
                if f"{paths.root}/{child}" != paths.head:
                    remove_tree(self._store, f"{paths.root}/{child}")
            if self._remove_head(paths):
                return
        problem = f"something was written below {paths.root} during its deletion: try again"
        raise MetadataConflictError(f"log '{name}'", problem)

    def _remove_vacuumed(self, name: str, uid: str) -> None:
        """Delete the ledgers whose records a vacuum deleted: checkpoints that readers start from list them."""
        paths = self._names.paths(uid)
        (stored,) = self._store.get_many([paths.head])
        if stored is None:
            return
        oldest = Head.decode(f"the head of log '{name}'", stored.value).oldest_version
        for version in map(number_of, grandchildren_of(self._store, paths.checkpoints)):
            if version <= oldest:
                self._remove_checkpointed(paths, uid, version)

    def _remove_checkpointed(self, paths: LogPaths, uid: str, version: int) -> None:
        what = f"checkpoint {version} of log uid {uid}"
        for page in self._pages(what, paths.checkpoint(version)):
            self._ledgers.delete_listed([ledger.ledger_id for ledger in page.ledgers], uid)
        (root,) = self._store.get_many([paths.checkpoint(version)])
        if root is not None and root.value:
            state = CheckpointState.decode(what, root.value)
            self._ledgers.delete_listed([ledger.ledger_id for ledger in state.open_ledgers], uid)

    def _remove_head(self, paths: LogPaths) -> bool:
        """Delete the head and the log's directory together: nobody would find a directory without a head."""
        try:
            self._store.transaction([Delete(paths.head, ANY_VERSION), Delete(paths.root, ANY_VERSION)])
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
            if state.home is not None:  # the job began there, and moved to this log: nobody else looks there
                home = WriteJob(job.log_name, state.home, job.job_id, is_new_log=True)
                self._jobs.clear(home, frozenset())
                remove_tree(self._store, self._jobs.paths(home).root)
        remove_tree(self._store, paths.root)

    def _remove_committed(self, job: WriteJob, version: int) -> None:
        """Delete what a commit to this log lists, in its pages here, and what it opened."""
        for page in self._pages(f"a page of write job {job.job_id}", self._jobs.paths(job).pages):
            self._ledgers.delete([ledger.ledger_id for ledger in page.ledgers], job.job_id)
        (record,) = self._store.get_many([self._names.paths(job.uid).version(version)])
        if record is not None:
            opened = LogVersion.decode(f"version {version} of log '{job.log_name}'", record.value).opened
            self._ledgers.delete([] if opened is None else [opened], job.job_id)

    def _pages(self, what: str, directory: str) -> Iterator[Page]:
        """Skips missing pages: whoever deletes the log at the same moment deletes a page after its ledgers."""
        for index in children_of(self._store, directory):
            (stored,) = self._store.get_many([f"{directory}/{index}"])
            if stored is not None:
                yield Page.decode(what, stored.value)
