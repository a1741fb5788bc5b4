"""Log rule 10: deletion races commits and crashes. Ref: docs/rules.md."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from bk_spark.errors import JobEndedError, MetadataConflictError, NoSuchLogError
from bk_spark.log.changes.plan import CommitRequest
from bk_spark.log.stored.tree import remove_tree
from bk_spark.log.stored.values import CommitKind, CommittedLedger
from bk_spark.metadata.store import ANY_VERSION, Create, TransactionFailedError


def append(*ledgers):
    return CommitRequest(CommitKind.APPEND, tuple(ledgers))


def write(world, name, *ledgers):
    job = world.logs.jobs.begin(name)
    ledgers = ledgers or (world.job_ledger(job),)
    world.logs.commit(job, append(*ledgers))
    world.logs.jobs.finish(job, [one.ledger_id for one in ledgers])
    return list(ledgers)


def dying(world, steps):
    """A session whose process dies after so many changes."""
    session = world.new_session()
    done = []

    def dies(real):
        def call(*arguments, **options):
            if len(done) == steps:
                raise RuntimeError("the process died")
            done.append(arguments)
            return real(*arguments, **options)

        return call

    for name in ("transaction", "delete", "set"):
        setattr(session, name, dies(getattr(session, name)))
    return world.log_store(session)


def test_deleting_a_log_deletes_its_ledgers_those_of_old_versions_and_of_running_jobs_too(world):
    adopted = world.plain_ledger()
    first, second = write(world, "orders"), write(world, "orders", adopted)
    job = world.logs.jobs.begin("orders")
    world.logs.commit(job, CommitRequest(CommitKind.OVERWRITE))
    running = world.job_ledger(world.logs.jobs.begin("orders"))
    world.logs.deleter.delete("orders")
    assert not any(world.ledger_exists(one) for one in (*first, *second, adopted, running))
    assert world.logs.names.all() == []
    assert world.store.children(world.znodes.log_data) == []


def test_deleting_a_log_leaves_others_and_foreign_ledgers_alone(world):
    kept, foreign = write(world, "others"), world.plain_ledger()
    write(world, "orders")
    world.logs.deleter.delete("orders")
    assert world.ledger_exists(foreign)
    assert world.listed("others") == [one.ledger_id for one in kept]


def test_deleting_a_log_that_another_first_job_joined_deletes_that_job_s_ledgers(world):
    loser, winner = world.logs.jobs.begin("orders"), world.logs.jobs.begin("orders")
    lost, won = world.job_ledger(loser), world.job_ledger(winner)
    world.logs.commit(winner, append(won))
    world.logs.commit(loser, append(lost))
    world.logs.deleter.delete("orders")
    assert not world.ledger_exists(lost)
    assert not world.ledger_exists(won)


def test_a_deletion_that_another_one_overtakes_leaves_the_new_log_of_that_name_alone(world):
    """The znode of the new log's name has the same version as that of the old one."""
    world.logs.open("orders", create=True)
    session = world.new_session()

    def overtaken(real):
        def call(*arguments):
            session.transaction, session.delete = session.real
            world.logs.deleter.delete("orders")
            world.logs.open("orders", create=True)
            return real(*arguments)

        return call

    session.real = session.transaction, session.delete
    session.transaction, session.delete = map(overtaken, session.real)
    with contextlib.suppress(NoSuchLogError):
        world.log_store(session).deleter.delete("orders")
    assert world.logs.names.all() == ["orders"]
    world.logs.names.fresh_head("orders", world.logs.names.uid("orders"))


def test_deleting_what_is_not_there_is_an_error(world):
    with pytest.raises(NoSuchLogError, match="there is no log 'orders'"):
        world.logs.deleter.delete("orders")


def test_a_commit_under_way_fails_when_the_log_is_deleted(world):
    write(world, "orders")
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    store.script = [store.first(lambda: world.logs.deleter.delete("orders"))]
    with pytest.raises(NoSuchLogError):
        logs.commit(job, append(ledger))
    assert not world.ledger_exists(ledger)
    assert world.logs.names.all() == []


def test_a_commit_in_flight_when_the_log_is_deleted_never_applies(world):
    write(world, "orders")
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    ledger = world.job_ledger(job)

    def delay_and_delete(operations):
        store.in_flight.append(operations)
        with pytest.raises(RuntimeError):
            dying(world, 1).deleter.delete("orders")

    store.script = [delay_and_delete]
    with pytest.raises(NoSuchLogError):
        logs.commit(job, append(ledger))
    with pytest.raises(TransactionFailedError):
        store.land()


def test_a_committer_of_the_old_log_does_not_commit_to_a_new_one_of_its_name(world):
    write(world, "orders")
    job = world.logs.jobs.begin("orders")
    ledger = world.job_ledger(job)
    with pytest.raises(RuntimeError):
        dying(world, 2).deleter.delete("orders")
    write(world, "orders")
    with pytest.raises(NoSuchLogError):
        world.logs.commit(job, append(ledger))
    assert len(world.listed("orders")) == 1


def test_a_commit_that_comes_first_is_deleted_with_the_log(world):
    write(world, "orders")
    session = world.new_session()
    real = session.transaction
    late = []

    def beaten(changes):
        session.transaction = real
        late.extend(write(world, "orders"))
        return real(changes)

    session.transaction = beaten
    world.log_store(session).deleter.delete("orders")
    assert late
    assert not any(world.ledger_exists(one) for one in late)


@pytest.mark.parametrize("end", ["delete", "abort"])
def test_a_task_that_creates_a_ledger_while_others_are_deleted_is_refused(world, end):
    world.logs.open("orders", create=True)
    job = world.logs.jobs.begin("orders")
    world.job_ledger(job)
    late = world.new_metadata(job.ledger_tags())
    creation = [Create(world.znodes.ledger(late.ledger_id), late.encode())]
    creation += world.logs.jobs.creation_of_ledger(job, late.ledger_id)
    session = world.new_session()
    real = session.children
    refusals = []

    def children(path):
        found = real(path)
        if path.startswith(world.paths(job.uid).job(job.job_id).ledgers + "/"):
            session.children = real
            with pytest.raises(TransactionFailedError) as refused:
                world.store.transaction(creation)
            refusals.append(world.logs.jobs.explain(job, refused.value))
        return found

    session.children = children
    logs = world.log_store(session)
    assert logs.deleter.delete("orders") is None if end == "delete" else logs.jobs.abort(job)
    assert [type(one) for one in refusals] == [JobEndedError]
    assert world.store.get_many([creation[0].path]) == [None]


def test_a_task_under_way_cannot_create_a_ledger_in_a_deleted_log(world):
    world.logs.open("orders", create=True)
    job = world.logs.jobs.begin("orders")
    world.job_ledger(job)
    under_way = world.logs.jobs.creation_of_ledger(job, 77)
    world.logs.deleter.delete("orders")
    with pytest.raises(TransactionFailedError):
        world.store.transaction([Create("/ledgers/zombie"), *under_way])
    with pytest.raises(JobEndedError):
        world.logs.jobs.creation_of_ledger(job, 78)


@pytest.mark.parametrize("steps", range(0, 30))
def test_a_deletion_cut_short_anywhere_is_finished_when_called_again(world, steps):
    ledgers = write(world, "orders") + write(world, "orders", world.plain_ledger())
    ledgers.append(world.job_ledger(world.logs.jobs.begin("orders")))
    try:
        dying(world, steps).deleter.delete("orders")
    except RuntimeError:
        world.logs.deleter.delete("orders")
    assert not any(world.ledger_exists(one) for one in ledgers)
    assert world.logs.names.all() == []
    assert world.store.children(world.znodes.log_data) == []


def test_a_log_half_deleted_is_neither_read_nor_written(world):
    ledgers = write(world, "orders")
    job = world.logs.jobs.begin("orders")
    with pytest.raises(RuntimeError):
        dying(world, 1).deleter.delete("orders")
    with pytest.raises(NoSuchLogError):
        world.logs.reader.snapshot("orders")
    with pytest.raises(NoSuchLogError):
        world.logs.jobs.begin("orders", job.uid)
    with pytest.raises(NoSuchLogError):
        world.logs.jobs.ensure(job)
    assert world.ledger_exists(ledgers[0])


def test_a_log_that_is_being_deleted_and_still_has_its_name_is_neither_read_nor_written_nor_made_anew(world):
    ledgers = write(world, "orders")
    world.logs.names.change_head("orders", world.logs.names.uid("orders"), lambda head: replace(head, deleting=True))
    with pytest.raises(NoSuchLogError):
        world.logs.reader.snapshot("orders")
    with pytest.raises(MetadataConflictError, match="it is being deleted"):
        world.logs.jobs.begin("orders")
    with pytest.raises(MetadataConflictError, match="it is being deleted"):
        world.logs.open("orders", create=True)
    assert world.ledger_exists(ledgers[0])
    world.logs.deleter.delete("orders")
    assert not world.ledger_exists(ledgers[0])


def test_the_name_is_free_for_a_new_log_while_the_old_one_s_ledgers_still_go(world):
    old = write(world, "orders")
    with pytest.raises(RuntimeError):
        dying(world, 1).deleter.delete("orders")
    uid = world.logs.open("orders", create=True)
    new = write(world, "orders")
    world.logs.deleter.delete("orders", uid)
    assert world.ledger_exists(old[0])
    assert not world.ledger_exists(new[0])
    world.logs.deleter.delete("orders")
    assert not world.ledger_exists(old[0])


def test_no_ledger_goes_before_the_head_says_so(world):
    ledgers = write(world, "orders")
    uid = world.logs.reader.snapshot("orders").uid
    for steps in range(30):
        with contextlib.suppress(RuntimeError, NoSuchLogError):
            dying(world, steps).deleter.delete("orders")
        if not world.ledger_exists(ledgers[0]):
            head = world.store.get_many([world.paths(uid).head])[0]
            assert head is None or b'"deleting":true' in head.value
            return
    pytest.fail("the ledger was never deleted")


def open_writer(world):
    """A leader's ledger, listed and open."""
    job = world.logs.jobs.begin("orders")
    opened = world.open_ledger(job)
    world.logs.commit(job, CommitRequest(CommitKind.APPEND, opened=opened))
    world.logs.jobs.finish(job, [opened])
    return CommittedLedger(opened, 9, 1000, 10)


def vacuumed(world, version):
    """As a vacuum leaves it: what is below is gone, save for the checkpoint."""
    uid = world.logs.names.uid("orders")
    paths = world.paths(uid)
    world.logs.write_checkpoint("orders", uid, version)
    commits = list(world.logs.reader.versions("orders", uid, 1, version - 1))
    change = {"oldest_version": version, "vacuumed_version": version, "oldest_record": version}
    world.logs.names.change_head("orders", uid, lambda head: replace(head, **change))
    for commit in commits:
        remove_tree(world.store, paths.job(commit.job_id).root)
        world.store.delete(paths.version(commit.version), ANY_VERSION)


def test_deleting_a_log_deletes_what_its_leaders_opened_and_what_a_vacuum_left_in_checkpoints(world):
    """Log rule 10."""
    ledgers = [*write(world, "orders"), open_writer(world), *write(world, "orders"), open_writer(world), open_writer(world)]
    vacuumed(world, 4)
    ledgers.append(open_writer(world))
    world.logs.deleter.delete("orders")
    assert not any(world.ledger_exists(one) for one in ledgers)
    assert world.store.children(world.znodes.log_data) == []


@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_a_deletion_of_a_vacuumed_log_cut_short_anywhere_is_finished_when_called_again(world, steps):
    """Log rule 10."""
    ledgers = [*write(world, "orders"), open_writer(world), *write(world, "orders"), open_writer(world)]
    vacuumed(world, 4)
    ledgers += write(world, "orders")
    try:
        dying(world, steps).deleter.delete("orders")
    except RuntimeError:
        world.logs.deleter.delete("orders")
    assert not any(world.ledger_exists(one) for one in ledgers)
    assert world.store.children(world.znodes.log_data) == []


def test_deleting_a_log_deletes_a_ledger_that_is_open_for_longer_than_records_are_kept(world):
    """Log rule 10."""
    (old,), leader, new = write(world, "orders"), open_writer(world), world.plain_ledger()
    job = world.logs.jobs.begin("orders")
    world.logs.commit(job, CommitRequest(CommitKind.COMPACT, (new,), remove=(old.ledger_id,)))
    vacuumed(world, 3)
    world.logs.deleter.delete("orders")
    assert not any(world.ledger_exists(one) for one in (leader, new))


def test_a_leader_s_roll_fails_when_the_log_is_deleted(world):
    """Log rule 10."""
    open_writer(world)
    store, logs = world.scripted()
    job = logs.jobs.begin("orders")
    opened = world.open_ledger(job)
    store.script = [store.first(lambda: world.logs.deleter.delete("orders"))]
    with pytest.raises(NoSuchLogError):
        logs.commit(job, CommitRequest(CommitKind.APPEND, opened=opened, leader_epoch=1))
    assert not world.ledger_exists(CommittedLedger(opened, 9, 1000, 10))
