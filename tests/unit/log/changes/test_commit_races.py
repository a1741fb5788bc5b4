"""A commit that meets something else at any moment takes effect once, or not at all. Log rules 1, 4 and 10.

Ref: docs/rules.md, "Logs".
"""

from __future__ import annotations

import contextlib

import pytest

from bk_spark.errors import BookKeeperError, MetadataConflictError, MetadataUnavailableError, NoSuchLogError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind
from tests.unit.log.aged_world import DAY_S, AgedWorld, append, keep, sweep, vacuum
from tests.unit.log.interruptions import at_every_step


def commits(world):
    world.write("orders")


def overwrites(world):
    world.write("orders", kind=CommitKind.OVERWRITE)


def deletes(world):
    with contextlib.suppress(NoSuchLogError):
        world.logs.deleter.delete("orders")


def sweeps(world):
    world.pass_s(2 * DAY_S)
    world.logs.jobs.refresh(world.job)
    sweep(world)


def sweeps_all(world):
    world.pass_s(2 * DAY_S)
    sweep(world)
    world.pass_s(2 * DAY_S)
    sweep(world)


def aborts(world):
    world.logs.jobs.abort(world.job)


def vacuums(world):
    with contextlib.suppress(NoSuchLogError):
        keep(world, version_retention_s=0)
        vacuum(world, records_kept=0)


def to_a_log(world):
    world.write("orders")
    world.job = world.logs.jobs.begin("orders")
    world.own = world.job_ledger(world.job)
    return world


def to_no_log(world):
    """The job's commit makes the log, or its ledgers move to the log that another one has made."""
    world.job = world.logs.jobs.begin("orders")
    world.own = world.job_ledger(world.job)
    return world


def of_a_plain_ledger(world):
    world.write("orders")
    world.job = world.logs.jobs.begin("orders")
    world.own = world.plain_ledger()
    return world


ACTIONS = [commits, overwrites, deletes, sweeps, sweeps_all, aborts, vacuums]


@pytest.mark.parametrize("begin", [to_a_log, to_no_log, of_a_plain_ledger])
@pytest.mark.parametrize("action", ACTIONS)
def test_an_append_takes_effect_once_or_not_at_all(begin, action):
    """Log rules 1 and 10."""
    for world, session in at_every_step(lambda: begin(AgedWorld()), action):
        version, problem = outcome(world, session, append(world.own, application=("etl", 1)))
        if problem is not None:
            assert action in (deletes, sweeps_all, aborts)
            assert isinstance(problem, NoSuchLogError) == (action is deletes)
        listings = versions_with(world, world.own.ledger_id)
        if version is None:
            assert listings == []
        elif listings:
            assert listings[0] == version.version
            assert world.ledger_exists(world.own) or action is overwrites
        else:
            assert action in (deletes, vacuums)


def outcome(world, session, request):
    """The version or the error of the world's job, which the session commits."""
    try:
        return world.log_store(session).commit_or_abort(world.job, request), None
    except BookKeeperError as problem:
        return None, problem


def versions_with(world, ledger_id):
    """The versions that can be read and list the ledger; each lists it once."""
    try:
        versions = world.logs.reader.all_versions("orders")
    except NoSuchLogError:
        return []
    counts = {one.version: world.listed("orders", one.version).count(ledger_id) for one in versions}
    assert set(counts.values()) <= {0, 1}
    return [version for version, count in counts.items() if count]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_leader_s_roll_takes_effect_once_or_not_at_all(action):
    """Log rules 2 and 10."""

    def led():
        world = AgedWorld()
        world.write("orders")
        opening = world.logs.jobs.begin("orders")
        world.first = world.open_ledger(opening)
        world.epoch = world.logs.commit(opening, append(opened=world.first)).epoch
        world.logs.jobs.finish(opening, [world.first])
        world.job = world.logs.jobs.begin("orders")
        world.next = world.open_ledger(world.job)
        return world

    for world, session in at_every_step(led, action):
        request = CommitRequest(CommitKind.APPEND, opened=world.next, leader_epoch=world.epoch)
        version, problem = outcome(world, session, request)
        if problem is not None:
            assert action not in (sweeps, vacuums)
        with contextlib.suppress(NoSuchLogError):
            snapshot = world.logs.reader.snapshot("orders")
            found = [one.ledger_id for one in (*snapshot.ledgers, *snapshot.open_ledgers)]
            if action not in (commits, overwrites):
                assert found.count(world.next) == (version is not None)
            assert all(world.store.get_many([world.znodes.ledger(one)]) != [None] for one in found)


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_commit_that_wakes_up_when_all_traces_of_its_job_are_gone_does_not_begin_anew(took_effect):
    """Log rule 1: whether it took effect is not known then, and is not taken as a no."""
    world = AgedWorld()
    world.write("orders")
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    own = world.plain_ledger()

    def sleep_for_weeks(operations):
        if took_effect:
            store.store.transaction(operations)
        world.pass_s(30 * DAY_S)
        sweep(world)
        world.write("orders")
        world.pass_s(30 * DAY_S)
        sweep(world)
        vacuums(world)
        raise MetadataUnavailableError("memory://", "connection lost")

    store.script = [sleep_for_weeks]
    with pytest.raises(MetadataConflictError, match="whether by its commit is not known any more"):
        logs.commit(job, append(own))
    assert world.listed("orders").count(own.ledger_id) == took_effect
