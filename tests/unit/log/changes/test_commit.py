"""The commit: log rule 1, what it costs, and what a lost reply means. Ref: docs/rules.md, "Logs"."""

from __future__ import annotations

import pytest

from bk_spark.errors import (
    ConfigError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLogError,
)
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from bk_spark.metadata.store import TransactionFailedError
from tests.unit.log.log_requests import append, ids, schema_json, write


def test_a_commit_lists_all_its_ledgers_at_once_in_the_given_order(world):
    job = world.logs.jobs.begin("orders")
    ledgers = [world.job_ledger(job) for _ in range(4)]
    given = [ledgers[2], ledgers[0], ledgers[3], ledgers[1]]
    version = world.logs.commit(job, append(*given))
    assert world.logs.reader.snapshot("orders").ledgers == tuple(given)
    assert (version.version, version.added.ledgers, version.total.rows) == (1, 4, 40)


def test_a_commit_without_ledgers_makes_a_version_too(world):
    job = world.logs.jobs.begin("orders")
    world.logs.commit(job, append(schema_json=schema_json(id="long"), application=("query", 0)))
    assert world.logs.reader.snapshot("orders").ledgers == ()
    assert write(world, "orders", schema_json=schema_json(id="long"), application=("query", 0)).duplicate_of == 1


def test_a_commit_whose_reply_is_lost_is_recognised_as_done(world):
    store, logs = world.scripted()
    store.script = [store.lose_reply]
    version = write(world, "orders", logs=logs)
    assert version.version == 1
    assert [one.version for one in world.logs.reader.all_versions("orders")] == [1]


def test_a_commit_whose_reply_is_lost_is_recognised_after_others_committed_on_top(world):
    store, logs = world.scripted()

    def lose_reply_and_others_commit(operations):
        world.store.transaction(operations)
        write(world, "orders")
        write(world, "orders")
        raise MetadataUnavailableError("memory://", "connection lost")

    store.script = [lose_reply_and_others_commit]
    assert write(world, "orders", logs=logs).version == 1
    assert len(world.listed("orders")) == 3


def test_a_commit_that_was_lost_on_its_way_is_sent_again_and_the_first_one_never_applies(world):
    store, logs = world.scripted()
    store.script = [store.delay]
    assert write(world, "orders", logs=logs).version == 1
    with pytest.raises(TransactionFailedError):
        store.land()
    assert len(world.listed("orders")) == 1


def test_a_commit_that_lands_late_in_front_of_its_own_repetition_counts_once(world):
    store, logs = world.scripted()
    store.script = [store.delay, store.first(lambda: store.land())]
    assert write(world, "orders", logs=logs).version == 1
    assert [one.version for one in world.logs.reader.all_versions("orders")] == [1]


def test_a_commit_lost_on_its_way_rebases_on_what_another_committed_meanwhile(world):
    first = write(world, "orders")
    store, logs = world.scripted()

    def another_first(operations):
        write(world, "orders")
        store.delay(operations)

    store.script = [another_first]
    assert write(world, "orders", logs=logs).version == first.version + 2
    with pytest.raises(TransactionFailedError):
        store.land()


def test_a_commit_may_be_called_again_and_says_where_it_committed(world):
    job = world.logs.jobs.begin("orders")
    request = append(world.job_ledger(job))
    first = world.logs.commit(job, request)
    write(world, "orders")
    assert world.logs.commit(job, request) == first


def test_commits_at_once_all_take_effect_one_after_the_other(world):
    write(world, "orders")
    store, logs = world.scripted()
    store.script = [store.first(lambda: write(world, "orders"))] * 5
    assert write(world, "orders", logs=logs).version == 7
    assert len(world.listed("orders")) == 7


def test_a_commit_that_never_gets_through_ends_after_a_bounded_number_of_tries(world):
    write(world, "orders")
    store, logs = world.scripted()
    store.script = [store.first(lambda: write(world, "orders"))] * 1000
    with pytest.raises(MetadataConflictError, match="100 tries to commit each met another change, nothing was committed"):
        write(world, "orders", logs=logs)
    assert len(store.script) == 900


def test_a_store_that_stays_away_ends_the_commit_and_says_that_the_outcome_is_unknown(world):
    store, logs = world.scripted()
    store.script = [store.delay] * 3
    with pytest.raises(MetadataUnavailableError, match=r"took effect is unknown, 'bk-spark log show NAME' tells"):
        write(world, "orders", logs=logs)


def test_a_commit_that_was_never_sent_does_not_call_its_outcome_unknown(world):
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    store.fail_reads = True
    with pytest.raises(MetadataUnavailableError) as failure:
        logs.commit(job, append(ledger))
    assert "unknown" not in str(failure.value)


def test_the_time_of_commits_never_decreases(world):
    first = write(world, "orders")
    world.now_ms -= 500
    second = write(world, "orders")
    world.now_ms += 1000
    third = write(world, "orders")
    assert [one.time_ms - first.time_ms for one in (first, second, third)] == [0, 0, 500]


def test_a_thousand_ledgers_enter_in_one_commit(world):
    ledgers = [world.plain_ledger() for _ in range(1000)]
    store, logs = world.scripted()
    write(world, "orders", *ledgers, logs=logs)
    assert world.listed("orders") == ids(*ledgers)
    (operations,) = [what for name, what in store.calls if name == "transaction" and len(what) > 4]
    assert len(operations) == 5


def test_a_commit_costs_the_same_on_a_log_of_one_version_and_of_two_hundred(world):
    def cost():
        job = world.logs.jobs.begin("orders")
        ledger = world.job_ledger(job)
        store, logs = world.scripted()
        logs.commit(job, append(ledger, schema_json=schema_json(id="long"), application=("query", job_count[0])))
        job_count[0] += 1
        reads = sum(len(what) for name, what in store.calls if name == "get_many")
        sizes = [len(what) for name, what in store.calls if name == "transaction"]
        return len(store.calls), reads, sizes

    job_count = [0]
    cost(), cost()
    early = cost()
    for _ in range(200):
        write(world, "orders", schema_json=schema_json(id="long"))
    assert cost() == early
    assert early[0] <= 12


def test_version_directories_of_a_thousand_are_made_by_the_commit_that_needs_them(world):
    write(world, "orders")
    uid = world.logs.reader.snapshot("orders").uid
    head = world.store.get(world.paths(uid).head)
    world.store.set(world.paths(uid).head, head.value.replace(b'"version":1', b'"version":999'), head.version)
    assert write(world, "orders").version == 1000
    assert write(world, "orders").version == 1001
    assert world.store.children(world.paths(uid).version_bucket(1000)) == ["1000", "1001"]


def test_a_commit_to_a_log_that_was_deleted_and_made_anew_fails(world):
    world.logs.open("orders", create=True)
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    world.logs.deleter.delete("orders")
    world.logs.open("orders", create=True)
    with pytest.raises(NoSuchLogError):
        world.logs.commit(job, append(ledger))
    assert world.listed("orders") == []


def test_requests_that_contradict_themselves_are_refused():
    ledger = CommittedLedger(1, 0, 1, 1)
    with pytest.raises(ConfigError, match="named by a replacement or a compaction, and by nothing else"):
        CommitRequest(CommitKind.APPEND, (ledger,), remove=(3,))
    with pytest.raises(ConfigError, match="named by a replacement or a compaction, and by nothing else"):
        CommitRequest(CommitKind.REPLACE, (ledger,))
    with pytest.raises(ConfigError, match="a commit of kind replace keeps the schema"):
        CommitRequest(CommitKind.REPLACE, (ledger,), schema_json="{}", remove=(3,))
