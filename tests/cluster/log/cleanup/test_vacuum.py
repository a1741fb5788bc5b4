"""The vacuum of a log on a real ZooKeeper."""

from __future__ import annotations

from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup.store_clock import StoreTimes
from bk_spark.log.stored.values import CommitKind, Retention
from tests.unit.log.aged_world import head, ids, present, vacuum
from tests.unit.log.log_world import LogWorld


def test_all_of_it_on_zookeeper(store, znodes, monkeypatch):
    """Transactions, times and refusals are those of the real store."""
    world = LogWorld(lambda: store, znodes)
    store.ensure_path(znodes.root)
    monkeypatch.setattr("bk_spark.log.cleanup.records.JOB_MEMORY_S", 0)
    uid = world.logs.open("orders", create=True)
    world.logs.set_retention("orders", uid, Retention(version_retention_s=0, retention_bytes=1500))
    ledgers = []
    for _ in range(6):
        job = world.logs.jobs.begin("orders")
        ledgers.append(world.job_ledger(job))
        world.logs.commit(job, CommitRequest(CommitKind.APPEND, (ledgers[-1],)))
    job = world.logs.jobs.begin("orders")
    merged = world.job_ledger(job, entries=20)
    world.logs.commit(job, CommitRequest(CommitKind.COMPACT, (merged,), remove=ids(ledgers[:2])))
    vacuum(world, records_kept=2)
    times = StoreTimes(world.store, world.znodes)
    [(_, last_ms)] = times.of_versions(world.paths(uid), 8, 8)
    while times.now_ms() <= last_ms + 1:
        pass  # at most two milliseconds
    vacuum(world, records_kept=2)
    assert world.listed("orders") == list(ids(ledgers[4:]))
    assert present(world, [merged, *ledgers]) == [False] * 5 + [True] * 2
    now = head(world)
    assert (now.version, now.oldest_version, now.vacuumed_version, now.oldest_record) == (8, 8, 8, 6)
    assert world.store.children(world.paths(uid).version_bucket(0)) == ["6", "7", "8"]
    assert world.store.children(world.paths(uid).checkpoint_bucket(0)) == ["8"]
    world.logs.deleter.delete("orders")
    assert not any(present(world, [merged, *ledgers]))
