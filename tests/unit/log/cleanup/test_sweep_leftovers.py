"""What a sweep removes in the end, however it came about. Log rule 1. Ref: docs/rules.md."""

from __future__ import annotations

import json

import pytest

from bk_spark.errors import BookKeeperError, CorruptionError, FormatVersionError
from bk_spark.log.cleanup.orphans import OrphanKind
from bk_spark.log.stored.values import Head
from bk_spark.metadata.store import StoreError, TransactionFailedError
from tests.unit.log.aged_world import DAY_S, AgedWorld, append, kinds, present, sweep
from tests.unit.log.log_requests import write
from tests.unit.log.log_world import ScriptedStore


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


def test_the_names_of_logs_are_read_once_however_many_logs_never_came_to_be(world):
    for number in range(3):
        world.write(f"log-{number}")
    for number in range(5):
        world.logs.names.prepare(f"never{number}")
    world.pass_s(DAY_S)
    session = ScriptedStore(world.new_session())
    assert kinds(sweep(world, store=session)) == [OrphanKind.LOG_DATA] * 5
    asked = [name for name, path in session.calls if path == world.znodes.log_names or _names(world, path)]
    assert sorted(asked) == ["children", "get_many"]
    assert len(uids(world)) == 3


def _names(world, paths):
    """Whether these are names of logs."""
    given = paths if isinstance(paths, list) else [paths]
    return any(isinstance(path, str) and path.startswith(f"{world.znodes.log_names}/") for path in given)


def test_a_log_that_is_made_between_the_search_and_the_removal_is_whole(world):
    """Log rule 1: the sweep finds its head among what it is about to remove."""
    world.write("orders")
    world.logs.names.prepare("late")
    world.pass_s(DAY_S)
    session = world.new_session()
    real, data = session.children, world.znodes.log("late")

    def made_before(path):
        if path == data:
            session.children = real
            head = Head("late", time_ms=world.now_ms)
            world.store.transaction(world.logs.names.creation("late", "late", head))
        return real(path)

    session.children = made_before
    assert sweep(world, store=session) == []
    assert world.logs.names.uid("late") == "late"
    write(world, "late")
