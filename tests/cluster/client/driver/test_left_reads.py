"""Reads that are left before their end: their memory is free again, and the bookie is told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.client.driver.connections import BookieConnection
from bk_spark.config import MIB, DigestType
from bk_spark.entries.batch import encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.quorum import DENSE
from bk_spark.wire.codec import encode_read_reply
from bk_spark.wire.messages import ReadBatch, ReadRequest
from tests.cluster.client.hostile_bookie import BOOKIE_ID, DEADLINE_S, HostileBookie

LEDGER, PARTS, PART_BYTES = 7, 3, 2 * MIB
REQUEST = ReadRequest(BOOKIE_ID, LEDGER, master_key(b""), 0, PARTS - 1, DENSE, PARTS * PART_BYTES)
READS = 50
BOUND_MIB = 60
"""Of memory that 50 reads may leave behind. One message of each that is not freed is 100."""


class _Sender(HostileBookie):
    """Sends entries of PART_BYTES."""

    def __init__(self) -> None:
        super().__init__()
        self.answers["Read"] = self._answer
        self.may_send = threading.Event()
        """The second entry."""
        self.may_send.set()
        self.cancelled = threading.Semaphore(0)
        self.waits = threading.Semaphore(0)
        self._parts = [_entry(one) for one in range(PARTS)]

    def _answer(self, request: Any, context: Any) -> Iterator[pb.ReadReply]:
        context.add_callback(self.cancelled.release)
        yield self._parts[0]
        self.waits.release()
        assert self.may_send.wait(DEADLINE_S)
        yield from self._parts[1:]
        self.waits.release()


def _entry(number: int) -> pb.ReadReply:
    digester = Digester(DigestType.CRC32C, b"")
    payloads = pa.array([b"x" * PART_BYTES], pa.binary())
    sealed = seal(digester, LEDGER, number, payloads, length_before=number * PART_BYTES, last_add_confirmed=number - 1)
    encoded = encode(sealed, DigestType.CRC32C)
    assert encoded is not None
    return pb.ReadReply.FromString(encode_read_reply(ReadBatch(encoded)))


def _resident_mib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


async def _held_mib(connection: BookieConnection, leave: Any) -> int:
    """How much memory reads that are left have taken for good. The first ones show what all of them share."""
    for _ in range(5):
        await leave(connection)
    before = _resident_mib()
    for _ in range(READS):
        await leave(connection)
    return _resident_mib() - before


def test_reads_whose_consumer_goes_between_two_messages_leave_no_memory_behind() -> None:
    bookie, whole = _Sender(), []

    async def leave(connection: BookieConnection) -> None:
        replies = connection.read(REQUEST)
        assert isinstance(await anext(replies), ReadBatch)
        assert await asyncio.to_thread(bookie.waits.acquire, timeout=DEADLINE_S)
        # Until all was sent, if gRPC's window has room for it: how large that is gRPC estimates anew for each connection.
        whole.append(await asyncio.to_thread(bookie.waits.acquire, timeout=0.2))
        await replies.aclose()

    assert bookie.asked(lambda connection: _held_mib(connection, leave)) < BOUND_MIB
    bookie.close()
    if sum(whole) < READS:
        pytest.skip(f"{sum(whole)} of {len(whole)} reads were left with messages on their way: gRPC's window was too small")


def test_reads_that_are_cancelled_as_a_message_comes_leave_no_memory_behind() -> None:
    bookie = _Sender()

    async def leave(connection: BookieConnection) -> None:
        bookie.may_send.clear()
        replies = connection.read(REQUEST)
        assert isinstance(await anext(replies), ReadBatch)
        assert await asyncio.to_thread(bookie.waits.acquire, timeout=DEADLINE_S)
        waiting = asyncio.ensure_future(anext(replies))
        await asyncio.sleep(0.01)  # it waits for its next message by now; if not, this read shows nothing
        bookie.may_send.set()
        bookie.waits.acquire(timeout=0.2)  # with the event loop standing still, so that nobody takes the message
        time.sleep(0.1)  # gRPC has it, or nearly always: nothing tells when, and if it has not, this read shows nothing
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    assert bookie.asked(lambda connection: _held_mib(connection, leave)) < BOUND_MIB
    bookie.close()


def test_a_bookie_is_told_that_nobody_reads_any_more() -> None:
    bookie = _Sender()
    bookie.may_send.clear()

    async def leave(connection: BookieConnection) -> None:
        replies = connection.read(REQUEST)
        await anext(replies)
        await replies.aclose()
        assert await asyncio.to_thread(bookie.cancelled.acquire, timeout=DEADLINE_S)
        bookie.may_send.set()

    bookie.asked(leave)
    bookie.close()
