"""Single reads of an Apache bookie: how many are asked for at a time, and where they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.client.driver.apache.reading import MOST_SINGLE_READS, RangeRead
from bk_spark.config import DigestType
from bk_spark.entries.batch import decode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.entries.entry_bytes import framed
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.quorum import DENSE, IdPattern
from bk_spark.wire.messages import ReadBatch, ReadEnd, ReadRequest, Status

LEDGER = 7
STRIPE = IdPattern(3, 2, 1)


class Bookie:
    """Has entries of ``size`` below ``end``, but no batch reads, and notes what it is asked for at a time.

    From ``large_from`` on they are a thousand times as large.
    """

    def __init__(self, size: int, end: int, large_from: int = 1 << 30) -> None:
        self._size, self._end, self._large_from = size, end, large_from
        self.rounds: list[int] = []
        self.fences: list[bool] = []
        self._under_way = 0

    async def batch_read(self, *_: int) -> None:
        return None

    async def numbered(self) -> Bookie:
        return self

    async def ask(self, operation: pb.Operation, request: pb.ReadRequest) -> pb.Response:
        self._under_way += 1
        self.fences.append(request.HasField("flag"))
        await asyncio.sleep(0)
        if self._under_way:
            self.rounds.append(self._under_way)
            self._under_way = 0
        header = pb.Header(version=3, operation=operation, txnId=1)
        if request.entryId >= self._end:
            return pb.Response(header=header, status=403)
        size = self._size * (1000 if request.entryId >= self._large_from else 1)
        payloads = pa.array([b"x" * size], pa.binary())
        length = self._size * request.entryId
        sealed = seal(
            Digester(DigestType.CRC32C, b""), LEDGER, request.entryId, payloads, length_before=length, last_add_confirmed=-1
        )
        body = framed(sealed, DigestType.CRC32C, b"")[4:]
        read = pb.ReadResponse(status=0, ledgerId=LEDGER, entryId=request.entryId, body=body)
        return pb.Response(header=header, status=0, readResponse=read)


def read(bookie: Any, last: int, maximum_bytes: int, pattern: IdPattern, *, fence: bool) -> tuple[list[int], ReadEnd]:
    request = ReadRequest("b1", LEDGER, master_key(b""), 0, last, pattern, maximum_bytes, fence)

    async def whole() -> list[ReadBatch | ReadEnd]:
        return [part async for part in RangeRead(bookie, request).parts()]

    *batches, end = asyncio.run(whole())
    assert isinstance(end, ReadEnd)
    return [one for part in batches if isinstance(part, ReadBatch) for one in decode(part.batch).entry_ids.tolist()], end


@pytest.mark.parametrize(("pattern", "fence"), [(STRIPE, False), (STRIPE, True), (DENSE, True), (DENSE, False)])
def test_every_entry_of_the_slot_comes_up_to_one_that_is_not_there(pattern: IdPattern, fence: bool) -> None:
    bookie = Bookie(10, 500)
    ids, end = read(bookie, 1000, 1 << 30, pattern, fence=fence)
    assert ids == pattern.ids(0, 499).tolist()
    assert (end.status, end.next_entry_id) == (Status.NO_SUCH_ENTRY, int(pattern.ids(500, 510)[0]))
    assert max(bookie.rounds) <= MOST_SINGLE_READS
    assert len(bookie.rounds) < 20
    assert set(bookie.fences) == {fence}


def test_no_more_large_entries_are_asked_for_at_a_time_than_fit_into_what_is_wanted() -> None:
    bookie = Bookie(1000, 500)
    ids, end = read(bookie, 499, 10_000, STRIPE, fence=False)
    assert max(bookie.rounds) <= 9
    assert end.status is Status.OK
    assert 8 <= len(ids) <= 10


def test_entries_that_become_far_larger_are_given_no_more_at_a_time_than_is_wanted() -> None:
    bookie = Bookie(100, 500, large_from=400)
    ids, end = read(bookie, 499, 1_000_000, STRIPE, fence=False)
    assert end.status is Status.OK
    assert ids == STRIPE.ids(0, end.next_entry_id - 1).tolist()
    assert 0 < sum(one >= 400 for one in ids) < 11
