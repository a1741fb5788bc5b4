"""Long logs at once: the records that thousands of commits leave, without the commits."""

from __future__ import annotations

from collections.abc import Iterator

from bk_spark.log.changes.plan import CommitRequest, Findings, SchemaPlan, plan_commit
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.paths import CHECKPOINT_INTERVAL, LogPaths
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Content, Head, LogVersion, Page
from bk_spark.metadata.store import Create, MetadataStore, StoreChange

_OPERATIONS_AT_ONCE = 1000


def grow(store: MetadataStore, logs: LogStore, paths: LogPaths, name: str, count: int) -> None:
    """Append ``count`` ledgers of ten entries to a log, each by a version of its own, and write the checkpoints.

    The ledgers themselves do not exist: their ids are far above those of others.
    """
    uid = logs.names.uid(name)
    first = logs.names.head(name, uid)
    after, made = _appended(first, count)
    for bucket in {paths.version_bucket(one.version) for one in made} | {paths.job_bucket(one.job_id) for one in made}:
        store.ensure_path(bucket)
    changes = [change for version in made for change in _records(paths, version)]
    for start in range(0, len(changes), _OPERATIONS_AT_ONCE):
        store.transaction(changes[start : start + _OPERATIONS_AT_ONCE])
    logs.names.change_head(name, uid, lambda head: after)
    for version in made:
        if version.version % CHECKPOINT_INTERVAL == 0:
            logs.write_checkpoint(name, uid, version.version)


def _appended(head: Head, count: int) -> tuple[Head, list[LogVersion]]:
    schema, made = SchemaPlan(Content.ENTRIES, None), []
    for _ in range(count):
        request = CommitRequest(CommitKind.APPEND, (_ledger(head.version + 1),))
        plan = plan_commit(head, request, Findings(schema), f"{head.version + 1:032x}", 0)
        head = plan.head
        made.append(plan.version)
    return head, made


def _ledger(version: int) -> CommittedLedger:
    return CommittedLedger(1_000_000_000 + version, 9, 1000, 10)


def _records(paths: LogPaths, version: LogVersion) -> Iterator[StoreChange]:
    job = paths.job(version.job_id)
    yield Create(paths.version(version.version), version.encode())
    yield Create(job.root)
    yield Create(job.pages)
    yield Create(job.page(0), Page((_ledger(version.version),), ()).encode())
