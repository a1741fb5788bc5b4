"""Log rule 1: what writes leave behind, and when it goes. Ref: docs/rules.md."""

from __future__ import annotations

import pytest

from bk_spark.errors import ConfigError, JobEndedError
from bk_spark.log.cleanup.orphans import OrphanKind
from bk_spark.metadata.store import ANY_VERSION
from tests.unit.log.aged_world import DAY_S, AgedWorld, Died, append, find, kinds, present, sweep

ALL_GONE = [False, False]


@pytest.fixture
def world():
    return AgedWorld()


# --- aborted jobs


def test_the_directory_of_an_aborted_job_goes_one_age_after_a_sweep_has_first_seen_it(world):
    """Log rule 1: until then it keeps late tasks from beginning the job anew."""
    world.write("orders")
    job = world.logs.jobs.begin("orders")
    world.job_ledger(job)
    world.pass_s(3 * DAY_S)
    world.logs.jobs.abort(job)
    assert kinds(sweep(world)) == [OrphanKind.ABORTED_JOB]
    with pytest.raises(JobEndedError):
        world.logs.jobs.ensure(job)
    assert sweep(world) == []
    world.pass_s(DAY_S)
    assert kinds(sweep(world)) == [OrphanKind.JOB_DIRECTORY]
    assert world.store.get_many([world.paths(job.uid).job(job.job_id).root]) == [None]
    assert sweep(world) == []


def test_what_a_sweep_ended_is_marked_by_it(world):
    world.write("orders")
    world.job_ledger(world.logs.jobs.begin("orders"))
    world.pass_s(DAY_S)
    assert kinds(sweep(world)) == [OrphanKind.RUNNING_JOB]
    assert sweep(world) == []
    world.pass_s(DAY_S)
    assert kinds(sweep(world)) == [OrphanKind.JOB_DIRECTORY]


def test_an_abort_that_was_cut_short_is_finished(world):
    world.write("orders")
    job = world.logs.jobs.begin("orders")
    ledgers = [world.job_ledger(job), world.job_ledger(job)]
    with pytest.raises(Died):
        world.log_store(world.dying_session(1)).jobs.abort(job)
    assert present(world, ledgers) == [True, True]
    world.pass_s(DAY_S)
    [orphan] = sweep(world)
    assert (orphan.kind, sorted(orphan.ledgers)) == (OrphanKind.ABORTED_JOB, [one.ledger_id for one in ledgers])
    assert present(world, ledgers) == ALL_GONE


# --- committed jobs


def test_ledgers_of_losing_attempts_go_and_the_listed_ones_stay(world):
    """Log rule 1."""
    job = world.logs.jobs.begin("orders")
    won, lost = world.job_ledger(job), world.job_ledger(job)
    world.logs.commit(job, append(won))
    assert sweep(world) == []
    world.pass_s(DAY_S)
    [orphan] = sweep(world)
    assert (orphan.kind, orphan.ledgers) == (OrphanKind.LOSING_ATTEMPTS, (lost.ledger_id,))
    assert present(world, [won, lost]) == [True, False]
    world.pass_s(DAY_S)
    assert sweep(world) == []


def test_a_ledger_that_a_leader_opened_is_not_a_losing_attempt(world):
    """Log rule 2: it is listed by the commit that opened it."""
    job = world.logs.jobs.begin("orders")
    opened, lost = world.job_ledger(job), world.job_ledger(job)
    world.logs.commit(job, append(opened=opened.ledger_id))
    world.pass_s(DAY_S)
    [orphan] = sweep(world)
    assert orphan.ledgers == (lost.ledger_id,)
    assert present(world, [opened, lost]) == [True, False]


def test_a_job_that_moved_to_another_first_job_s_log_keeps_what_it_committed_there(world):
    winner, loser = world.logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    won, moved, lost = world.job_ledger(winner), world.job_ledger(loser), world.job_ledger(loser)
    world.logs.commit(winner, append(won))
    first = world.logs.commit(loser, append(moved))
    world.pass_s(DAY_S)
    assert kinds(sweep(world)) == [OrphanKind.LOSING_ATTEMPTS, OrphanKind.LOSING_ATTEMPTS]
    assert present(world, [won, moved, lost]) == [True, True, False]
    world.pass_s(10 * DAY_S)
    assert sweep(world) == []
    assert world.logs.commit(loser, append(moved)) == first  # asked again much later: it still knows that it committed


def test_a_job_that_is_about_to_move_to_another_log_is_not_touched(world):
    """Log rule 1: whether it runs, its own directory says."""
    store, logs = world.scripted()
    loser = logs.jobs.begin("orders")
    moved = world.job_ledger(loser)
    world.write("orders")

    def wait_and_sweep(operations):
        world.pass_s(2 * DAY_S)
        world.logs.jobs.refresh(loser)
        assert find(world) == sweep(world) == []

    store.script = [wait_and_sweep]
    logs.commit(loser, append(moved))
    assert moved.ledger_id in world.listed("orders")


def test_what_a_job_prepared_in_another_log_goes_once_the_job_has_ended(world):
    store, logs = world.scripted()
    loser = logs.jobs.begin("orders")
    moved = world.job_ledger(loser)
    world.write("orders")
    uid = world.logs.names.uid("orders")
    store.script = [lambda operations: world.logs.jobs.abort(loser)]
    with pytest.raises(JobEndedError):
        logs.commit(loser, append(moved))
    here = world.paths(uid).job(loser.job_id).root
    assert world.store.get_many([here]) != [None]
    world.pass_s(2 * DAY_S)
    assert OrphanKind.JOB_DIRECTORY in kinds(sweep(world))
    assert world.store.get_many([here]) == [None]


def test_a_job_that_moved_into_a_log_which_is_deleted_leaves_nothing(world):
    winner, loser = world.logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    world.logs.commit(winner, append(world.job_ledger(winner)))
    moved, lost = world.job_ledger(loser), world.job_ledger(loser)
    world.logs.commit(loser, append(moved))
    world.logs.deleter.delete("orders")
    assert present(world, [moved, lost]) == ALL_GONE
    world.pass_s(DAY_S)
    assert kinds(sweep(world)) == [OrphanKind.LOG_DATA]
    assert world.store.children(world.znodes.log_data) == []


# --- logs that never came to be


def test_a_failed_first_job_leaves_nothing_in_the_end(world):
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    world.pass_s(DAY_S)
    assert kinds(sweep(world)) == [OrphanKind.RUNNING_JOB]
    assert present(world, [ledger]) == [False]
    world.pass_s(DAY_S)
    assert kinds(sweep(world)) == [OrphanKind.JOB_DIRECTORY, OrphanKind.LOG_DATA]
    assert world.store.children(world.znodes.log_data) == []
    assert find(world) == []


def test_a_log_whose_first_job_is_running_is_not_touched(world):
    """Log rule 1."""
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    world.pass_s(DAY_S - 10)
    world.logs.jobs.refresh(job)
    world.pass_s(DAY_S - 10)
    assert sweep(world) == []
    world.logs.commit(job, append(ledger))
    assert world.listed("orders") == [ledger.ledger_id]


def test_a_late_task_that_begins_a_job_while_its_log_s_data_goes_is_not_run_over(world):
    job = world.logs.jobs.begin("orders")
    world.job_ledger(job)
    world.logs.jobs.abort(job)
    world.pass_s(DAY_S)
    sweep(world)
    world.pass_s(DAY_S)
    session = world.new_session()
    real = session.transaction
    late = []

    def transaction(operations):
        if operations[-1].path == world.paths(job.uid).root:
            late.append(world.job_ledger(job))
        return real(operations)

    session.transaction = transaction
    assert kinds(sweep(world, store=session)) == [OrphanKind.JOB_DIRECTORY]
    assert present(world, late) == [True]
    world.pass_s(DAY_S)
    assert kinds(sweep(world)) == [OrphanKind.RUNNING_JOB]
    assert present(world, late) == [False]


def test_data_that_a_name_points_to_is_never_an_orphan(world):
    world.write("orders")
    uid = world.logs.names.uid("orders")
    world.store.delete(world.paths(uid).head, ANY_VERSION)
    for bucket in world.store.children(world.paths(uid).jobs):
        for job in world.store.children(f"{world.paths(uid).jobs}/{bucket}"):
            world.store.delete(f"{world.paths(uid).jobs}/{bucket}/{job}/pages/0", ANY_VERSION)
            world.store.delete(f"{world.paths(uid).jobs}/{bucket}/{job}/pages", ANY_VERSION)
            world.store.delete(f"{world.paths(uid).jobs}/{bucket}/{job}", ANY_VERSION)
    world.pass_s(10 * DAY_S)
    assert find(world) == []


# --- deletions


def test_a_deletion_that_was_cut_short_is_finished(world):
    """Log rule 10."""
    [ledger] = world.write("orders")
    with pytest.raises(Died):
        world.log_store(world.dying_session(1)).deleter.delete("orders")
    assert sweep(world) == []
    world.pass_s(DAY_S)
    assert kinds(sweep(world)) == [OrphanKind.DELETION]
    assert present(world, [ledger]) == [False]
    assert world.store.children(world.znodes.log_data) == []


# --- the age


@pytest.mark.parametrize("age", [-1, 1.5, True, "1"])
def test_an_age_that_is_none_is_refused(world, age):
    with pytest.raises(ConfigError, match="the age of orphans"):
        find(world, age)
