"""Jobs that make the log they write to, several at once: log rules 1 and 10."""

from __future__ import annotations

import pytest

from bk_spark.errors import (
    ConfigError,
    SchemaMismatchError,
)
from tests.unit.log.log_requests import append, ids, schema_json, write


def test_the_first_commit_makes_the_log_its_head_and_its_version_together(world):
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    store.script = [store.first(lambda: [world.logs.names.all() == [] or pytest.fail("visible before its first commit")])]
    logs.commit(job, append(ledger))
    assert world.logs.names.all() == ["orders"]
    assert world.logs.reader.snapshot("orders").uid == job.uid


def test_of_two_first_jobs_at_once_the_second_joins_the_log_of_the_first(world):
    store, logs = world.scripted()
    loser, winner = logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    assert loser.uid != winner.uid
    lost, won = [world.job_ledger(loser) for _ in range(3)], world.job_ledger(winner)
    failed_attempt = world.job_ledger(loser)
    store.script = [store.first(lambda: world.logs.commit(winner, append(won)))]
    version = logs.commit(loser, append(*lost))
    assert version.version == 2
    assert world.listed("orders") == ids(won, *lost)
    assert world.logs.reader.snapshot("orders").uid == winner.uid
    assert {world.metadata(one).custom("bk_spark.log") for one in lost} == {winner.uid.encode()}
    logs.jobs.finish(loser, ids(*lost))
    assert [world.ledger_exists(one) for one in (*lost, failed_attempt)] == [True, True, True, False]


def test_a_first_job_that_joins_another_s_log_must_fit_its_schema_and_leaves_nothing(world):
    loser, winner = world.logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    lost, won = world.job_ledger(loser), world.job_ledger(winner)
    world.logs.commit(winner, append(won, schema_json=schema_json(id="long")))
    with pytest.raises(SchemaMismatchError, match="column 'id' is bigint in the log and string in the data"):
        world.logs.commit(loser, append(lost, schema_json=schema_json(id="string")))
    assert world.logs.jobs.abort(loser)
    assert not world.ledger_exists(lost)
    assert world.listed("orders") == ids(won)


def test_a_first_job_that_joined_another_s_log_is_aborted_as_a_whole(world):
    store, logs = world.scripted()
    loser, winner = logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    lost = [world.job_ledger(loser) for _ in range(2)]
    world.logs.commit(winner, append(world.job_ledger(winner)))
    store.script = [store.first(lambda: world.logs.jobs.abort(loser))]
    with pytest.raises(Exception, match="has ended"):
        logs.commit(loser, append(*lost))
    assert not any(world.ledger_exists(one) for one in lost)


def test_a_first_job_goes_back_to_its_own_log_when_the_one_it_joined_is_deleted(world):
    store, logs = world.scripted()
    loser, winner = logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    lost, won = world.job_ledger(loser), world.job_ledger(winner)
    store.script = [
        store.first(lambda: world.logs.commit(winner, append(won))),
        store.first(lambda: world.logs.deleter.delete("orders")),
    ]
    logs.commit(loser, append(lost))
    assert world.logs.reader.snapshot("orders").uid == loser.uid
    assert world.metadata(lost).custom("bk_spark.log") == loser.uid.encode()
    assert world.listed("orders") == ids(lost)


def test_two_first_jobs_of_one_application_commit_once(world):
    store, logs = world.scripted()
    loser, winner = logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    lost, won = world.job_ledger(loser), world.job_ledger(winner)
    store.script = [store.first(lambda: world.logs.commit(winner, append(won, application=("query", 0))))]
    assert logs.commit(loser, append(lost, application=("query", 0))).duplicate_of == 1
    assert world.listed("orders") == ids(won)
    assert not world.ledger_exists(lost)


def test_a_ledger_of_a_first_job_that_joins_this_log_is_refused(world):
    store, logs = world.scripted()
    loser = logs.jobs.begin("orders")
    write(world, "orders")
    lost = world.job_ledger(loser)

    def steal():
        with pytest.raises(ConfigError, match="it belongs to another write job"):
            write(world, "orders", lost)

    store.script = [store.first(steal)]
    logs.commit(loser, append(lost))
    assert world.listed("orders").count(lost.ledger_id) == 1
