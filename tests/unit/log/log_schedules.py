"""Schedules of log rules 1, 4, 5, 9 and 10: write jobs, commits, replacements, claims, deletion. See test_log_rules.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bk_spark.errors import (
    ConfigError,
    JobEndedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLogError,
)
from bk_spark.log.changes import commit, plan, transaction
from bk_spark.log.changes.delete import LogDeleter
from bk_spark.log.changes.jobs import WriteJob, WriteJobs
from bk_spark.log.changes.ledgers import LogLedgers
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind, Totals
from bk_spark.metadata.store import ANY_VERSION, Create, Delete, NoNodeError, StoreChange, TransactionFailedError
from tests.unit.log.log_case import CutOff, Died, Interposed, LogCases, Scene, die, ended, log_exists, must

CASES = LogCases()
LOG = "orders"


# --- rule 1


def _commit_leaves_running(patch: pytest.MonkeyPatch) -> None:
    end_of_job = transaction._end_of_job
    patch.setattr(transaction, "_end_of_job", lambda *given: [one for one in end_of_job(*given) if not isinstance(one, Delete)])


@CASES.add(1, _commit_leaves_running, "the commit deletes `running` in its own transaction")
def a_commit_lands_after_the_abort_has_looked(scene: Scene) -> None:
    """commit reads nothing and raises; abort reads nothing and deletes; the transaction applies."""
    scene.write(LOG)
    store = CutOff(scene.new_session())
    job = scene.logs.jobs.begin(LOG)
    ledger = scene.job_ledger(job)
    request = CommitRequest(CommitKind.APPEND, (ledger,))
    assert ended(lambda: scene.log_store(store).commit(job, request), MetadataUnavailableError)
    assert scene.logs.jobs.abort(job)
    ended(store.land, TransactionFailedError)
    head = scene.logs.names.head(LOG, job.uid)
    must(head.version == 1, f"version {head.version} lists ledger {ledger.ledger_id} of an aborted job, which is deleted")


def _tasks_create_ledgers_unasked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteJobs, "creation_of_ledger", lambda self, job, ledger_id: [])


@CASES.add(1, _tasks_create_ledgers_unasked, "a ledger is created in a transaction that checks `running` and indexes it")
def a_task_creates_its_ledger_after_the_abort(scene: Scene) -> None:
    job = scene.logs.jobs.begin(LOG)
    scene.logs.jobs.ensure(job)
    metadata = scene.new_metadata(job.ledger_tags())
    path = scene.znodes.ledger(metadata.ledger_id)
    changes = scene.logs.jobs.creation_of_ledger(job, metadata.ledger_id)
    scene.store.ensure_path(path.rsplit("/", 1)[0])
    assert scene.logs.jobs.abort(job)
    ended(lambda: scene.store.transaction([Create(path, metadata.encode()), *changes]), TransactionFailedError)
    must(scene.store.get_many([path]) == [None], "a ledger of an ended job that no index names stays for ever")


def _absence_ends_a_job(patch: pytest.MonkeyPatch) -> None:
    def end(self: WriteJobs, job: WriteJob) -> bool:
        try:
            self._store.delete(self.paths(job).running, ANY_VERSION)
        except NoNodeError:
            state = self.state(job)
            return self._leave_tombstone(job) if state is None else state.version is None
        return True

    patch.setattr(WriteJobs, "end", end)


@CASES.add(1, _absence_ends_a_job, "`running` that is missing counts only where the job's directory was there before")
def an_abort_meets_the_first_task(scene: Scene) -> None:
    """abort finds no `running`; the first task makes directory and `running`; abort finds the directory without a commit."""
    scene.write(LOG)
    store = Interposed(scene.new_session())
    logs = scene.log_store(store)
    job = logs.jobs.begin(LOG)
    store.before("sync", job.job_id, lambda: scene.logs.jobs.ensure(job))
    assert logs.jobs.abort(job)
    ended(lambda: scene.logs.commit(job, CommitRequest(CommitKind.APPEND)), JobEndedError)
    must(scene.logs.names.head(LOG, job.uid).version == 1, "a job that was aborted has committed")


def _abort_deletes_first(patch: pytest.MonkeyPatch) -> None:
    def abort(self: WriteJobs, job: WriteJob) -> bool:
        self.clear(job, frozenset())
        return self.end(job)

    patch.setattr(WriteJobs, "_abort", abort)


@CASES.add(1, _abort_deletes_first, "abort touches ledgers only after it has deleted `running` itself")
def a_commit_applies_in_the_middle_of_an_abort(scene: Scene) -> None:
    scene.write(LOG)
    driver, store = CutOff(scene.new_session()), Interposed(scene.new_session())
    job = scene.logs.jobs.begin(LOG)
    request = CommitRequest(CommitKind.APPEND, (scene.job_ledger(job),))
    assert ended(lambda: scene.log_store(driver).commit(job, request), MetadataUnavailableError)
    store.before("delete", "/running", driver.land)
    assert not scene.log_store(store).jobs.abort(job)
    scene.must_be_whole(LOG)


# --- rule 4


def _remove_what_is_left(patch: pytest.MonkeyPatch) -> None:
    plan_removal = plan.plan_removal

    def removal(head: Any, request: CommitRequest, found: plan.Findings) -> Totals:
        if not request.remove:
            return plan_removal(head, request, found)
        return Totals.of([one for one in found.listed if one.ledger_id in request.remove])

    patch.setattr(plan, "plan_removal", removal)


@CASES.add(4, _remove_what_is_left, "all that a compaction removes must still be listed, as one stretch, on each try")
def a_truncation_comes_before_a_compaction(scene: Scene) -> None:
    first, second, third = (scene.write(LOG) for _ in range(3))
    store, logs = scene.scripted()
    job = logs.jobs.begin(LOG)
    merged = scene.job_ledger(job, 20, logs)
    store.script = [store.first(lambda: scene.logs.truncate(LOG, job.uid, second.ledger_id))]
    request = CommitRequest(CommitKind.COMPACT, (merged,), remove=(first.ledger_id, second.ledger_id))
    ended(lambda: logs.commit(job, request), MetadataConflictError)
    head = scene.logs.names.head(LOG, job.uid)
    must(head.total.rows == 20, f"{head.total.rows} rows are listed, of which 20 were not truncated")
    assert scene.listed(LOG) == [second.ledger_id, third.ledger_id]


def _test_the_application_once(patch: pytest.MonkeyPatch) -> None:
    is_duplicate = commit.LogPart._is_duplicate
    tested: list[object] = []

    def test(self: commit.LogPart, basis: transaction.Basis) -> bool:
        is_first = not any(one is self for one in tested)
        tested.append(self)
        return is_first and is_duplicate(self, basis)

    patch.setattr(commit.LogPart, "_is_duplicate", test)


@CASES.add(4, _test_the_application_once, "the application's version is tested again on every try")
def two_drivers_commit_the_same_batch_at_once(scene: Scene) -> None:
    scene.write(LOG)
    store, logs = scene.scripted()
    job = logs.jobs.begin(LOG)
    ledger = scene.job_ledger(job, logs=logs)
    store.script = [store.first(lambda: scene.write(LOG, application=("query", 7)))]
    logs.commit(job, CommitRequest(CommitKind.APPEND, (ledger,), application=("query", 7)))
    must(len(scene.listed(LOG)) == 2, "batch 7 of the query is in the log twice")


def _applications_stand_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction, "_application", lambda request, basis, number: [])


@CASES.add(4, _applications_stand_outside_the_transaction, "the application's znode is set in the commit's transaction")
def a_batch_is_committed_again_after_a_crash(scene: Scene) -> None:
    for _ in range(2):
        scene.write(LOG, application=("query", 7))
    must(len(scene.listed(LOG)) == 1, "batch 7 of the query is in the log twice")


# --- rule 5


@CASES.add(5, _applications_stand_outside_the_transaction, "an empty batch records its id too")
def an_empty_batch_is_followed_by_its_late_repetition(scene: Scene) -> None:
    """A batch that was empty when it was first committed is committed again by a driver that is behind, with rows."""
    scene.write(LOG)
    job = scene.logs.jobs.begin(LOG)
    scene.logs.commit(job, CommitRequest(CommitKind.APPEND, application=("query", 3)))
    scene.write(LOG, application=("query", 3))
    must(len(scene.listed(LOG)) == 1, "batch 3 of the query was committed, and its repetition put other rows in")


# --- rule 9


def _claim_and_delete_whatever_is_named(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(self: LogLedgers, ids: Sequence[int], tag: str, value: str) -> list[StoreChange]:
        stored = self._store.get_many([self._znodes.ledger(one) for one in ids])
        return [
            Delete(self._znodes.ledger(one), ANY_VERSION) for one, found in zip(ids, stored, strict=True) if found is not None
        ]

    patch.setattr(LogLedgers, "_check_free", lambda self, claim, metadata: None)
    patch.setattr(LogLedgers, "_deletions", all_of_them)


@CASES.add(9, _claim_and_delete_whatever_is_named, "a ledger has one log for life (and deletion asks it which)")
def a_ledger_is_adopted_into_two_logs_and_one_is_deleted(scene: Scene) -> None:
    ledger = scene.write(LOG)
    job = scene.logs.jobs.begin("copy")
    ended(lambda: scene.logs.commit(job, CommitRequest(CommitKind.APPEND, (ledger,))), ConfigError)
    if log_exists(scene, "copy"):
        scene.logs.deleter.delete("copy")
    scene.must_be_whole(LOG)


def _claim_what_was_listed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogLedgers, "_check_free", lambda self, claim, metadata: None)


@CASES.add(9, _claim_what_was_listed, "a ledger that the log has listed is refused")
def a_ledger_is_appended_twice(scene: Scene) -> None:
    ledger = scene.write(LOG)
    job = scene.logs.jobs.begin(LOG)
    ended(lambda: scene.logs.commit(job, CommitRequest(CommitKind.APPEND, (ledger,))), ConfigError)
    must(scene.listed(LOG) == [ledger.ledger_id], "a ledger is listed twice: its rows are doubled")


# --- rule 10


def _delete_the_name_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogDeleter, "_mark", lambda self, name, uid: self._store.delete(self._znodes.log_name(name), ANY_VERSION))


@CASES.add(10, _delete_the_name_alone, "the head says that the log is being deleted, and no commit succeeds then")
def a_commit_comes_during_a_deletion(scene: Scene) -> None:
    scene.write(LOG)
    job = scene.logs.jobs.begin(LOG)
    request = CommitRequest(CommitKind.APPEND, (scene.job_ledger(job),))
    deleting, committing = Interposed(scene.new_session()), Interposed(scene.new_session())
    deleting.before("sync", scene.znodes.log_data, die)
    committing.before("transaction", "/head", lambda: ended(lambda: scene.log_store(deleting).deleter.delete(LOG), Died))
    is_refused = ended(lambda: scene.log_store(committing).commit(job, request), NoSuchLogError)
    ended(lambda: scene.logs.deleter.delete(LOG), NoSuchLogError)
    must(is_refused, "a commit succeeded after the deletion of its log had begun: its rows are deleted")


def _begin_on_what_is_being_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteJobs, "_guard", lambda self, job: self._store.ensure_path(self.paths(job).root.rsplit("/", 1)[0]) or [])


@CASES.add(10, _begin_on_what_is_being_deleted, "no job begins on a log whose deletion has begun")
def a_first_task_comes_while_the_jobs_of_its_log_are_deleted(scene: Scene) -> None:
    scene.write(LOG)
    job = scene.logs.jobs.begin(LOG)
    store = Interposed(scene.new_session())
    made: list[int] = []
    store.before("children", job.uid, lambda: ended(lambda: made.append(scene.open_ledger(job)), NoSuchLogError))
    scene.log_store(store).deleter.delete(LOG)
    left = [one for one in made if scene.store.get_many([scene.znodes.ledger(one)]) != [None]]
    must(not left, f"ledger {left} of a deleted log stays for ever")
