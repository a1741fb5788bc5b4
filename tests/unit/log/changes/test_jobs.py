"""Log rule 1, and the life of a write job. Ref: docs/rules.md."""

from __future__ import annotations

import pickle

import pytest

from bk_spark.errors import (
    ConfigError,
    JobEndedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLogError,
)
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind
from bk_spark.metadata.store import Create, TransactionFailedError


def append(*ledgers, **more):
    return CommitRequest(CommitKind.APPEND, tuple(ledgers), **more)


def test_beginning_a_job_changes_nothing_in_the_store(world):
    store, logs = world.scripted()
    logs.jobs.begin("orders")
    assert {name for name, _ in store.calls} <= {"get", "get_many", "sync"}


def test_a_job_travels_to_tasks_by_pickle(world):
    job = world.logs.jobs.begin("orders")
    assert pickle.loads(pickle.dumps(job)) == job
    assert job.is_new_log


def test_a_job_on_a_log_that_is_there_works_under_its_uid(world):
    uid = world.logs.open("orders", create=True)
    job = world.logs.jobs.begin("orders")
    assert (job.uid, job.is_new_log) == (uid, False)


def test_a_failed_first_job_leaves_no_log_and_no_ledger(world):
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    assert world.logs.names.all() == []
    assert world.logs.jobs.abort(job)
    assert world.logs.names.all() == []
    assert not world.ledger_exists(ledger)


def test_a_task_after_the_first_begins_the_job_with_one_read(world):
    job = world.logs.jobs.begin("orders")
    world.job_ledger(job)
    store, logs = world.scripted()
    logs.jobs.ensure(job)
    assert [name for name, _ in store.calls] == ["get_many"]


def test_creating_a_ledger_costs_one_more_read_and_no_write_of_its_own(world):
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    store, logs = world.scripted()
    operations = logs.jobs.creation_of_ledger(job, ledger.ledger_id + 1)
    assert len(operations) == 2
    assert [name for name, _ in store.calls] == ["get_many"]


def test_two_tasks_may_begin_the_job_at_once(world):
    job = world.logs.jobs.begin("orders")
    store, logs = world.scripted()
    real = store.store.transaction

    def beaten(operations):
        store.store.transaction = real
        world.logs.jobs.ensure(job)
        real(operations)

    store.store.transaction = beaten
    logs.jobs.ensure(job)
    assert world.job_ledger(job).ledger_id


def test_abort_before_any_task_keeps_every_later_task_from_creating_a_ledger(world):
    job = world.logs.jobs.begin("orders")
    assert world.logs.jobs.abort(job)
    with pytest.raises(JobEndedError, match="on log 'orders' has ended"):
        world.logs.jobs.ensure(job)


def test_abort_before_any_task_on_a_log_that_is_there_does_so_too(world):
    world.logs.open("orders", create=True)
    job = world.logs.jobs.begin("orders")
    assert world.logs.jobs.abort(job)
    with pytest.raises(JobEndedError):
        world.logs.jobs.ensure(job)


def test_a_zombie_task_cannot_create_a_ledger_after_abort(world):
    job = world.logs.jobs.begin("orders")
    world.job_ledger(job)
    under_way = world.logs.jobs.creation_of_ledger(job, 77)
    world.logs.jobs.abort(job)
    with pytest.raises(TransactionFailedError) as refused:
        world.store.transaction([Create("/ledgers/zombie"), *under_way])
    assert isinstance(world.logs.jobs.explain(job, refused.value), JobEndedError)
    with pytest.raises(JobEndedError):
        world.logs.jobs.creation_of_ledger(job, 78)
    with pytest.raises(JobEndedError):
        world.logs.jobs.ensure(job)


def test_a_refusal_for_another_reason_is_not_explained_away(world):
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    operations = world.logs.jobs.creation_of_ledger(job, 77)
    with pytest.raises(TransactionFailedError) as refused:
        world.store.transaction([Create(world.znodes.ledger(ledger.ledger_id)), *operations])
    assert world.logs.jobs.explain(job, refused.value) is None


def test_a_zombie_task_cannot_create_a_ledger_after_the_commit(world):
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    under_way = world.logs.jobs.creation_of_ledger(job, 77)
    world.logs.commit(job, append(ledger))
    with pytest.raises(TransactionFailedError):
        world.store.transaction([Create("/ledgers/zombie"), *under_way])
    with pytest.raises(JobEndedError):
        world.logs.jobs.ensure(job)


def test_abort_deletes_the_ledgers_of_every_attempt_and_the_job_s_index(world):
    job = world.logs.jobs.begin("orders")
    ledgers = [world.job_ledger(job) for _ in range(5)]
    assert world.logs.jobs.abort(job)
    assert not any(world.ledger_exists(ledger) for ledger in ledgers)
    assert world.store.children(world.paths(job.uid).job(job.job_id).root) == []


def test_abort_after_a_commit_that_raised_and_took_effect_deletes_nothing(world):
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    store.script = [store.lose_reply]
    store.fail_reads = False

    def lose_and_cut_off(operations):
        store.fail_reads = True
        store.lose_reply(operations)

    store.script = [lose_and_cut_off]
    with pytest.raises(MetadataUnavailableError, match=r"whether the commit .* to log 'orders' took effect is unknown"):
        logs.commit(job, append(ledger))
    assert not world.logs.jobs.abort(job)
    assert world.ledger_exists(ledger)
    assert world.listed("orders") == [ledger.ledger_id]


def test_a_commit_in_flight_when_abort_runs_never_applies(world):
    """Log rule 1: the connection drops, commit raises, abort deletes, and then the transaction arrives."""
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)

    def delay_and_cut_off(operations):
        store.fail_reads = True
        store.delay(operations)

    store.script = [delay_and_cut_off]
    with pytest.raises(MetadataUnavailableError):
        logs.commit(job, append(ledger))
    assert world.logs.jobs.abort(job)
    with pytest.raises(TransactionFailedError):
        store.land()
    assert not world.ledger_exists(ledger)
    assert world.logs.names.all() == []


def test_a_commit_in_flight_that_lands_before_abort_is_kept(world):
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    store.script = [store.delay] * 3
    with pytest.raises(MetadataUnavailableError):
        logs.commit(job, append(ledger))
    store.land()
    assert not world.logs.jobs.abort(job)
    assert world.listed("orders") == [ledger.ledger_id]
    assert world.ledger_exists(ledger)


def test_a_commit_after_abort_is_refused(world):
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    world.logs.jobs.abort(job)
    with pytest.raises(JobEndedError):
        world.logs.commit(job, append(ledger))
    assert world.logs.names.all() == []


def test_an_abort_between_the_tries_of_a_commit_ends_it(world):
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    store.script = [store.first(lambda: world.logs.jobs.abort(job))]
    with pytest.raises(JobEndedError):
        logs.commit(job, append(ledger))


@pytest.mark.parametrize("cut_after", range(0, 12))
def test_abort_cut_short_anywhere_is_finished_by_the_next_one(world, cut_after):
    job = world.logs.jobs.begin("orders")
    ledgers = [world.job_ledger(job) for _ in range(3)]
    session = world.new_session()
    changes = []

    def dies(real):
        def call(*arguments, **options):
            if len(changes) == cut_after:
                raise RuntimeError("the process died")
            changes.append(arguments)
            return real(*arguments, **options)

        return call

    for name in ("transaction", "delete"):
        setattr(session, name, dies(getattr(session, name)))
    try:
        world.log_store(session).jobs.abort(job)
    except RuntimeError:
        assert world.logs.jobs.abort(job)
    assert not any(world.ledger_exists(ledger) for ledger in ledgers)
    with pytest.raises(JobEndedError):
        world.logs.jobs.ensure(job)


def test_abort_whose_own_reply_is_lost_still_deletes(world):
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    session = world.new_session()
    real = session.delete

    def lossy(path, version=None):
        session.delete = real
        real(path, version)
        raise MetadataUnavailableError("memory://", "connection lost")

    session.delete = lossy
    assert world.log_store(session).jobs.abort(job)
    assert not world.ledger_exists(ledger)


def test_finish_deletes_the_losers_of_a_retry_and_keeps_what_is_committed(world):
    job = world.logs.jobs.begin("orders")
    failed, winner, speculative = (world.job_ledger(job) for _ in range(3))
    world.logs.commit(job, append(winner))
    for _ in range(2):
        world.logs.jobs.finish(job, [winner.ledger_id])
        assert world.ledger_exists(winner)
        assert not world.ledger_exists(failed)
        assert not world.ledger_exists(speculative)
    assert "ledgers" not in world.store.children(world.paths(job.uid).job(job.job_id).root)


def test_finish_deletes_nothing_of_a_job_that_has_not_committed(world):
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    with pytest.raises(ConfigError, match="it is not committed"):
        world.logs.jobs.finish(job, [])
    assert world.ledger_exists(ledger)


def test_abort_leaves_a_ledger_alone_that_another_job_has_adopted(world):
    uid = world.logs.open("orders", create=True)
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    adopted = world.metadata(ledger).with_custom("bk_spark.job", b"another")
    path = world.znodes.ledger(ledger.ledger_id)
    world.store.set(path, adopted.encode(), world.store.get(path).version)
    world.logs.jobs.abort(job)
    assert world.ledger_exists(ledger)
    assert uid == job.uid


def test_no_job_begins_on_a_log_whose_deletion_has_begun(world):
    uid = world.logs.open("orders", create=True)
    job = world.logs.jobs.begin("orders")
    head = world.store.get(world.paths(uid).head)
    world.store.set(world.paths(uid).head, head.value.replace(b'"deleting":false', b'"deleting":true'), head.version)
    with pytest.raises(NoSuchLogError):
        world.logs.jobs.ensure(job)
    with pytest.raises(MetadataConflictError, match="'bk-spark log delete orders' finishes"):
        world.logs.jobs.begin("orders")


def test_no_job_begins_on_a_log_whose_deletion_begins_meanwhile(world):
    uid = world.logs.open("orders", create=True)
    session = world.new_session()
    job = world.logs.jobs.begin("orders")
    real = session.transaction

    def beaten(operations):
        session.transaction = real
        head = world.store.get(world.paths(uid).head)
        world.store.set(world.paths(uid).head, head.value.replace(b'"deleting":false', b'"deleting":true'), head.version)
        real(operations)

    session.transaction = beaten
    with pytest.raises(NoSuchLogError):
        world.log_store(session).jobs.ensure(job)


def test_no_job_begins_on_a_log_that_is_gone(world):
    world.logs.open("orders", create=True)
    job = world.logs.jobs.begin("orders")
    world.logs.deleter.delete("orders")
    with pytest.raises(NoSuchLogError):
        world.logs.jobs.ensure(job)
    assert world.logs.jobs.abort(job)
    assert world.store.children(world.znodes.log_data) == []


def test_refreshing_a_job_moves_the_time_of_its_running_and_nothing_else(world):
    """Log rule 1: the sweep takes jobs by this time."""
    job = world.logs.jobs.begin("orders")
    world.job_ledger(job)
    path = world.paths(job.uid).job(job.job_id).running
    before = world.store.get(path)
    world.logs.jobs.refresh(job)
    after = world.store.get(path)
    assert (after.version, after.value) == (before.version + 1, b"")
    assert world.job_ledger(job).ledger_id


def test_refreshing_a_job_that_no_task_has_begun_does_nothing(world):
    job = world.logs.jobs.begin("orders")
    world.logs.jobs.refresh(job)
    assert world.store.get_many([world.paths(job.uid).job(job.job_id).root]) == [None]


@pytest.mark.parametrize("end", ["abort", "commit"])
def test_a_job_that_has_ended_cannot_be_refreshed(world, end):
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    world.logs.jobs.abort(job) if end == "abort" else world.logs.commit(job, append(ledger))
    with pytest.raises(JobEndedError):
        world.logs.jobs.refresh(job)


def test_two_tasks_may_refresh_a_job_at_once(world):
    job = world.logs.jobs.begin("orders")
    world.job_ledger(job)
    session = world.new_session()
    real = session.set

    def beaten(path, value, version):
        session.set = real
        world.logs.jobs.refresh(job)
        return real(path, value, version)

    session.set = beaten
    world.log_store(session).jobs.refresh(job)
