"""Log rule 8: what may go, when, and in which order, whatever the clocks say and wherever it is cut short.

Ref: docs/rules.md.
"""

from __future__ import annotations

import pytest

from bk_spark.errors import ConfigError, NoSuchLogError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup import vacuum as log_vacuum
from bk_spark.log.stored.values import CommitKind
from bk_spark.metadata.store import Delete
from tests.unit.log.aged_world import DAY_S, WEEK_S, AgedWorld, Died, head, ids, keep, present, vacuum
from tests.unit.log.log_world import ScriptedStore


@pytest.fixture
def world():
    return AgedWorld()


def test_a_ledger_written_30_days_ago_and_replaced_now_is_not_deleted_now(world):
    """Log rule 8."""
    old = world.write("orders")
    world.pass_s(30 * DAY_S)
    new = world.write("orders", kind=CommitKind.REPLACE, remove=ids(old))
    report = vacuum(world)
    assert present(world, old + new) == [True, True]
    assert (report.deleted_ledgers, report.oldest_version) == (0, 1)
    assert world.listed("orders", 1) == list(ids(old))


def test_it_goes_once_the_commit_that_unlisted_it_is_older_than_the_retention(world):
    """Log rule 8."""
    old = world.write("orders")
    new = world.write("orders", kind=CommitKind.REPLACE, remove=ids(old))
    world.pass_s(WEEK_S)
    assert vacuum(world).deleted_ledgers == 0
    world.pass_s(1)
    report = vacuum(world)
    assert (report.deleted_ledgers, report.oldest_version) == (1, 2)
    assert present(world, old + new) == [False, True]
    with pytest.raises(ConfigError, match="the oldest version of log 'orders' that can be read is 2"):
        world.logs.reader.snapshot("orders", 1)
    assert world.listed("orders") == list(ids(new))


@pytest.mark.parametrize("ahead_s", [WEEK_S, -WEEK_S])
def test_a_client_s_clock_that_is_a_week_off_changes_nothing(world, ahead_s):
    """Log rule 8: all times are the metadata store's own."""
    world.now_ms += ahead_s * 1000
    old = world.write("orders")
    world.write("orders", kind=CommitKind.OVERWRITE)
    world.pass_s(WEEK_S)
    assert vacuum(world).deleted_ledgers == 0
    world.pass_s(1)
    assert vacuum(world).deleted_ledgers == 1
    assert present(world, old) == [False]


def test_a_version_can_be_read_for_the_retention_from_the_moment_it_stopped_being_the_newest(world):
    keep_for = 100
    world.logs.open("orders", create=True)
    keep(world, version_retention_s=keep_for)
    for _ in range(4):
        world.write("orders", kind=CommitKind.OVERWRITE)
        world.pass_s(60)
    assert vacuum(world).oldest_version == 3  # 2 stopped being the newest 120 s ago, 3 did 60 s ago
    assert [len(world.listed("orders", version)) for version in (3, 4)] == [1, 1]


def test_the_newest_version_is_never_too_old(world):
    ledgers = world.write("orders")
    world.pass_s(10 * WEEK_S)
    assert vacuum(world).oldest_version == 1
    assert present(world, ledgers) == [True]
    assert world.listed("orders") == list(ids(ledgers))


@pytest.mark.parametrize("kind", [CommitKind.REPLACE, CommitKind.COMPACT, CommitKind.OVERWRITE, CommitKind.TRUNCATE])
def test_whatever_unlisted_a_ledger_it_goes_and_all_others_stay(world, kind):
    first, gone, last = world.write("orders"), world.write("orders"), world.write("orders")
    if kind is CommitKind.TRUNCATE:
        world.logs.truncate("orders", world.logs.names.uid("orders"), last[0].ledger_id)
        gone, first, new = first + gone, [], []
    elif kind is CommitKind.OVERWRITE:
        gone, new = first + gone + last, world.write("orders", kind=kind)
        first = last = []
    else:
        new = world.write("orders", kind=kind, remove=ids(gone))
    world.pass_s(2 * WEEK_S)
    assert vacuum(world).deleted_ledgers == len(gone)
    assert not any(present(world, gone))
    assert all(present(world, first + new + last))
    assert set(world.listed("orders")) == set(ids(first + new + last))


def test_ledgers_that_came_and_went_between_two_vacuums_go(world):
    world.write("orders")
    vacuum(world)
    between = world.write("orders")
    world.write("orders", kind=CommitKind.REPLACE, remove=ids(between))
    world.pass_s(2 * WEEK_S)
    vacuum(world)
    assert present(world, between) == [False]


def test_a_ledger_of_another_log_is_not_deleted(world):
    """Log rule 9: a ledger has one log for life."""
    others = world.write("others")
    mine = world.write("orders")
    world.write("orders", kind=CommitKind.OVERWRITE)
    world.pass_s(2 * WEEK_S)
    vacuum(world)
    assert present(world, others + mine) == [True, False]


def test_open_ledgers_of_a_leader_stay(world):
    job = world.logs.jobs.begin("orders")
    opened = world.job_ledger(job)
    world.logs.commit(job, CommitRequest(CommitKind.APPEND, opened=opened.ledger_id))
    world.write("others")
    world.pass_s(2 * WEEK_S)
    vacuum(world)
    world.pass_s(2 * WEEK_S)
    vacuum(world)
    assert present(world, [opened]) == [True]
    world.write("orders", kind=CommitKind.OVERWRITE)
    world.pass_s(2 * WEEK_S)
    vacuum(world)
    assert present(world, [opened]) == [False]


def test_a_ledger_that_was_opened_and_overwritten_between_two_vacuums_goes(world):
    job = world.logs.jobs.begin("orders")
    opened = world.job_ledger(job)
    world.logs.commit(job, CommitRequest(CommitKind.APPEND, opened=opened.ledger_id))
    world.write("orders", kind=CommitKind.OVERWRITE)
    world.pass_s(2 * WEEK_S)
    vacuum(world)
    assert present(world, [opened]) == [False]


def test_a_deleted_log_is_not_vacuumed_and_nothing_of_it_comes_back(world):
    world.write("orders")
    uid = world.logs.names.uid("orders")
    world.logs.deleter.delete("orders")
    with pytest.raises(NoSuchLogError):
        vacuum(world)
    assert world.store.get_many([world.paths(uid).root]) == [None]


# --- order and crashes


def history(world):
    """A log with something to do in every step, and its ledgers by version."""
    world.logs.open("orders", create=True)
    keep(world, retention_s=20 * DAY_S)
    truncated = world.write("orders", 2)
    replaced = world.write("orders", 2)
    world.pass_s(25 * DAY_S)
    world.write("orders", kind=CommitKind.COMPACT, remove=ids(replaced), entries=20)
    overwritten = world.write("orders")
    world.pass_s(10 * DAY_S)
    world.write("orders")
    world.pass_s(1)
    world.write("orders")
    return truncated + replaced + overwritten


def check_readable(world):
    """Every ledger that a readable version lists is there."""
    now = head(world)
    for version in range(now.oldest_version, now.version + 1):
        for one in world.logs.reader.snapshot("orders", version).ledgers:
            assert world.ledger_exists(one), (version, one)


def test_no_ledger_goes_before_the_head_says_that_its_versions_cannot_be_read(world):
    """Log rule 8: the compare-and-set comes first, the deletion follows."""
    history(world)
    world.pass_s(WEEK_S + 1)
    session = world.new_session()
    real = session.transaction

    def transaction(operations):
        if any(isinstance(one, Delete) and "/L" in one.path for one in operations):
            gone = {one.path for one in operations if isinstance(one, Delete)}
            now = head(world)
            for version in range(now.oldest_version, now.version + 1):
                listed = {world.znodes.ledger(one) for one in world.listed("orders", version)}
                assert not gone & listed
        real(operations)

    session.transaction = transaction
    assert vacuum(world, store=session).deleted_ledgers > 0


@pytest.mark.parametrize(("kept", "at_once"), [(2, 2), (100_000, 10_000)])
def test_a_vacuum_cut_short_anywhere_is_finished_by_the_next_one(kept, at_once, monkeypatch):
    """Log rule 8. At no moment is a ledger gone that a readable version lists; in the end all is as without the crash."""
    monkeypatch.setattr(log_vacuum, "_VERSIONS_AT_ONCE", at_once)
    calls = 0
    while True:
        world = AgedWorld()
        history(world)
        world.pass_s(5 * DAY_S)
        try:
            vacuum(world, store=world.dying_session(calls), records_kept=kept)
        except Died:
            check_readable(world)
            vacuum(world, records_kept=kept)
            check_readable(world)
            assert outcome(world) == expected(kept)
            calls += 1
            continue
        break
    assert calls > 10


def outcome(world):
    now = head(world)
    uid = world.logs.names.uid("orders")
    paths = world.paths(uid)
    ledgers = [path for path in world.store._tree.nodes if path.rsplit("/", 1)[1].startswith("L")]
    checkpoints = world.store.children(paths.checkpoint_bucket(0))
    records = sorted(int(one) for one in world.store.children(paths.version_bucket(0)))
    directories = [f"{paths.jobs}/{one}" for one in world.store.children(paths.jobs)]
    states = [
        world.store.get(f"{directory}/{job}").value for directory in directories for job in world.store.children(directory)
    ]
    jobs = sum(b'"version":null' not in state for state in states)  # a job that was cut short is the sweep's
    return (
        now.version,
        now.oldest_version,
        now.vacuumed_version,
        now.oldest_record,
        sorted(ledgers),
        checkpoints,
        records,
        jobs,
    )


def expected(kept):
    world = AgedWorld()
    history(world)
    world.pass_s(5 * DAY_S)
    vacuum(world, records_kept=kept)
    return outcome(world)


def test_two_vacuums_at_once_delete_the_same(world):
    old = world.write("orders", 3)
    world.write("orders", kind=CommitKind.OVERWRITE)
    world.pass_s(2 * WEEK_S)
    session = world.new_session()
    real = session.transaction

    def transaction(operations):
        if any(isinstance(one, Delete) for one in operations):
            session.transaction = real
            vacuum(world)
        real(operations)

    session.transaction = transaction
    vacuum(world, store=session)
    assert not any(present(world, old))
    assert head(world).vacuumed_version == 2


def test_a_vacuum_that_another_one_has_overtaken_lowers_nothing(world):
    """Log rule 8: what was said to be unreadable stays so."""
    for _ in range(2):
        world.write("orders", kind=CommitKind.OVERWRITE)
    world.pass_s(WEEK_S + 1)
    world.write("orders", kind=CommitKind.OVERWRITE)
    session = world.new_session()
    real = session.set

    def set_(path, value, version):
        if path.endswith("/head"):
            session.set = real
            world.pass_s(WEEK_S + 1)
            assert vacuum(world).oldest_version == 3
        return real(path, value, version)

    session.set = set_
    vacuum(world, store=session)
    assert (head(world).oldest_version, head(world).vacuumed_version) == (3, 3)


def test_a_commit_between_two_steps_is_kept(world):
    world.write("orders")
    world.write("orders", kind=CommitKind.OVERWRITE)
    world.pass_s(2 * WEEK_S)
    session = world.new_session()
    real = session.set
    late = []

    def set_(path, value, version):
        if path.endswith("/head") and not late:
            late.extend(world.write("orders"))
        return real(path, value, version)

    session.set = set_
    vacuum(world, store=session)
    assert late
    assert late[0].ledger_id in world.listed("orders")
    assert (head(world).version, head(world).oldest_version) == (3, 2)


# --- on a real server


@pytest.mark.parametrize("retention", [{}, {"retention_s": 10 * WEEK_S}, {"retention_bytes": 10**9}])
def test_the_listing_is_read_only_of_a_log_that_lets_rows_go(world, retention):
    """That of a log with a million ledgers has 80 MB."""
    world.write("orders")
    keep(world, **retention)
    session = ScriptedStore(world.new_session())
    vacuum(world, store=session)
    read = [path for name, paths in session.calls if name == "get_many" for path in paths]
    assert any("/pages/" in path for path in read) == bool(retention)
