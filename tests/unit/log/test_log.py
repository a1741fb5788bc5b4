"""The public face of a log, on the metadata store alone. Leaders: test_log_leadership.py; reading: test_log_reading.py."""

from __future__ import annotations

import pytest

from bk_spark.errors import (
    ConfigError,
    LedgerNotClosedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLogError,
    SchemaMismatchError,
)
from bk_spark.log.log_handle import LogPosition
from bk_spark.log.stored.values import CommitKind, CommittedLedger, Retention
from tests.unit.log.leader.leader_model import ENTRY, WorldLedger, WorldLogs


@pytest.fixture
def world_logs(world):
    return WorldLogs(world)


@pytest.fixture
def log(world_logs):
    return world_logs.open()


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


def test_an_append_whose_outcome_was_unknown_tells_it_once_abort_has_found_out(world, world_logs):
    store, logs = world.scripted()
    log = world_logs.open(logs)
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


def test_ledgers_of_entries_do_not_enter_a_log_of_rows(world, world_logs):
    log, ledger = world_logs.open_rows()
    with pytest.raises(SchemaMismatchError):
        log.append_ledgers([world.plain_ledger().ledger_id])
    new = world.plain_ledger()
    with pytest.raises(ConfigError, match="which says how many rows it holds"):
        log.replace_ledgers(remove=[ledger.ledger_id], add=[new.ledger_id])
    log.replace_ledgers(remove=[ledger.ledger_id], add=[CommittedLedger(new.ledger_id, 9, 1000, 5000)])
    assert log.versions()[-1].total.rows == 5000


def test_a_log_that_was_deleted_stays_gone_also_when_its_name_is_used_anew(world, log, world_logs):
    log.delete()
    other = world_logs.open()
    ledger = world.plain_ledger()
    whole = (
        log.ledgers,
        log.versions,
        log.delete,
        lambda: log.append_ledgers([ledger]),
        lambda: log.set_retention(Retention()),
    )
    calls = (*whole, log.read, log.open_writer, log.recover, lambda: log.retention, lambda: log.truncate(LogPosition(1, 0)))
    for call in calls:
        with pytest.raises(NoSuchLogError):
            call()
    assert other.ledgers() == []
    assert world.ledger_exists(ledger)


# --- truncation, retention


@pytest.fixture
def long_log(world, log):
    """Three ledgers of five entries each."""
    ledgers = [world.plain_ledger(5) for _ in range(3)]
    log.append_ledgers(ledgers)
    return log, ledgers


def test_truncation_removes_the_ledgers_whose_entries_are_all_before_the_position(long_log):
    log, (a, b, c) = long_log
    log.truncate(LogPosition(b.ledger_id, 4))
    assert log.ledgers() == [b, c]
    assert log.snapshot(1).ledgers == (a, b, c)
    with pytest.raises(ConfigError, match="before is missing: it must be a LogPosition"):
        log.truncate(None)  # type: ignore[arg-type]
    version = log.truncate(LogPosition(b.ledger_id, 5))
    assert log.ledgers() == [c]
    assert (version.kind, version.removed.rows) == (CommitKind.TRUNCATE, 5)


def test_truncation_to_where_the_log_begins_changes_nothing(long_log):
    log, (a, _, _) = long_log
    assert log.truncate(LogPosition(a.ledger_id, 3)).version == 1
    assert len(log.versions()) == 1


def test_the_last_ledger_stays_at_a_truncation(long_log):
    log, (_, _, c) = long_log
    log.truncate(LogPosition(c.ledger_id, 5))
    assert log.ledgers() == [c]


def test_truncation_to_a_position_that_is_not_in_the_log_is_refused(long_log):
    log, (a, b, _) = long_log
    log.truncate(LogPosition(b.ledger_id, 0))
    with pytest.raises(ConfigError, match=f"does not list ledger {a.ledger_id}: it was truncated"):
        log.truncate(LogPosition(a.ledger_id, 2))


def test_truncation_up_to_a_leader_s_ledger_leaves_the_leader_alone(world, log):
    writer = log.open_writer()
    first = writer.ledger_id
    writer.append(ENTRY)
    writer.roll()
    place = writer.append(ENTRY)
    log.truncate(place)
    assert [one.ledger_id for one in log.ledgers()] == [place.ledger_id]
    assert first != place.ledger_id
    writer.roll()
    writer.close()
    assert [one.last_entry_id for one in log.ledgers()] == [0]


def test_a_ledger_that_was_left_open_is_not_truncated(log, monkeypatch):
    monkeypatch.setattr(WorldLedger, "close", lambda ledger: None)
    writer = log.open_writer()
    writer.append(ENTRY)
    with pytest.raises(LedgerNotClosedError):
        writer.roll()
    with pytest.raises(MetadataConflictError):
        log.truncate(LogPosition(writer.ledger_id, 0))


def test_a_retention_is_stored_with_the_log(log, world_logs):
    assert log.retention == Retention()
    log.set_retention(Retention(3600, retention_s=86_400, retention_bytes=10**9))
    assert world_logs.open().retention == Retention(3600, 86_400, 10**9)
