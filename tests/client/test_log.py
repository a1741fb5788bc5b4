"""The public face of a log."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from bk_spark.client.log import Log, LogPosition
from bk_spark.client.log_layout import CommitKind, CommittedLedger
from bk_spark.client.log_plan import CommitRequest
from bk_spark.errors import ConfigError, MetadataUnavailableError, NoSuchLogError, SchemaMismatchError


class Reader:
    def __init__(self, ledger_id, reads):
        self.ledger_id, self.reads = ledger_id, reads

    def read(self, first, last):
        self.reads.append((self.ledger_id, first, last))
        yield pa.record_batch({"entry_id": list(range(first, last + 1))})


@pytest.fixture
def reads():
    return []


@pytest.fixture
def log(world, reads):
    return open_log(world, reads)


def open_log(world, reads=None, logs=None, name="orders"):
    logs = logs or world.logs
    return Log(logs, name, logs.open(name, create=True), lambda ledger_id: Reader(ledger_id, reads))


def rows_log(world):
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    job = world.logs.begin_job("rows")
    ledger = world.job_ledger(job)
    world.logs.commit(job, CommitRequest(CommitKind.APPEND, (ledger,), schema_json=json.dumps(schema)))
    return open_log(world, [], name="rows"), ledger


def test_ledgers_are_appended_by_id_with_their_ends_and_entries_counted(world, log):
    a, b = world.plain_ledger(3), world.plain_ledger(7)
    version = log.append_ledgers([a.ledger_id, b.ledger_id], application=("id", 7))
    assert log.ledgers() == [a, b]
    assert (version.total.rows, version.application) == (10, ("id", 7))
    assert log.versions() == [version]


def test_an_application_version_appended_twice_is_reported_and_keeps_the_caller_s_ledgers(world, log):
    log.append_ledgers([world.plain_ledger().ledger_id], application=("id", 7))
    again = world.plain_ledger()
    assert log.append_ledgers([again.ledger_id], application=("id", 7)).duplicate_of == 1
    assert world.ledger_exists(again)
    assert log.append_ledgers([again.ledger_id], application=("id", 8)).version == 2


def test_a_failed_append_keeps_the_caller_s_ledgers_and_may_be_repeated(world, log):
    ledger = world.plain_ledger()
    with pytest.raises(ConfigError):
        log.append_ledgers([ledger, CommittedLedger(world.plain_ledger().ledger_id, 1, 1, 1)])
    assert world.ledger_exists(ledger)
    log.append_ledgers([ledger])
    assert log.ledgers() == [ledger]


def test_an_append_whose_outcome_was_unknown_tells_it_once_abort_has_found_out(world):
    store, logs = world.scripted()
    log = open_log(world, logs=logs)
    ledger = world.plain_ledger()

    def lose(operations):
        store.store.transaction(operations)
        store.fail_reads = True
        calls = len(store.calls)
        real = store.store.delete

        def back_again(*arguments):
            store.fail_reads = False
            return real(*arguments)

        store.store.delete = back_again
        assert calls
        raise MetadataUnavailableError("memory://", "connection lost")

    store.script = [lose]
    assert log.append_ledgers([ledger]).version == 1
    assert log.ledgers() == [ledger]


def test_ledgers_are_replaced_by_name(world, log):
    a, b, c = (world.plain_ledger() for _ in range(3))
    log.append_ledgers([a, b])
    log.replace_ledgers(remove=[a.ledger_id], add=[c.ledger_id])
    assert log.ledgers() == [c, b]
    log.replace_ledgers(remove=[b.ledger_id], add=[])
    assert log.ledgers() == [c]
    assert log.snapshot(1).ledgers == (a, b)


def test_ledgers_of_entries_do_not_enter_a_log_of_rows(world):
    log, ledger = rows_log(world)
    with pytest.raises(SchemaMismatchError):
        log.append_ledgers([world.plain_ledger().ledger_id])
    new = world.plain_ledger()
    with pytest.raises(ConfigError, match="which says how many rows it holds"):
        log.replace_ledgers(remove=[ledger.ledger_id], add=[new.ledger_id])
    log.replace_ledgers(remove=[ledger.ledger_id], add=[CommittedLedger(new.ledger_id, 9, 1000, 5000)])
    assert log.versions()[-1].total.rows == 5000


def test_a_log_is_read_in_its_own_order_and_empty_ledgers_are_not_opened(world, log, reads):
    a, empty, b = world.plain_ledger(3), world.plain_ledger(0), world.plain_ledger(5)
    log.append_ledgers([b, empty, a])
    assert sum(batch.num_rows for batch in log.read()) == 8
    assert reads == [(b.ledger_id, 0, 4), (a.ledger_id, 0, 2)]


def test_reading_starts_at_start_and_ends_before_end(world, log, reads):
    a, b, c = (world.plain_ledger(5) for _ in range(3))
    log.append_ledgers([a, b, c])
    list(log.read(LogPosition(a.ledger_id, 3), LogPosition(c.ledger_id, 2)))
    list(log.read(LogPosition(b.ledger_id, 1), LogPosition(b.ledger_id, 3)))
    list(log.read(LogPosition(b.ledger_id, 5), LogPosition(c.ledger_id, 0)))
    assert reads == [(a.ledger_id, 3, 4), (b.ledger_id, 0, 4), (c.ledger_id, 0, 1), (b.ledger_id, 1, 2)]


def test_a_position_in_a_ledger_that_the_log_does_not_list_is_refused_at_the_call(world, log):
    with pytest.raises(ConfigError, match="log 'orders' does not list ledger 99"):
        log.read(start=LogPosition(99, 0))


def test_a_log_that_was_deleted_stays_gone_also_when_its_name_is_used_anew(world, log):
    log.delete()
    other = open_log(world, [])
    ledger = world.plain_ledger()
    calls = (log.ledgers, log.versions, log.delete, log.read, lambda: log.append_ledgers([ledger]))
    for call in calls:
        with pytest.raises(NoSuchLogError):
            call()
    assert other.ledgers() == []
    assert world.ledger_exists(ledger)
