"""Limbo and read-only mode. Ref: docs/rules.md, protocol rules 4, 47 and 50, storage rules 10 to 12, situation 60."""

from __future__ import annotations

import pytest

from bk_spark.bookie.admission import ORDERED, Admission
from bk_spark.bookie.index.values import MAX_UNSETTLED, Limbo
from bk_spark.entries.digest import master_key
from bk_spark.errors import StorageError
from bk_spark.wire.messages import Status

OTHER_KEY = master_key(b"another")
WATERMARK = 10


@pytest.fixture
def bookie(harness):
    """Ledger 1 has entries 0 to 4, ledger 2 is fenced, ledger 3 was never seen; all of them are in limbo."""
    harness.start()
    harness.add(1, 0, 4)
    harness.add(2, 0, 4)
    harness.fence(2)
    harness.stop()
    harness.start(fence_watermark=WATERMARK)
    return harness


@pytest.mark.parametrize("fence", [False, True])
def test_in_limbo_what_is_here_is_served_and_what_is_not_is_unknown(bookie, fence):
    """Situation 60."""
    for ledger_id in (1, 2, 3):
        if fence:
            assert bookie.fence(ledger_id).status is Status.OK
        if ledger_id != 3:
            found, end = bookie.payloads(ledger_id, 0, 9, fence=fence)
            assert (sorted(found), end.status, end.next_entry_id) == ([0, 1, 2, 3, 4], Status.UNKNOWN, 5)
        assert bookie.read(ledger_id, 5, 5, fence=fence)[1].status is Status.UNKNOWN
        assert bookie.confirmed(ledger_id, fence=fence).status is Status.UNKNOWN


def test_in_limbo_normal_adds_are_refused_as_unknown_and_those_of_recoveries_are_taken(bookie):
    for ledger_id, status in ((1, Status.UNKNOWN), (2, Status.FENCED), (3, Status.UNKNOWN)):
        assert bookie.add(ledger_id, 5, 9).status is status
        assert bookie.add(ledger_id, 5, 9, recovery=True).status is Status.OK
        bookie.assert_holds(ledger_id, 5, 9)


def test_in_limbo_a_force_says_in_which_boot_it_made_durable_what_recoveries_added(bookie):
    """Protocol rule 61: whoever asks compares the boot with that of its acks, so what was lost never counts as durable."""
    for ledger_id in (1, 3):
        added, forced = bookie.add(ledger_id, 5, 9, recovery=True), bookie.force(ledger_id)
        assert (forced.status, forced.boot) == (Status.OK, added.boot)


@pytest.mark.parametrize("end", ["stop", "kill", "power_off"])
def test_an_explicit_last_add_confirmed_is_taken_in_limbo_and_shown_behind_it(bookie, end):
    """What a writer says is confirmed stays so whatever this bookie has lost. Protocol rule 62."""
    for ledger_id in (1, 3):
        assert bookie.confirm(ledger_id, 4).status is Status.OK
        assert bookie.confirmed(ledger_id).status is Status.UNKNOWN
    getattr(bookie, end)()
    bookie.start()
    bookie.bookie.admission.end_limbo()
    for ledger_id in (1, 3):
        assert bookie.confirmed(ledger_id).last_add_confirmed == 4


@pytest.mark.parametrize("end", ["stop", "kill", "power_off"])
def test_a_fence_that_is_taken_in_limbo_is_durable_and_holds_behind_it(bookie, end):
    for ledger_id in (1, 3):
        assert bookie.fence(ledger_id).status is Status.OK
    getattr(bookie, end)()
    bookie.start()
    bookie.bookie.admission.end_limbo()
    for ledger_id in (1, 3):
        assert bookie.confirmed(ledger_id).is_fenced
        assert bookie.add(ledger_id, 5, 9).status is Status.FENCED


def test_a_wrong_password_is_refused_in_limbo_too(bookie):
    assert bookie.fence(1, key=OTHER_KEY).status is Status.UNAUTHORIZED
    assert bookie.read(1, 0, 0, key=OTHER_KEY)[1].status is Status.UNAUTHORIZED
    assert bookie.add(1, 5, 9, key=OTHER_KEY, recovery=True).status is Status.UNAUTHORIZED


def test_a_ledger_that_is_settled_is_out_of_limbo_and_the_others_are_not(bookie):
    bookie.bookie.admission.settle(1)
    bookie.bookie.admission.settle(3)
    assert bookie.read(1, 5, 5)[1].status is Status.NO_SUCH_ENTRY
    assert bookie.read(3, 0, 0)[1].status is Status.NO_SUCH_LEDGER
    assert bookie.confirmed(1).status is Status.OK
    assert bookie.add(1, 5, 9).status is Status.OK
    assert bookie.read(2, 5, 5)[1].status is Status.UNKNOWN


def test_the_watermark_is_the_last_ledger_in_limbo(bookie):
    assert bookie.read(WATERMARK, 0, 0)[1].status is Status.UNKNOWN
    assert bookie.read(WATERMARK + 1, 0, 0)[1].status is Status.NO_SUCH_LEDGER
    assert bookie.add(WATERMARK, 0, 4).status is Status.UNKNOWN
    assert bookie.add(WATERMARK + 1, 0, 4).status is Status.OK


def test_an_emptied_disk_under_a_watermark_denies_nothing(harness):
    """Protocol rule 4."""
    harness.start(fence_watermark=0)
    assert harness.read(0, 0, 0)[1].status is Status.UNKNOWN
    assert harness.confirmed(0).status is Status.UNKNOWN


def test_what_was_looked_up_in_limbo_stays_unknown_though_the_ledger_is_settled_meanwhile(bookie):
    """The last look, the one before an answer that denies, is older than the copy that ended the limbo."""
    storage = bookie.bookie.storage
    request_batches = storage.batches

    def first_look(*args):
        storage.batches = last_look
        return request_batches(*args)

    def last_look(*args):
        window = request_batches(*args)
        storage.batches = request_batches
        bookie.add(1, 5, 9, recovery=True)
        bookie.bookie.admission.settle(1)
        return window

    storage.batches = first_look
    found, end = bookie.payloads(1, 0, 9)
    assert (sorted(found), end.status) == ([0, 1, 2, 3, 4], Status.UNKNOWN)


def test_a_read_only_bookie_takes_fences_explicit_lacs_and_the_adds_of_recoveries_only(harness):
    """Protocol rules 47 and 62."""
    harness.start()
    harness.add(1, 0, 4)
    harness.bookie.set_read_only(True)
    assert harness.add(1, 5, 9).status is Status.READ_ONLY
    assert harness.confirm(1, 4).status is Status.OK
    assert harness.add(1, 5, 9, recovery=True).status is Status.OK
    assert harness.force(1).status is Status.OK
    assert harness.fence(1).status is Status.OK
    assert harness.fence(2).status is Status.OK
    harness.assert_holds(1, 0, 9)
    harness.bookie.set_read_only(False)
    assert harness.add(1, 10, 14).status is Status.FENCED
    assert harness.add(3, 0, 4).status is Status.OK


def test_an_exhausted_bookie_takes_fences_alone_until_there_is_space_again(harness):
    """What it took already, deletions and garbage collection need the rest of the disk."""
    harness.start()
    harness.add(1, 0, 4)
    harness.bookie.set_read_only(True, is_exhausted=True)
    assert harness.add(1, 5, 9, recovery=True).status is Status.READ_ONLY
    assert harness.confirm(1, 4).status is Status.READ_ONLY
    assert harness.fence(1).status is Status.OK
    harness.bookie.set_read_only(True)
    assert harness.add(1, 5, 9, recovery=True).status is Status.OK


@pytest.mark.parametrize("end", ["stop", "kill", "power_off"])
def test_limbo_outlasts_a_restart_and_goes_on_where_it_was(bookie, end):
    bookie.bookie.admission.settle_through(4, frozenset({2}))
    for _ in range(2):
        getattr(bookie, end)()
        bookie.start()
        assert bookie.bookie.limbo == Limbo(WATERMARK, 4, frozenset({2}))
        assert bookie.read(1, 5, 5)[1].status is Status.NO_SUCH_ENTRY
        assert bookie.read(3, 0, 0)[1].status is Status.NO_SUCH_LEDGER
        for ledger_id in (2, 5, WATERMARK):
            assert bookie.read(ledger_id, 5, 5)[1].status is Status.UNKNOWN


def test_a_ledger_that_was_settled_alone_is_settled_again_after_a_restart_unless_the_others_passed_it(bookie):
    bookie.bookie.admission.settle_through(4, frozenset({2}))
    bookie.bookie.admission.settle(2)
    bookie.bookie.admission.settle(6)
    assert bookie.read(6, 0, 0)[1].status is Status.NO_SUCH_LEDGER
    bookie.kill()
    bookie.start()
    assert bookie.read(2, 5, 5)[1].status is Status.NO_SUCH_ENTRY
    assert bookie.read(6, 0, 0)[1].status is Status.UNKNOWN


def test_the_end_of_limbo_is_durable(bookie):
    bookie.bookie.admission.end_limbo()
    bookie.power_off()
    bookie.start()
    assert bookie.bookie.limbo is None
    assert bookie.read(WATERMARK, 0, 0)[1].status is Status.NO_SUCH_LEDGER


def test_a_new_loss_begins_limbo_anew_whatever_was_settled(bookie):
    bookie.bookie.admission.settle_through(4, frozenset({2}))
    bookie.stop()
    bookie.highest_issued = lambda: 20
    bookie.start(possible_loss="the journal was skipped")
    assert bookie.bookie.limbo == Limbo(20)


def test_more_unsettled_ledgers_than_can_be_kept_hold_up_the_rest(harness):
    harness.start(fence_watermark=5000)
    harness.bookie.admission.settle_through(3000, frozenset(range(0, 3000, 2)))
    limbo = harness.bookie.limbo
    assert (len(limbo.unsettled), limbo.settled_through) == (MAX_UNSETTLED, 1999)
    for ledger_id in range(0, 2400):
        assert limbo.holds(ledger_id) == (ledger_id % 2 == 0 or ledger_id >= 2000)
    harness.bookie.admission.settle_through(1000, frozenset())
    assert harness.bookie.limbo == limbo, "it never goes back"
    harness.bookie.admission.settle_through(9000, frozenset({9000, 4000}))
    assert len(harness.bookie.limbo.unsettled) == MAX_UNSETTLED


@pytest.mark.parametrize("end", ["kill", "power_off"])
def test_after_a_kill_with_the_journal_nothing_is_in_limbo(harness, end):
    """Storage rule 12."""
    harness.highest_issued = lambda: WATERMARK
    harness.start()
    harness.add(1, 0, 4)
    getattr(harness, end)()
    harness.start()
    assert harness.bookie.limbo is None
    assert harness.add(1, 5, 9).status is Status.OK
    assert harness.read(2, 0, 0)[1].status is Status.NO_SUCH_LEDGER


def test_a_limbo_that_could_not_be_stored_ends_nothing(bookie):
    bookie.disk.fail("sync", "generation")
    with pytest.raises(StorageError):
        bookie.bookie.admission.end_limbo()
    assert bookie.bookie.limbo is not None
    assert bookie.read(3, 0, 0)[1].status is Status.UNKNOWN
    assert bookie.bookie.failure is not None
    bookie.disk.failing.clear()


# --- lapsed


def test_a_lapsed_bookie_promises_nothing_and_answers_reads(harness):
    """Storage rule 9: an acknowledged fence, or the add of a recovery, would be lost with the rest."""
    harness.start()
    harness.add(1, 0, 4)
    harness.add(2, 0, 4)
    harness.fence(2)
    harness.bookie.ask_lapse(lambda: "its epoch has not moved")
    for ledger_id in (1, 2, 3):
        for recovery in (False, True):
            reply = harness.add(ledger_id, 5, 9, recovery=recovery)
            assert (reply.status, reply.detail) == (Status.READ_ONLY, "bookie bookie-1 is read-only: its epoch has not moved")
        for reply in (harness.fence(ledger_id), harness.force(ledger_id), harness.confirm(ledger_id, 3)):
            assert reply.status is Status.UNKNOWN
            assert "its epoch has not moved" in reply.detail
    harness.assert_holds(1, 0, 4)
    assert harness.read(1, 5, 5)[1].status is Status.NO_SUCH_ENTRY
    assert harness.read(1, 0, 4, fence=True)[1].status is Status.UNKNOWN
    assert harness.read(2, 0, 4, fence=True)[1].status is Status.OK
    harness.bookie.ask_lapse(lambda: "")
    assert harness.add(1, 5, 9).status is Status.OK


# --- limbo, by itself


def test_settling_a_ledger_of_a_bookie_whose_limbo_has_ended_changes_nothing():
    """A repair that is under way may end another one's limbo."""
    stored = []
    admission = Admission("b1", None, stored.append)
    admission.settle(3)
    assert (stored, admission.limbo) == ([], None)


def test_a_ledger_that_is_settled_durably_stays_settled():
    admission = Admission("b1", Limbo(WATERMARK, settled_through=5), lambda limbo: None)
    admission.settle_through(8, frozenset({4, 5, 6}))
    assert [one for one in range(WATERMARK + 2) if admission.is_limbo(one)] == [6, 9, 10]


def test_a_bookie_that_an_operator_ordered_to_be_read_only_takes_what_one_with_full_disks_takes_and_says_why(harness):
    """Protocol rule 47."""
    harness.start()
    assert harness.add(1, 0, 4).status is Status.OK
    harness.bookie.order_read_only(True)
    refused = harness.add(1, 5, 9)
    assert (refused.status, refused.detail) == (Status.READ_ONLY, f"bookie {harness.bookie.bookie_id} is read-only: {ORDERED}")
    assert harness.confirm(1, 4).status is Status.OK
    assert harness.fence(1).status is Status.OK
    assert harness.add(1, 5, 9, recovery=True).status is Status.OK
    harness.bookie.order_read_only(False)
    assert harness.add(2, 0, 4).status is Status.OK


def test_an_order_and_full_disks_each_keep_a_bookie_read_only(harness):
    harness.start()
    harness.bookie.order_read_only(True)
    harness.bookie.set_read_only(True)
    harness.bookie.set_read_only(False)
    assert harness.add(1, 0, 4).status is Status.READ_ONLY
    harness.bookie.set_read_only(True)
    harness.bookie.order_read_only(False)
    refused = harness.add(1, 0, 4)
    assert (refused.status, refused.detail) == (Status.READ_ONLY, f"bookie {harness.bookie.bookie_id} is read-only")
