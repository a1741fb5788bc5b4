"""Names, versions and snapshots of logs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError, MetadataConflictError, NoSuchLogError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored import names
from bk_spark.log.stored.values import CommitKind, Retention
from bk_spark.metadata.store import BadVersionError


def commit(world, kind, *ledgers, remove=(), name="orders"):
    job = world.logs.jobs.begin(name)
    return world.logs.commit(job, CommitRequest(kind, tuple(ledgers), remove=tuple(remove)))


@pytest.mark.parametrize("name", ["orders", "a b", "日本", "x" * 200, "..."])
def test_a_log_may_have_any_printable_name_of_up_to_200_characters(world, name):
    uid = world.logs.open(name, create=True)
    assert world.logs.open(name) == uid
    assert world.logs.names.all() == [name]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "x" * 201, "a\nb", "a\x00", "a\x85", "\ud800", "\ufff0", None, 7])
def test_other_names_are_refused_with_the_reason(world, name):
    logs = world.logs
    for use in (logs.jobs.begin, logs.open, logs.reader.snapshot, logs.deleter.delete, logs.reader.all_versions):
        with pytest.raises(ConfigError, match=r"^log name is .*: it must"):
            use(name)


def test_opening_a_log_that_is_not_there_needs_create(world):
    with pytest.raises(NoSuchLogError, match="there is no log 'orders'"):
        world.logs.open("orders")
    assert world.logs.names.all() == []


def test_an_empty_log_is_visible_at_version_0_without_a_schema(world):
    uid = world.logs.open("orders", create=True)
    snapshot = world.logs.reader.snapshot("orders")
    assert (snapshot.uid, snapshot.version, snapshot.schema_json, snapshot.content) == (uid, 0, None, None)
    assert snapshot.ledgers == ()
    assert world.logs.reader.all_versions("orders") == []


def test_two_sessions_that_make_a_log_at_once_get_the_same_one(world):
    session = world.new_session()
    real = session.transaction
    others = []

    def beaten(operations):
        session.transaction = real
        others.append(world.logs.open("orders", create=True))
        real(operations)

    session.transaction = beaten
    assert [world.log_store(session).open("orders", create=True)] == others


def test_there_is_a_maximum_of_logs_and_it_is_named(world, monkeypatch):
    monkeypatch.setattr(names, "MAX_LOGS", 2)
    jobs = [world.logs.jobs.begin("c") for _ in range(1)]
    for name in "ab":
        world.logs.open(name, create=True)
    with pytest.raises(ConfigError, match="log name is 'c': there are 2 logs already, the maximum: delete some first"):
        world.logs.open("c", create=True)
    with pytest.raises(ConfigError, match="there are 2 logs already"):
        world.logs.commit(jobs[0], CommitRequest(CommitKind.APPEND))
    world.logs.open("a", create=True)


def test_a_snapshot_of_an_unknown_log_is_an_error(world):
    with pytest.raises(NoSuchLogError):
        world.logs.reader.snapshot("orders")
    with pytest.raises(NoSuchLogError):
        world.logs.reader.all_versions("orders")


def test_every_old_version_stays_readable(world):
    a, b, c, d = (world.plain_ledger() for _ in range(4))
    commit(world, CommitKind.APPEND, a, b)
    commit(world, CommitKind.REPLACE, c, remove=[a.ledger_id])
    commit(world, CommitKind.OVERWRITE, d)
    listings = {0: (), 1: (a, b), 2: (c, b), 3: (d,)}
    assert {n: world.logs.reader.snapshot("orders", n).ledgers for n in listings} == listings
    assert world.logs.reader.snapshot("orders").version == 3


@pytest.mark.parametrize("version", [-1, 3, "1", 1.0, True])
def test_a_version_that_is_not_there_is_refused_with_the_range(world, version):
    commit(world, CommitKind.APPEND, world.plain_ledger())
    commit(world, CommitKind.APPEND, world.plain_ledger())
    with pytest.raises(ConfigError, match=r"versionAsOf is .*: .*log 'orders' has the versions 0 to 2"):
        world.logs.reader.snapshot("orders", version)


def test_a_reader_folds_from_the_last_overwrite_only(world):
    for _ in range(50):
        commit(world, CommitKind.APPEND, world.plain_ledger())
    commit(world, CommitKind.OVERWRITE, world.plain_ledger())
    commit(world, CommitKind.APPEND, world.plain_ledger())
    store, logs = world.scripted()
    assert len(logs.reader.snapshot("orders").ledgers) == 2
    assert sum(len(what) for name, what in store.calls if name == "get_many") <= 6


def test_a_snapshot_is_pipelined(world):
    for _ in range(100):
        commit(world, CommitKind.APPEND, world.plain_ledger())
    store, logs = world.scripted()
    assert len(logs.reader.snapshot("orders").ledgers) == 100
    assert len(store.calls) <= 7


def test_a_snapshot_stays_whole_while_others_commit(world):
    a, b = world.plain_ledger(), world.plain_ledger()
    commit(world, CommitKind.APPEND, a)
    session = world.new_session()
    real = session.get_many

    def meanwhile(paths):
        session.get_many = real
        commit(world, CommitKind.OVERWRITE, b)
        return real(paths)

    session.get_many = meanwhile
    assert world.log_store(session).reader.snapshot("orders").ledgers == (a,)


def test_a_log_that_is_deleted_under_a_reader_is_not_called_damaged(world):
    commit(world, CommitKind.APPEND, world.plain_ledger())
    session = world.new_session()
    real = session.get_many

    def meanwhile(paths):
        session.get_many = real
        world.logs.deleter.delete("orders")
        return real(paths)

    session.get_many = meanwhile
    with pytest.raises(NoSuchLogError):
        world.log_store(session).reader.snapshot("orders")


def test_a_missing_version_is_damage_and_named(world):
    commit(world, CommitKind.APPEND, world.plain_ledger())
    uid = world.logs.reader.snapshot("orders").uid
    world.store.delete(world.paths(uid).version(1))
    with pytest.raises(CorruptionError, match="version 1 of log 'orders' is damaged: it is missing"):
        world.logs.reader.snapshot("orders")


def test_a_head_of_a_newer_program_is_refused_by_name(world):
    uid = world.logs.open("orders", create=True)
    world.store.set(world.paths(uid).head, b'{"format":8}', 0)
    with pytest.raises(FormatVersionError, match="the head of log 'orders' has format version 8"):
        world.logs.reader.snapshot("orders")


@pytest.mark.parametrize("seed", range(10))
def test_totals_and_listings_agree_with_a_plain_list_over_random_commits(world, seed):
    chance = random.Random(seed)
    expected = []
    for _ in range(30):
        added = [world.plain_ledger(chance.randint(1, 9)) for _ in range(chance.randint(1, 4))]
        kind = chance.choice([CommitKind.APPEND, CommitKind.APPEND, CommitKind.REPLACE, CommitKind.OVERWRITE])
        remove = []
        if kind is CommitKind.REPLACE and expected:
            start = chance.randrange(len(expected))
            remove = expected[start : start + chance.randint(1, 5)]
            expected[start : start + len(remove)] = added
        else:
            kind = CommitKind.APPEND if kind is CommitKind.REPLACE else kind
            expected = added if kind is CommitKind.OVERWRITE else expected + added
        version = commit(world, kind, *added, remove=[one.ledger_id for one in remove])
        assert world.logs.reader.snapshot("orders").ledgers == tuple(expected)
        assert (version.total.ledgers, version.total.rows) == (len(expected), sum(one.rows for one in expected))


def test_a_retention_is_kept_by_later_commits_and_changes_nothing_else(world):
    commit(world, CommitKind.APPEND, world.plain_ledger())
    uid = world.logs.names.uid("orders")
    before = world.logs.names.head("orders", uid)
    world.logs.set_retention("orders", uid, Retention(60, 3600, 10**9))
    assert world.logs.names.head("orders", uid) == replace(before, retention=Retention(60, 3600, 10**9))
    commit(world, CommitKind.OVERWRITE, world.plain_ledger())
    assert world.logs.names.head("orders", uid).retention == Retention(60, 3600, 10**9)
    with pytest.raises(NoSuchLogError):
        world.logs.set_retention("orders", "f" * 32, Retention(60))


def test_a_change_of_the_head_is_made_again_on_what_was_committed_meanwhile(world):
    commit(world, CommitKind.APPEND, world.plain_ledger())
    uid = world.logs.names.uid("orders")
    session = world.new_session()
    real = session.set

    def beaten(path, value, version):
        session.set = real
        commit(world, CommitKind.APPEND, world.plain_ledger())
        return real(path, value, version)

    session.set = beaten
    head = world.log_store(session).names.change_head("orders", uid, lambda one: replace(one, oldest_record=one.version))
    assert (head.version, head.oldest_record) == (2, 2)
    assert world.logs.names.head("orders", uid) == head


def test_a_change_of_the_head_that_never_gets_through_ends_after_a_bounded_number_of_tries(world):
    uid = world.logs.open("orders", create=True)
    session = world.new_session()

    def beaten(path, value, version):
        raise BadVersionError(path)

    session.set = beaten
    with pytest.raises(MetadataConflictError, match="100 commits came between"):
        world.log_store(session).set_retention("orders", uid, Retention(60))


def test_a_new_log_has_a_directory_for_cursors_and_checkpoints(world):
    paths = world.paths(world.logs.open("orders", create=True))
    assert None not in world.store.get_many([paths.cursors, paths.checkpoints])


def test_a_change_of_the_head_is_made_on_the_newest_one_also_where_an_old_one_was_read(world):
    """A follower of ZooKeeper's leader may lag until a sync: there the retention to set looks as if it were set."""
    uid = world.logs.open("orders", create=True)
    session = world.new_session()
    old, fresh = session.get(world.paths(uid).head), session.get
    world.logs.set_retention("orders", uid, Retention(60))

    def catch_up(path):
        session.get = fresh

    session.get = lambda path: old if path == world.paths(uid).head else fresh(path)
    session.sync = catch_up
    world.log_store(session).set_retention("orders", uid, Retention())
    assert world.logs.names.head("orders", uid).retention == Retention()
