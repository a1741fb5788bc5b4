"""Records of old versions: how long they stay, and what goes with them. Ref: docs/rules.md, log rules 1 and 8."""

from __future__ import annotations

import pytest

from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.cleanup import records
from bk_spark.log.stored import values
from bk_spark.log.stored.values import CommitKind
from tests.unit.log.aged_world import DAY_S, WEEK_S, AgedWorld, head, keep, present, vacuum


@pytest.fixture
def world():
    return AgedWorld()


def test_records_of_versions_far_below_go_after_the_head_says_so(world):
    for _ in range(6):
        world.write("orders", kind=CommitKind.OVERWRITE)
    world.pass_s(2 * WEEK_S)
    report = vacuum(world, records_kept=2)
    assert (report.oldest_version, report.deleted_records, head(world).oldest_record) == (6, 3, 4)
    paths = world.paths(world.logs.names.uid("orders"))
    assert world.store.children(paths.version_bucket(0)) == ["4", "5", "6"]
    jobs = [job for bucket in world.store.children(paths.jobs) for job in world.store.children(f"{paths.jobs}/{bucket}")]
    assert len(jobs) == 3
    assert len(world.listed("orders")) == 1
    world.write("orders")
    assert len(world.listed("orders")) == 2


def test_records_of_the_last_week_stay_so_that_a_late_commit_finds_what_became_of_it(world):
    """Log rule 1."""
    world.logs.open("orders", create=True)
    keep(world, version_retention_s=0)
    job = world.logs.jobs.begin("orders")
    request = CommitRequest(CommitKind.APPEND, (world.job_ledger(job),))
    first = world.logs.commit(job, request)
    for _ in range(5):
        world.write("orders", kind=CommitKind.OVERWRITE)
        world.pass_s(1)
    assert vacuum(world, records_kept=1).deleted_records == 0
    assert world.logs.commit(job, request) == first
    world.pass_s(WEEK_S)
    assert vacuum(world, records_kept=1).deleted_records > 0


def test_what_a_job_left_beside_its_pages_goes_with_its_record(world):
    job = world.logs.jobs.begin("orders")
    won, lost = world.job_ledger(job), world.job_ledger(job)
    world.logs.commit(job, CommitRequest(CommitKind.APPEND, (won,)))
    for _ in range(4):
        world.write("orders")
    world.pass_s(2 * WEEK_S)
    vacuum(world, records_kept=1)
    assert present(world, [won, lost]) == [True, False]
    assert won.ledger_id in world.listed("orders")


def test_a_job_that_moved_to_another_first_job_s_log_goes_with_its_record(world):
    winner, loser = world.logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    won, moved, lost = world.job_ledger(winner), world.job_ledger(loser), world.job_ledger(loser)
    world.logs.commit(winner, CommitRequest(CommitKind.APPEND, (won,)))
    world.logs.commit(loser, CommitRequest(CommitKind.APPEND, (moved,)))
    for _ in range(4):
        world.write("orders")
    world.pass_s(2 * WEEK_S)
    vacuum(world, records_kept=1)
    assert present(world, [won, moved, lost]) == [True, True, False]
    assert world.store.get_many([world.paths(loser.uid).job(loser.job_id).root]) == [None]


def test_checkpoints_below_the_oldest_version_go(world):
    for days in (1, 20, 20):
        world.write("orders", kind=CommitKind.OVERWRITE)
        world.pass_s(days * DAY_S)
        vacuum(world)
    paths = world.paths(world.logs.names.uid("orders"))
    assert world.store.children(paths.checkpoint_bucket(0)) == [str(head(world).vacuumed_version)]


def test_records_with_many_pages_go_in_transactions_that_are_small_enough(world, monkeypatch):
    """ZooKeeper takes 1 MiB."""
    monkeypatch.setattr(values, "LEDGERS_PER_PAGE", 1)
    monkeypatch.setattr(records, "_PAGES_AT_ONCE", 5)
    for count in (2, 2, 2, 7, 1, 1, 1):
        world.write("orders", count, kind=CommitKind.OVERWRITE)
    world.pass_s(2 * WEEK_S)
    session = world.new_session()
    real, pages = session.transaction, []

    def transaction(operations):
        deleted = sum("/pages/" in one.path for one in operations)
        pages.extend([deleted] if deleted else [])
        return real(operations)

    session.transaction = transaction
    assert vacuum(world, store=session, records_kept=1).deleted_records == 5
    assert pages == [4, 2, 7, 1]
    assert len(world.listed("orders")) == 1
