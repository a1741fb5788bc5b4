"""Deletes the records of old versions: the last step of a vacuum.

The record of a version, its pages, and the directory of the job that committed it are small. They stay useful long after
the version cannot be read any more, but their number must be bounded. First the head says that they go (``oldest_record``).
Then all that belongs to one version is deleted together, so that a later run finds what an interrupted one left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from bk_spark.log.changes.jobs import WriteJob, decode_state
from bk_spark.log.cleanup.store_clock import StoreTimes
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.paths import BUCKET, LogPaths
from bk_spark.log.stored.snapshot import LogReader
from bk_spark.log.stored.tree import children_of, chunks, grandchildren_of, number_of, remove_tree
from bk_spark.log.stored.values import Head, LogVersion
from bk_spark.metadata.store import ANY_VERSION, Delete, NoNodeError, NotEmptyError, StoreChange, TransactionFailedError
from bk_spark.progress import Progress

JOB_MEMORY_S = 7 * 24 * 3600
"""Records younger than this stay, however many there are: a driver that was suspended for days in the middle of its commit
still finds that the commit took effect, and does not commit again."""

_RECORDS_AT_ONCE = 100
"""Records deleted in one transaction: four deletions of about 150 bytes each as a rule."""
_PAGES_AT_ONCE = 1000
"""Pages that several records in one transaction may have: 150 KB. A commit of 100,000 ledgers has 20 pages."""


class LogRecords:
    """Old records of the logs of one cluster."""

    def __init__(self, logs: LogStore, records_kept: int) -> None:
        self._logs = logs
        self._store = logs.store
        self._times = StoreTimes(logs.store, logs.znodes)
        self._records_kept = records_kept

    def oldest_to_keep(self, uid: str, head: Head, now_ms: int) -> int:
        """The first version whose record stays."""
        first, last = max(head.oldest_record, 1), head.vacuumed_version - self._records_kept - 1
        if last < first:
            return head.oldest_record
        return self._times.last_before(self._logs.names.paths(uid), first, last, now_ms - JOB_MEMORY_S * 1000) + 1

    def delete_checkpoints(self, uid: str, head: Head) -> None:
        """Delete the checkpoints below ``vacuumed_version``: no reader and no vacuum needs those versions any more."""
        checkpoints = self._logs.names.paths(uid).checkpoints
        for path in grandchildren_of(self._store, checkpoints):
            if number_of(path) < head.vacuumed_version:
                remove_tree(self._store, path)

    def delete_below(self, name: str, uid: str, head: Head, progress: Progress) -> int:
        """Delete the records below ``oldest_record``; returns how many."""
        paths, deleted = self._logs.names.paths(uid), 0
        for bucket in sorted(int(one) for one in children_of(self._store, paths.versions)):
            if bucket * BUCKET >= head.oldest_record:
                break
            present = sorted(int(one) for one in children_of(self._store, paths.version_bucket(bucket * BUCKET)))
            for some in chunks([one for one in present if one < head.oldest_record], _RECORDS_AT_ONCE):
                self._delete(name, uid, some)
                deleted += len(some)
                progress("records deleted", deleted, head.oldest_record)
            if (bucket + 1) * BUCKET <= head.oldest_record:
                with suppress(NoNodeError, NotEmptyError):  # another vacuum is at it
                    self._store.delete(paths.version_bucket(bucket * BUCKET), ANY_VERSION)
        return deleted

    def _delete(self, name: str, uid: str, versions: Sequence[int]) -> None:
        paths = self._logs.names.paths(uid)
        stored = self._store.get_many([paths.version(one) for one in versions])
        records = [
            LogVersion.decode(f"version {version} of log '{name}'", value.value)
            for version, value in zip(versions, stored, strict=True)
            if value is not None
        ]
        self._finish_jobs(name, uid, records)
        for some in _transactions(records):
            try:
                self._store.transaction([change for record in some for change in _deletions(paths, record)])
            except TransactionFailedError:
                for record in some:
                    remove_tree(self._store, paths.job(record.job_id).root)
                    remove_tree(self._store, paths.version(record.version))

    def _finish_jobs(self, name: str, uid: str, records: Sequence[LogVersion]) -> None:
        """Delete what jobs left besides their pages: ledgers of losing attempts, and a directory in another log."""
        paths = self._logs.names.paths(uid)
        states = self._store.get_many([paths.job(record.job_id).root for record in records])
        for record, stored in zip(records, states, strict=True):
            state = decode_state(record.job_id, stored)
            if stored is None or state is None or (state.home is None and stored.children <= 1):
                continue
            job = WriteJob(name, state.home or uid, record.job_id, is_new_log=False)
            root = self._logs.jobs.paths(job).root
            if self._store.get_many([root]) != [None]:
                self._logs.jobs.finish(job, committed_ledgers(self._logs.reader, name, uid, record.version))
            if state.home is not None:
                remove_tree(self._store, root)


def committed_ledgers(reader: LogReader, name: str, uid: str, version: int) -> list[int]:
    """Every ledger that a version lists or opens: what its job must keep. Raises ConfigError if its record is gone."""
    [(commit, pages)] = reader.commits(name, uid, version, version)
    listed = [ledger.ledger_id for page in pages for ledger in page.ledgers]
    return listed if commit.opened is None else [*listed, commit.opened]


def _transactions(records: Sequence[LogVersion]) -> Iterator[list[LogVersion]]:
    """The records in order, cut so that the deletions of each part fit into one transaction."""
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
    pages = [job.page(index) for index in range(record.pages)]
    return [Delete(path, ANY_VERSION) for path in (*pages, job.pages, job.root, paths.version(record.version))]
