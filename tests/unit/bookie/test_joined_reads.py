"""Entries that were added one by one, as Apache's clients add them, are read many in one reply."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from bk_spark.bookie.batch_read import JOINED_BATCHES, JOINED_BYTES
from bk_spark.bookie.storage.stored_ledgers import StoredLedgers
from bk_spark.entries.apache_entries import apache_entries, encode_apache
from bk_spark.entries.batch import EncodedBatch, decode
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.messages import ReadBatch, ReadEnd, ReadRequest, Status
from tests.unit.bookie.harness import BOOKIE_ID

SMALL, LARGE = 10, 20_000
"""Journalled and joined at the checkpoint; written to the entry log as they come."""


@pytest.fixture(params=[SMALL, LARGE], ids=["small", "large"])
def size(request):
    return request.param


def whole(harness, entry_id: int, size: int) -> EncodedBatch:
    return encode_apache(apache_entries(harness.batch(1, entry_id, entry_id, size=size)))


def add_one_by_one(harness, ids, size) -> list[bytes]:
    batches = [whole(harness, entry_id, size) for entry_id in ids]
    for batch in batches:
        harness.stage(batch)
        [reply] = harness.sync()
        assert reply.status is Status.OK
    return [apache_entries(batch).entries[0].as_py() for batch in batches]


def read(harness, first, last, pattern=DENSE, budget=1 << 30) -> tuple[list[EncodedBatch], ReadEnd]:
    *batches, end = harness.bookie.read(ReadRequest(BOOKIE_ID, 1, harness.key, first, last, pattern, budget))
    assert isinstance(end, ReadEnd)
    assert all(isinstance(one, ReadBatch) for one in batches)
    return [one.batch for one in batches], end


def in_them(batches: list[EncodedBatch]) -> tuple[list[int], list[bytes]]:
    found = [apache_entries(batch) for batch in batches]
    ids = [entry_id for one in found for entry_id in one.entry_ids.tolist()]
    return ids, pa.concat_arrays([one.entries for one in found]).to_pylist()


@pytest.mark.parametrize("steps", [[], ["stop", "start"]], ids=["from memory", "from the files"])
def test_entries_that_were_added_one_by_one_are_read_in_one_reply(harness, size, steps):
    harness.start()
    added = add_one_by_one(harness, range(30), size)
    for step in steps:
        getattr(harness, step)()
    batches, end = read(harness, 3, 25)
    assert (len(batches), end.status) == (1, Status.OK)
    assert in_them(batches) == (list(range(3, 26)), added[3:26])


def test_entries_of_a_stripe_are_read_in_one_reply(harness, size):
    harness.start()
    ids = [one for one in range(60) if one % 3 != 1]
    added = add_one_by_one(harness, ids, size)
    batches, end = read(harness, 0, 59, IdPattern(3, 2, 0))
    assert (len(batches), end.status) == (1, Status.OK)
    assert in_them(batches) == (ids, added)


def test_a_reply_of_joined_entries_has_a_limit(harness):
    harness.start()
    size = JOINED_BYTES // 4
    added = add_one_by_one(harness, range(12), size)
    batches, _ = read(harness, 0, 11)
    assert in_them(batches) == (list(range(12)), added)
    assert len(batches) == 4, "three and their heads fit"
    assert max(len(batch.body) for batch in batches) < JOINED_BYTES + 4096


def test_joined_replies_keep_the_limit_of_the_reader(harness):
    harness.start()
    add_one_by_one(harness, range(10), LARGE)
    batches, end = read(harness, 0, 9, budget=4 * LARGE)
    assert in_them(batches)[0] == [0, 1, 2]
    assert (end.status, end.next_entry_id) == (Status.OK, 3)


def test_batches_of_our_own_clients_are_read_as_they_were_stored(harness, size):
    harness.start()
    for first in range(0, 9, 3):
        harness.add(1, first, first + 2, size=size)
    batches, _ = read(harness, 0, 8)
    assert [batch.header.is_apache for batch in batches] == [False] * len(batches)
    assert [one for batch in batches for one in decode(batch).entry_ids.tolist()] == list(range(9))


def test_what_lies_before_an_entry_that_is_not_durable_is_sent_before_that_is_waited_for(harness, size):
    harness.start()
    add_one_by_one(harness, range(3), size)
    harness.stage(whole(harness, 3, size))
    replies = harness.bookie.read(ReadRequest(BOOKIE_ID, 1, harness.key, 0, 3, DENSE, 1 << 30))
    first = next(replies)
    assert apache_entries(first.batch).entry_ids.tolist() == [0, 1, 2]
    harness.sync()
    assert apache_entries(next(replies).batch).entry_ids.tolist() == [3]


def test_entries_before_a_missing_one_are_read_and_the_missing_one_is_named(harness, size):
    harness.start()
    add_one_by_one(harness, [0, 1, 2, 5, 6], size)
    batches, end = read(harness, 0, 6)
    assert in_them(batches)[0] == [0, 1, 2]
    assert (end.status, end.next_entry_id) == (Status.NO_SUCH_ENTRY, 3)


def reads_before_the_first_reply(harness, last: int, monkeypatch) -> int:
    """Of stored batches."""
    count = itertools.count()
    get = StoredLedgers.get

    def counted(self, row):
        next(count)
        return get(self, row)

    monkeypatch.setattr(StoredLedgers, "get", counted)
    next(harness.bookie.read(ReadRequest(BOOKIE_ID, 1, harness.key, 0, last, DENSE, 1 << 30)))
    return next(count)


def test_a_reply_does_not_wait_for_many_reads_of_the_disk(harness, monkeypatch):
    harness.start()
    add_one_by_one(harness, range(3 * JOINED_BATCHES), SMALL)
    assert reads_before_the_first_reply(harness, 3 * JOINED_BATCHES - 1, monkeypatch) <= JOINED_BATCHES + 1
    batches, _ = read(harness, 0, 3 * JOINED_BATCHES - 1)
    assert [batch.header.count for batch in batches] == [JOINED_BATCHES] * 3


def test_a_batch_of_our_own_clients_does_not_wait_for_the_next_one(harness, monkeypatch):
    harness.start()
    for first in range(0, 9, 3):
        harness.add(1, first, first + 2, size=LARGE)
    assert reads_before_the_first_reply(harness, 8, monkeypatch) == 1
