"""Commits that are dropped as duplicates: log rule 5. Ref: docs/rules.md, "Logs"."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from bk_spark.errors import ConfigError, MetadataUnavailableError
from bk_spark.log.stored.values import ApplicationState
from bk_spark.metadata.store import BadVersionError
from tests.unit.log.log_requests import append, write


def test_an_application_version_that_is_not_above_the_last_is_dropped_with_its_ledgers_and_logged_once(world, caplog):
    write(world, "orders")
    write(world, "orders", application=("query", 7))
    write(world, "orders", application=("other", 9))
    for version in (7, 6):
        job = world.logs.jobs.begin("orders")
        ledger = world.job_ledger(job)
        caplog.clear()
        with caplog.at_level(logging.INFO):
            result = world.logs.commit(job, append(ledger, application=("query", version)))
        assert result.duplicate_of == 2
        assert not world.ledger_exists(ledger)
        (record,) = caplog.records
        assert "dropped as a duplicate, version 2 of the log holds version 7" in record.getMessage()
    assert len(world.listed("orders")) == 3
    assert write(world, "orders", application=("query", 8)).duplicate_of is None


def test_the_application_s_version_is_tested_again_on_every_try(world):
    write(world, "orders")
    for number in (1, 2):
        store, logs = world.scripted()
        store.script = [store.first(lambda number=number: write(world, "orders", application=("query", number)))]
        assert write(world, "orders", logs=logs, application=("query", number)).duplicate_of == number + 1
    assert len(world.listed("orders")) == 3


@pytest.mark.parametrize("application", [("", 1), ("x" * 1001, 1), ("query", -1), ("query", 2**63), ("query", "1")])
def test_an_application_out_of_range_is_refused(application):
    with pytest.raises(ConfigError, match="application"):
        append(application=application)


def state(world, application):
    path = world.paths(world.logs.names.uid("orders")).application(application)
    return ApplicationState.decode("it", world.store.get(path).value)


def test_dropped_duplicates_are_counted_for_each_application(world):
    """Log rule 5."""
    write(world, "orders", application=("query", 7))
    write(world, "orders", application=("other", 1))
    for version in (7, 3):
        write(world, "orders", application=("query", version))
    assert state(world, "query") == ApplicationState("query", 7, 1, dropped=2)
    write(world, "orders", application=("query", 8))
    assert state(world, "query") == ApplicationState("query", 8, 3, dropped=2)
    assert state(world, "other").dropped == 0


@pytest.mark.parametrize("problem", [BadVersionError("/x"), MetadataUnavailableError("memory://", "cut off")])
def test_a_duplicate_that_cannot_be_counted_is_dropped_all_the_same(world, problem):
    write(world, "orders", application=("query", 7))
    session = world.new_session()

    def refuse(path, value, version):
        raise problem

    session.set = refuse
    assert write(world, "orders", logs=world.log_store(session), application=("query", 7)).duplicate_of == 1
    assert state(world, "query").dropped == 0


def test_a_duplicate_of_a_version_whose_record_is_gone_still_names_that_version(world):
    """Log rule 5: a query that starts again after a month."""
    write(world, "orders", application=("query", 7))
    write(world, "orders")
    uid = world.logs.names.uid("orders")
    world.logs.write_checkpoint("orders", uid, 2)
    world.logs.names.change_head("orders", uid, lambda head: replace(head, oldest_version=2, oldest_record=2))
    world.store.delete(world.paths(uid).version(1))
    result = write(world, "orders", application=("query", 7))
    assert (result.duplicate_of, result.version) == (1, 2)
    assert len(world.listed("orders")) == 2


def test_an_empty_batch_records_its_id(world):
    """Log rule 5."""
    write(world, "orders")
    first = world.logs.commit(world.logs.jobs.begin("orders"), append(application=("query", 0)))
    again = world.logs.commit(world.logs.jobs.begin("orders"), append(application=("query", 0)))
    assert (first.version, first.added.ledgers, again.duplicate_of) == (2, 0, 2)
