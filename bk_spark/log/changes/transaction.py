"""The transaction of a commit: at most eight operations, whatever the number of ledgers and versions.

It sets the head at its version, creates the new version (and the schema, if that is new), sets the application's last
version, notes in the job's directory which version it committed, and deletes the job's ``running``. The store refuses all
of it if anything that the plan rests on has changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from bk_spark.log.changes.jobs import WriteJob
from bk_spark.log.changes.plan import CommitPlan, CommitRequest
from bk_spark.log.stored.names import LogNames
from bk_spark.log.stored.paths import BUCKET, LogPaths
from bk_spark.log.stored.values import ApplicationState, Head, JobState
from bk_spark.metadata.store import ANY_VERSION, Create, Delete, SetValue, StoreChange, Versioned


@dataclass(frozen=True, slots=True)
class Basis:
    """What one try of a commit has read, and rests on."""

    uid: str
    paths: LogPaths
    head: Head
    head_version: int | None
    """Version of the head's znode; None if the commit creates the log."""
    application: ApplicationState | None
    application_version: int | None
    """Version of the application's znode; None if there is none."""
    job: Versioned
    job_here: Versioned | None
    """The job's directory in the log that it commits to, if that is not the log in which it began."""


def commit_operations(
    names: LogNames, job: WriteJob, request: CommitRequest, basis: Basis, plan: CommitPlan
) -> list[StoreChange]:
    """The transaction that carries out ``plan``."""
    paths, number, readers = basis.paths, plan.version.version, basis.head.readers
    changes: list[StoreChange] = []
    if basis.head_version is None:
        changes += names.creation(job.log_name, basis.uid, plan.head)
    else:
        changes.append(SetValue(paths.head, plan.head.encode(), basis.head_version))
    if number % BUCKET == 0:
        changes.append(Create(paths.version_bucket(number)))
    changes.append(Create(paths.version(number), plan.version.encode(), readers))
    if plan.new_schema is not None and plan.head.schema_id is not None:
        changes.append(Create(paths.schema(plan.head.schema_id), plan.new_schema, readers))
    return changes + _application(request, basis, number) + _end_of_job(names, job, basis, number)


def _application(request: CommitRequest, basis: Basis, number: int) -> list[StoreChange]:
    if request.application is None:
        return []
    path = basis.paths.application(request.application[0])
    dropped = 0 if basis.application is None else basis.application.dropped
    value = ApplicationState(*request.application, number, dropped).encode()
    if basis.application_version is None:
        return [Create(path, value)]
    return [SetValue(path, value, basis.application_version)]


def _end_of_job(names: LogNames, job: WriteJob, basis: Basis, number: int) -> list[StoreChange]:
    own = names.paths(job.uid).job(job.job_id)
    changes: list[StoreChange] = [
        SetValue(own.root, JobState(None, basis.uid, number).encode(), basis.job.version),
        Delete(own.running, ANY_VERSION),
    ]
    if basis.job_here is not None:
        here = basis.paths.job(job.job_id).root
        changes.append(SetValue(here, JobState(job.uid, basis.uid, number).encode(), basis.job_here.version))
    return changes
