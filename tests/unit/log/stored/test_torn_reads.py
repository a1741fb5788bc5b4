"""Several values that are read together are not of one moment: what is decided from them holds all the same.

Log rules 1 and 9. Ref: docs/rules.md, "Logs".
"""

from __future__ import annotations

import pytest

from bk_spark.errors import ConfigError, NoSuchLogError
from tests.unit.log.aged_world import DAY_S, AgedWorld, sweep
from tests.unit.log.log_requests import append, ids, write

PLACES = [1, 2, 3, 4]
"""How many values have been read when something changes; a read of fewer values is over by then."""


@pytest.fixture
def world():
    return AgedWorld()


def tear(session, after, is_due, action):
    """The first read of several values that ``is_due`` meets ``action`` after that many of them."""
    real = session.get_many

    def get_many(paths):
        if not is_due(paths):
            return real(paths)
        session.get_many = real
        first = real(paths[:after])
        action()
        return first + real(paths[after:])

    session.get_many = get_many


def running_of(job):
    return lambda paths: len(paths) > 1 and any(path.endswith(f"{job.job_id}/running") for path in paths)


@pytest.mark.parametrize("after", PLACES)
def test_a_ledger_is_not_adopted_from_a_job_that_commits_at_the_same_moment(world, after):
    """Log rule 9."""
    world.logs.open("orders", create=True)
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    session = world.new_session()
    tear(session, after, running_of(job), lambda: world.logs.commit(job, append(ledger)))
    with pytest.raises(ConfigError, match=f"is {ledger.ledger_id}: "):
        write(world, "orders", ledger, logs=world.log_store(session))
    assert world.listed("orders") == ids(ledger)


@pytest.mark.parametrize("after", [*PLACES, 5])
def test_a_commit_whose_transaction_lands_while_it_looks_what_became_of_it_says_so(world, after):
    """Log rule 1."""
    write(world, "orders")
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    store.script = [store.delay]
    tear(store.store, after, lambda paths: running_of(job)(paths) and store.in_flight, store.land)
    assert logs.commit(job, append(ledger, application=("etl", 1))).version == 2
    assert store.in_flight == []
    assert len(world.listed("orders")) == 2


def test_a_sweep_that_meets_the_commit_of_a_job_that_moved_to_another_log_leaves_its_listing_alone(world):
    """Log rule 1: pages in the directory there hold what the commit lists."""
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    write(world, "orders")
    own = world.paths(job.uid).job(job.job_id)

    def sweep_meanwhile(operations):
        world.pass_s(2 * DAY_S)
        world.logs.jobs.refresh(job)
        session = world.new_session()
        tear(session, 0, lambda paths: paths == [own.running], lambda: store.store.transaction(operations))
        sweep(world, store=session)

    store.script = [sweep_meanwhile]
    logs.commit(job, append(ledger))
    assert ledger.ledger_id in world.listed("orders")


@pytest.mark.parametrize("after", [0, *PLACES])
def test_a_commit_whose_log_is_deleted_while_it_looks_where_the_log_stands_says_so(world, after):
    """Log rule 10: not that its job was aborted."""
    world.logs.open("orders", create=True)
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    tear(store.store, after, running_of(job), lambda: world.logs.deleter.delete("orders"))
    with pytest.raises(NoSuchLogError):
        logs.commit(job, append(ledger))
