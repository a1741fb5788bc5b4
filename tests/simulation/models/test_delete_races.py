"""A deletion beside another one, a vacuum or a commit, at any moment. Log rule 10. Ref: docs/rules.md."""

from __future__ import annotations

import contextlib

import pytest

from bk_spark.errors import NoSuchLogError
from bk_spark.log.stored.values import CommitKind
from tests.unit.log.aged_world import WEEK_S, AgedWorld, append, keep, sweep, vacuum
from tests.unit.log.interruptions import at_every_step


def world_to_delete():
    """A log with ledgers that stand in a checkpoint, in pages, in a job's index and as open."""
    world = AgedWorld()
    world.write("orders", 2)
    world.write("orders", kind=CommitKind.OVERWRITE)
    world.write("orders")
    world.pass_s(2 * WEEK_S)
    keep(world, version_retention_s=WEEK_S)
    vacuum(world, records_kept=0)
    world.write("orders")
    world.job_ledger(world.logs.jobs.begin("orders"))
    job = world.logs.jobs.begin("orders")
    world.logs.commit(job, append(opened=world.open_ledger(job)))
    return world


def left(world):
    """Every ledger, and every log with data."""
    ledgers = [number for number in range(1, 50) if world.store.get_many([world.znodes.ledger(number)]) != [None]]
    return ledgers, world.store.children(world.znodes.log_data)


@pytest.mark.parametrize("other", ["deletion", "vacuum", "sweep"])
def test_whoever_works_on_the_log_at_the_same_moment_all_of_it_goes(other):
    """Log rule 10."""

    def works(world):
        with contextlib.suppress(NoSuchLogError):
            if other == "sweep":
                sweep(world, 0)
            else:
                (world.logs.deleter.delete if other == "deletion" else lambda name: vacuum(world, name))("orders")

    for world, session in at_every_step(world_to_delete, works):
        try:
            world.log_store(session).deleter.delete("orders")
        except NoSuchLogError:
            assert other != "vacuum"
        assert left(world) == ([], [])


def test_a_commit_that_comes_at_any_moment_of_the_deletion_succeeds_and_leaves_nothing():
    """Log rule 10. It comes before the deletion, or makes a new log of that name: no moment refuses it."""

    def commits(world):
        job = world.logs.jobs.begin("orders")
        world.logs.commit(job, append(world.job_ledger(job)))

    for world, session in at_every_step(world_to_delete, commits):
        world.log_store(session).deleter.delete("orders")
        if "orders" in world.logs.names.all():
            assert len(world.listed("orders")) == 1
            world.logs.deleter.delete("orders")
        assert left(world) == ([], [])
