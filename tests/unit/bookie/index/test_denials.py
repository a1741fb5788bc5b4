"""What is denied rests on a whole index: a lost stored batch is damage, never "no". Ref: docs/rules.md, storage rule 3,
situation 61."""

from __future__ import annotations

import pytest

from bk_spark.errors import CorruptionError
from bk_spark.quorum import DENSE
from bk_spark.wire.messages import ReadEnd, ReadRequest, Status, Verdict
from tests.unit.bookie.harness import BOOKIE_ID


@pytest.fixture
def bookie(harness):
    """Ledger 1 has entries, ledger 2 is fenced; all of it is in the index."""
    harness.start()
    for first in range(0, 40, 10):
        harness.add(1, first, first + 4)
    harness.fence(2)
    harness.restart()
    return harness


def _lose(bookie, table, ledger_id):
    """As if a flipped bit had led past what was there."""
    database = bookie.bookie.storage._index._index._database
    assert database.run(f"DELETE FROM {table} WHERE ledger_id = ?", (ledger_id,)) > 0


def test_entries_whose_row_is_lost_are_not_denied(bookie):
    assert bookie.read(1, 5, 5)[1].status is Status.NO_SUCH_ENTRY
    _lose(bookie, "batches", 1)
    for entry_id in (0, 5, 14):
        assert bookie.read(1, entry_id, entry_id)[1].status is Status.DAMAGED


def test_a_ledger_whose_summary_is_lost_is_not_denied_nor_taken_for_a_new_one(bookie):
    """It is fenced: an add that is taken for the first would be the displaced writer's."""
    assert bookie.read(3, 0, 0)[1].status is Status.NO_SUCH_LEDGER
    _lose(bookie, "ledgers", 2)
    assert bookie.read(2, 0, 0)[1].status is Status.DAMAGED
    assert bookie.confirmed(2).status is Status.DAMAGED
    assert bookie.add(2, 0, 4).status is Status.DAMAGED
    assert bookie.add(2, 0, 4, recovery=True).status.verdict is Verdict.UNKNOWN
    assert bookie.bookie.failure is None, "nothing was written: the others go on"
    assert bookie.add(100, 0, 4).status is Status.OK, "of another bucket"


def test_a_start_does_not_forget_the_fence_of_a_ledger_whose_summary_is_lost(bookie):
    """What was logged of it since would be committed as all that there is: the displaced writer would be acked."""
    assert bookie.add(2, 0, 4, recovery=True).status is Status.OK
    _lose(bookie, "ledgers", 2)
    bookie.bookie.storage._index._index.close()
    bookie.kill()
    with pytest.raises(CorruptionError, match="rebuild-index"):
        bookie.start()


def test_a_summary_from_before_the_fence_is_not_believed(harness):
    """As if the disk had lost the last write of a page: its checksum is right."""
    harness.start()
    harness.add(2, 0, 4)
    harness.restart()
    database = harness.bookie.storage._index._index._database
    old = database.one("SELECT * FROM ledgers WHERE ledger_id = 2")
    harness.fence(2)
    harness.bookie.storage.checkpoint()
    database.run(f"REPLACE INTO ledgers VALUES ({', '.join('?' * len(old))})", old)
    assert harness.add(2, 5, 9).status is Status.DAMAGED


def test_a_read_under_way_does_not_deny_what_a_repair_put_into_a_row_behind_it(harness, monkeypatch):
    """A damaged stored batch goes once newer ones are in the index, which may begin before what the read has reached."""
    monkeypatch.setattr("bk_spark.bookie.index.look_up.PAGE_BATCHES", 1)
    harness.start()
    for first in (0, 10, 20, 30):
        harness.add(1, first, first + 9, size=1000)
    storage = harness.bookie.storage
    storage.checkpoint()
    replies = harness.bookie.read(ReadRequest(BOOKIE_ID, 1, harness.key, 0, 39, DENSE, 1 << 30))
    assert next(replies).batch.header.last_entry_id == 9
    (damaged,) = storage.batches(1, 35, 35).overlapping(35, 35)
    harness.add(1, 0, 39, size=1000, recovery=True)
    storage.checkpoint()
    storage.remove_batches([damaged])
    *batches, end = replies
    assert end == ReadEnd(Status.OK, 40)
    assert batches[-1].batch.header.last_entry_id == 39


def test_nothing_is_deleted_of_a_ledger_that_cannot_be_looked_up(bookie):
    _lose(bookie, "ledgers", 1)
    assert bookie.delete(1).status is Status.DAMAGED


def test_a_deletion_that_misses_rows_stops_the_bookie_and_never_leaves_the_ledger_half_alive(bookie):
    """It would count as one that came back: not deleted, with a stored batch that nobody finds."""
    _lose(bookie, "batches", 1)
    assert bookie.delete(1).status is Status.OK
    assert bookie.confirmed(1).status is Status.NO_SUCH_LEDGER
    with pytest.raises(CorruptionError, match="0 batches of ledger 1 were to be deleted"):
        bookie.bookie.storage.checkpoint()
    assert bookie.confirmed(1).status is not Status.OK
    bookie.kill()
    with pytest.raises(CorruptionError, match="were to be deleted"):
        bookie.start()
