"""The commit: any number of ledgers enter or leave a log in one transaction whose size does not depend on either.

The pages come first, under the job. Then one transaction: the head at its version, the new version, the schema if it is
new, the application's last version, the job's directory (as which version it committed), and the job's ``running``.

Each try begins by reading everything anew, so one rule answers every refusal and every lost reply. After a sync,

- the job's directory says that it committed: done. The directory changes in the transaction alone, so this is the same
  as finding the job's token in ``versions/<n>``, wherever ``n`` ended up;
- ``running`` is gone and the job is not committed: somebody aborted it, nothing of it can be listed any more;
- the head moved: somebody else's commit came first. Rebase on it, checking schema, application and removals again;
- nothing changed: the same transaction again. Should the first one still be on its way, the head's version and
  ``running`` let one of the two through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from bk_spark.client.log_jobs import WriteJob, WriteJobs, decode_state
from bk_spark.client.log_layout import ApplicationState, CommittedLedger, Head, JobState, LogVersion, pages_of
from bk_spark.client.log_ledgers import Claim, LogLedgers
from bk_spark.client.log_names import LogNames
from bk_spark.client.log_paths import BUCKET, LogPaths
from bk_spark.client.log_plan import CommitPlan, CommitRequest, plan_commit, plan_removal, plan_schema
from bk_spark.client.log_schema import parse_schema
from bk_spark.client.log_snapshot import LogReader
from bk_spark.errors import (
    JobEndedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLogError,
)
from bk_spark.metadata_store import (
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    Operation,
    SetValue,
    StoreError,
    TransactionFailedError,
    Versioned,
)

_CONFLICT_TRIES = 100
"""Each of them means that another commit to the same log succeeded."""
_UNAVAILABLE_TRIES = 3
"""A store that fails three times, each with its own time-out, is down."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitContext:
    """What commits work with: the same for all logs of one store."""

    store: MetadataStore
    names: LogNames
    jobs: WriteJobs
    ledgers: LogLedgers
    reader: LogReader
    clock_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class _Basis:
    """What one try was read from: the transaction refuses itself if any of it has changed."""

    uid: str
    paths: LogPaths
    head: Head
    head_version: int | None
    """None where the commit makes the log."""
    application: Versioned | None
    job: Versioned
    job_here: Versioned | None
    """The job's directory in a log that it adopts its ledgers to."""


def commit(context: CommitContext, job: WriteJob, request: CommitRequest) -> LogVersion:
    """See LogStore.commit."""
    return _Commit(context, job, request).run()


class _Commit:
    """One call of commit: its tries, and whether one of them may have taken effect unseen."""

    def __init__(self, context: CommitContext, job: WriteJob, request: CommitRequest) -> None:
        self._context = context
        self._store = context.store
        self._job = job
        self._request = request
        self._schema = None if request.schema_json is None else parse_schema(job.log_name, request.schema_json)
        self._pages = pages_of(request.ledgers, request.remove)
        self._prepared_for: str | None = None
        self._reply_lost = False

    def run(self) -> LogVersion:
        unavailable = 0
        refusal: Exception | None = None
        for _ in range(_CONFLICT_TRIES):
            try:
                return self._try()
            except (TransactionFailedError, StoreError) as refused:
                refusal = refused
            except MetadataUnavailableError as failure:
                unavailable += 1
                if unavailable == _UNAVAILABLE_TRIES:
                    raise self._given_up(failure) from failure
        problem = f"{_CONFLICT_TRIES} tries to commit each met another change, nothing was committed: try again later"
        raise MetadataConflictError(f"log '{self._job.log_name}'", problem) from refusal

    def _given_up(self, problem: MetadataUnavailableError) -> MetadataUnavailableError:
        if not self._reply_lost:
            return problem
        text = (
            f"{problem.problem}; whether the commit of write job {self._job.job_id} to log '{self._job.log_name}' took effect"
        )
        return MetadataUnavailableError(problem.uri, text + " is unknown, 'bk-spark log show' tells once the store is back")

    def _try(self) -> LogVersion:
        state = self._context.jobs.state(self._job)
        if state is None:
            self._context.jobs.ensure(self._job)
        elif state.version is not None and state.log_uid is not None:
            return self._context.reader.version(self._job.log_name, state.log_uid, state.version)
        basis = self._read()
        duplicate = self._duplicate(basis)
        if duplicate is not None:
            return self._drop(basis, duplicate)
        plan = self._plan(basis)
        if basis.uid != self._prepared_for:
            self._prepare(basis)
            basis = replace(basis, job_here=self._job_here(basis))
        self._send(self._operations(basis, plan))
        return plan.version

    def _send(self, operations: list[Operation]) -> None:
        try:
            self._store.transaction(operations)
        except MetadataUnavailableError:
            self._reply_lost = True
            raise

    def _read(self) -> _Basis:
        uid = self._context.names.find(self._job.log_name)
        target = self._target(uid)
        paths = self._context.names.paths(target)
        own = self._context.jobs.paths(self._job)
        wanted = [paths.head, own.root, own.running, paths.job(self._job.job_id).root]
        if self._request.application is not None:
            wanted.append(paths.application(self._request.application[0]))
        head, directory, running, here, *application = self._store.get_many(wanted)
        if directory is None or running is None:
            raise self._ended(directory)
        return _Basis(
            target,
            paths,
            self._head(uid, head),
            None if head is None else head.version,
            application[0] if application else None,
            directory,
            here if target != self._job.uid else None,
        )

    def _target(self, uid: str | None) -> str:
        """The log to commit to. A job that found no log adopts its ledgers to one that was made meanwhile."""
        if uid == self._job.uid or (uid is not None and self._job.is_new_log):
            return uid
        if uid is None and self._job.is_new_log:
            return self._job.uid
        raise NoSuchLogError(self._job.log_name)

    def _head(self, uid: str | None, stored: Versioned | None) -> Head:
        if stored is None:
            if uid is None:
                return Head(self._job.log_name)
            raise NoSuchLogError(self._job.log_name)
        head = Head.decode(f"the head of log '{self._job.log_name}'", stored.value)
        if head.deleting:
            raise NoSuchLogError(self._job.log_name)
        return head

    def _ended(self, directory: Versioned | None) -> Exception:
        """``running`` is gone: by an abort; or by this commit's own transaction, which the next try will see."""
        state = decode_state(self._job.job_id, directory)
        if state is not None and state.version is not None:
            return StoreError(self._context.jobs.paths(self._job).running)
        return JobEndedError(self._job.log_name, self._job.job_id)

    def _duplicate(self, basis: _Basis) -> ApplicationState | None:
        if self._request.application is None or basis.application is None:
            return None
        what = f"the state of application {self._request.application[0]!r} in log '{self._job.log_name}'"
        last = ApplicationState.decode(what, basis.application.value)
        return last if self._request.application[1] <= last.application_version else None

    def _drop(self, basis: _Basis, last: ApplicationState) -> LogVersion:
        version = self._context.reader.version(self._job.log_name, basis.uid, last.version)
        if not self._context.jobs.abort(self._job):
            raise StoreError(self._context.jobs.paths(self._job).running)
        _LOGGER.warning(
            "log '%s': version %s of application '%s' was dropped as a duplicate, version %d of the log holds version %d of it",
            self._job.log_name,
            self._request.application[1] if self._request.application else None,
            last.application_id,
            last.version,
            last.application_version,
        )
        return version.as_duplicate()

    def _plan(self, basis: _Basis) -> CommitPlan:
        head, reader, uid = basis.head, self._context.reader, basis.uid
        stored = None if head.schema_id is None else reader.schema(head.name, uid, head.schema_id)
        schema_plan = plan_schema(head, self._request, self._schema, stored)
        listed: tuple[CommittedLedger, ...] = ()
        if self._request.remove and head.version:
            listed = reader.ledgers(head.name, uid, reader.version(head.name, uid, head.version))
        removed = plan_removal(head, self._request, listed)
        return plan_commit(head, self._request, schema_plan, removed, self._job.job_id, self._context.clock_ms())

    def _prepare(self, basis: _Basis) -> None:
        """All that may be written before the commit: nobody reads it until a version points to it."""
        names = self._context.names
        if basis.head_version is None:
            names.check_free(self._job.log_name)
            names.prepare(basis.uid)
        pages = basis.paths.job(self._job.job_id)
        if basis.uid != self._job.uid:
            self._make_directory_here(basis)
        claim = Claim(self._job.log_name, basis.uid, basis.paths, self._job.job_id)
        self._context.ledgers.claim(claim, self._request.ledgers)
        for index, page in enumerate(self._pages):
            self._write_page(pages.page(index), page.encode())
        if self._request.application is not None and basis.application is None:
            self._make(basis.paths.application_bucket(self._request.application[0]))
        self._prepared_for = basis.uid

    def _make_directory_here(self, basis: _Basis) -> None:
        self._make(basis.paths.job_bucket(self._job.job_id))
        root = basis.paths.job(self._job.job_id)
        self._make(root.root, JobState(home=self._job.uid).encode())
        self._make(root.pages)

    def _make(self, path: str, value: bytes = b"") -> None:
        """Create unless it is there. Its parent goes with the log: then the next try says so."""
        try:
            self._store.create(path, value)
        except NodeExistsError:
            return

    def _write_page(self, path: str, value: bytes) -> None:
        try:
            self._store.create(path, value)
        except NodeExistsError:
            if self._store.get(path).value != value:
                what = f"write job {self._job.job_id} on log '{self._job.log_name}'"
                raise MetadataConflictError(what, "another commit of the same job listed other ledgers") from None

    def _job_here(self, basis: _Basis) -> Versioned | None:
        if basis.uid == self._job.uid:
            return None
        return self._store.get(basis.paths.job(self._job.job_id).root)

    def _operations(self, basis: _Basis, plan: CommitPlan) -> list[Operation]:
        paths, number = basis.paths, plan.version.version
        operations: list[Operation] = []
        if basis.head_version is None:
            operations += self._context.names.creation(self._job.log_name, basis.uid, plan.head)
        else:
            operations.append(SetValue(paths.head, plan.head.encode(), basis.head_version))
        if number % BUCKET == 0:
            operations.append(Create(paths.version_bucket(number)))
        operations.append(Create(paths.version(number), plan.version.encode()))
        if plan.new_schema is not None and plan.head.schema_id is not None:
            operations.append(Create(paths.schema(plan.head.schema_id), plan.new_schema))
        return operations + self._application(basis, number) + self._end_of_job(basis, number)

    def _application(self, basis: _Basis, number: int) -> list[Operation]:
        if self._request.application is None:
            return []
        path = basis.paths.application(self._request.application[0])
        value = ApplicationState(*self._request.application, number).encode()
        return [Create(path, value) if basis.application is None else SetValue(path, value, basis.application.version)]

    def _end_of_job(self, basis: _Basis, number: int) -> list[Operation]:
        own = self._context.jobs.paths(self._job)
        operations: list[Operation] = [
            SetValue(own.root, JobState(None, basis.uid, number).encode(), basis.job.version),
            Delete(own.running),
        ]
        if basis.job_here is not None:
            here = basis.paths.job(self._job.job_id).root
            value = JobState(self._job.uid, basis.uid, number).encode()
            operations.append(SetValue(here, value, basis.job_here.version))
        return operations
