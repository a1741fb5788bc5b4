"""Which data a vacuum truncates. Ref: docs/rules.md, log rule 8."""

from __future__ import annotations

import pytest

from bk_spark.log.cleanup.vacuum import expired_ledgers
from bk_spark.log.stored.values import CommitKind
from bk_spark.metadata.store import Delete
from tests.unit.log.aged_world import DAY_S, AgedWorld, ids, keep, present, vacuum


@pytest.fixture
def world():
    return AgedWorld()


def test_old_data_is_truncated_by_whole_ledgers_and_the_newest_stays(world):
    world.logs.open("orders", create=True)
    keep(world, retention_s=100)
    first, second = world.write("orders", 2), world.write("orders")
    world.pass_s(100)
    third = world.write("orders", 2)
    assert vacuum(world).truncated_ledgers == 0
    world.pass_s(1)
    assert vacuum(world).truncated_ledgers == 3
    assert world.listed("orders") == list(ids(third))
    assert all(present(world, first + second))  # versions before are still readable
    world.pass_s(100)
    assert vacuum(world).truncated_ledgers == 1
    assert world.listed("orders") == list(ids(third[1:]))
    assert vacuum(world).truncated_ledgers == 0


def test_data_keeps_its_age_through_a_compaction(world):
    world.logs.open("orders", create=True)
    keep(world, retention_s=100)
    old = world.write("orders") + world.write("orders")
    world.pass_s(90)
    world.write("orders")
    merged = world.write("orders", kind=CommitKind.COMPACT, remove=ids(old), entries=20)
    world.pass_s(11)
    assert vacuum(world).truncated_ledgers == 1
    assert merged[0].ledger_id not in world.listed("orders")


def test_a_ledger_with_young_rows_at_its_end_stays_whole(world):
    world.logs.open("orders", create=True)
    keep(world, retention_s=100)
    old = world.write("orders")
    world.pass_s(101)
    young = world.write("orders")
    world.write("orders", kind=CommitKind.COMPACT, remove=ids(old + young), entries=20)
    world.write("orders")
    assert vacuum(world).truncated_ledgers == 0


def test_at_least_retention_bytes_stay(world):
    world.logs.open("orders", create=True)
    keep(world, retention_bytes=2500)
    ledgers = [world.write("orders")[0] for _ in range(6)]  # 1000 bytes each
    assert vacuum(world).truncated_ledgers == 3
    assert world.listed("orders") == list(ids(ledgers[3:]))
    keep(world, retention_bytes=0)
    vacuum(world)
    assert world.listed("orders") == list(ids(ledgers[5:]))


def test_a_replacement_makes_all_rows_as_young_as_itself(world):
    world.logs.open("orders", create=True)
    keep(world, retention_s=100)
    old = world.write("orders", 2)
    world.pass_s(101)
    world.write("orders", kind=CommitKind.REPLACE, remove=ids(old[:1]))
    assert vacuum(world).truncated_ledgers == 0
    world.pass_s(101)
    assert vacuum(world).truncated_ledgers == 1


def test_a_truncation_that_a_commit_overtook_is_planned_anew(world):
    world.logs.open("orders", create=True)
    keep(world, retention_bytes=1000)
    ledgers = world.write("orders", 3)
    session = world.new_session()
    real = session.transaction

    def transaction(operations):
        if any(isinstance(one, Delete) and one.path.endswith("/running") for one in operations):
            session.transaction = real
            world.write("orders", 2, CommitKind.REPLACE, remove=ids(ledgers[1:]))
        real(operations)

    session.transaction = transaction
    assert vacuum(world, store=session).truncated_ledgers == 2
    assert len(world.listed("orders")) == 1


def test_nothing_is_truncated_without_a_retention_of_data(world):
    world.write("orders", 3)
    world.pass_s(1000 * DAY_S)
    assert vacuum(world).truncated_ledgers == 0


def test_the_newest_closed_ledger_never_goes_by_retention():
    assert expired_ledgers([], 0, 100, 0) == 0
    world = AgedWorld()
    [only] = world.write("orders")
    assert expired_ledgers([only], 0, 10, 0) == 0
    assert expired_ledgers([only, only], 0, 20, None) == 1
    assert expired_ledgers([only, only], 0, 9, None) == 0
    assert expired_ledgers([only, only], 5, 15, None) == 1
    assert expired_ledgers([only, only], 0, None, 1001) == 0
