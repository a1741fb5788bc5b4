"""Fences of ledgers: durable before anybody hears of them, and for ever. Ref: docs/rules.md, protocol rules 2 and 32 to 36."""

from __future__ import annotations

import pytest

from bk_spark.entries.digest import master_key
from bk_spark.errors import StorageError
from bk_spark.wire.messages import Status, Verdict

OTHER_KEY = master_key(b"another")
SMALL, LARGE = 10, 2000
ENDS = pytest.mark.parametrize("end", ["stop", "kill", "power_off"])


@pytest.fixture(params=[SMALL, LARGE], ids=["journalled", "direct"])
def size(request):
    """Payload bytes: five entries of the one go to the journal, of the other into the entry log."""
    return request.param


def test_a_fenced_ledger_takes_no_add_but_those_of_its_recovery(harness, size):
    harness.start()
    harness.add(1, 0, 4, size=size)
    assert harness.fence(1).status is Status.OK
    assert harness.add(1, 5, 9, size=size).status is Status.FENCED
    assert harness.add(1, 0, 4, size=size).status is Status.FENCED
    assert harness.add(2, 0, 4, size=size).status is Status.OK
    assert harness.add(1, 5, 9, size=size, recovery=True).status is Status.OK
    harness.assert_holds(1, 0, 9, size=size)


def test_a_ledger_that_was_never_seen_is_created_as_fenced(harness, size):
    """Protocol rule 2: a late first add would succeed otherwise."""
    harness.start()
    assert harness.fence(1).status is Status.OK
    assert harness.add(1, 0, 4, size=size).status is Status.FENCED
    reply = harness.confirmed(1, fence=True)
    assert (reply.status, reply.last_add_confirmed, reply.is_fenced) == (Status.OK, -1, True)
    assert harness.read(1, 0, 0, fence=True)[1].status is Status.NO_SUCH_ENTRY


@ENDS
def test_a_ledger_that_was_created_as_fenced_keeps_the_password_of_its_fence(harness, end):
    harness.start()
    harness.fence(1)
    getattr(harness, end)()
    harness.start()
    assert harness.add(1, 0, 4, key=OTHER_KEY, recovery=True).status is Status.UNAUTHORIZED
    assert harness.add(1, 0, 4, recovery=True).status is Status.OK


@ENDS
@pytest.mark.parametrize("has_entries", [True, False])
def test_a_fence_survives_the_end_of_its_bookie(harness, end, has_entries):
    """Situation 27."""
    harness.start()
    if has_entries:
        harness.add(1, 0, 4)
    harness.fence(1)
    for _ in range(2):
        getattr(harness, end)()
        harness.start()
        assert harness.confirmed(1, fence=True).is_fenced
        assert harness.add(1, 5, 9).status is Status.FENCED


def test_a_checkpoint_of_nothing_but_a_fence_writes_it_before_the_mark_moves(harness):
    """Protocol rule 36: the journal that holds the fence is deleted after it."""
    harness.start(journal_file_bytes=4096)
    harness.add(1, 0, 4)
    harness.bookie.storage.checkpoint()
    harness.fence(1)
    harness.fence(2)
    harness.bookie.storage.checkpoint()
    harness.add(3, 0, 4)
    harness.bookie.storage.checkpoint()
    assert len(harness.files("journal")) == 1
    harness.kill()
    harness.start()
    for ledger_id in (1, 2):
        assert harness.add(ledger_id, 5, 9).status is Status.FENCED
    harness.assert_holds(1, 0, 4)


def test_a_fence_outlasts_checkpoints_with_later_adds_of_its_recovery(harness):
    harness.start()
    harness.fence(1)
    for first in (0, 5):
        harness.bookie.storage.checkpoint()
        harness.add(1, first, first + 4, recovery=True)
        assert harness.confirmed(1).is_fenced
        assert harness.add(1, 10, 14).status is Status.FENCED
    harness.restart()
    assert harness.add(1, 10, 14).status is Status.FENCED


def test_a_fence_that_is_staged_refuses_the_adds_behind_it_and_not_those_before(harness, size):
    """Protocol rule 32: fence check and add are one step."""
    harness.start()
    harness.stage(harness.batch(1, 0, 4, size=size))
    harness.stage_fence(1)
    harness.stage(harness.batch(1, 5, 9, size=size))
    assert [reply.status for reply in harness.sync()] == [Status.OK, Status.OK, Status.FENCED]
    found, end = harness.payloads(1, 0, 9, fence=True)
    assert (sorted(found), end.status) == ([0, 1, 2, 3, 4], Status.NO_SUCH_ENTRY)


@pytest.mark.parametrize("exists", [True, False])
def test_nothing_is_answered_to_a_fencing_read_before_the_fence_is_durable(harness, exists):
    """Protocol rule 35: not even that there is nothing."""
    harness.start()
    if exists:
        harness.add(1, 0, 4)
    for _ in range(2):  # not staged at all; staged
        for position in (0, 5):
            found, end = harness.payloads(1, position, position, fence=True)
            assert (found, end.status) == ({}, Status.UNKNOWN)
        reply = harness.confirmed(1, fence=True)
        assert (reply.status, reply.is_fenced) == (Status.UNKNOWN, False)
        assert not harness.confirmed(1).is_fenced
        harness.stage_fence(1)
    harness.sync()
    assert harness.read(1, 5, 5, fence=True)[1].status is Status.NO_SUCH_ENTRY
    assert harness.confirmed(1, fence=True).is_fenced


def test_fences_that_meet_share_one_record_and_one_sync(harness):
    """Protocol rule 34."""
    harness.start()
    harness.stage_fence(1)
    harness.stage_fence(1)
    assert not harness.confirmed(1).is_fenced
    assert [reply.status for reply in harness.sync()] == [Status.OK, Status.OK]
    (journal,) = harness.files("journal")
    before = journal.stat().st_size
    assert harness.fence(1).status is Status.OK
    assert journal.stat().st_size == before


@pytest.mark.parametrize(("verb", "place"), [("write", "journal"), ("sync", "journal"), ("sync", "entry_log")])
def test_a_fence_that_could_not_be_stored_is_answered_with_an_error(harness, verb, place):
    """Situation 75; a second one of the same moment is not answered better."""
    harness.start()
    harness.add(1, 0, 4)
    harness.stage(harness.batch(2, 0, 4, size=LARGE))
    harness.stage_fence(1)
    harness.stage_fence(1)
    harness.disk.fail(verb, place)
    assert [reply.status for reply in harness.sync()] == [Status.IO_ERROR] * 3
    assert harness.fence(1).status is Status.IO_ERROR
    assert harness.read(1, 0, 0, fence=True)[1].status is Status.UNKNOWN
    assert harness.confirmed(1, fence=True).status is Status.UNKNOWN


def test_a_fence_that_failed_succeeds_after_a_restart(harness):
    """Protocol rule 34."""
    harness.start()
    harness.add(1, 0, 4)
    harness.disk.fail("sync", "journal")
    assert harness.fence(1).status is Status.IO_ERROR
    with pytest.raises(StorageError):
        harness.bookie.storage.checkpoint()
    harness.power_off()
    harness.disk.failing.clear()
    harness.start()
    assert not harness.confirmed(1).is_fenced
    assert harness.fence(1).status is Status.OK
    assert harness.add(1, 5, 9).status is Status.FENCED


def test_a_fence_without_an_answer_may_be_gone_after_a_power_cut(harness):
    harness.start()
    harness.add(1, 0, 4)
    harness.stage_fence(1)
    harness.power_off()
    harness.start()
    assert harness.add(1, 5, 9).status is Status.OK


def test_another_password_cannot_fence(harness):
    """Situation 41."""
    harness.start()
    harness.add(1, 0, 4)
    assert harness.fence(1, key=OTHER_KEY).status is Status.UNAUTHORIZED
    assert harness.add(1, 5, 9).status is Status.OK
    assert harness.read(1, 0, 0, key=OTHER_KEY, fence=True)[1].status is Status.UNAUTHORIZED


def test_a_fence_for_another_bookie_is_refused_and_fences_nothing(harness):
    """Protocol rules 4 and 49."""
    harness.start()
    assert harness.fence(1, bookie_id="bookie-2").status is Status.WRONG_BOOKIE
    assert harness.add(1, 0, 4).status is Status.OK


@ENDS
def test_replay_takes_what_was_acked_whatever_is_fenced(harness, size, end):
    """Storage rule 14: adds before the fence and those of the recovery behind it."""
    harness.start()
    harness.add(1, 0, 4, size=size)
    harness.fence(1)
    harness.add(1, 5, 9, size=size, recovery=True)
    getattr(harness, end)()
    harness.start()
    harness.assert_holds(1, 0, 9, size=size)
    assert harness.add(1, 10, 14, size=size).status is Status.FENCED


def test_adding_an_entry_again_is_idempotent_and_the_later_one_is_read(harness, size):
    """Protocol rule 33."""
    harness.start()
    harness.add(1, 0, 9, size=size)
    harness.fence(1)
    for _ in range(2):  # in another cut, with another last add confirmed
        assert harness.add(1, 5, 9, size=size, recovery=True).status is Status.OK
    harness.assert_holds(1, 0, 9, size=size)
    [before, after] = harness.read(1, 0, 9)[0]
    assert (set(before.last_add_confirmed), set(after.last_add_confirmed)) == ({-1}, {4})


def test_after_a_failed_write_no_request_is_answered_positively(harness):
    harness.start()
    harness.add(1, 0, 4)
    harness.disk.fail("sync", "journal")
    harness.add(1, 5, 9)
    harness.disk.failing.clear()
    replies = [harness.fence(1), harness.fence(2), harness.confirm(1, 9), harness.force(1), harness.add(1, 5, 9, recovery=True)]
    assert {reply.status.verdict for reply in replies} == {Verdict.UNKNOWN}
    harness.stage(harness.batch(1, 10, 14), deferred_sync=True)
    assert [reply.status for reply in harness.early()] == [Status.IO_ERROR]
