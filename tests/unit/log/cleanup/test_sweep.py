"""Log rule 1: a job ends once, whoever comes at the same moment, and wherever a sweep is cut short. Ref: docs/rules.md."""

from __future__ import annotations

import pytest

from bk_spark.errors import JobEndedError, NoSuchLogError
from bk_spark.log.cleanup.orphans import OrphanKind
from tests.unit.log.aged_world import DAY_S, AgedWorld, Died, append, find, kinds, present, sweep

ALL_GONE = [False, False]


@pytest.fixture
def world():
    return AgedWorld()


def test_a_job_that_nobody_goes_on_with_is_ended_and_its_ledgers_go(world):
    """Log rule 1."""
    world.write("orders")
    job = world.logs.jobs.begin("orders")
    left = [world.job_ledger(job), world.job_ledger(job)]
    world.pass_s(DAY_S)
    [orphan] = sweep(world)
    assert (orphan.kind, orphan.log, orphan.job_id, orphan.age_s) == (OrphanKind.RUNNING_JOB, "orders", job.job_id, DAY_S)
    assert sorted(orphan.ledgers) == [one.ledger_id for one in left]
    assert present(world, left) == ALL_GONE
    with pytest.raises(JobEndedError):
        world.logs.commit(job, append(*left))
    assert len(world.listed("orders")) == 1


def test_a_younger_job_is_not_touched_and_commits(world):
    """Log rule 1."""
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    world.pass_s(DAY_S - 1)
    assert sweep(world) == []
    world.logs.commit(job, append(ledger))
    assert world.listed("orders") == [ledger.ledger_id]


def test_a_job_whose_tasks_give_signs_of_life_is_not_touched_however_long_it_takes(world):
    """Log rule 1."""
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    for _ in range(5):
        world.pass_s(DAY_S - 1)
        world.logs.jobs.refresh(job)
        assert find(world) == sweep(world) == []
    world.logs.commit(job, append(ledger))


@pytest.mark.parametrize("ahead_s", [7 * DAY_S, -7 * DAY_S])
def test_the_clock_of_a_client_changes_nothing(world, ahead_s):
    job = world.logs.jobs.begin("orders")
    world.job_ledger(job)
    world.pass_s(DAY_S - 1)
    world.now_ms += ahead_s * 1000
    assert sweep(world) == []
    world.pass_s(1)
    assert kinds(sweep(world)) == [OrphanKind.RUNNING_JOB]


def before_the_end_of_a_job(world, action):
    """A session in which ``action`` comes right before the sweep deletes ``running``."""
    session = world.new_session()
    real = session.delete

    def delete(path, version=None):
        if path.endswith("/running"):
            session.delete = real
            action()
        return real(path, version)

    session.delete = delete
    return session


def test_a_sign_of_life_that_comes_before_the_end_wins(world):
    """Log rule 1: ``running`` is deleted only as it was seen."""
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    world.pass_s(2 * DAY_S)
    session = before_the_end_of_a_job(world, lambda: world.logs.jobs.refresh(job))
    assert sweep(world, store=session) == []
    world.logs.commit(job, append(ledger))
    assert present(world, [ledger]) == [True]


def test_a_commit_that_comes_before_the_end_wins(world):
    """Log rule 1."""
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    world.pass_s(2 * DAY_S)
    session = before_the_end_of_a_job(world, lambda: world.logs.commit(job, append(ledger)))
    assert sweep(world, store=session) == []
    assert world.listed("orders") == [ledger.ledger_id]
    assert present(world, [ledger]) == [True]


def test_a_commit_in_flight_when_its_job_is_swept_never_applies(world):
    """Log rule 1."""
    world.write("orders")
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)

    def delay_and_sweep(operations):
        world.pass_s(2 * DAY_S)
        assert kinds(sweep(world)) == [OrphanKind.RUNNING_JOB]

    store.script = [delay_and_sweep]
    with pytest.raises(JobEndedError):
        logs.commit(job, append(ledger))
    assert len(world.listed("orders")) == 1


# --- all kinds


def test_finding_changes_nothing_of_any_log(world):
    leave_everything(world)
    before = {path: node.version for path, node in world.store._tree.nodes.items()}
    assert set(kinds(find(world))) == {*OrphanKind} - {OrphanKind.LOG_DATA, OrphanKind.JOB_DIRECTORY}
    after = {path: node.version for path, node in world.store._tree.nodes.items() if path != world.znodes.log_clock}
    assert after == before


def leave_everything(world):
    world.write("orders", 2)
    world.job_ledger(world.logs.jobs.begin("orders"))
    aborted = world.logs.jobs.begin("orders")
    world.job_ledger(aborted)
    world.logs.jobs.abort(aborted)
    committed = world.logs.jobs.begin("orders")
    won = world.job_ledger(committed)
    world.job_ledger(committed)
    world.logs.commit(committed, append(won))
    world.job_ledger(world.logs.jobs.begin("never"))
    world.write("gone")
    with pytest.raises(Died):
        world.log_store(world.dying_session(2)).deleter.delete("gone")
    world.pass_s(2 * DAY_S)


def test_a_sweep_cut_short_anywhere_is_finished_by_the_next_one():
    """Log rule 1: what is listed is never touched, and what nobody can list goes in the end."""
    calls = 0
    while True:
        world = AgedWorld()
        leave_everything(world)
        listed = world.logs.reader.snapshot("orders").ledgers
        try:
            sweep(world, store=world.dying_session(calls))
        except Died:
            assert all(present(world, listed))
            for _ in range(3):
                sweep(world)
                world.pass_s(2 * DAY_S)
            assert all(present(world, listed))
            ledgers = [path for path in world.store._tree.nodes if path.rsplit("/", 1)[1].startswith("L")]
            assert len(ledgers) == len(listed)
            assert world.store.children(world.znodes.log_data) == [world.logs.names.uid("orders")]
            calls += 1
            continue
        break
    assert calls > 10


def test_a_log_deleted_under_the_sweep_is_left_to_the_deletion(world):
    world.write("orders")
    world.job_ledger(world.logs.jobs.begin("orders"))
    world.pass_s(DAY_S)
    session = before_the_end_of_a_job(world, lambda: world.logs.deleter.delete("orders"))
    assert sweep(world, store=session) == []
    with pytest.raises(NoSuchLogError):
        world.logs.reader.snapshot("orders")
