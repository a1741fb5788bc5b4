"""A client asks a bookie for a bounded number of reads at once: the others wait, say so, and take no place along."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bk_spark.client.driver import connections
from bk_spark.client.driver.connections import BookieConnection, ReadNotSentError, ReadProgress
from bk_spark.entries.digest import master_key
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.quorum import DENSE
from bk_spark.wire.codec import encode_read_reply
from bk_spark.wire.messages import ReadEnd, ReadRequest, Status
from tests.cluster.client.hostile_bookie import BOOKIE_ID, DEADLINE_S, HostileBookie, drained

REQUEST = ReadRequest(BOOKIE_ID, 7, master_key(b""), 10, 29, DENSE, 1000)
END = ReadEnd(Status.OK, 30)


class SlowBookie(HostileBookie):
    """Answers no read before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()
        self.most = 0
        self._under_way = 0
        self._lock = threading.Lock()
        self.answers["Read"] = self._answer

    def _answer(self, request: Any, context: Any) -> Iterator[pb.ReadReply]:
        with self._lock:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        self.may_answer.wait(DEADLINE_S)
        with self._lock:
            self._under_way -= 1
        yield pb.ReadReply.FromString(encode_read_reply(END))


@pytest.fixture
def bookie(monkeypatch) -> Iterator[SlowBookie]:
    monkeypatch.setattr(connections, "MOST_READS", 2)
    slow = SlowBookie()
    yield slow
    slow.may_answer.set()
    slow.close()


def _begin(connection: BookieConnection, count: int) -> list[asyncio.Task[list[Any]]]:
    return [asyncio.create_task(drained(connection.read(REQUEST))) for _ in range(count)]


async def _under_way(bookie: SlowBookie, connection: BookieConnection, count: int) -> list[asyncio.Task[list[Any]]]:
    """So many reads, once all places are taken."""
    reads = _begin(connection, count)
    while bookie.most < 2:
        await asyncio.sleep(0.01)
    return reads


def test_reads_beyond_the_bound_wait_for_others_and_say_so(bookie: SlowBookie) -> None:
    async def ask(connection: BookieConnection) -> None:
        reads = await _under_way(bookie, connection, 3)
        last = connection.read(REQUEST)
        assert await anext(last) == ReadProgress.WAITS
        bookie.may_answer.set()
        assert [read[-1] for read in await asyncio.gather(*reads)] == [END] * 3
        assert await drained(last) == [ReadProgress.SENT, END]

    bookie.asked(ask)
    assert bookie.most == 2


def test_reads_that_are_given_up_take_no_place_along(bookie: SlowBookie) -> None:
    async def ask(connection: BookieConnection) -> None:
        reads = await _under_way(bookie, connection, 4)
        last = connection.read(REQUEST)
        assert await anext(last) == ReadProgress.WAITS
        for read in reads:  # two that were sent, and two that wait
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        bookie.may_answer.set()
        assert (await drained(last))[-1] == END
        assert [read[-1] for read in await asyncio.gather(*_begin(connection, 4))] == [END] * 4

    bookie.asked(ask)


def test_a_read_that_fences_waits_for_no_other(bookie: SlowBookie) -> None:
    """A recovery must not wait for as many readers as like to."""

    async def ask(connection: BookieConnection) -> None:
        reads = await _under_way(bookie, connection, 4)
        fencing = asyncio.create_task(drained(connection.read(replace(REQUEST, fence=True))))
        while bookie.most < 3:
            await asyncio.sleep(0.01)
        bookie.may_answer.set()
        assert await fencing == [END]
        await asyncio.gather(*reads)

    bookie.asked(ask)


def test_a_read_does_not_wait_for_others_without_end(bookie: SlowBookie, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MOST_WAITING_S", 0.05)

    async def ask(connection: BookieConnection) -> None:
        reads = await _under_way(bookie, connection, 2)
        last = connection.read(REQUEST)
        with pytest.raises(ReadNotSentError, match="2 other reads were under way"):
            await drained(last)
        bookie.may_answer.set()
        await asyncio.gather(*reads)

    bookie.asked(ask)
