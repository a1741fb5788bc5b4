"""Becoming and being the leader of a log, on the metadata store alone. Over bookies: test_log_leading.py."""

from __future__ import annotations

import logging
import time

import pytest

from bk_spark.errors import (
    ConfigError,
    JobEndedError,
    LedgerFencedError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    SchemaMismatchError,
)
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.log_handle import LogPosition
from bk_spark.log.stored.values import CommitKind, CommittedLedger, OpenLedger, Totals
from tests.unit.log.leader.leader_model import ENTRY, WorldLedger, WorldLogs


@pytest.fixture
def world_logs(world):
    return WorldLogs(world)


@pytest.fixture
def log(world_logs):
    return world_logs.open()


def test_a_writer_opens_a_ledger_at_the_end_of_the_log_and_its_close_records_where_it_ends(world, log):
    old = world.plain_ledger(3)
    log.append_ledgers([old])
    with log.open_writer() as writer:
        assert log.ledgers() == [old, OpenLedger(writer.ledger_id, version=2)]
        assert writer.append(ENTRY) == LogPosition(writer.ledger_id, 0)
        writer.append_batch([ENTRY, ENTRY])
    assert log.ledgers() == [old, CommittedLedger(writer.ledger_id, 2, 300, 3)]


def test_rolls_are_commits_that_record_the_end_of_the_ledger_before(log, world_logs):
    writer, opened = log.open_writer(), []
    for _ in range(3):
        writer.append(ENTRY)
        opened.append(writer.ledger_id)
        writer.roll()
    closed = [CommittedLedger(one, 0, 100, 1) for one in opened]
    assert log.ledgers() == [*closed, OpenLedger(writer.ledger_id, 6)]
    writer.close()
    assert log.ledgers() == closed
    assert world_logs.unlisted(log) == [writer.ledger_id], "it ended without an entry"


def test_take_overs_without_an_entry_leave_no_ledgers_in_the_log(world, log, world_logs, monkeypatch):
    """A program in a restart loop, which opens a writer and fails before it appends."""
    with log.open_writer() as writer:
        writer.append(ENTRY)
    close = world.close_ledger
    monkeypatch.setattr(world, "close_ledger", lambda ledger_id, entries=0: close(ledger_id, entries))
    left = [log.open_writer().ledger_id for _ in range(20)]
    with log.open_writer() as writer:
        writer.append(ENTRY)
    assert [one.last_entry_id for one in log.ledgers()] == [0, 0]
    head = world.logs.names.head(log.name, log.uid)
    assert head.total == Totals.of(log.ledgers())
    for version in range(1, head.version + 1):  # each is as it was: at most two open ledgers behind those with entries
        listing = world.logs.reader.listing(log.name, log.uid, version)
        assert len(listing.closed) <= 2
        assert len(listing.open) <= 2
    assert world_logs.unlisted(log) == left, "old versions may still be read: the vacuum deletes them later"


def test_a_log_that_is_opened_again_displaces_its_leader(world, log, world_logs):
    """Docs/rules.md, protocol rule 60."""
    first = log.open_writer()
    first.append(ENTRY)
    second = world_logs.open().open_writer()
    assert world.recovered == [first.ledger_id]
    assert second.epoch > first.epoch
    for call in (first.roll, first.close):
        with pytest.raises(LedgerFencedError, match="displaced"):
            call()
    second.append(ENTRY)
    second.close()
    assert world_logs.unlisted(log) == []


@pytest.mark.parametrize("displace", ["append_ledgers", "recover"])
def test_an_append_of_ledgers_and_a_recovery_displace_a_leader(world, log, displace):
    """Log rule 2."""
    writer = log.open_writer()
    writer.append(ENTRY)
    ledger = world.plain_ledger()
    log.append_ledgers([ledger]) if displace == "append_ledgers" else log.recover()
    assert not any(isinstance(one, OpenLedger) for one in log.ledgers())
    with pytest.raises(LedgerFencedError):
        writer.roll()


def test_a_recovery_without_open_ledgers_changes_nothing(world, log):
    assert log.recover() is None
    log.append_ledgers([world.plain_ledger()])
    assert log.recover() is None
    assert len(log.versions()) == 1


def test_the_options_of_a_writer_go_to_each_of_its_ledgers_with_the_password_of_the_log(world_logs, log):
    writer = log.open_writer(5, 4, 3, "hmac")
    writer.append(ENTRY)
    writer.roll()
    asked = [(o.ensemble_size, o.write_quorum, o.ack_quorum, o.digest_type.name, o.password) for o in world_logs.options]
    assert asked == [(5, 4, 3, "HMAC", b"secret")] * 2


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"roll_bytes": 0}, "roll_bytes"),
        ({"digest_type": "md5"}, "digest type"),
        ({"write_quorum": 4}, "write quorum"),
        ({"ack_quorum": 0}, "ack quorum"),
    ],
)
def test_wrong_options_of_a_writer_are_refused_before_anything_is_done(log, options, name, world_logs):
    with pytest.raises(ConfigError, match=name):
        log.open_writer(**options)
    assert (log.versions(), world_logs.unlisted(log)) == ([], [])


def test_roll_bytes_bounds_a_ledger(world, log):
    with log.open_writer(roll_bytes=1000) as writer:
        first, deadline, count = writer.ledger_id, time.monotonic() + 10, 0
        while writer.ledger_id == first and time.monotonic() < deadline:
            writer.append(ENTRY)
            count += 1
        writer.append(ENTRY)
    ends = [one.last_entry_id for one in log.ledgers()]
    assert len(ends) > 1
    assert sum(end + 1 for end in ends) == count + 1


def test_a_log_of_rows_takes_no_writer_of_entries_and_no_ledger_is_left(world_logs):
    log, ledger = world_logs.open_rows()
    with pytest.raises(SchemaMismatchError):
        log.open_writer()
    assert (log.ledgers(), world_logs.unlisted(log)) == ([ledger], [])


@pytest.mark.parametrize("times", [1, 2])
def test_a_writer_whose_commit_took_effect_unseen_keeps_its_ledger(world, times, world_logs):
    """Log rule 1: the reply is lost, and abort must not delete a ledger that is part of the log."""
    store, logs = world.scripted()
    log = world_logs.open(logs)
    store.script = [store.lose_reply] * times
    with log.open_writer() as writer:
        assert world.ledger_exists(CommittedLedger(writer.ledger_id, -1, 0, 0))
        writer.append(ENTRY)
    assert log.ledgers() == [CommittedLedger(writer.ledger_id, 0, 100, 1)]


def test_a_writer_whose_commit_stays_unknown_is_known_once_abort_has_found_out(world, world_logs):
    """Log rule 1: commit reads nothing and raises, its transaction has applied, and abort finds that out."""
    store, logs = world.scripted()
    log = world_logs.open(logs)

    def lose(operations):
        store.store.transaction(operations)
        store.fail_reads = True
        delete = store.store.delete

        def back_again(*arguments):
            store.fail_reads = False
            return delete(*arguments)

        store.store.delete = back_again
        raise MetadataUnavailableError("memory://", "connection lost")

    store.script = [lose]
    writer = log.open_writer()
    assert log.ledgers() == [OpenLedger(writer.ledger_id, 1)]
    assert world.ledger_exists(CommittedLedger(writer.ledger_id, -1, 0, 0))


def test_a_commit_that_arrives_after_its_job_was_aborted_lists_no_ledger_that_is_deleted(world, world_logs):
    """Log rule 1: commit gives up, abort deletes, and then the transaction arrives."""
    store, logs = world.scripted()
    log = world_logs.open(logs)
    store.script = [store.delay] * 3
    with pytest.raises(MetadataUnavailableError):
        log.open_writer()
    assert (log.ledgers(), world_logs.unlisted(log)) == ([], [])
    with pytest.raises(Exception, match="running"):
        store.land()
    assert log.ledgers() == []


def test_a_job_that_was_swept_while_its_writer_was_opened_lists_nothing(world, log):
    job = world.logs.jobs.begin("orders")
    ledger_id = world.open_ledger(job)
    assert world.logs.jobs.abort(job)
    with pytest.raises(JobEndedError):
        world.logs.commit(job, CommitRequest(CommitKind.APPEND, opened=ledger_id))
    assert log.ledgers() == []


def test_a_commit_counts_as_done_where_only_the_cleaning_after_it_failed(world, caplog, world_logs):
    _, logs = world.scripted()
    log = world_logs.open(logs)

    def unavailable(job, ids):
        raise MetadataUnavailableError("memory://", "gone")

    logs.jobs.finish = unavailable
    with caplog.at_level(logging.WARNING):
        assert log.append_ledgers([world.plain_ledger()]).version == 1
    assert "left to 'bk-spark orphans sweep'" in caplog.text


def test_too_few_bookies_for_a_writer_leave_nothing_behind(world_logs, monkeypatch, log):
    def create(ledger, world, ledger_id):
        raise NotEnoughBookiesError(3, 1, "a ledger")

    monkeypatch.setattr(WorldLedger, "__init__", create)
    with pytest.raises(NotEnoughBookiesError):
        log.open_writer()
    assert log.versions() == []
