"""One commit of several logs changes all of them, or none. Ref: DESIGN.md, "Transactions"."""

from __future__ import annotations

import itertools
import logging

import pytest

from bk_spark.errors import ConfigError, JobEndedError, MetadataUnavailableError, NoSuchLogError, SchemaMismatchError
from bk_spark.log.changes.commit_logs import MAX_LOGS, LogCommit
from bk_spark.log.stored.values import LogChange
from bk_spark.metadata.store import MAX_TRANSACTION_BYTES
from tests.unit.log.log_requests import append, ids, overwrite, schema_json, write

LOGS = ("orders", "payments", "shipments")


def begun(world, *names, request=append, logs=None, **more):
    """A job with one ledger for each log."""
    logs = logs or world.logs
    jobs = [logs.jobs.begin(name) for name in names]
    return [LogCommit(job, request(world.job_ledger(job), **more)) for job in jobs]


def ledgers_of(commits):
    return [ledger.ledger_id for one in commits for ledger in one.request.ledgers]


def listed(world, names=LOGS):
    found = []
    for name in names:
        try:
            found += world.listed(name)
        except NoSuchLogError:
            continue
    return found


def newest(world, name):
    uid = world.logs.names.uid(name)
    return world.logs.reader.version(name, uid, world.logs.names.head(name, uid).version)


@pytest.fixture
def three(world):
    for name in LOGS:
        write(world, name)
    return world


def test_all_logs_show_it_from_one_moment_on_and_name_it(three):
    before, commits = listed(three), begun(three, *LOGS)
    assert listed(three) == before
    made = three.logs.commit_logs(commits, ("loader", 7))
    assert made.versions == dict.fromkeys(LOGS, 2)
    assert sorted(listed(three)) == sorted(before + ledgers_of(commits))
    versions = [newest(three, name) for name in LOGS]
    (transaction,) = {version.transaction for version in versions}
    assert transaction.transaction_id == made.transaction_id
    assert transaction.application == ("loader", 7)
    assert transaction.changes == tuple(LogChange(three.logs.names.uid(name), 2) for name in LOGS)
    assert [three.logs.names.head(name, three.logs.names.uid(name)).transaction_version for name in LOGS] == [2, 2, 2]


def test_all_its_versions_have_one_time_that_is_not_before_that_of_any_log(three):
    three.now_ms += 500
    write(three, "payments")
    three.now_ms -= 400
    three.logs.commit_logs(begun(three, *LOGS))
    assert {newest(three, name).time_ms for name in LOGS} == {1_000_500}


def test_a_transaction_whose_reply_is_lost_took_effect_once(three):
    before = listed(three)
    store, logs = three.scripted()
    store.script = [store.lose_reply]
    commits = begun(three, *LOGS)
    assert logs.commit_logs(commits).versions == dict.fromkeys(LOGS, 2)
    assert sorted(listed(three)) == sorted(before + ledgers_of(commits))


def test_a_transaction_that_arrives_after_it_was_sent_again_is_refused(three):
    before = listed(three)
    store, logs = three.scripted()
    store.script = [store.delay]
    commits = begun(three, *LOGS)
    logs.commit_logs(commits)
    with pytest.raises(Exception, match="head"):
        store.land()
    assert sorted(listed(three)) == sorted(before + ledgers_of(commits))


def test_whoever_gives_up_finds_that_it_took_effect_and_deletes_nothing(three):
    store, logs = three.scripted()
    commits = begun(three, *LOGS)
    store.script = [store.lose_reply]
    real, store.fail_reads = store.transaction, False

    def cut_off(changes):
        store.fail_reads = True
        real(changes)

    store.transaction = cut_off  # the reply is lost, and all that follows
    with pytest.raises(MetadataUnavailableError):
        logs.commit_logs(commits)
    assert set(ledgers_of(commits)) <= set(listed(three))
    assert not three.logs.abort_logs([one.job for one in commits])
    assert all(three.ledger_exists(ledger) for one in commits for ledger in one.request.ledgers)


def test_one_job_that_has_committed_tells_of_all_also_where_another_cannot_be_asked(three, monkeypatch):
    commits = begun(three, *LOGS)
    three.logs.commit_logs(commits)
    abort = three.logs.jobs.abort

    def cut_off(job):
        if job == commits[0].job:
            raise MetadataUnavailableError("memory://", "cut off")
        return abort(job)

    monkeypatch.setattr(three.logs.jobs, "abort", cut_off)
    assert not three.logs.abort_logs([one.job for one in commits])
    with pytest.raises(MetadataUnavailableError, match="cut off"):
        three.logs.abort_logs([commits[0].job])


@pytest.mark.parametrize("ended", range(3))
def test_if_one_job_ends_nothing_is_changed_and_all_ledgers_go(three, ended):
    before, commits = listed(three), begun(three, *LOGS)
    three.logs.jobs.abort(commits[ended].job)
    with pytest.raises(JobEndedError):
        three.logs.commit_logs(commits)
    assert listed(three) == before
    assert not any(three.ledger_exists(ledger) for one in commits for ledger in one.request.ledgers)


def test_a_log_that_is_deleted_meanwhile_ends_the_transaction(three):
    before, commits = listed(three, LOGS[:2]), begun(three, *LOGS)
    three.logs.deleter.delete("shipments")
    with pytest.raises(NoSuchLogError, match="shipments"):
        three.logs.commit_logs(commits)
    assert listed(three) == before


@pytest.mark.parametrize("other", LOGS)
def test_a_commit_to_one_of_the_logs_comes_before_it(three, other):
    store, logs = three.scripted()
    store.script = [store.first(lambda: write(three, other))]
    commits = begun(three, *LOGS)
    made = logs.commit_logs(commits)
    assert made.versions == {name: 3 if name == other else 2 for name in LOGS}
    assert {change.version for change in newest(three, other).transaction.changes} == {2, 3}


def test_it_makes_the_logs_that_are_missing(world):
    write(world, "orders")
    made = world.logs.commit_logs(begun(world, *LOGS))
    assert made.versions == {"orders": 2, "payments": 1, "shipments": 1}
    assert len(listed(world)) == 4


def test_an_application_that_comes_again_is_dropped_also_with_other_logs(three, caplog):
    made = three.logs.commit_logs(begun(three, "orders", "payments"), ("loader", 7))
    before = listed(three)
    for names, version in itertools.product((LOGS[:2], LOGS[1:], LOGS[2:]), (7, 6)):
        commits = begun(three, *names)
        with caplog.at_level(logging.WARNING):
            again = three.logs.commit_logs(commits, ("loader", version))
        assert again.is_duplicate
        assert again.transaction_id == made.transaction_id
        assert again.versions == {name: 2 for name in names if name != "shipments"}
        assert listed(three) == before
        assert not any(three.ledger_exists(ledger) for one in commits for ledger in one.request.ledgers)
    assert f"transaction {made.transaction_id} made version 7 of it" in caplog.text
    assert not three.logs.commit_logs(begun(three, "shipments"), ("loader", 8)).is_duplicate


def test_the_application_is_tested_in_the_transaction_itself(three):
    """Another process commits the same version between the look and the transaction, to other logs."""
    store, logs = three.scripted()
    store.script = [store.first(lambda: three.logs.commit_logs(begun(three, "shipments"), ("loader", 1)))]
    assert logs.commit_logs(begun(three, "orders", "payments"), ("loader", 1)).is_duplicate
    assert [newest(three, name).version for name in LOGS] == [1, 1, 2]


def test_a_transaction_that_arrives_while_the_next_try_looks_is_no_duplicate_of_itself(three):
    store, logs = three.scripted()
    store.script = [store.delay]
    commits, get_many = begun(three, *LOGS), store.store.get_many

    def lands_before_the_application_is_read(paths):
        if store.in_flight and len(paths) == 1 and "/transactions/" in paths[0]:
            store.land()
        return get_many(paths)

    store.store.get_many = lands_before_the_application_is_read
    made = logs.commit_logs(commits, ("loader", 7))
    assert not store.in_flight
    assert (made.is_duplicate, made.versions) == (False, dict.fromkeys(LOGS, 2))


def test_a_transaction_that_one_log_refuses_leaves_the_leaders_of_the_others_alone(three):
    job = three.logs.jobs.begin("orders")
    three.logs.commit(job, append(opened=three.open_ledger(job)))
    commits = begun(three, "orders") + begun(three, "payments", schema_json=schema_json(id="long"))
    with pytest.raises(SchemaMismatchError, match="payments"):
        three.logs.commit_logs(commits)
    assert three.recovered == []


def test_a_transaction_of_nothing_is_none(three):
    assert three.logs.commit_logs([], ("loader", 1)).versions == {}


def test_applications_of_transactions_and_of_commits_to_one_log_are_apart(three):
    write(three, "orders", application=("loader", 7))
    assert not three.logs.commit_logs(begun(three, *LOGS), ("loader", 7)).is_duplicate
    assert write(three, "payments", application=("loader", 7)).duplicate_of is None


def test_a_truncation_that_removes_nothing_leaves_its_log_alone(three):
    first = three.listed("payments")[0]
    jobs = [three.logs.jobs.begin(name) for name in LOGS[:2]]
    commits = [LogCommit(jobs[0], append(three.job_ledger(jobs[0]))), LogCommit(jobs[1], truncation(first))]
    assert three.logs.commit_logs(commits).versions == {"orders": 2}
    assert newest(three, "payments").version == 1
    assert three.logs.commit_logs([LogCommit(three.logs.jobs.begin("payments"), truncation(first))]).versions == {}


def truncation(before):
    from bk_spark.log.changes.plan import CommitRequest
    from bk_spark.log.stored.values import CommitKind

    return CommitRequest(CommitKind.TRUNCATE, before=before)


def test_it_takes_overwrites_and_truncations(three):
    extra = write(three, "shipments") and three.listed("shipments")[-1]
    jobs = {name: three.logs.jobs.begin(name) for name in LOGS}
    new = [three.job_ledger(jobs[name]) for name in LOGS[:2]]
    commits = [
        LogCommit(jobs["orders"], append(new[0])),
        LogCommit(jobs["payments"], overwrite(new[1])),
        LogCommit(jobs["shipments"], truncation(extra)),
    ]
    three.logs.commit_logs(commits)
    assert three.listed("orders")[1:] + three.listed("payments") == ids(*new)
    assert three.listed("shipments") == [extra]


def test_as_many_logs_as_it_takes_fit_into_one_request(world):
    """With long names, keys, schemas and an application as long as it may be."""
    names = [f"{number:03}" + "ü" * 197 for number in range(MAX_LOGS)]
    columns = {f"column_{number}": "string" for number in range(10)}
    store, logs = world.scripted()
    made = logs.commit_logs(begun(world, *names, logs=logs, schema_json=schema_json(**columns)), ("a" * 1000, 2**63 - 1))
    assert len(made.versions) == MAX_LOGS
    sent = max((changes for name, changes in store.calls if name == "transaction"), key=len)
    assert sum(len(one.path.encode()) + len(getattr(one, "value", b"")) for one in sent) < MAX_TRANSACTION_BYTES


def test_one_that_is_larger_than_the_request_is_refused_and_leaves_nothing(world):
    columns = {f"column_{number}": "string" for number in range(5000)}
    commits = begun(world, *LOGS, "returns", schema_json=schema_json(**columns))
    with pytest.raises(ConfigError, match="the size in bytes of a metadata transaction"):
        world.logs.commit_logs(commits)
    assert listed(world) == []
    assert not any(world.ledger_exists(ledger) for one in commits for ledger in one.request.ledgers)
