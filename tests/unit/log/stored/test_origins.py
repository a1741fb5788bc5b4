"""Which version added a ledger: found in the commits, as long as the log keeps their records."""

from __future__ import annotations

from dataclasses import replace

from bk_spark.log.stored.origins import Origin, origins
from tests.unit.log.log_requests import append, write
from tests.unit.log.long_log import grow


def origins_of(world, ids, last=None):
    uid = world.logs.names.uid("orders")
    head = world.logs.names.head("orders", uid)
    return origins(world.logs.reader, head, uid, ids, head.version if last is None else last)


def test_a_ledger_came_with_the_commit_that_lists_it_and_an_opened_one_has_no_time(world):
    world.now_ms = 5_000
    write(world, "orders", a := world.plain_ledger())
    world.now_ms = 7_000
    write(world, "orders", b := world.plain_ledger(), c := world.plain_ledger())
    job = world.logs.jobs.begin("orders")
    world.logs.commit(job, append(opened=(opened := world.open_ledger(job))))
    ids = [a.ledger_id, b.ledger_id, c.ledger_id, opened]
    assert list(map(origins_of(world, ids).get, ids)) == [Origin(1, 5_000), Origin(2, 7_000), Origin(2, 7_000), Origin(3, None)]
    assert origins_of(world, [a.ledger_id], 1) == {a.ledger_id: Origin(1, 5_000)}


def test_a_log_is_read_back_only_as_far_as_the_ledgers_are(world):
    write(world, "orders")
    grow(world.store, world.logs, world.paths(world.logs.names.uid("orders")), "orders", 99)
    store, logs = world.scripted()
    uid = logs.names.uid("orders")
    head = logs.names.head("orders", uid)
    store.calls.clear()
    assert origins(logs.reader, head, uid, [1_000_000_000 + 98], 100) == {1_000_000_000 + 98: Origin(98, world.now_ms)}
    assert sum(len(paths) for name, paths in store.calls if name == "get_many") <= 2 * 8
    assert origins(logs.reader, head, uid, [1_000_000_000 + 2], 100) == {1_000_000_000 + 2: Origin(2, world.now_ms)}


def test_nothing_is_told_of_a_ledger_whose_commit_was_vacuumed(world):
    for _ in range(3):
        write(world, "orders", ledger := world.plain_ledger())
    uid = world.logs.names.uid("orders")
    first = world.logs.reader.snapshot("orders", 1).ledgers[0]
    world.logs.names.change_head("orders", uid, lambda head: replace(head, oldest_record=2))
    world.store.delete(world.paths(uid).version(1))
    ids = [first.ledger_id, ledger.ledger_id]
    assert [one.version for one in origins_of(world, ids).values()] == [3]
