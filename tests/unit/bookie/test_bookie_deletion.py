"""Deletion of a ledger: hidden at once, gone with the next checkpoint, never back.

Ref: docs/rules.md, storage rules 10 and 14, situations 39 and 66.
"""

from __future__ import annotations

import pytest

from bk_spark.entries.digest import master_key
from bk_spark.wire.messages import DeleteLedgerRequest, Status

OTHER_KEY = master_key(b"another")
SMALL, LARGE = 10, 2000
ENDS = pytest.mark.parametrize("end", ["stop", "kill", "power_off"])


@pytest.fixture(params=[SMALL, LARGE], ids=["journalled", "direct"])
def size(request):
    """Payload bytes: five entries of the one go to the journal, of the other into the entry log."""
    return request.param


def _assert_gone(harness, ledger_id):
    """Situation 39: reads find nothing, the fence holds."""
    assert harness.read(ledger_id, 0, 4)[1].status is Status.NO_SUCH_LEDGER
    assert harness.confirmed(ledger_id).status is Status.NO_SUCH_LEDGER
    assert harness.read(ledger_id, 0, 4, key=OTHER_KEY)[1].status is Status.UNAUTHORIZED
    assert harness.add(ledger_id, 0, 4).status is Status.FENCED
    assert harness.confirm(ledger_id, 4).status is Status.FENCED
    assert harness.force(ledger_id).status is Status.FENCED


def _indexed(harness, ledger_id):
    """The stored batches and the summary that the index has of a ledger."""
    (summary,) = [one for one in harness.bookie.storage.ledgers(-1, 100) if one.ledger_id == ledger_id]
    batches = [one for one in harness.bookie.storage.batches_from((-1, -1, -1), 100) if one.ledger_id == ledger_id]
    return batches, summary


@ENDS
@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_deleted_ledger_is_not_there_and_stays_fenced(harness, size, end, is_indexed):
    harness.start()
    harness.add(1, 0, 4, size=size)
    harness.add(2, 0, 4, size=size)
    if is_indexed:
        harness.bookie.storage.checkpoint()
    assert harness.delete(1).status is Status.OK
    for _ in range(3):
        _assert_gone(harness, 1)
        assert harness.fence(1).status is Status.OK
        assert harness.read(1, 0, 4, fence=True)[1].status is Status.NO_SUCH_LEDGER
        harness.assert_holds(2, 0, 4, size=size)
        getattr(harness, end)()
        harness.start()


@ENDS
def test_a_deletion_holds_from_when_it_is_staged_and_is_lost_with_what_was_not_synced(harness, size, end):
    harness.start()
    harness.add(1, 0, 4, size=size)
    harness.bookie.stage(DeleteLedgerRequest(1, 7), None)
    harness.stage(harness.batch(1, 5, 9, size=size))
    assert harness.read(1, 0, 4)[1].status is Status.NO_SUCH_LEDGER
    assert [reply.status for reply in harness.sync()] == [Status.OK, Status.FENCED]
    harness.add(2, 0, 4, size=size)
    harness.bookie.stage(DeleteLedgerRequest(2, 7), None)
    if end == "power_off":
        harness.power_off()
        harness.start()
        harness.assert_holds(2, 0, 4, size=size)


def test_the_next_checkpoint_removes_the_rows_and_keeps_the_tombstone(harness, size):
    harness.start()
    for first in range(0, 20, 5):
        harness.add(1, first, first + 4, size=size)
    harness.bookie.storage.checkpoint()
    assert _indexed(harness, 1)[0]
    harness.delete(1, 77)
    harness.bookie.storage.checkpoint()
    batches, summary = _indexed(harness, 1)
    assert batches == []
    assert (summary.is_fenced, summary.is_deleted, summary.deleted_ms) == (True, True, 77)
    assert summary.deleted_at > 0


@ENDS
@pytest.mark.parametrize("checkpoints", [(), (0,), (1,), (2,), (0, 1, 2)])
def test_what_a_recovery_adds_behind_a_deletion_stays_and_revives_the_ledger(harness, size, end, checkpoints):
    harness.start()
    steps = [
        lambda: harness.add(1, 0, 9, size=size, tag=1),
        lambda: harness.delete(1),
        lambda: harness.add(1, 2, 4, size=size, tag=2, recovery=True),
    ]
    for number, step in enumerate(steps):
        assert step().status is Status.OK
        if number in checkpoints:
            harness.bookie.storage.checkpoint()
    for _ in range(3):
        harness.assert_holds(1, 2, 4, size=size, tag=2)
        for entry_id in (0, 1, 5, 9):
            assert harness.read(1, entry_id, entry_id)[1].status is Status.NO_SUCH_ENTRY
        assert harness.confirmed(1).is_fenced
        assert harness.add(1, 5, 9, size=size).status is Status.FENCED
        getattr(harness, end)()
        harness.start()
    assert not _indexed(harness, 1)[1].is_deleted


def test_replay_never_brings_back_what_was_deleted_whatever_log_it_reads_first(harness):
    """Storage rule 14: entry logs are read before journals, and the deletion stands in a journal."""
    harness.start()
    harness.add(1, 0, 4, size=LARGE, tag=1)
    harness.add(1, 5, 9, size=SMALL, tag=1)
    harness.delete(1)
    harness.add(1, 10, 14, size=LARGE, tag=2, recovery=True)
    harness.add(1, 15, 19, size=SMALL, tag=2, recovery=True)
    for _ in range(2):
        harness.kill()
        harness.start()
        for entry_id in range(10):
            assert harness.read(1, entry_id, entry_id)[1].status is Status.NO_SUCH_ENTRY
        harness.assert_holds(1, 10, 14, size=LARGE, tag=2)
        harness.assert_holds(1, 15, 19, size=SMALL, tag=2)


def test_a_flush_that_races_a_deletion_keeps_the_index(harness, held_background, size):
    """Situation 66: what the frozen cache brings into the index is hidden, and gone with the next checkpoint."""
    harness.background = held_background
    harness.start()
    harness.add(1, 0, 4, size=size)
    harness.bookie.storage.request_checkpoint()
    harness.bookie.idle()
    assert harness.delete(1).status is Status.OK
    _assert_gone(harness, 1)
    held_background.run()
    assert len(_indexed(harness, 1)[0]) == 1
    _assert_gone(harness, 1)
    harness.bookie.storage.checkpoint()
    assert _indexed(harness, 1)[0] == []
    _assert_gone(harness, 1)


def test_what_is_frozen_when_its_ledger_is_deleted_does_not_come_back_with_a_recovery(harness, held_background, size):
    harness.background = held_background
    harness.start()
    harness.add(1, 0, 9, size=size, tag=1)
    harness.bookie.storage.request_checkpoint()
    harness.bookie.idle()
    harness.delete(1)
    harness.add(1, 2, 4, size=size, tag=2, recovery=True)
    for _ in range(2):
        harness.assert_holds(1, 2, 4, size=size, tag=2)
        for entry_id in (0, 1, 5, 9):
            assert harness.read(1, entry_id, entry_id)[1].status is Status.NO_SUCH_ENTRY
        held_background.run()


def test_deleting_an_unknown_or_deleted_ledger_changes_nothing(harness):
    harness.start()
    assert harness.delete(5).status is Status.OK
    assert harness.read(5, 0, 0)[1].status is Status.NO_SUCH_LEDGER
    assert harness.add(5, 0, 4).status is Status.OK
    harness.delete(5, 7)
    size = sum(path.stat().st_size for path in harness.files("journal"))
    assert harness.delete(5, 9).status is Status.OK
    assert sum(path.stat().st_size for path in harness.files("journal")) == size


def test_a_ledger_that_was_only_not_to_be_kept_here_is_marked_again_when_its_metadata_is_gone(harness):
    """The seven days of its tombstone begin then."""
    harness.start()
    harness.add(1, 0, 4)
    harness.bookie.storage.checkpoint()
    harness.delete(1, 0)
    harness.bookie.storage.checkpoint()
    first = _indexed(harness, 1)[1]
    assert (first.is_deleted, first.deleted_ms) == (True, 0)
    harness.delete(1, 0)
    harness.delete(1, 99)
    harness.bookie.storage.checkpoint()
    second = _indexed(harness, 1)[1]
    assert (second.is_deleted, second.deleted_ms) == (True, 99)
    assert second.deleted_at > first.deleted_at
    _assert_gone(harness, 1)


def test_copies_that_come_in_keep_a_ledger_from_being_deleted_as_one_too_many(harness, held_background):
    """Somebody brings them: what was acked a moment ago must not go."""
    harness.background = held_background
    harness.start()
    harness.add(1, 0, 4)
    assert harness.delete(1, 0).status is Status.UNKNOWN
    harness.bookie.storage.request_checkpoint()
    harness.bookie.idle()
    assert harness.delete(1, 0).status is Status.UNKNOWN, "the frozen cache has them"
    held_background.run()
    harness.assert_holds(1, 0, 4)
    assert harness.delete(1, 0).status is Status.OK
    _assert_gone(harness, 1)


def test_a_tombstone_is_purged_only_while_nothing_new_is_cached(harness):
    harness.start()
    for ledger_id in (1, 2):
        harness.add(ledger_id, 0, 4)
        harness.delete(ledger_id)
    harness.bookie.storage.checkpoint()
    harness.add(2, 0, 4, recovery=True, tag=2)
    harness.bookie.storage.purge([1, 2])
    assert harness.add(1, 0, 4, tag=3).status is Status.OK, "nobody knows of it any more"
    harness.assert_holds(1, 0, 4, tag=3)
    harness.bookie.storage.checkpoint()
    harness.assert_holds(2, 0, 4, tag=2)
    assert harness.confirmed(2).is_fenced


def test_a_tombstone_that_was_looked_up_since_the_checkpoint_is_not_made_an_empty_ledger_by_a_purge(harness):
    harness.start()
    harness.add(1, 0, 4)
    harness.delete(1, 7)
    harness.bookie.storage.checkpoint()
    harness.fence(1)
    harness.bookie.storage.purge([1])
    harness.bookie.storage.checkpoint()
    assert _indexed(harness, 1)[1].is_deleted
    _assert_gone(harness, 1)
    harness.restart()
    harness.bookie.storage.purge([1])
    assert harness.bookie.storage.facts(1) is None


def test_a_deletion_that_could_not_be_stored_is_answered_with_an_error(harness):
    harness.start()
    harness.add(1, 0, 4)
    harness.disk.fail("sync", "journal")
    assert harness.delete(1).status is Status.IO_ERROR
    harness.power_off()
    harness.disk.failing.clear()
    harness.start()
    harness.assert_holds(1, 0, 4)


def test_a_ledger_in_limbo_and_one_of_a_read_only_bookie_can_be_deleted(harness):
    """Deletion brings space back."""
    harness.start(fence_watermark=9)
    harness.add(1, 0, 4, recovery=True)
    harness.bookie.set_read_only(True)
    assert harness.delete(1).status is Status.OK
    assert harness.read(1, 0, 4)[1].status is Status.UNKNOWN
    harness.bookie.admission.end_limbo()
    _assert_gone(harness, 1)
