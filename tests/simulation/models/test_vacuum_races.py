"""A vacuum beside another one, or beside the deletion of its log, at any moment. Log rules 8 and 10. Ref: docs/rules.md."""

from __future__ import annotations

from bk_spark.errors import NoSuchLogError
from bk_spark.log.stored.values import CommitKind
from tests.unit.log.aged_world import WEEK_S, AgedWorld, head, keep, sweep, vacuum
from tests.unit.log.interruptions import at_every_step


def world_to_vacuum():
    """A log of which a vacuum has something to do in each of its steps."""
    world = AgedWorld()
    for _ in range(3):
        world.write("orders", kind=CommitKind.OVERWRITE)
        world.pass_s(2 * WEEK_S)
    world.write("orders")
    keep(world, version_retention_s=WEEK_S, retention_bytes=1000)
    return world


def test_vacuums_of_different_moments_do_not_hinder_each_other():
    """Log rule 8."""

    def later(world):
        world.write("orders", kind=CommitKind.OVERWRITE)
        world.pass_s(2 * WEEK_S)
        world.write("orders")
        vacuum(world, records_kept=0)

    for world, session in at_every_step(world_to_vacuum, later):
        vacuum(world, store=session, records_kept=0)
        vacuum(world, records_kept=0)
        now = head(world)
        assert now.vacuumed_version == now.oldest_version
        assert world.listed("orders", now.oldest_version)
        paths = world.paths(world.logs.names.uid("orders"))
        assert world.store.children(f"{paths.checkpoints}/0") == [str(now.oldest_version)]


def test_a_vacuum_whose_log_is_deleted_meanwhile_says_so():
    """Log rule 10."""
    for world, session in at_every_step(world_to_vacuum, lambda world: world.logs.deleter.delete("orders")):
        try:
            vacuum(world, store=session, records_kept=0)
        except NoSuchLogError:
            assert world.logs.names.all() == []
        else:
            world.logs.deleter.delete("orders")
        world.pass_s(WEEK_S)
        sweep(world)
        assert world.store.children(world.znodes.log_data) == []
