"""The last add confirmed, adds with deferred sync, force. Ref: docs/rules.md, protocol rule 30, situations 23 and 48."""

from __future__ import annotations

import pytest

from bk_spark.entries.digest import master_key
from bk_spark.wire.messages import AddReply, Status

OTHER_KEY = master_key(b"another")
SMALL, LARGE = 10, 2000
ENDS = pytest.mark.parametrize("end", ["stop", "kill", "power_off"])


@pytest.fixture(params=[SMALL, LARGE], ids=["journalled", "direct"])
def size(request):
    """Payload bytes: five entries of the one go to the journal, of the other into the entry log."""
    return request.param


@ENDS
def test_a_last_add_confirmed_that_came_without_an_add_is_kept(harness, end):
    """Situation 23."""
    harness.start()
    harness.add(1, 0, 4)
    assert harness.confirmed(1).last_add_confirmed == -1
    assert harness.confirm(1, 4).status is Status.OK
    for _ in range(2):
        assert harness.confirmed(1).last_add_confirmed == 4
        getattr(harness, end)()
        harness.start()


def test_the_last_add_confirmed_never_goes_back(harness):
    harness.start()
    harness.add(1, 5, 9)
    for step in (lambda: harness.confirm(1, 2), lambda: harness.add(1, 0, 4), harness.bookie.storage.checkpoint):
        step()
        assert harness.confirmed(1).last_add_confirmed == 4
    harness.confirm(1, 2)
    harness.add(1, 0, 4, tag=1, recovery=True)
    assert harness.confirmed(1).last_add_confirmed == 4
    harness.restart()
    assert harness.confirmed(1).last_add_confirmed == 4


def test_one_that_is_known_already_is_not_stored_again(harness):
    harness.start()
    harness.confirm(1, 4)
    (journal,) = harness.files("journal")
    before = journal.stat().st_size
    assert harness.confirm(1, 4).status is Status.OK
    assert harness.confirm(1, 3).status is Status.OK
    assert journal.stat().st_size == before


def test_another_password_or_a_failed_sync_confirms_nothing(harness):
    harness.start()
    harness.add(1, 0, 4)
    assert harness.confirm(1, 4, key=OTHER_KEY).status is Status.UNAUTHORIZED
    assert harness.confirmed(1).last_add_confirmed == -1
    harness.disk.fail("sync", "journal")
    assert harness.confirm(1, 4).status is Status.IO_ERROR


def test_a_ledger_that_is_only_confirmed_has_no_entry_and_is_not_fenced(harness):
    harness.start()
    harness.confirm(1, 4)
    harness.restart()
    reply = harness.confirmed(1)
    assert (reply.status, reply.last_add_confirmed, reply.is_fenced) == (Status.OK, 4, False)
    assert harness.read(1, 0, 0)[1].status is Status.NO_SUCH_ENTRY


def test_an_add_with_deferred_sync_is_answered_before_the_sync_and_the_others_after_it(harness, size):
    harness.start()
    harness.stage(harness.batch(1, 0, 4, size=size), deferred_sync=True)
    harness.stage(harness.batch(2, 0, 4, size=size))
    (early,) = harness.early()
    assert isinstance(early, AddReply)
    assert early.status is Status.OK
    assert harness.early() == []
    (late,) = harness.sync()
    assert late.request_id == early.request_id + 1
    harness.assert_holds(1, 0, 4, size=size)


def test_an_early_answer_survives_a_kill_and_force_makes_it_survive_a_power_cut(harness, size):
    harness.start()
    harness.stage(harness.batch(1, 0, 4, size=size), deferred_sync=True)
    assert [reply.status for reply in harness.early()] == [Status.OK]
    harness.kill()
    harness.start()
    harness.assert_holds(1, 0, 4, size=size)
    harness.stage(harness.batch(1, 5, 9, size=size), deferred_sync=True)
    harness.early()
    assert harness.force(1).status is Status.OK
    harness.stage(harness.batch(1, 10, 14, size=size), deferred_sync=True)
    harness.early()
    harness.power_off()
    harness.start()
    harness.assert_holds(1, 0, 9, size=size)
    assert harness.read(1, 10, 10)[1].status is Status.NO_SUCH_ENTRY


def test_a_force_whose_sync_fails_is_answered_with_an_error_as_are_adds_that_cannot_be_written(harness, size):
    harness.start()
    harness.stage(harness.batch(1, 0, 4, size=size), deferred_sync=True)
    harness.early()
    harness.disk.fail("sync", "")
    assert harness.force(1).status is Status.IO_ERROR
    harness.kill()
    harness.disk.failing.clear()
    harness.start()
    harness.disk.fail("write", "")
    harness.stage(harness.batch(1, 5, 9, size=size), deferred_sync=True)
    assert [reply.status for reply in harness.early()] == [Status.IO_ERROR]


def test_answers_name_the_life_of_the_bookie_so_that_a_force_is_not_taken_for_acks_of_an_earlier_one(harness):
    """Protocol rule 30."""
    harness.start()
    harness.stage(harness.batch(1, 0, 4), deferred_sync=True)
    (acked,) = harness.early()
    assert harness.force(1).boot == acked.boot != 0
    harness.power_off()
    harness.start()
    assert harness.force(1).boot != acked.boot


def test_an_early_answer_that_nobody_took_comes_out_of_the_sync(harness):
    harness.start()
    harness.stage(harness.batch(1, 0, 4), deferred_sync=True)
    assert [reply.status for reply in harness.sync()] == [Status.OK]


def test_an_add_with_deferred_sync_to_a_fenced_ledger_is_refused(harness):
    harness.start()
    harness.fence(1)
    harness.stage(harness.batch(1, 0, 4), deferred_sync=True)
    assert [reply.status for reply in harness.early()] == [Status.FENCED]


def test_a_force_wants_the_password_and_may_find_nothing_to_do(harness):
    harness.start()
    assert harness.force(1).status is Status.OK
    harness.add(1, 0, 4)
    assert harness.force(1, key=OTHER_KEY).status is Status.UNAUTHORIZED


def test_a_reader_does_not_wait_where_nobody_could_sync_meanwhile(harness, size):
    harness.durable_wait_s = 0
    harness.start()
    harness.stage(harness.batch(1, 0, 4, size=size))
    assert harness.read(1, 0, 4)[1].status is Status.UNKNOWN
    harness.sync()
    harness.assert_holds(1, 0, 4, size=size)
