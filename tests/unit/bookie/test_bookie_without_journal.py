"""``journal_write_data=False``: adds are acked before they are durable; all else is as ever.

Ref: BP-46; docs/rules.md, storage rules 4, 6, 11 and 12, protocol rules 30 and 35, situations 55 and 57.
"""

from __future__ import annotations

import pytest

from bk_spark.wire.messages import Status

SMALL, LARGE = 10, 2000


@pytest.fixture(params=[SMALL, LARGE], ids=["small", "large"])
def size(request):
    """Payload bytes: five entries of the one stay in the write cache, of the other go into the entry log."""
    return request.param


@pytest.fixture
def bookie(harness):
    harness.start(journal_write_data=False)
    return harness


def _after_a_loss(harness, end):
    getattr(harness, end)()
    harness.highest_issued = lambda: 100
    harness.start(possible_loss="the journal was skipped")


def test_small_adds_are_not_logged_and_nothing_is_synced_for_an_add(bookie, size):
    bookie.disk.hold_syncs()
    bookie.stage(bookie.batch(1, 5, 9))
    assert [reply.status for reply in bookie.sync()] == [Status.OK]
    bookie.disk.sync_may_end.set()
    bookie.add(1, 0, 4, size=LARGE)  # its file is made, which syncs
    bookie.disk.hold_syncs()
    for first in range(10, 50, 5):
        bookie.stage(bookie.batch(1, first, first + 4, size=size))
        assert [reply.status for reply in bookie.sync()] == [Status.OK]
    assert not bookie.disk.sync_begins.is_set()
    bookie.disk.sync_may_end.set()
    assert bookie.files("journal") == []
    bookie.assert_holds(1, 10, 49, size=size)


def test_what_was_acked_is_read_through_cache_checkpoint_and_index_and_never_denied(bookie, size, held_background):
    bookie.stop()
    bookie.background = held_background
    bookie.start()
    for first in range(0, 60, 5):
        bookie.add(1, first, first + 4, size=size)
        if first == 20:
            bookie.bookie.storage.request_checkpoint()
            bookie.bookie.idle()
        if first == 40:
            held_background.run()
        bookie.assert_holds(1, 0, first + 4, size=size)
    bookie.restart()
    bookie.assert_holds(1, 0, 59, size=size)


def test_large_adds_survive_a_kill_of_the_process_and_small_ones_are_unknown_then(bookie):
    """The operating system has what was written. In limbo what is missing is not denied."""
    bookie.add(1, 0, 4, size=LARGE)
    bookie.add(2, 0, 4, size=SMALL)
    _after_a_loss(bookie, "kill")
    bookie.assert_holds(1, 0, 4, size=LARGE)
    assert bookie.read(2, 0, 0)[1].status is Status.UNKNOWN


@pytest.mark.parametrize("end", ["kill", "power_off"])
def test_fences_and_deletions_are_as_durable_as_ever(bookie, size, end):
    bookie.add(1, 0, 4, size=size)
    bookie.add(3, 0, 4, size=size)
    assert bookie.fence(1).status is Status.OK
    assert bookie.fence(2).status is Status.OK
    assert bookie.delete(3).status is Status.OK
    _after_a_loss(bookie, end)
    for ledger_id in (1, 2, 3):
        assert bookie.add(ledger_id, 5, 9).status is Status.FENCED
    bookie.bookie.admission.end_limbo()
    assert bookie.read(3, 0, 0)[1].status is Status.NO_SUCH_LEDGER


def test_a_force_makes_all_that_was_acked_before_durable_and_nothing_is_said_before(bookie, size):
    bookie.add(1, 0, 4, size=size)
    bookie.add(2, 0, 4, size=size)
    bookie.add(1, 5, 9, size=SMALL)
    assert bookie.force(1).status is Status.OK
    bookie.add(1, 10, 14, size=size)
    bookie.power_off()
    bookie.start()
    bookie.assert_holds(1, 0, 4, size=size)
    bookie.assert_holds(1, 5, 9, size=SMALL)
    assert bookie.read(1, 10, 10)[1].status is Status.NO_SUCH_ENTRY, "which only limbo, left out here, makes harmless"


def test_a_force_covers_what_a_checkpoint_that_still_runs_has_frozen(bookie, held_background, size):
    bookie.stop()
    bookie.background = held_background
    bookie.start()
    bookie.add(1, 0, 4, size=size)
    bookie.bookie.storage.request_checkpoint()
    bookie.bookie.idle()
    bookie.add(1, 5, 9, size=size)
    assert bookie.force(1).status is Status.OK
    bookie.power_off()
    bookie.start()
    bookie.assert_holds(1, 0, 9, size=size)


@pytest.mark.parametrize("place", ["entry_log", "generation"])
def test_a_force_that_fails_is_answered_with_an_error(bookie, place):
    bookie.add(1, 0, 4)
    bookie.disk.fail("sync", place)
    assert bookie.force(1).status is Status.IO_ERROR
    assert bookie.bookie.failure is not None
    bookie.disk.failing.clear()


def test_a_clean_stop_loses_nothing(bookie, size):
    bookie.add(1, 0, 4, size=size)
    bookie.stop()
    bookie.data_dir = bookie.copy()
    bookie.start()
    bookie.assert_holds(1, 0, 4, size=size)


def test_the_mark_never_passes_a_large_add_that_was_not_synced(bookie):
    """Situation 57: a checkpoint syncs the logs before it takes the mark."""
    bookie.add(1, 0, 4, size=LARGE)
    bookie.add(1, 5, 9, size=SMALL)
    bookie.bookie.storage.checkpoint()
    bookie.power_off()
    bookie.start()
    bookie.assert_holds(1, 0, 4, size=LARGE)
    bookie.assert_holds(1, 5, 9, size=SMALL)


def test_sequences_go_on_above_what_was_lost_so_that_a_deletion_takes_all_of_it(bookie):
    for first in range(0, 50, 5):
        bookie.add(1, first, first + 4, size=SMALL)
    bookie.force(1)
    bookie.power_off()
    bookie.start()
    assert bookie.delete(1).status is Status.OK
    assert bookie.read(1, 0, 0)[1].status is Status.NO_SUCH_LEDGER
    bookie.restart()
    assert bookie.read(1, 0, 0)[1].status is Status.NO_SUCH_LEDGER
