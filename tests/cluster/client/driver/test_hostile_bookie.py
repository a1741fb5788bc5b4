"""A bookie that lies, or never ends: a client believes none of it, stops listening, and says what was wrong.

Ref: docs/rules.md, protocol rules 39 and 58; issue 6, "everything read from the network is validated before use".
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from bk_spark.client.driver import answer_check
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.config import DigestType
from bk_spark.entries.batch import EncodedBatch, decode, encode, seal
from bk_spark.entries.crc import crc32c
from bk_spark.entries.digest import Digester, master_key
from bk_spark.errors import CorruptionError
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.quorum import DENSE
from bk_spark.wire.codec import encode_read_reply
from bk_spark.wire.messages import AddRequest, AdminOperation, LastAddConfirmedRequest, ReadBatch, ReadEnd, ReadRequest, Status
from tests.cluster.client.hostile_bookie import BOOKIE_ID, HostileBookie, drained

KEY = master_key(b"")
LEDGER = 7
REQUEST = ReadRequest(BOOKIE_ID, LEDGER, KEY, 10, 29, DENSE, 1000)
END = pb.ReadReply.FromString(encode_read_reply(ReadEnd(Status.OK, 30)))


@pytest.fixture
def bookie() -> Iterator[HostileBookie]:
    hostile = HostileBookie()
    yield hostile
    hostile.close()


def batch(first: int, last: int, *, ledger_id: int = LEDGER) -> EncodedBatch:
    payloads = pa.array([b"x"] * (last - first + 1), pa.binary())
    digester = Digester(DigestType.CRC32C, b"")
    sealed = seal(digester, ledger_id, first, payloads, length_before=first, last_add_confirmed=first - 1)
    encoded = encode(sealed, DigestType.CRC32C)
    assert encoded is not None
    return encoded


def part(first: int, last: int, *, ledger_id: int = LEDGER) -> pb.ReadReply:
    return pb.ReadReply.FromString(encode_read_reply(ReadBatch(batch(first, last, ledger_id=ledger_id))))


def repeated(one: pb.ReadReply) -> Iterator[pb.ReadReply]:
    return itertools.repeat(one)


def growing() -> Iterator[pb.ReadReply]:
    """Batches without a body, each behind the one before, without end."""
    for first in itertools.count(10):
        reply = part(first, first)
        reply.ClearField("body")
        yield reply


@pytest.mark.parametrize(
    ("replies", "problem"),
    [
        (lambda: iter([part(10, 14, ledger_id=8)]), "a batch of ledger 8 came for ledger 7"),
        (lambda: iter([part(9, 14)]), "entries 9 to 14 came where 10 to 29 were due"),
        (lambda: iter([part(10, 30)]), "entries 10 to 30 came where 10 to 29 were due"),
        (lambda: iter([part(10, 14), part(10, 14)]), "entries 10 to 14 came where 15 to 29 were due"),
        (lambda: iter([part(15, 19), part(10, 14)]), "entries 10 to 14 came where 20 to 29 were due"),
        (lambda: iter([END, part(10, 14)]), "it goes on behind its end"),
        (lambda: repeated(part(10, 14)), "entries 10 to 14 came"),
        (lambda: repeated(END), "it goes on behind its end"),
        (lambda: iter([pb.ReadReply(status=pb.OK, entry_id=2**63 - 1)]), f"it names entry {2**63 - 1}"),
        (lambda: iter([pb.ReadReply(status=pb.OK, entry_id=-1)]), "it names entry -1"),
        (lambda: iter([pb.ReadReply(status=pb.OK, entry_id=31)]), "it ends well before entry 31"),
        (lambda: iter([part(10, 14), pb.ReadReply(status=pb.OK, entry_id=10)]), "it ends well before entry 10, 15 was due"),
        (lambda: iter([pb.ReadReply(status=pb.OK, header=pb.BatchHeader(ledger_id=-1))]), "damaged"),
    ],
)
def test_an_answer_to_a_read_that_was_not_asked_for_is_not_believed(
    bookie: HostileBookie, replies: Callable[[], Iterator[pb.ReadReply]], problem: str
) -> None:
    bookie.answers["Read"] = lambda request, context: replies()
    with pytest.raises(CorruptionError, match=problem):
        bookie.asked(lambda connection: drained(connection.read(REQUEST)))


def test_an_answer_without_end_is_left_after_the_bytes_that_were_asked_for(
    bookie: HostileBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_check, "MAX_BATCH_BYTES", 0)
    bookie.answers["Read"] = lambda request, context: growing()
    endless = ReadRequest(BOOKIE_ID, LEDGER, KEY, 10, 1 << 60, DENSE, 1000)

    async def read(connection: Any) -> int:
        count, replies = 0, connection.read(endless)
        try:
            async for _ in replies:
                count += 1
        except CorruptionError as problem:
            return count if "far more than the 1000 bytes" in str(problem) else -1
        return -1

    assert bookie.asked(read) == 1000 // answer_check.LEAST_BATCH_BYTES


def test_a_batch_whose_header_and_body_disagree_is_damaged_and_takes_no_memory() -> None:
    """Whatever the body claims. The bytes are those of an answer; docs/formats.md, "A batch of entries"."""
    rows = pa.record_batch({"digest": pa.array([bytes(4)], pa.binary(4)), "payload": pa.array([bytes(1 << 24)], pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(rows)
    body = bytes(sink.getvalue()[rows.schema.serialize().size :])
    assert len(body) < 3000
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CorruptionError, match="not compressed"):
        decode(EncodedBatch(batch(0, 0).header, body, crc32c(body)))
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


@pytest.mark.parametrize("confirmed", [-2, -(2**63), 2**62 + 1, 2**63 - 1])
def test_a_last_add_confirmed_that_no_ledger_can_have_is_not_believed(bookie: HostileBookie, confirmed: int) -> None:
    reply = pb.ReadLastAddConfirmedReply(status=pb.OK, last_add_confirmed=confirmed)
    bookie.answers["ReadLastAddConfirmed"] = lambda request, context: reply
    with pytest.raises(CorruptionError, match=f"it names entry {confirmed}"):
        bookie.asked(lambda connection: connection.last_add_confirmed(LastAddConfirmedRequest(BOOKIE_ID, LEDGER, KEY), 5))


def test_replies_to_adds_that_nobody_sent_and_second_replies_change_nothing(bookie: HostileBookie) -> None:
    def answer(requests: Iterator[Any], context: Any) -> Iterator[pb.AddReply]:
        for unasked in (0, 99, 2**64 - 1):
            yield pb.AddReply(request_id=unasked, status=pb.OK)
        for request in requests:
            yield pb.AddReply(request_id=request.request_id, status=77, detail="\x1b[2Jno\nsuch status")
            yield pb.AddReply(request_id=request.request_id, status=pb.OK)

    bookie.answers["Add"] = answer
    replies: list[Any] = []

    async def add(connection: Any) -> None:
        for number in range(3):
            request = AddRequest(number, BOOKIE_ID, KEY, batch(number, number))
            connection.enqueue(QueuedAdd(number, request, replies.append))
        while len(replies) < 3:
            await asyncio.sleep(0.001)

    bookie.asked(add)
    assert [(reply.request_id, reply.status) for reply in replies] == [(n, Status.UNKNOWN) for n in range(3)]
    assert replies[0].detail == "\N{REPLACEMENT CHARACTER}[2Jno\N{REPLACEMENT CHARACTER}such status"


def test_an_answer_to_an_operator_has_a_bounded_number_of_figures(bookie: HostileBookie) -> None:
    reply = pb.AdministerReply(status=pb.OK, figures={str(n): n for n in range(1001)})
    bookie.answers["Administer"] = lambda request, context: reply
    with pytest.raises(CorruptionError, match="1001 figures"):
        bookie.asked(lambda connection: connection.administer(AdminOperation.BOOKIE_STATUS, 5))
