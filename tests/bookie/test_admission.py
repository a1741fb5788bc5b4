"""Limbo and read-only mode. Ref: docs/rules.md, protocol rules 4, 47 and 50, storage rules 10 to 12, situation 60."""

from __future__ import annotations

import pytest

from bk_spark.digest import master_key
from bk_spark.wire import Status

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


def test_in_limbo_an_explicit_last_add_confirmed_and_a_force_are_refused_as_unknown(bookie):
    """What a force is to make durable may be what was lost."""
    for ledger_id in (1, 3):
        assert bookie.confirm(ledger_id, 4).status is Status.UNKNOWN
        assert bookie.force(ledger_id).status is Status.UNKNOWN


@pytest.mark.parametrize("end", ["stop", "kill", "power_off"])
def test_a_fence_that_is_taken_in_limbo_is_durable_and_holds_behind_it(bookie, end):
    for ledger_id in (1, 3):
        assert bookie.fence(ledger_id).status is Status.OK
    getattr(bookie, end)()
    bookie.start()
    for ledger_id in (1, 3):
        assert bookie.confirmed(ledger_id).is_fenced
        assert bookie.add(ledger_id, 5, 9).status is Status.FENCED


def test_a_wrong_password_is_refused_in_limbo_too(bookie):
    assert bookie.fence(1, key=OTHER_KEY).status is Status.UNAUTHORIZED
    assert bookie.read(1, 0, 0, key=OTHER_KEY)[1].status is Status.UNAUTHORIZED
    assert bookie.add(1, 5, 9, key=OTHER_KEY, recovery=True).status is Status.UNAUTHORIZED


def test_a_ledger_that_is_settled_is_out_of_limbo_and_the_others_are_not(bookie):
    bookie.bookie.settle(1)
    bookie.bookie.settle(3)
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
    """The look-up is older than the copy that ended the limbo."""
    request_rows = bookie.bookie._storage.rows

    def rows(*args):
        window = request_rows(*args)
        bookie.add(1, 5, 9, recovery=True)
        bookie.bookie.settle(1)
        return window

    bookie.bookie._storage.rows = rows
    found, end = bookie.payloads(1, 0, 9)
    assert (sorted(found), end.status) == ([0, 1, 2, 3, 4], Status.UNKNOWN)


def test_a_read_only_bookie_takes_fences_and_the_adds_of_recoveries_only(harness):
    """Protocol rule 47."""
    harness.start()
    harness.add(1, 0, 4)
    harness.bookie.set_read_only(True)
    assert harness.add(1, 5, 9).status is Status.READ_ONLY
    assert harness.confirm(1, 4).status is Status.READ_ONLY
    assert harness.add(1, 5, 9, recovery=True).status is Status.OK
    assert harness.force(1).status is Status.OK
    assert harness.fence(1).status is Status.OK
    assert harness.fence(2).status is Status.OK
    harness.assert_holds(1, 0, 9)
    harness.bookie.set_read_only(False)
    assert harness.add(1, 10, 14).status is Status.FENCED
    assert harness.add(3, 0, 4).status is Status.OK
