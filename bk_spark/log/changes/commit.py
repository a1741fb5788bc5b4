"""The commit: one transaction adds ledgers to a log, or removes some. Its size does not depend on how many there are.

First the commit writes its pages, under the job. Then it recovers open ledgers. Then it sends the transaction (transaction.py).

Each try reads everything anew, so one rule covers every refusal and every lost reply. After a sync, a try finds one of these:

- The job's directory says that the job committed: done. Only the commit's transaction sets that, so it proves as much as
  the job's token in ``versions/<n>``, wherever ``n`` ended up.
- ``running`` is gone and the job has not committed: somebody aborted the job, and none of its ledgers can be listed any more.
- The job's directory is gone although this commit has begun: the job ended days ago, and its pages and ledgers may be gone
  with it. It must not begin anew.
- The head has changed: another commit came first. Rebase on it, and check schema, application and removals again.
- Nothing has changed: send the same transaction again. If the first one is still on its way, the head's version and
  ``running`` let only one of the two through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from bk_spark.errors import (
    BookKeeperError,
    JobEndedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NoSuchLogError,
)
from bk_spark.log.changes.jobs import WriteJob, WriteJobs, decode_state
from bk_spark.log.changes.ledgers import Claim, LogLedgers
from bk_spark.log.changes.open_ledgers import OpenLedgerEnds
from bk_spark.log.changes.plan import REMOVING, CommitPlan, CommitRequest, Findings, SchemaPlan, plan_commit, plan_schema
from bk_spark.log.changes.transaction import Basis, commit_operations
from bk_spark.log.stored.checkpoint import ListingCheckpoints
from bk_spark.log.stored.listing import Listing
from bk_spark.log.stored.names import LogNames, decode_head
from bk_spark.log.stored.paths import CHECKPOINT_INTERVAL
from bk_spark.log.stored.schema import parse_schema
from bk_spark.log.stored.snapshot import LogReader
from bk_spark.log.stored.values import ApplicationState, CommitKind, Head, JobState, LogVersion, pages_of
from bk_spark.metadata.ledger_metadata import LedgerMetadata
from bk_spark.metadata.store import (
    MetadataStore,
    NodeExistsError,
    StoreError,
    TransactionFailedError,
    Versioned,
)

_CONFLICT_TRIES = 100
"""Each further try means that another commit to the same log succeeded."""
_UNAVAILABLE_TRIES = 3
"""A store that fails three times, each with its own time-out, is down."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitContext:
    """What commits work with: the same for all logs of one store."""

    store: MetadataStore
    names: LogNames
    jobs: WriteJobs
    ledgers: LogLedgers
    reader: LogReader
    checkpoints: ListingCheckpoints
    clock_ms: Callable[[], int]
    recover_ledger: Callable[[int], LedgerMetadata]
    """Fences an open ledger, and returns its metadata once it is CLOSED."""


def commit(context: CommitContext, job: WriteJob, request: CommitRequest) -> LogVersion:
    """See LogStore.commit."""
    return _Commit(context, job, request).run()


class _Commit:
    """One call of commit: its tries, and whether one of them may have taken effect without a reply."""

    def __init__(self, context: CommitContext, job: WriteJob, request: CommitRequest) -> None:
        self._context = context
        self._store = context.store
        self._names = context.names
        self._jobs = context.jobs
        self._reader = context.reader
        self._job = job
        self._log_name = job.log_name
        self._request = request
        self._schema = None if request.schema_json is None else parse_schema(job.log_name, request.schema_json)
        self._pages = pages_of(request.ledgers, request.remove)
        self._ends = OpenLedgerEnds(context.ledgers, context.recover_ledger, context.reader.end_of, request)
        self._prepared_for: str | None = None
        """The uid of the log for which pages are written and ledgers are claimed."""
        self._known_listings: dict[str, tuple[int, Listing]] = {}
        """By uid: the version and listing that an earlier try read. The next try reads only the versions since then."""
        self._reply_lost = False

    def run(self) -> LogVersion:
        try:
            return self._run()
        except (JobEndedError, NoSuchLedgerError):
            self._check_not_deleted()  # a deletion ends the jobs of a log, and deletes their ledgers
            raise

    def _run(self) -> LogVersion:
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
        raise MetadataConflictError(f"log '{self._log_name}'", problem) from refusal

    def _given_up(self, problem: MetadataUnavailableError) -> MetadataUnavailableError:
        if not self._reply_lost:
            return problem
        text = f"{problem.problem}; whether the commit of write job {self._job.job_id} to log '{self._log_name}' took effect"
        return MetadataUnavailableError(
            problem.uri, text + " is unknown, 'bk-spark log show NAME' tells once the store is back"
        )

    def _try(self) -> LogVersion:
        state = self._jobs.state(self._job)
        if state is not None and state.version is not None and state.log_uid is not None:
            return self._committed(state.log_uid, self._reader.version(self._log_name, state.log_uid, state.version))
        if state is None and self._prepared_for is None:
            self._jobs.ensure(self._job)
        basis = self._read()
        if self._is_duplicate(basis):
            return self._drop(basis)
        self._ends.check_leader(basis.head)
        schema = self._schema_plan(basis)
        if basis.uid != self._prepared_for:
            basis = self._prepared(basis)
        plan = self._plan(basis, schema)
        if plan.version.kind is CommitKind.TRUNCATE and not plan.version.removed.ledgers:
            return self._ended_without_commit(basis, basis.head.version)
        try:
            self._store.transaction(commit_operations(self._names, self._job, self._request, basis, plan))
        except MetadataUnavailableError:
            self._reply_lost = True
            raise
        return self._committed(basis.uid, plan.version)

    def _read(self) -> Basis:
        uid = self._names.find(self._log_name)
        target = self._target(uid)
        paths = self._names.paths(target)
        own = self._jobs.paths(self._job)
        wanted = [paths.head, own.running, own.root, paths.job(self._job.job_id).root]  # in this order: see jobs.py
        application_id = None if self._request.application is None else self._request.application[0]
        if application_id is not None:
            wanted.append(paths.application(application_id))
        head, running, directory, here, application = [*self._store.get_many(wanted), None][:5]
        if directory is None or running is None:
            raise self._ended(directory)
        if head is None and uid is not None:
            raise NoSuchLogError(self._log_name)
        what = f"the state of application {application_id!r} in log '{self._log_name}'"
        return Basis(
            target,
            paths,
            Head(self._log_name) if head is None else decode_head(self._log_name, head),
            None if head is None else head.version,
            None if application is None else ApplicationState.decode(what, application.value),
            None if application is None else application.version,
            directory,
            here if target != self._job.uid else None,
        )

    def _target(self, uid: str | None) -> str:
        """The uid of the log to commit to, if the name points to ``uid`` now.

        A job that found no log when it began commits to the one that somebody created meanwhile.
        """
        if uid == self._job.uid or (uid is not None and self._job.is_new_log):
            return uid
        if uid is None and self._job.is_new_log:
            return self._job.uid
        raise NoSuchLogError(self._log_name)

    def _check_not_deleted(self) -> None:
        """Raises NoSuchLogError."""
        uid = self._names.find(self._log_name)
        target = self._target(uid)
        if uid is not None:
            self._names.head(self._log_name, target)

    def _ended(self, directory: Versioned | None) -> Exception:
        """``running`` is gone because of an abort, or of this commit's own transaction, which the next try will find."""
        state = decode_state(self._job.job_id, directory)
        if state is not None and state.version is not None:
            return StoreError(self._jobs.paths(self._job).running)
        if state is None and self._reply_lost:
            problem = "it ended days ago, whether by its commit is not known any more: look with 'bk-spark log show NAME'"
            return MetadataConflictError(f"write job {self._job.job_id} on log '{self._log_name}'", problem)
        return JobEndedError(self._log_name, self._job.job_id)

    # Commits that change nothing

    def _is_duplicate(self, basis: Basis) -> bool:
        given, last = self._request.application, basis.application
        return given is not None and last is not None and given[1] <= last.application_version

    def _drop(self, basis: Basis) -> LogVersion:
        last, given = basis.application, self._request.application
        assert last is not None, "only what the head knows is dropped"
        assert given is not None, "only a commit that carries an application is dropped"
        record = last.version if last.version >= basis.head.oldest_record else basis.head.version
        version = self._ended_without_commit(basis, record)
        self._count_drop(basis, last)
        logger.warning(
            "log '%s': version %s of application '%s' was dropped as a duplicate, version %d of the log holds version %d of it",
            self._log_name,
            given[1],
            last.application_id,
            last.version,
            last.application_version,
        )
        return replace(version, duplicate_of=last.version)

    def _count_drop(self, basis: Basis, last: ApplicationState) -> None:
        """On a best effort: if another commit or drop of the application comes between, this one is not counted."""
        assert basis.application_version is not None
        counted = replace(last, dropped=last.dropped + 1).encode()
        try:
            self._store.set(basis.paths.application(last.application_id), counted, basis.application_version)
        except (StoreError, MetadataUnavailableError) as problem:
            logger.info("log '%s': a dropped duplicate was not counted: %r", self._log_name, problem)

    def _ended_without_commit(self, basis: Basis, result: int) -> LogVersion:
        """Abort the job; the result is version ``result``. If its commit took effect unseen, the next try finds it."""
        version = self._reader.version(self._log_name, basis.uid, result)
        if not self._jobs.abort(self._job):
            raise StoreError(self._jobs.paths(self._job).running)
        return version

    def _schema_plan(self, basis: Basis) -> SchemaPlan:
        head = basis.head
        stored = None if head.schema_id is None else self._reader.schema(head.name, basis.uid, head.schema_id)
        return plan_schema(head, self._request, self._schema, stored)

    def _plan(self, basis: Basis, schema: SchemaPlan) -> CommitPlan:
        closed = self._ends.find(basis.head)
        listed = self._listing(basis).closed if self._request.kind in REMOVING else ()
        findings = Findings(schema, closed, listed)
        return plan_commit(basis.head, self._request, findings, self._job.job_id, self._context.clock_ms())

    def _listing(self, basis: Basis) -> Listing:
        name, version, reader = basis.head.name, basis.head.version, self._reader
        known = self._known_listings.get(basis.uid)
        listing = reader.advanced(name, basis.uid, known, version) if known else reader.listing(name, basis.uid, version)
        self._known_listings[basis.uid] = (version, listing)
        return listing

    def _committed(self, uid: str, version: LogVersion) -> LogVersion:
        """Writes a checkpoint if one is due. The commit has taken effect, so a failure of that is only logged."""
        name, number = self._log_name, version.version
        if number % CHECKPOINT_INTERVAL == 0:
            try:
                self._context.checkpoints.write(name, uid, number, self._reader.listing(name, uid, number))
            except (BookKeeperError, StoreError) as problem:
                what = "log '%s': the checkpoint of version %d was not written, readers fold more versions: %s"
                logger.warning(what, name, number, problem)
        return version

    def _prepared(self, basis: Basis) -> Basis:
        """Write the pages, which nobody reads before the commit, and claim the ledgers. Adds ``job_here`` to the basis."""
        if basis.head_version is None:
            self._names.check_free(self._log_name)
            self._names.prepare(basis.uid)
        pages = basis.paths.job(self._job.job_id)
        if basis.uid != self._job.uid:
            self._make(basis.paths.job_bucket(self._job.job_id))
            self._make(pages.root, JobState(home=self._job.uid).encode())
            self._make(pages.pages)
        claim = Claim(self._log_name, basis.uid, basis.paths, self._job.job_id)
        self._context.ledgers.claim(claim, self._request.ledgers)
        if self._request.opened is not None:
            self._context.ledgers.check_own(claim, self._request.opened)
        for index, page in enumerate(self._pages):
            self._write_page(pages.page(index), page.encode())
        if self._request.application is not None and basis.application is None:
            self._make(basis.paths.application_bucket(self._request.application[0]))
        self._prepared_for = basis.uid
        return replace(basis, job_here=None if basis.uid == self._job.uid else self._store.get(pages.root))

    def _make(self, path: str, value: bytes = b"") -> None:
        """Create ``path`` unless it exists. A missing parent means that the log was deleted: the next try reports that."""
        with suppress(NodeExistsError):
            self._store.create(path, value)

    def _write_page(self, path: str, value: bytes) -> None:
        try:
            self._store.create(path, value)
        except NodeExistsError:
            if self._store.get(path).value != value:
                what = f"write job {self._job.job_id} on log '{self._log_name}'"
                raise MetadataConflictError(what, "another commit of the same job listed other ledgers") from None
