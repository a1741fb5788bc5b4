"""Commits that meet open ledgers: log rule 2. Ref: docs/rules.md, "Logs"."""

from __future__ import annotations

import pytest

from bk_spark.errors import (
    BookieUnavailableError,
    ConfigError,
    JobEndedError,
    LedgerFencedError,
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    SchemaMismatchError,
)
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.log_store import LogStore
from bk_spark.log.stored.values import CommitKind, CommittedLedger, OpenLedger, Retention, WriterState
from bk_spark.metadata.store import TransactionFailedError
from tests.unit.log.log_requests import append, ids, overwrite, replacement, schema_json, write


@pytest.fixture(autouse=True)
def log(world):
    world.logs.open("orders", create=True)


def open_writer(world, logs=None, **more):
    """A leader's first commit, or with ``leader_epoch`` its roll: the version, whose ``opened`` is the ledger."""
    job = world.logs.jobs.begin("orders")
    opened = world.open_ledger(job)
    version = (logs or world.logs).commit(job, append(opened=opened, **more))
    world.logs.jobs.finish(job, [opened])
    return version


def roll(world, before, *closed):
    return open_writer(world, leader_epoch=before.epoch, closed=closed)


def close(world, before, *closed):
    return world.logs.commit(world.logs.jobs.begin("orders"), append(leader_epoch=before.epoch, closed=closed))


def remove(world, kind, removed, *ledgers, logs=None):
    logs = logs or world.logs
    request = CommitRequest(kind, tuple(ledgers), remove=tuple(one.ledger_id for one in removed))
    return logs.commit(logs.jobs.begin("orders"), request)


def writer(world):
    return world.logs.names.head("orders", world.logs.names.uid("orders")).writer


def still_open(world, version=None):
    return [one.ledger_id for one in world.logs.reader.snapshot("orders", version).open_ledgers]


def test_opening_a_writer_lists_its_ledger_at_the_end_and_raises_the_epoch(world):
    a = write(world, "orders").added
    version = open_writer(world)
    assert (version.opened, version.epoch, version.total) == (version.opened, 1, a)
    assert writer(world) == WriterState(1, (OpenLedger(version.opened, version.version),))
    assert still_open(world) == [version.opened]
    assert still_open(world, 1) == []


def test_an_append_behind_a_live_leader_recovers_its_ledger_first_and_records_its_end(world):
    """Log rule 2."""
    leader = open_writer(world)
    version = write(world, "orders", ledger := world.plain_ledger())
    assert world.recovered == [leader.opened]
    assert world.listed("orders") == [leader.opened, ledger.ledger_id]
    assert version.closed == (CommittedLedger(leader.opened, 9, 1000, 10),)
    assert (version.epoch, writer(world)) == (2, WriterState(2, ()))
    assert (version.total.rows, version.end_row) == (20, 20)


def test_the_displaced_leader_is_told_so_when_it_rolls_or_closes(world):
    """Log rule 2."""
    leader = open_writer(world)
    write(world, "orders")
    with pytest.raises(LedgerFencedError):
        roll(world, leader)
    with pytest.raises(
        LedgerFencedError, match=rf"writer of log 'orders' was displaced by another client \(ledger {leader.opened}\)"
    ):
        close(world, leader, world.close_ledger(leader.opened))
    assert len(world.logs.reader.all_versions("orders")) == 2


def test_a_leader_displaced_by_an_overwrite_with_rows_is_told_so_too(world):
    """Log rule 2."""
    leader = open_writer(world)
    write(world, "orders", request=overwrite, schema_json=schema_json(id="long"))
    with pytest.raises(LedgerFencedError):
        roll(world, leader)


def test_a_ledger_that_a_leader_opened_cannot_be_listed_again(world):
    """Log rule 9."""
    leader = open_writer(world)
    ledger = world.close_ledger(leader.opened)
    with pytest.raises(ConfigError, match=f"is {leader.opened}: version 1 of the log has listed it already"):
        write(world, "orders", ledger)


def test_a_second_leader_takes_the_log_from_the_first(world):
    """Log rule 2: the ledgers of the first are closed before the second's is listed."""
    first = open_writer(world)
    second = open_writer(world)
    assert (world.recovered, second.epoch) == ([first.opened], 2)
    assert world.listed("orders") == [first.opened]
    assert still_open(world) == [second.opened]
    with pytest.raises(LedgerFencedError):
        roll(world, first)
    assert roll(world, second).epoch == 2


def test_of_two_writers_that_open_at_once_the_later_takes_the_log_from_the_earlier(world):
    store, logs = world.scripted()
    others = []
    store.script = [store.first(lambda: others.append(open_writer(world)))]
    second = open_writer(world, logs)
    assert world.recovered == [others[0].opened]
    assert (second.epoch, still_open(world)) == (2, [second.opened])


def test_an_overwrite_takes_the_leader_s_ledger_out_of_the_log_closed(world):
    """Log rule 2."""
    leader = open_writer(world)
    version = write(world, "orders", request=overwrite)
    assert world.recovered == [leader.opened]
    assert (version.removed.ledgers, version.removed.rows) == (1, 10)
    assert len(world.listed("orders")) == 1
    assert (still_open(world), version.epoch) == ([], 2)


def test_both_ledgers_of_a_leader_that_rolls_are_recovered_in_log_order(world):
    """Log rule 2: fencing all open ledgers is fencing the last two."""
    first = open_writer(world)
    second = roll(world, first)
    assert still_open(world) == [first.opened, second.opened]
    write(world, "orders")
    assert world.recovered == [first.opened, second.opened]


def test_a_leader_rolls_and_records_the_end_of_the_ledger_before_the_last_one(world):
    """Log rule 3: a ledger is closed before the roll after its own."""
    first = open_writer(world)
    second = roll(world, first)
    third = roll(world, second, world.close_ledger(first.opened, 7))
    assert third.closed == (CommittedLedger(first.opened, 6, 700, 7),)
    assert (third.epoch, world.listed("orders"), still_open(world)) == (1, [first.opened], [second.opened, third.opened])


def test_a_third_open_ledger_is_refused(world):
    first = open_writer(world)
    second = roll(world, first)
    with pytest.raises(ConfigError, match=rf"\[{first.opened}, {second.opened}\] are open: close the first one before"):
        roll(world, second)


def test_a_leader_that_closes_ends_its_leadership(world):
    first = open_writer(world)
    second = roll(world, first)
    ends = [world.close_ledger(one.opened) for one in (first, second)]
    version = close(world, second, *ends)
    assert (version.closed, version.epoch) == (tuple(ends), 2)
    assert writer(world) == WriterState(2, ())
    with pytest.raises(LedgerFencedError):
        roll(world, second)
    write(world, "orders")
    assert world.recovered == []


def test_a_leader_cannot_record_an_end_before_that_of_the_ledger_in_front(world):
    first = open_writer(world)
    second = roll(world, first)
    with pytest.raises(ConfigError, match="close the first ones first"):
        close(world, second, world.close_ledger(second.opened))


def test_a_leader_cannot_record_another_end_than_the_ledger_has(world):
    first = open_writer(world)
    world.close_ledger(first.opened, 5)
    with pytest.raises(ConfigError, match=r"the end of a ledger to close is .*last_entry_id=8.*closed as .*last_entry_id=4"):
        close(world, first, CommittedLedger(first.opened, 8, 900, 9))


def test_a_leader_whose_end_a_compaction_has_recorded_still_closes(world):
    write(world, "orders", a := world.plain_ledger())
    first = open_writer(world)
    second = roll(world, first)
    end = world.close_ledger(first.opened)
    assert remove(world, CommitKind.COMPACT, [a], world.plain_ledger()).closed == (end,)
    assert close(world, second, end, world.close_ledger(second.opened)).closed == (CommittedLedger(second.opened, 9, 1000, 10),)


@pytest.mark.parametrize("kind", [CommitKind.COMPACT, CommitKind.REPLACE])
def test_what_adds_nothing_at_the_end_leaves_a_leader_alone(world, kind):
    """Log rule 2 says appends and overwrites: a compaction every hour must not disturb a writer."""
    write(world, "orders", a := world.plain_ledger())
    leader = open_writer(world)
    version = remove(world, kind, [a], b := world.plain_ledger())
    assert (world.recovered, version.epoch) == ([], leader.epoch)
    assert (world.listed("orders"), still_open(world)) == (ids(b), [leader.opened])
    assert roll(world, leader).epoch == leader.epoch


def test_the_end_of_an_open_ledger_is_not_recorded_before_that_of_the_one_in_front(world):
    write(world, "orders", a := world.plain_ledger())
    first = open_writer(world)
    second = roll(world, first)
    world.close_ledger(second.opened)
    assert remove(world, CommitKind.COMPACT, [a], world.plain_ledger()).closed == ()
    assert still_open(world) == [first.opened, second.opened]


def test_an_open_ledger_cannot_be_removed(world):
    write(world, "orders", a := world.plain_ledger())
    first = open_writer(world)
    second = roll(world, first)
    for kind in (CommitKind.COMPACT, CommitKind.REPLACE):
        with pytest.raises(MetadataConflictError, match=f"ledger {first.opened}, which is to be removed, is open"):
            remove(world, kind, [a, CommittedLedger(first.opened, 9, 1000, 10)], world.plain_ledger(20))
    with pytest.raises(MetadataConflictError, match=f"ledger {first.opened}, which is to be removed, is open"):
        world.logs.truncate("orders", world.logs.names.uid("orders"), second.opened)
    assert still_open(world) == [first.opened, second.opened]


def test_a_ledger_whose_end_is_recorded_by_the_same_commit_can_be_removed(world):
    leader = open_writer(world)
    end = world.close_ledger(leader.opened)
    version = remove(world, CommitKind.COMPACT, [end], b := world.plain_ledger())
    assert (version.closed, world.listed("orders")) == ((end,), ids(b))
    assert (version.total.rows, version.end_row) == (10, 10)


def test_a_duplicate_displaces_nobody(world):
    write(world, "orders", application=("query", 1))
    leader = open_writer(world)
    assert write(world, "orders", application=("query", 1)).duplicate_of == 1
    assert (world.recovered, writer(world).epoch) == ([], leader.epoch)


def test_an_append_that_does_not_fit_displaces_nobody(world):
    leader = open_writer(world)
    with pytest.raises(SchemaMismatchError):
        write(world, "orders", schema_json=schema_json(id="long"))
    with pytest.raises(NoSuchLedgerError):
        write(world, "orders", CommittedLedger(4711, 0, 1, 1))
    assert (world.recovered, writer(world).epoch) == ([], leader.epoch)


def test_a_writer_of_entries_is_refused_on_a_log_of_rows(world):
    write(world, "orders", schema_json=schema_json(id="long"))
    with pytest.raises(SchemaMismatchError, match="the log holds rows and the data is entries"):
        open_writer(world)


def test_a_ledger_is_recovered_once_and_others_that_come_between_too(world):
    """Log rule 2, on each try anew."""
    store, logs = world.scripted()
    first = open_writer(world)
    others = []
    store.script = [
        store.first(lambda: touch_head(world)),
        store.first(lambda: others.append(open_writer(world))),
    ]
    write(world, "orders", logs=logs)
    assert world.recovered.count(first.opened) == 2, "by the commit, and by the writer that came between"
    assert world.recovered.count(others[0].opened) == 1
    assert still_open(world) == []


def touch_head(world):
    """Somebody else changed it, and left the leader alone."""
    world.logs.set_retention("orders", world.logs.names.uid("orders"), Retention(1))


def test_a_leader_s_commit_whose_reply_is_lost_is_recognised_as_done(world):
    store, logs = world.scripted()
    store.script = [store.lose_reply]
    version = open_writer(world, logs)
    assert writer(world) == WriterState(1, (OpenLedger(version.opened, version.version),))
    assert world.recovered == []


def test_a_leader_s_roll_in_flight_when_it_is_displaced_never_applies(world):
    """Log rule 2."""
    leader = open_writer(world)
    store, logs = world.scripted()
    store.script = [store.delay] * 3
    job = world.logs.jobs.begin("orders")
    opened = world.open_ledger(job)
    with pytest.raises(MetadataUnavailableError):
        logs.commit(job, append(opened=opened, leader_epoch=leader.epoch))
    write(world, "orders")
    with pytest.raises(TransactionFailedError):
        store.land()
    assert world.logs.jobs.abort(job)
    assert still_open(world) == []


def test_a_failed_recovery_fails_the_append_and_changes_nothing(world):
    """Log rule 2: what the leader has got confirmed is unknown, so nothing may come behind it."""
    leader = open_writer(world)

    def fail(ledger_id):
        raise BookieUnavailableError(ledger_id, 0, "two of three bookies do not answer")

    logs = LogStore(world.store, world.znodes, lambda: world.now_ms, recover_ledger=fail)
    with pytest.raises(BookieUnavailableError, match=f"ledger {leader.opened}"):
        write(world, "orders", logs=logs)
    assert writer(world) == WriterState(1, (OpenLedger(leader.opened, 1),))


def test_an_opened_ledger_must_be_the_job_s_own(world):
    """Log rule 9."""
    with pytest.raises(ConfigError, match="it was not created by write job"):
        world.logs.commit(world.logs.jobs.begin("orders"), append(opened=world.plain_ledger(closed=False).ledger_id))
    with pytest.raises(NoSuchLedgerError):
        world.logs.commit(world.logs.jobs.begin("orders"), append(opened=4711))


def test_a_leader_whose_open_job_was_aborted_opens_nothing(world):
    job = world.logs.jobs.begin("orders")
    opened = world.open_ledger(job)
    world.logs.jobs.abort(job)
    with pytest.raises(JobEndedError):
        world.logs.commit(job, append(opened=opened))


def test_opened_ledgers_are_found_again_by_every_version(world):
    first = open_writer(world)
    second = roll(world, first)
    third = roll(world, second, world.close_ledger(first.opened))
    write(world, "orders", a := world.plain_ledger())
    listings = {
        1: ([], [first.opened]),
        2: ([], [first.opened, second.opened]),
        3: ([first.opened], [second.opened, third.opened]),
        4: ([first.opened, second.opened, third.opened, a.ledger_id], []),
    }
    assert {n: (world.listed("orders", n), still_open(world, n)) for n in listings} == listings


@pytest.mark.parametrize(
    "contradiction",
    [
        {"kind": CommitKind.OVERWRITE, "opened": 7},
        {"kind": CommitKind.APPEND, "opened": 7, "ledgers": (CommittedLedger(1, 0, 1, 1),)},
        {"kind": CommitKind.APPEND, "closed": (CommittedLedger(1, 0, 1, 1),)},
        {"kind": CommitKind.COMPACT, "remove": (1,), "leader_epoch": 1},
    ],
)
def test_a_leader_s_commit_holds_nothing_else(contradiction):
    with pytest.raises(ConfigError, match="a leader"):
        CommitRequest(**contradiction)


def test_replacing_one_stretch_needs_no_listing_of_open_ledgers(world):
    write(world, "orders", a := world.plain_ledger(), b := world.plain_ledger())
    leader = open_writer(world)
    world.logs.commit(world.logs.jobs.begin("orders"), replacement([a, b], c := world.plain_ledger(3)))
    assert (world.listed("orders"), still_open(world)) == (ids(c), [leader.opened])
