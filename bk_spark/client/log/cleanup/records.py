"""The records of old versions, and how they go: the last step of a vacuum.

A version's record, its pages and the directory of the job that committed it are small, and of use for long after the version
cannot be read any more; but their number must have a bound. They go after the head says so (``oldest_record``), and all of
one version together, so that a run that was cut short finds what it left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bk_spark.client.log.changes.jobs import WriteJob, decode_state
from bk_spark.client.log.cleanup.store_clock import StoreTimes
from bk_spark.client.log.log_store import LogStore
from bk_spark.client.log.stored.names import LogNames
from bk_spark.client.log.stored.paths import BUCKET, LogPaths
from bk_spark.client.log.stored.snapshot import LogReader
from bk_spark.client.log.stored.tree import chunks, remove_tree
from bk_spark.client.log.stored.values import Head, LogVersion
from bk_spark.client.progress import Progress
from bk_spark.metadata.store import Delete, MetadataStore, NoNodeError, NotEmptyError, StoreChange, TransactionFailedError
from bk_spark.metadata.znodes import Znodes

JOB_MEMORY_S = 7 * 24 * 3600
"""Records younger than this stay, however many there are: a driver that was suspended in the middle of its commit for days
still finds that it took effect, and does not commit again."""

_RECORDS_AT_ONCE = 100
"""In one transaction: four deletions of about 150 bytes each as a rule."""
_PAGES_AT_ONCE = 1000
"""Of more than one record: 150 KB. A commit of 100,000 ledgers has 20 pages."""


class LogRecords:
    """Old records of the logs of one cluster."""

    def __init__(self, store: MetadataStore, znodes: Znodes, logs: LogStore, records_kept: int) -> None:
        self._store = store
        self._logs = logs
        self._names = LogNames(store, znodes)
        self._times = StoreTimes(store, znodes)
        self._records_kept = records_kept

    def oldest_to_keep(self, uid: str, head: Head, now_ms: int) -> int:
        """The first version whose record stays."""
        first, last = max(head.oldest_record, 1), head.vacuumed_version - self._records_kept - 1
        if last < first:
            return head.oldest_record
        return self._times.last_before(self._names.paths(uid), first, last, now_ms - JOB_MEMORY_S * 1000) + 1

    def delete_checkpoints(self, uid: str, head: Head) -> None:
        """Delete the checkpoints below ``vacuumed_version``: no version below can be read, and no vacuum looks there again."""
        paths = self._names.paths(uid)
        for directory in self._children(paths.checkpoints):
            for version in self._children(f"{paths.checkpoints}/{directory}"):
                if int(version) < head.vacuumed_version:
                    remove_tree(self._store, f"{paths.checkpoints}/{directory}/{version}")

    def delete_below(self, name: str, uid: str, head: Head, progress: Progress) -> int:
        """Delete the records below ``oldest_record``; gives back how many."""
        paths, deleted = self._names.paths(uid), 0
        for bucket in sorted(int(one) for one in self._children(paths.versions)):
            if bucket * BUCKET >= head.oldest_record:
                break
            present = sorted(int(one) for one in self._children(paths.version_bucket(bucket * BUCKET)))
            for some in chunks([one for one in present if one < head.oldest_record], _RECORDS_AT_ONCE):
                self._delete(name, uid, some)
                deleted += len(some)
                progress("records deleted", deleted, head.oldest_record)
            if (bucket + 1) * BUCKET <= head.oldest_record:
                self._remove_directory(paths.version_bucket(bucket * BUCKET))
        return deleted

    def _delete(self, name: str, uid: str, versions: Sequence[int]) -> None:
        paths = self._names.paths(uid)
        stored = self._store.get_many([paths.version(one) for one in versions])
        records = [
            LogVersion.decode(f"version {version} of log '{name}'", value.value)
            for version, value in zip(versions, stored, strict=True)
            if value is not None
        ]
        self._finish_jobs(name, uid, records)
        for some in _transactions(records):
            self._delete_together(paths, some)

    def _delete_together(self, paths: LogPaths, records: Sequence[LogVersion]) -> None:
        try:
            self._store.transaction([change for record in records for change in _deletions(paths, record)])
        except TransactionFailedError:
            for record in records:
                remove_tree(self._store, paths.job(record.job_id).root)
                remove_tree(self._store, paths.version(record.version))

    def _finish_jobs(self, name: str, uid: str, records: Sequence[LogVersion]) -> None:
        """What a job leaves beside its pages: ledgers of losing attempts, and its directory in another log."""
        paths = self._names.paths(uid)
        states = self._store.get_many([paths.job(one.job_id).root for one in records])
        for record, stored in zip(records, states, strict=True):
            state = decode_state(record.job_id, stored)
            if stored is None or state is None or (state.home is None and stored.children <= 1):
                continue
            job = WriteJob(name, state.home or uid, record.job_id, is_new_log=False)
            root = self._names.paths(job.uid).job(job.job_id).root
            if self._store.get_many([root]) != [None]:
                self._logs.finish(job, committed_ledgers(self._logs.reader, name, uid, record.version))
            if state.home is not None:
                remove_tree(self._store, root)

    def _remove_directory(self, path: str) -> None:
        try:
            self._store.delete(path)
        except (NoNodeError, NotEmptyError):
            return  # another vacuum is at it

    def _children(self, path: str) -> list[str]:
        try:
            return self._store.children(path)
        except NoNodeError:
            return []


def committed_ledgers(reader: LogReader, name: str, uid: str, version: int) -> list[int]:
    """Every ledger that a version lists or opens: what its job must keep. Raises ConfigError where its record is gone."""
    [(commit, pages)] = reader.commits(name, uid, version, version)
    listed = [one.ledger_id for page in pages for one in page.ledgers]
    return listed if commit.opened is None else [*listed, commit.opened]


def _transactions(records: Sequence[LogVersion]) -> Iterator[list[LogVersion]]:
    """In order, each small enough for one transaction."""
    together: list[LogVersion] = []
    for record in records:
        if together and sum(one.pages for one in together) + record.pages > _PAGES_AT_ONCE:
            yield together
            together = []
        together.append(record)
    if together:
        yield together


def _deletions(paths: LogPaths, record: LogVersion) -> list[StoreChange]:
    job = paths.job(record.job_id)
    pages = [Delete(job.page(index)) for index in range(record.pages)]
    return [*pages, Delete(job.pages), Delete(job.root), Delete(paths.version(record.version))]
