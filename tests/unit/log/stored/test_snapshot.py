"""Which versions can be read, and how they are found by time."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bk_spark.errors import ConfigError, CorruptionError, NoSuchLogError
from bk_spark.log.stored.listing import Listing
from bk_spark.log.stored.values import OpenLedger, Retention
from bk_spark.metadata.store import ANY_VERSION
from tests.unit.log.log_requests import append, overwrite, write
from tests.unit.log.long_log import grow


def uid(world):
    return world.logs.names.uid("orders")


def forget(world, oldest_version, oldest_record=0):
    """As a vacuum does it."""
    world.logs.write_checkpoint("orders", uid(world), oldest_version)
    change = {"oldest_version": oldest_version, "oldest_record": oldest_record}
    world.logs.names.change_head("orders", uid(world), lambda head: replace(head, **change))
    for version in range(1, oldest_record):
        world.store.delete(world.paths(uid(world)).version(version))


def commit_at(world, *times_ms):
    for one in times_ms:
        world.now_ms = one
        write(world, "orders")


def test_a_snapshot_names_the_open_ledgers_and_the_row_number_at_its_end(world):
    write(world, "orders", a := world.plain_ledger(7))
    job = world.logs.jobs.begin("orders")
    opened = world.open_ledger(job)
    world.logs.commit(job, append(opened=opened))
    snapshot = world.logs.reader.snapshot("orders")
    assert (snapshot.ledgers, snapshot.open_ledgers, snapshot.end_row) == ((a,), (OpenLedger(opened, 2),), 7)
    assert world.logs.reader.snapshot("orders", 1).open_ledgers == ()
    assert world.logs.reader.listing("orders", uid(world), 2) == Listing((a,), (OpenLedger(opened, 2),))
    assert world.logs.reader.listing("orders", uid(world), 0) == Listing()


def test_versions_below_the_oldest_one_are_refused_with_the_oldest_and_the_retention(world):
    """Log rule 8."""
    for _ in range(5):
        write(world, "orders")
    world.logs.set_retention("orders", uid(world), Retention(3600))
    forget(world, 3)
    says = r"is 2: the oldest version of log 'orders' that can be read is 3: it keeps versions for 3600 s .*'bk-spark log set "
    with pytest.raises(ConfigError, match="versionAsOf " + says):
        world.logs.reader.snapshot("orders", 2)
    with pytest.raises(ConfigError, match=says):
        world.logs.reader.listing("orders", uid(world), 2)
    with pytest.raises(ConfigError, match="is 0: the oldest version"):
        world.logs.reader.snapshot("orders", 0)
    with pytest.raises(ConfigError, match="is '3': it must be a whole number"):
        world.logs.reader.snapshot("orders", "3")
    with pytest.raises(ConfigError, match="is 9: log 'orders' has the versions 3 to 5"):
        world.logs.reader.snapshot("orders", 9)
    assert [len(world.logs.reader.snapshot("orders", n).ledgers) for n in (3, 4, 5)] == [3, 4, 5]
    assert [one.version for one in world.logs.reader.all_versions("orders")] == [3, 4, 5]


def test_records_below_the_oldest_version_stay_readable_until_they_are_gone(world):
    for _ in range(5):
        write(world, "orders")
    forget(world, 4, oldest_record=2)
    reader = world.logs.reader
    assert [one.version for one in reader.versions("orders", uid(world), 2, 5)] == [2, 3, 4, 5]
    assert [commit.version for commit, pages in reader.commits("orders", uid(world), 2, 3)] == [2, 3]
    with pytest.raises(ConfigError, match="version is 1: the oldest version of log 'orders' that can be read is 4"):
        reader.version("orders", uid(world), 1)
    world.store.delete(world.paths(uid(world)).version(3))
    with pytest.raises(CorruptionError, match="version 3 of log 'orders' is damaged: it is missing"):
        reader.version("orders", uid(world), 3)


def test_totals_that_do_not_agree_with_the_ledgers_are_damage(world):
    write(world, "orders")
    write(world, "orders")
    path = world.paths(uid(world)).version(1)
    stored = world.store.get(path)
    world.store.delete(path, ANY_VERSION)
    world.store.create(path, stored.value.replace(b'"pages":1', b'"pages":0'))
    with pytest.raises(CorruptionError, match="its totals are not those of the ledgers"):
        world.logs.reader.snapshot("orders")


def test_the_version_at_a_time_is_the_newest_that_was_committed_by_then(world):
    commit_at(world, 100, 200, 200, 300)
    found = {time: world.logs.reader.version_at("orders", uid(world), time) for time in (0, 99, 100, 199, 200, 299, 300, 999)}
    assert found == {0: 0, 99: 0, 100: 1, 199: 1, 200: 3, 299: 3, 300: 4, 999: 4}


def test_the_version_at_a_time_of_an_empty_log_is_0(world):
    world.logs.open("orders", create=True)
    assert [world.logs.reader.version_at("orders", uid(world), time) for time in (0, 10**9)] == [0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_the_version_at_a_time_agrees_with_a_plain_search(world, seed):
    chance = random.Random(seed)
    times = sorted(chance.randrange(1000) for _ in range(chance.randint(1, 150)))
    commit_at(world, *times)
    for time in [*range(0, 1000, 97), *times[::7]]:
        assert world.logs.reader.version_at("orders", uid(world), time) == sum(one <= time for one in times)


def test_a_time_before_the_oldest_version_is_refused(world):
    """Log rule 8."""
    commit_at(world, 100, 200, 300, 400)
    forget(world, 3, oldest_record=3)
    assert world.logs.reader.version_at("orders", uid(world), 300) == 3
    with pytest.raises(ConfigError, match=r"is '1970-01-01T00:00:00\.299\+00:00': the oldest version of log 'orders' .* is 3"):
        world.logs.reader.version_at("orders", uid(world), 299)


def test_a_time_is_found_in_a_long_log_with_a_few_rounds_of_reads(world):
    write(world, "orders")
    grow(world.store, world.logs, world.paths(uid(world)), "orders", 2000)
    commit_at(world, 2_000_000)
    store, logs = world.scripted()
    assert logs.reader.version_at("orders", uid(world), 1_999_999) == 2001
    assert len(store.calls) <= 6


def test_the_oldest_version_is_the_last_overwrite_or_below_it(world):
    """A vacuum may leave the overwrite behind: the checkpoint at the oldest version stands above it."""
    for _ in range(3):
        write(world, "orders")
    write(world, "orders", request=overwrite)
    write(world, "orders")
    forget(world, 2)
    assert len(world.logs.reader.snapshot("orders").ledgers) == 2
    forget(world, 5)
    assert len(world.logs.reader.snapshot("orders").ledgers) == 2


def test_reading_a_log_that_is_gone_says_so(world):
    write(world, "orders")
    found = uid(world)
    world.logs.deleter.delete("orders")
    for read in (
        lambda: world.logs.names.head("orders", found),
        lambda: world.logs.reader.listing("orders", found, 1),
        lambda: world.logs.reader.version("orders", found, 1),
        lambda: world.logs.reader.version_at("orders", found, 1),
        lambda: world.logs.names.uid("orders"),
    ):
        with pytest.raises(NoSuchLogError):
            read()
