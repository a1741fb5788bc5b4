"""What a sweep removes in the end, however it came about. Log rule 1. Ref: docs/rules.md."""

from __future__ import annotations

import json

import pytest

from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.log.cleanup.orphans import OrphanKind
from bk_spark.metadata.store import StoreError, TransactionFailedError
from tests.unit.log.aged_world import DAY_S, AgedWorld, append, kinds, present, sweep
from tests.unit.log.log_requests import write


@pytest.fixture
def world():
    return AgedWorld()


def uids(world):
    return world.store.children(world.znodes.log_data)


def test_a_checkpoint_written_while_its_log_was_deleted_goes_with_the_rest(world):
    world.write("orders")
    uid = world.logs.names.uid("orders")
    session = world.new_session()
    real = session.ensure_path

    def deleted_before(path):
        session.ensure_path = real
        world.logs.deleter.delete("orders")
        return real(path)

    session.ensure_path = deleted_before
    world.log_store(session).write_checkpoint("orders", uid, 1)
    assert uids(world) == [uid]
    world.pass_s(DAY_S)
    assert kinds(sweep(world)) == [OrphanKind.LOG_DATA]
    assert uids(world) == []


def test_the_own_directory_of_a_job_that_moved_and_was_cleared_goes_with_the_log_it_moved_to(world):
    winner, loser = world.logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    world.logs.commit(winner, append(world.job_ledger(winner)))
    world.logs.commit(loser, append(moved := world.job_ledger(loser)))
    world.logs.jobs.finish(loser, [moved.ledger_id])
    world.pass_s(DAY_S)
    assert OrphanKind.LOG_DATA not in kinds(sweep(world))
    world.logs.deleter.delete("orders")
    assert kinds(sweep(world)) == [OrphanKind.LOG_DATA]
    assert uids(world) == []


def test_a_log_that_is_made_at_the_very_moment_its_data_is_swept_is_whole_or_not_made(world):
    """Log rule 1: at whatever step of the sweep."""
    for step in range(12):
        name = f"log-{step}"
        session, sweeping = world.new_session(), world.new_session()
        real, left = session.transaction, [step]

        def swept_meanwhile(operations, session=session, sweeping=sweeping, real=real, left=left):
            session.transaction = real
            world.pass_s(2 * DAY_S)
            for method in ("delete", "transaction"):
                setattr(sweeping, method, counted(getattr(sweeping, method), left, lambda: real(operations)))
            sweep(world, store=sweeping)
            if left[0] >= 0:
                real(operations)

        session.transaction = swept_meanwhile
        try:
            world.log_store(session).open(name, create=True)
        except (BookKeeperError, StoreError, TransactionFailedError):
            assert name not in world.logs.names.all()
        if name in world.logs.names.all():
            write(world, name)


def counted(real, left, action):
    def call(*arguments):
        left[0] -= 1
        if left[0] == -1:
            action()
        return real(*arguments)

    return call


@pytest.mark.parametrize(
    ("damage", "error"), [(b"?", CorruptionError), (json.dumps({"format": 99}).encode(), FormatVersionError)]
)
def test_a_log_that_cannot_be_read_keeps_no_other_log_from_being_swept_and_is_named_in_the_end(world, damage, error):
    left = []
    for number in range(6):
        world.write(f"log-{number}")
        left.append(world.job_ledger(world.logs.jobs.begin(f"log-{number}")))
    path = world.paths(world.logs.names.uid("log-3")).head
    world.store.set(path, damage, world.store.get(path).version)
    world.pass_s(DAY_S)
    with pytest.raises(error, match="the head of log uid"):
        sweep(world)
    assert present(world, left) == [False, False, False, True, False, False]
