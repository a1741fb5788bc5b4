"""A ledger id that was given out twice names two ledgers; their creators' tokens tell them apart. Ref: docs/rules.md, protocol
rule 64."""

from __future__ import annotations

import pytest

from bk_spark.entries.digest import master_key
from bk_spark.wire.messages import Status, Verdict

FIRST, SECOND = master_key(b"", 5), master_key(b"", 6)
WITHOUT_TOKEN = master_key(b"")
OF_ANOTHER_PASSWORD = master_key(b"another", 6)
SMALL, LARGE = 10, 2000
ENDS = pytest.mark.parametrize("end", ["stop", "kill", "power_off"])


@pytest.fixture(params=[SMALL, LARGE], ids=["journalled", "direct"])
def size(request):
    """Payload bytes: five entries of the one go to the journal, of the other into the entry log."""
    return request.param


def test_a_ledger_of_another_creator_is_refused_in_every_request(harness, size):
    harness.start()
    harness.key = FIRST
    assert harness.add(1, 0, 4, size=size).status is Status.OK
    for recovery in (False, True):
        reply = harness.add(1, 0, 4, size=size, tag=1, key=SECOND, recovery=recovery)
        assert reply.status is Status.OTHER_LEDGER
        assert "another ledger 1, of another creator" in reply.detail
    assert harness.fence(1, key=SECOND).status is Status.OTHER_LEDGER
    assert harness.force(1, key=SECOND).status is Status.OTHER_LEDGER
    assert harness.confirm(1, 4, key=SECOND).status is Status.OTHER_LEDGER
    assert harness.read(1, 0, 4, key=SECOND)[1].status is Status.OTHER_LEDGER
    assert harness.read(1, 9, 9, key=SECOND)[1].status is Status.OTHER_LEDGER
    assert harness.add(1, 5, 9, size=size).status is Status.OK, "the first ledger was not fenced"
    harness.assert_holds(1, 0, 9, size=size)


def test_another_ledger_is_neither_a_no_nor_a_wrong_password():
    assert Status.OTHER_LEDGER.verdict is Verdict.UNKNOWN


def test_another_creator_s_ledger_with_another_password_is_another_ledger(harness):
    harness.start()
    assert harness.add(1, 0, 4, key=FIRST).status is Status.OK
    assert harness.add(1, 5, 9, key=OF_ANOTHER_PASSWORD).status is Status.OTHER_LEDGER


def test_a_wrong_password_of_the_same_ledger_is_still_that(harness):
    harness.start()
    assert harness.add(1, 0, 4, key=SECOND).status is Status.OK
    assert harness.add(1, 5, 9, key=OF_ANOTHER_PASSWORD).status is Status.UNAUTHORIZED


@ENDS
def test_the_token_outlasts_a_restart_whatever_was_stored_first(harness, size, end):
    harness.start()
    harness.add(1, 0, 4, size=size, key=FIRST)
    harness.fence(2, key=FIRST)
    harness.confirm(3, 4, key=FIRST)
    getattr(harness, end)()
    harness.start()
    for ledger_id in (1, 2, 3):
        assert harness.add(ledger_id, 0, 4, size=size, key=SECOND, recovery=True).status is Status.OTHER_LEDGER
        assert harness.add(ledger_id, 0, 4, size=size, key=FIRST, recovery=True).status is Status.OK


def test_a_deleted_ledger_keeps_its_id_until_its_tombstone_goes(harness):
    harness.start()
    harness.add(1, 0, 4, key=FIRST)
    harness.delete(1)
    assert harness.add(1, 0, 4, key=SECOND).status is Status.OTHER_LEDGER


@pytest.mark.parametrize(("stored", "asked"), [(FIRST, WITHOUT_TOKEN), (WITHOUT_TOKEN, FIRST)])
def test_where_one_side_has_no_token_the_password_decides(harness, stored, asked):
    """Metadata of old releases of Apache BookKeeper has none."""
    harness.start()
    assert harness.add(1, 0, 4, key=stored).status is Status.OK
    assert harness.add(1, 5, 9, key=asked).status is Status.OK
    assert harness.add(1, 10, 14, key=OF_ANOTHER_PASSWORD).status is not Status.OK
