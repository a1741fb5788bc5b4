"""Checkpoints, and what a log costs at any age."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from bk_spark.errors import ConfigError, CorruptionError, MetadataUnavailableError
from bk_spark.log.changes import commit
from bk_spark.log.stored import checkpoint as log_checkpoint
from bk_spark.log.stored.checkpoint import CheckpointState, is_worth
from bk_spark.log.stored.listing import Listing
from bk_spark.log.stored.values import LEDGERS_PER_PAGE, CommittedLedger, Page
from bk_spark.metadata.store import ANY_VERSION
from bk_spark.metadata.znodes import Znodes
from tests.memory_store import MemoryStore, MemoryTree
from tests.unit.log.log_requests import append, overwrite, replacement, write
from tests.unit.log.log_world import LogWorld, ScriptedStore
from tests.unit.log.long_log import grow


@pytest.fixture
def interval(monkeypatch):
    """A checkpoint at every tenth version."""
    for module in (log_checkpoint, commit):
        monkeypatch.setattr(module, "CHECKPOINT_INTERVAL", 10)


@pytest.fixture(scope="module")
def old_world():
    """A log of 3,000 versions, one ledger each. Tests may append to it."""
    tree = MemoryTree(lambda: 5)
    MemoryStore(tree).ensure_path("/ledgers")
    world = LogWorld(lambda: MemoryStore(tree), Znodes("/ledgers"))
    write(world, "orders")
    grow(world.store, world.logs, world.paths(uid(world)), "orders", 2999)
    return world


def uid(world):
    return world.logs.names.uid("orders")


def checkpoint(world, version):
    (stored,) = world.store.get_many([world.paths(uid(world)).checkpoint(version)])
    return None if stored is None or not stored.value else CheckpointState.decode("it", stored.value)


def round_trips(world, action):
    """How many calls ``action`` makes on a store, by kind, and how many values it reads."""
    store, logs = world.scripted()
    action(logs)
    reads = sum(len(what) for name, what in store.calls if name == "get_many")
    return [name for name, _ in store.calls], reads


def append_one(world):
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    return lambda logs: logs.commit(job, append(ledger))


def test_an_append_costs_the_same_on_a_log_of_five_versions_and_of_three_thousand(world, old_world):
    for _ in range(5):
        write(world, "orders")
    assert round_trips(old_world, append_one(old_world)) == round_trips(world, append_one(world))


def test_a_listing_costs_the_same_after_two_thousand_versions_and_after_three(old_world):
    young = round_trips(old_world, lambda logs: logs.reader.listing("orders", uid(old_world), 2000))
    old = round_trips(old_world, lambda logs: logs.reader.listing("orders", uid(old_world), 3000))
    assert len(old[0]) == len(young[0]) <= 6
    assert old[1] <= young[1] + 1, "one more place where a checkpoint may stand"


def test_a_replacement_in_an_old_log_reads_no_more_than_from_the_last_checkpoint(old_world):
    listed = old_world.logs.reader.snapshot("orders").ledgers
    job = old_world.logs.jobs.begin("orders")
    request = replacement(listed[:2], old_world.plain_ledger())
    reads = round_trips(old_world, lambda logs: logs.commit(job, request))[1]
    assert reads < 50


def test_a_replacement_that_loses_against_appends_reads_only_what_they_added(world):
    """Log rule 4: on a busy log a try must not take longer than the time between two commits."""
    ledgers = [world.plain_ledger() for _ in range(50)]
    for one in ledgers:
        write(world, "orders", one)
    store, logs = world.scripted()
    reads = []

    def beaten(operations):
        reads.append(sum(len(what) for name, what in store.calls if name == "get_many"))
        write(world, "orders")

    store.script = [beaten] * 3
    logs.commit(logs.jobs.begin("orders"), replacement(ledgers[:2], world.plain_ledger()))
    assert reads[0] > 100
    assert reads[2] - reads[1] <= 12
    assert len(world.listed("orders")) == 52


def test_the_commit_of_every_so_many_versions_writes_a_checkpoint(world, interval):
    ledgers = [world.plain_ledger() for _ in range(25)]
    for one in ledgers:
        write(world, "orders", one)
    assert [n for n in range(30) if checkpoint(world, n)] == [10, 20]
    for version in (9, 10, 11, 25):
        assert world.logs.reader.snapshot("orders", version).ledgers == tuple(ledgers[:version])


def test_a_reader_starts_at_the_newest_checkpoint_that_is_not_above_its_version(world, interval):
    for _ in range(39):
        write(world, "orders")
    paths = world.paths(uid(world))
    for gone in range(1, 30):
        world.store.delete(paths.version(gone), ANY_VERSION)
    assert len(world.logs.reader.snapshot("orders", 30).ledgers) == 30
    assert len(world.logs.reader.snapshot("orders", 39).ledgers) == 39
    with pytest.raises(CorruptionError, match="version 29 of log 'orders' is damaged: it is missing"):
        world.logs.reader.snapshot("orders", 29)


def test_a_checkpoint_that_is_not_whole_is_not_used(world, interval):
    for _ in range(25):
        write(world, "orders")
    path = world.paths(uid(world)).checkpoint(20)
    world.store.set(path, b"", world.store.get(path).version)
    assert len(world.logs.reader.snapshot("orders").ledgers) == 25


def test_a_reader_finds_a_complete_checkpoint_however_many_newer_ones_are_not(world, interval):
    for _ in range(180):
        write(world, "orders")
    paths = world.paths(uid(world))
    for version in range(20, 181, 10):
        path = paths.checkpoint(version)
        world.store.set(path, b"", world.store.get(path).version)
    store, logs = world.scripted()
    assert len(logs.reader.snapshot("orders").ledgers) == 180
    asked = [what for name, what in store.calls if name == "get_many" and "/checkpoints/" in what[0]]
    assert [len(one) for one in asked] == [16, 2, 1], "two lists of checkpoints, and one page"


def test_a_log_without_a_checkpoint_is_read_without_looking_for_one(world):
    for _ in range(3):
        write(world, "orders")
    store, logs = world.scripted()
    logs.reader.snapshot("orders")
    assert not [what for name, what in store.calls if name in ("children", "get_many") and "/checkpoints" in str(what)]


def test_checkpoints_become_rarer_as_a_log_becomes_longer(world, interval, monkeypatch):
    """Each one is as long as the log: if they came at the same pace, all of them would take the square of its length."""
    monkeypatch.setattr(log_checkpoint, "LEDGERS_PER_VERSION", 2)
    monkeypatch.setattr(log_checkpoint, "LEDGERS_PER_PAGE", 1_000)  # one page, though it is not full
    ledgers = [world.plain_ledger() for _ in range(95)]
    for one in ledgers:
        write(world, "orders", one)
    assert [n for n in range(96) if checkpoint(world, n)] == [10, 20, 40, 80]
    for version in (9, 10, 39, 41, 79, 95):
        assert world.logs.reader.snapshot("orders", version).ledgers == tuple(ledgers[:version])


def test_a_log_that_was_replaced_by_a_short_one_gets_its_checkpoints_as_a_short_one(world, interval, monkeypatch):
    monkeypatch.setattr(log_checkpoint, "LEDGERS_PER_VERSION", 2)
    monkeypatch.setattr(log_checkpoint, "LEDGERS_PER_PAGE", 1_000)
    for _ in range(44):
        write(world, "orders")
    write(world, "orders", request=overwrite)
    for _ in range(20):
        write(world, "orders")
    assert [n for n in range(70) if checkpoint(world, n)] == [10, 20, 40, 50, 60]


@pytest.mark.parametrize(("per_commit", "times"), [(1, 60), (10, 9), (100, 9)])
def test_all_checkpoints_of_a_long_log_together_are_some_times_its_listing(per_commit, times):
    """At each thousandth version they would be 500 times as long."""
    last, before, total, most_folded = 0, 0, 0, 0
    for version in range(1_000, 1_000_001, 1_000):
        ledgers = version * per_commit
        if is_worth(version - last, ledgers, before):
            last, before, total = version, ledgers, total + ledgers
        most_folded = max(most_folded, version - last)
    assert total <= times * 1_000_000 * per_commit
    assert most_folded <= 125_000


def test_an_overwrite_makes_older_checkpoints_needless(world, interval):
    for _ in range(12):
        write(world, "orders")
    write(world, "orders", request=overwrite)
    store, logs = world.scripted()
    assert len(logs.reader.snapshot("orders").ledgers) == 1
    assert not [what for name, what in store.calls if name == "get_many" and "/checkpoints/" in what[0]]


def test_a_commit_whose_checkpoint_fails_has_taken_effect(world, interval, caplog):
    for _ in range(9):
        write(world, "orders")
    session = world.new_session()
    real = session.ensure_path

    def fail(path):
        if "/checkpoints/" in path:
            raise MetadataUnavailableError("memory://", "cut off")
        real(path)

    session.ensure_path = fail
    with caplog.at_level(logging.WARNING):
        assert write(world, "orders", logs=world.log_store(session)).version == 10
    assert "the checkpoint of version 10 was not written, readers fold more versions" in caplog.text
    assert len(world.logs.reader.snapshot("orders").ledgers) == 10


@pytest.mark.parametrize("calls", range(6))
def test_a_checkpoint_cut_short_anywhere_is_finished_by_the_next_writer(world, calls):
    for _ in range(3):
        write(world, "orders")
    left = [calls]
    session = world.new_session()

    def dies(real):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError("the process died")
            return real(*arguments, **options)

        return call

    for name in ("ensure_path", "create", "set"):
        setattr(session, name, dies(getattr(session, name)))
    try:
        world.log_store(session).write_checkpoint("orders", uid(world), 2)
    except RuntimeError:
        assert checkpoint(world, 2) is None
        world.logs.write_checkpoint("orders", uid(world), 2)
    assert checkpoint(world, 2) == CheckpointState(2, 1, ())


def test_writers_of_one_checkpoint_at_once_do_each_other_no_harm(world):
    for _ in range(3):
        write(world, "orders")
    session = world.new_session()
    real = session.set

    def beaten(path, value, version):
        world.logs.write_checkpoint("orders", uid(world), 3)
        return real(path, value, version)

    session.set = beaten
    world.log_store(session).write_checkpoint("orders", uid(world), 3)
    assert checkpoint(world, 3) == CheckpointState(3, 1, ())


def test_a_checkpoint_of_many_ledgers_stands_on_several_pages(world):
    write(world, "orders")
    listing = Listing(tuple(CommittedLedger(one, 0, 1, 1) for one in range(2 * LEDGERS_PER_PAGE + 1)))
    checkpoints = world.logs.checkpoints
    checkpoints.write("orders", uid(world), 1, listing)
    state = checkpoints.newest("orders", uid(world), [1])
    assert state.pages == 3
    assert checkpoints.listing("orders", uid(world), state) == listing
    page = world.store.get(world.paths(uid(world)).checkpoint_page(1, 2))
    assert Page.decode("it", page.value).ledgers == listing.closed[-1:]


def vacuumed(world, version):
    """What a vacuum makes of the head, and of checkpoints below."""
    world.logs.write_checkpoint("orders", uid(world), version)
    world.logs.names.change_head("orders", uid(world), lambda head: replace(head, oldest_version=version))


def test_a_log_is_read_from_the_checkpoint_of_its_oldest_version(world):
    for _ in range(9):
        write(world, "orders")
    vacuumed(world, 6)
    world.logs.names.change_head("orders", uid(world), lambda head: replace(head, oldest_record=6))
    paths = world.paths(uid(world))
    for gone in range(1, 6):
        world.store.delete(paths.version(gone), ANY_VERSION)
    assert [len(world.logs.reader.snapshot("orders", n).ledgers) for n in (6, 7, 9)] == [6, 7, 9]


def test_a_checkpoint_that_a_vacuum_removes_under_a_reader_is_replaced_by_the_newer_one(world):
    for _ in range(9):
        write(world, "orders")
    vacuumed(world, 3)
    paths = world.paths(uid(world))
    session = world.new_session()
    real = session.get_many

    def meanwhile(wanted):
        if wanted == [paths.checkpoint_page(3, 0)]:
            vacuumed(world, 7)
            world.store.delete(paths.checkpoint_page(3, 0), ANY_VERSION)
            world.store.delete(paths.checkpoint(3), ANY_VERSION)
        return real(wanted)

    session.get_many = meanwhile
    logs = world.log_store(session)
    assert len(logs.reader.listing("orders", uid(world), 9).closed) == 9


def test_a_version_that_a_vacuum_removes_under_its_reader_is_called_too_old(world):
    for _ in range(9):
        write(world, "orders")
    vacuumed(world, 3)
    paths = world.paths(uid(world))
    session = world.new_session()
    real = session.get_many

    def meanwhile(wanted):
        if wanted == [paths.checkpoint_page(3, 0)]:
            vacuumed(world, 7)
            world.store.delete(paths.checkpoint_page(3, 0), ANY_VERSION)
        return real(wanted)

    session.get_many = meanwhile
    with pytest.raises(ConfigError, match=r"versionAsOf is 4: the oldest version of log 'orders' that can be read is 7"):
        world.log_store(session).reader.snapshot("orders", 4)


def test_a_missing_checkpoint_of_the_oldest_version_is_damage(world):
    for _ in range(5):
        write(world, "orders")
    world.logs.names.change_head("orders", uid(world), lambda head: replace(head, oldest_version=3))
    with pytest.raises(CorruptionError, match="a checkpoint of log 'orders' is damaged"):
        world.logs.reader.snapshot("orders")


def test_reading_a_checkpoint_is_pipelined(old_world):
    store = ScriptedStore(old_world.new_session())
    logs = old_world.log_store(store)
    logs.reader.listing("orders", uid(old_world), 2999)
    assert len(store.calls) <= 8
