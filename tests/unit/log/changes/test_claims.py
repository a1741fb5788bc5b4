"""Which ledgers a commit takes: log rule 9. Ref: docs/rules.md, "Logs"."""

from __future__ import annotations

import pytest

from bk_spark.errors import (
    ConfigError,
    LedgerNotClosedError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bk_spark.log.stored.values import CommittedLedger
from bk_spark.metadata.store import TransactionFailedError
from tests.unit.log.log_requests import append, ids, replacement, write


def test_a_ledger_of_another_log_is_refused(world):
    write(world, "others", ledger := world.plain_ledger())
    with pytest.raises(ConfigError, match=f"given to log 'orders' is {ledger.ledger_id}: it belongs to another log"):
        write(world, "orders", ledger)
    assert world.logs.names.all() == ["others"]


def test_a_ledger_that_is_listed_is_refused_with_the_version_that_listed_it(world):
    write(world, "orders")
    write(world, "orders", ledger := world.plain_ledger())
    with pytest.raises(ConfigError, match=f"is {ledger.ledger_id}: version 2 of the log has listed it already"):
        write(world, "orders", ledger)
    assert len(world.listed("orders")) == 2


def test_a_ledger_of_a_write_job_under_way_is_refused(world):
    world.logs.open("orders", create=True)
    ledger = world.job_ledger(world.logs.jobs.begin("orders"))
    with pytest.raises(ConfigError, match=rf"is {ledger.ledger_id}: it belongs to another write job .* not ended"):
        write(world, "orders", ledger)


def test_a_ledger_whose_adoption_failed_may_be_given_again(world):
    world.logs.open("orders", create=True)
    ledger = world.plain_ledger()
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    store.script = [store.delay] * 3
    with pytest.raises(MetadataUnavailableError):
        logs.commit(job, append(ledger))
    assert world.logs.jobs.abort(job)
    assert world.ledger_exists(ledger)
    write(world, "orders", ledger)
    assert world.listed("orders") == ids(ledger)
    with pytest.raises(TransactionFailedError):
        store.land()


def test_of_two_commits_that_adopt_one_ledger_at_once_one_gets_it(world):
    world.logs.open("orders", create=True)
    world.logs.open("others", create=True)
    ledger = world.plain_ledger()
    session = world.new_session()
    real = session.set

    def beaten(path, value, version):
        session.set = real
        write(world, "others", ledger)
        return real(path, value, version)

    session.set = beaten
    with pytest.raises(ConfigError, match="it belongs to another log"):
        write(world, "orders", ledger, logs=world.log_store(session))
    assert world.listed("others") == ids(ledger)
    assert world.listed("orders") == []


def test_a_ledger_given_twice_is_refused(world):
    ledger = world.plain_ledger()
    with pytest.raises(ConfigError, match=f"a ledger to add is {ledger.ledger_id}: it is given twice"):
        append(ledger, ledger)
    with pytest.raises(ConfigError, match=f"a ledger to remove is {ledger.ledger_id}: it is given twice"):
        replacement([ledger, ledger])


def test_a_ledger_that_is_gone_is_refused(world):
    with pytest.raises(NoSuchLedgerError, match="there is no ledger 4711"):
        write(world, "orders", world.plain_ledger(), CommittedLedger(4711, 0, 1, 1))
    assert world.logs.names.all() == []


def test_a_ledger_that_is_not_closed_is_refused(world):
    ledger = world.plain_ledger(closed=False)
    with pytest.raises(LedgerNotClosedError, match=f"ledger {ledger.ledger_id} is OPEN"):
        write(world, "orders", ledger)


def test_a_ledger_that_ends_elsewhere_than_was_said_is_refused(world):
    ledger = world.plain_ledger()
    wrong = CommittedLedger(ledger.ledger_id, 3, 400, 4)
    with pytest.raises(ConfigError, match=r"last entry 3 and 400 bytes, and was closed at entry 9 with 1000 bytes"):
        write(world, "orders", wrong)
