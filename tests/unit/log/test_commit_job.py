"""A job that a client commits ends up committed and cleared, or ended without ledgers. Log rule 1. Ref: docs/rules.md."""

from __future__ import annotations

import pytest

from bk_spark.errors import MetadataConflictError, MetadataUnavailableError, SchemaMismatchError
from tests.unit.log.log_requests import append, ids, schema_json, write


def index_of(world, job):
    return world.store.get_many([world.paths(job.uid).job(job.job_id).ledgers])


def begun(world, logs):
    job = logs.jobs.begin("orders")
    return job, world.job_ledger(job), world.job_ledger(job)


def test_a_committed_job_keeps_what_it_lists_and_nothing_else(world):
    job, ledger, lost = begun(world, world.logs)
    assert world.logs.commit_or_abort(job, append(ledger)).version == 1
    assert [world.ledger_exists(one) for one in (ledger, lost)] == [True, False]
    assert index_of(world, job) == [None]


def test_a_refused_job_ends_without_ledgers(world):
    """Log rule 1."""
    write(world, "orders")
    job, ledger, _ = begun(world, world.logs)
    with pytest.raises(SchemaMismatchError):
        world.logs.commit_or_abort(job, append(ledger, schema_json=schema_json(id="long")))
    assert not world.ledger_exists(ledger)


def test_a_commit_that_takes_effect_unseen_until_the_job_is_to_end_is_reported_as_done(world):
    """Log rule 1: nothing of it is deleted."""
    store, logs = world.scripted()
    job, ledger, lost = begun(world, logs)

    def cut_off(operations):
        store.store.transaction(operations)
        store.fail_reads = True
        raise MetadataUnavailableError("memory://", "connection lost")

    abort = logs.jobs.abort

    def back_again(job):
        store.fail_reads = False
        return abort(job)

    store.script, logs.jobs.abort = [cut_off], back_again
    assert logs.commit_or_abort(job, append(ledger)).version == 1
    assert world.listed("orders") == ids(ledger)
    assert [world.ledger_exists(one) for one in (ledger, lost)] == [True, False]


@pytest.mark.parametrize("problem", [MetadataUnavailableError("memory://", "down"), MetadataConflictError("a ledger", "busy")])
def test_a_failure_to_clear_after_the_commit_does_not_make_it_fail(world, problem):
    def fails(job, keep):
        raise problem

    logs = world.log_store(world.new_session())
    job, ledger, lost = begun(world, logs)
    logs.jobs.finish = fails
    assert logs.commit_or_abort(job, append(ledger)).version == 1
    assert world.listed("orders") == ids(ledger)
    assert world.ledger_exists(lost)


def test_a_truncation_that_has_nothing_to_remove_leaves_no_job_to_clear(world):
    write(world, "orders", first := world.plain_ledger())
    assert world.logs.truncate("orders", world.logs.names.uid("orders"), first.ledger_id).version == 1


def test_a_truncation_is_done_also_where_its_job_cannot_be_cleared(world):
    write(world, "orders", world.plain_ledger(), second := world.plain_ledger())

    def fails(job, keep):
        raise MetadataUnavailableError("memory://", "down")

    logs = world.log_store(world.new_session())
    logs.jobs.finish = fails
    assert logs.truncate("orders", world.logs.names.uid("orders"), second.ledger_id).version == 2
