"""The sweep of orphans on a real ZooKeeper."""

from __future__ import annotations

from bk_spark.log.cleanup.orphans import OrphanKind
from tests.unit.log.aged_world import append, kinds, present, sweep
from tests.unit.log.log_world import LogWorld


def test_all_of_it_on_zookeeper(store, znodes):
    world = LogWorld(lambda: store, znodes)
    store.ensure_path(znodes.root)
    committed, running = world.logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    won, lost, left = world.job_ledger(committed), world.job_ledger(committed), world.job_ledger(running)
    world.logs.commit(committed, append(won))
    assert sorted(kinds(sweep(world, 0)), key=str) == [OrphanKind.LOSING_ATTEMPTS, OrphanKind.RUNNING_JOB]
    assert present(world, [won, lost, left]) == [True, False, False]
    for _ in range(2):
        sweep(world, 0)
    assert store.children(znodes.log_data) == [world.logs.names.uid("orders")]
    assert world.listed("orders") == [won.ledger_id]
