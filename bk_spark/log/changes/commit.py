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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

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
    StoreChange,
    StoreError,
    TransactionFailedError,
    Versioned,
    create_for,
)

_CONFLICT_TRIES = 100
"""Each further try means that another commit to the same log succeeded."""
_UNAVAILABLE_TRIES = 3
"""A store that fails three times, each with its own time-out, is down."""

_Result = TypeVar("_Result")

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
    part = LogPart(context, job, request)
    return until_done([part], part.try_alone)


def until_done(parts: Sequence[LogPart], one_try: Callable[[], _Result]) -> _Result:
    """Try until it is done, or cannot be: the tries of one commit, which has so many parts."""
    try:
        return _tried(parts, one_try)
    except (JobEndedError, NoSuchLedgerError):
        for part in parts:
            part.check_not_deleted()  # a deletion ends the jobs of a log, and deletes their ledgers
        raise


def _tried(parts: Sequence[LogPart], one_try: Callable[[], _Result]) -> _Result:
    unavailable = 0
    refusal: Exception | None = None
    for _ in range(_CONFLICT_TRIES):
        try:
            return one_try()
        except (TransactionFailedError, StoreError) as refused:
            refusal = refused
        except MetadataUnavailableError as failure:
            unavailable += 1
            if unavailable == _UNAVAILABLE_TRIES:
                raise parts[0].given_up(failure) from failure
    problem = f"{_CONFLICT_TRIES} tries to commit each met another change, nothing was committed: try again later"
    raise MetadataConflictError(f"log '{_refused(parts, refusal).log_name}'", problem) from refusal


def _refused(parts: Sequence[LogPart], refusal: Exception | None) -> LogPart:
    """The log that changed."""
    reason = refusal.reason if isinstance(refusal, TransactionFailedError) else refusal
    path = reason.path if isinstance(reason, StoreError) else ""
    return next((part for part in parts if f"/{part.uid}/" in path), parts[0])


def send(store: MetadataStore, changes: Sequence[StoreChange], parts: Sequence[LogPart]) -> None:
    """The transaction, after which the next try must look whether it took effect."""
    try:
        store.transaction(changes)
    except MetadataUnavailableError:
        for part in parts:
            part.reply_lost = True
        raise


@dataclass(frozen=True, slots=True)
class Ready:
    """What one try is to do in one log, and what that rests on."""

    basis: Basis
    plan: CommitPlan

    @property
    def changes_nothing(self) -> bool:
        """A truncation before the first ledger."""
        return self.plan.version.kind is CommitKind.TRUNCATE and not self.plan.version.removed.ledgers


class LogPart:
    """What one call of commit does in one log: what is known from earlier tries, and prepared there."""

    def __init__(self, context: CommitContext, job: WriteJob, request: CommitRequest) -> None:
        self._context = context
        self._store = context.store
        self._names = context.names
        self._jobs = context.jobs
        self._reader = context.reader
        self._job = job
        self.log_name: Final = job.log_name
        self.uid: Final = job.uid
        self._request = request
        self._schema = None if request.schema_json is None else parse_schema(job.log_name, request.schema_json)
        self._pages = pages_of(request.ledgers, request.remove, request.entries)
        self._ends = OpenLedgerEnds(context.ledgers, context.recover_ledger, context.reader.end_of, request)
        self._prepared_for: tuple[str, tuple[str, ...]] | None = None
        """The uid of the log for which pages are written and ledgers are claimed, and its direct readers."""
        self._without_key: int | None = None
        """A ledger of the commit that is not keyed."""
        self._known_listings: dict[str, tuple[int, Listing]] = {}
        """By uid: the version and listing that an earlier try read. The next try reads only the versions since then."""
        self.reply_lost = False
        """Whether an earlier try may have taken effect."""

    def given_up(self, problem: MetadataUnavailableError) -> MetadataUnavailableError:
        """The error after the last try."""
        if not self.reply_lost:
            return problem
        text = f"{problem.problem}; whether the commit of write job {self._job.job_id} to log '{self.log_name}' took effect"
        return MetadataUnavailableError(
            problem.uri, text + " is unknown, 'bk-spark log show NAME' tells once the store is back"
        )

    def try_alone(self) -> LogVersion:
        """One try of a commit of this log alone."""
        done = self.done()
        if done is not None:
            return done
        basis = self.read()
        if self._is_duplicate(basis):
            return self._drop(basis)
        ready = self.ready(basis, self.schema_plan(basis), self._context.clock_ms())
        if ready.changes_nothing:
            return self.ended_without_commit(basis, basis.head.version)
        send(self._store, self.operations(ready), [self])
        return self.committed(ready.basis.uid, ready.plan.version)

    def done(self) -> LogVersion | None:
        """The version that an earlier try made. Sees everything that took effect before this call."""
        state = self._jobs.state(self._job)
        if state is not None and state.version is not None and state.log_uid is not None:
            return self.committed(state.log_uid, self._reader.version(self.log_name, state.log_uid, state.version))
        if state is None and self._prepared_for is None:
            self._jobs.ensure(self._job)
        return None

    def ready(self, basis: Basis, schema: SchemaPlan, now_ms: int) -> Ready:
        """Plan the commit on ``basis``, with all that must be there before its transaction."""
        if (basis.uid, basis.head.readers) != self._prepared_for:
            basis = self._prepared(basis)
        if basis.head.is_secured and self._without_key is not None:
            self._context.ledgers.refuse_without_key(self.log_name, basis.uid, basis.paths, self._without_key)
        return Ready(basis, self._plan(basis, schema, now_ms))

    def operations(self, ready: Ready) -> list[StoreChange]:
        """The part of the transaction."""
        return commit_operations(self._names, self._job, self._request, ready.basis, ready.plan)

    def read(self) -> Basis:
        """What is to be changed, as it stands now. Raises JobEndedError, NoSuchLogError."""
        uid = self._names.find(self.log_name)
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
            raise NoSuchLogError(self.log_name)
        what = f"the state of application {application_id!r} in log '{self.log_name}'"
        return Basis(
            target,
            paths,
            Head(self.log_name) if head is None else decode_head(self.log_name, head),
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
        raise NoSuchLogError(self.log_name)

    def check_not_deleted(self) -> None:
        """Raises NoSuchLogError."""
        uid = self._names.find(self.log_name)
        target = self._target(uid)
        if uid is not None:
            self._names.head(self.log_name, target)

    def _ended(self, directory: Versioned | None) -> Exception:
        """``running`` is gone because of an abort, or of this commit's own transaction, which the next try will find."""
        state = decode_state(self._job.job_id, directory)
        if state is not None and state.version is not None:
            return StoreError(self._jobs.paths(self._job).running)
        if state is None and self.reply_lost:
            problem = "it ended days ago, whether by its commit is not known any more: look with 'bk-spark log show NAME'"
            return MetadataConflictError(f"write job {self._job.job_id} on log '{self.log_name}'", problem)
        return JobEndedError(self.log_name, self._job.job_id)

    # Commits that change nothing

    def _is_duplicate(self, basis: Basis) -> bool:
        given, last = self._request.application, basis.application
        return given is not None and last is not None and given[1] <= last.application_version

    def _drop(self, basis: Basis) -> LogVersion:
        last, given = basis.application, self._request.application
        assert last is not None, "only what the head knows is dropped"
        assert given is not None, "only a commit that carries an application is dropped"
        record = last.version if last.version >= basis.head.oldest_record else basis.head.version
        version = self.ended_without_commit(basis, record)
        self._count_drop(basis, last)
        logger.warning(
            "log '%s': version %s of application '%s' was dropped as a duplicate, version %d of the log holds version %d of it",
            self.log_name,
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
            logger.info("log '%s': a dropped duplicate was not counted: %r", self.log_name, problem)

    def ended_without_commit(self, basis: Basis, result: int) -> LogVersion:
        """Abort the job; the result is version ``result``. If its commit took effect unseen, the next try finds it."""
        version = self._reader.version(self.log_name, basis.uid, result)
        if not self._jobs.abort(self._job):
            raise StoreError(self._jobs.paths(self._job).running)
        return version

    def schema_plan(self, basis: Basis) -> SchemaPlan:
        """Raises LedgerFencedError for a leader that was displaced; otherwise as ``plan_schema``."""
        head = basis.head
        self._ends.check_leader(head)
        stored = None if head.schema_id is None else self._reader.schema(head.name, basis.uid, head.schema_id)
        return plan_schema(head, self._request, self._schema, stored)

    def _plan(self, basis: Basis, schema: SchemaPlan, now_ms: int) -> CommitPlan:
        closed = self._ends.find(basis.head)
        listed = self._listing(basis).closed if self._request.kind in REMOVING else ()
        return plan_commit(basis.head, self._request, Findings(schema, closed, listed), self._job.job_id, now_ms)

    def _listing(self, basis: Basis) -> Listing:
        name, version, reader = basis.head.name, basis.head.version, self._reader
        known = self._known_listings.get(basis.uid)
        listing = reader.advanced(name, basis.uid, known, version) if known else reader.listing(name, basis.uid, version)
        self._known_listings[basis.uid] = (version, listing)
        return listing

    def committed(self, uid: str, version: LogVersion) -> LogVersion:
        """Writes a checkpoint if one is due. The commit has taken effect, so a failure of that is only logged."""
        name, number, checkpoints = self.log_name, version.version, self._context.checkpoints
        if number % CHECKPOINT_INTERVAL == 0:
            try:
                if checkpoints.is_due(name, uid, version):
                    checkpoints.write(name, uid, number, self._reader.listing(name, uid, number))
            except (BookKeeperError, StoreError) as problem:
                what = "log '%s': the checkpoint of version %d was not written, readers fold more versions: %s"
                logger.warning(what, name, number, problem)
        return version

    def _prepared(self, basis: Basis) -> Basis:
        """Write the pages, which nobody reads before the commit, and claim the ledgers. Adds ``job_here`` to the basis."""
        if basis.head_version is None:
            self._names.check_free(self.log_name)
            self._names.prepare(basis.uid)
        pages = basis.paths.job(self._job.job_id)
        if basis.uid != self._job.uid:
            self._make(basis.paths.job_bucket(self._job.job_id))
            self._make(pages.root, JobState(home=self._job.uid).encode())
            self._make(pages.pages)
        claim = Claim(self.log_name, basis.uid, basis.paths, self._job.job_id)
        self._without_key = self._context.ledgers.claim(claim, self._request.ledgers)
        if self._request.opened is not None:
            self._without_key = self._context.ledgers.check_own(claim, self._request.opened)
        for index, page in enumerate(self._pages):
            self._write_page(pages.page(index), page.encode(), basis.head)
        if self._request.application is not None and basis.application is None:
            self._make(basis.paths.application_bucket(self._request.application[0]))
        self._prepared_for = basis.uid, basis.head.readers
        return replace(basis, job_here=None if basis.uid == self._job.uid else self._store.get(pages.root))

    def _make(self, path: str, value: bytes = b"") -> None:
        """Create ``path`` unless it exists. A missing parent means that the log was deleted: the next try reports that."""
        with suppress(NodeExistsError):
            self._store.create(path, value)

    def _write_page(self, path: str, value: bytes, head: Head) -> None:
        """The log's direct readers may read it: the commit is refused if the head has other ones by then."""
        try:
            create_for(self._store, path, value, head.readers)
        except NodeExistsError:
            if head.is_secured:
                self._store.share([path], head.readers)  # an earlier try made it, maybe for others
            if self._store.get(path).value != value:
                what = f"write job {self._job.job_id} on log '{self.log_name}'"
                raise MetadataConflictError(what, "another commit of the same job listed other ledgers") from None
