"""A bookie's server, talked to over real gRPC by clients that do not keep to the rules."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pyarrow as pa
import pytest

from bk_spark.config import DigestType
from bk_spark.entries.batch import EncodedBatch, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.local.cluster import LocalBookie, LocalCluster
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.quorum import DENSE
from bk_spark.wire.codec import encode_add_request, encode_last_add_confirmed_request, encode_read_request
from bk_spark.wire.messages import MAX_MESSAGE_BYTES, PROTOCOL_VERSION, AddRequest, LastAddConfirmedRequest, ReadRequest
from tests.cluster.bookie.asked_bookie import allow_any_id

KEY = master_key(b"")
DEADLINE_S = 60.0
LEDGERS = iter(range(5_000_000, 6_000_000))
"""Ids that no client of this cluster was given."""


@pytest.fixture
def bookie(cluster: LocalCluster) -> LocalBookie:
    allow_any_id(cluster)
    return cluster.bookies[0]


@pytest.fixture
def stub(bookie: LocalBookie) -> Iterator[Any]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(bookie.address, options=options) as channel:
        yield BookieStub(channel)


def _batch(ledger_id: int, first: int = 0, payloads: tuple[bytes, ...] = (b"x",)) -> EncodedBatch:
    array = pa.array(payloads, pa.binary())
    digester = Digester(DigestType.CRC32C, b"")
    sealed = seal(digester, ledger_id, first, array, length_before=first, last_add_confirmed=first - 1)
    encoded = encode(sealed, DigestType.CRC32C)
    assert encoded is not None
    return encoded


def _add(bookie: LocalBookie, ledger_id: int, **changes: Any) -> pb.AddRequest:
    request = AddRequest(1, bookie.bookie_id, KEY, _batch(ledger_id))
    return encode_add_request(dataclasses.replace(request, **changes))


def _replies(stub: Any, *messages: pb.AddRequest) -> list[pb.AddReply]:
    """The answers to some adds; the stream stays open until all are there."""
    done = threading.Event()

    def send() -> Iterator[pb.AddRequest]:
        yield from messages
        done.wait(DEADLINE_S)

    replies = []
    for reply in stub.Add(send(), timeout=DEADLINE_S):
        replies.append(reply)
        if len(replies) == len(messages):
            done.set()
            break
    return replies


def _read(stub: Any, bookie: LocalBookie, ledger_id: int, *, key: bytes = KEY, last: int = 0) -> list[pb.ReadReply]:
    request = ReadRequest(bookie.bookie_id, ledger_id, key, 0, last, DENSE, 1 << 20)
    return list(stub.Read(encode_read_request(request), timeout=DEADLINE_S))


def test_an_add_is_answered_ok_and_can_be_read(stub: Any, bookie: LocalBookie) -> None:
    ledger_id = next(LEDGERS)
    [reply] = _replies(stub, _add(bookie, ledger_id))
    assert (reply.request_id, reply.status) == (1, pb.OK)
    *batches, end = _read(stub, bookie, ledger_id)
    assert [batch.header.first_entry_id for batch in batches] == [0]
    assert (end.status, end.entry_id) == (pb.OK, 1)


def test_a_request_that_means_another_bookie_is_answered_unknown_and_does_nothing(stub: Any, bookie: LocalBookie) -> None:
    """The address was given to another formatting of the disks. Ref: protocol rules 4 and 49."""
    ledger_id = next(LEDGERS)
    [reply] = _replies(stub, _add(bookie, ledger_id, bookie_id="127.0.0.1:1-00000000"))
    assert reply.status == pb.WRONG_BOOKIE
    [end] = _read(stub, bookie, ledger_id)
    assert end.status == pb.NO_SUCH_LEDGER
    lac = LastAddConfirmedRequest("another", ledger_id, KEY)
    assert stub.ReadLastAddConfirmed(encode_last_add_confirmed_request(lac), timeout=DEADLINE_S).status == pb.WRONG_BOOKIE
    read = ReadRequest("another", ledger_id, KEY, 0, 0, DENSE, 1 << 20)
    assert next(stub.Read(encode_read_request(read), timeout=DEADLINE_S)).status == pb.WRONG_BOOKIE
    assert stub.Describe(pb.DescribeRequest(version=1, bookie_id="another"), timeout=DEADLINE_S).status == pb.WRONG_BOOKIE


def test_another_password_than_the_first_one_is_refused(stub: Any, bookie: LocalBookie) -> None:
    ledger_id = next(LEDGERS)
    other = master_key(b"other")
    first, second = _replies(stub, _add(bookie, ledger_id), _add(bookie, ledger_id, master_key=other, request_id=2))
    assert (first.status, second.status) == (pb.OK, pb.UNAUTHORIZED)
    [end] = _read(stub, bookie, ledger_id, key=other)
    assert end.status == pb.UNAUTHORIZED
    lac = LastAddConfirmedRequest(bookie.bookie_id, ledger_id, other)
    assert stub.ReadLastAddConfirmed(encode_last_add_confirmed_request(lac), timeout=DEADLINE_S).status == pb.UNAUTHORIZED


def test_a_newer_protocol_version_is_refused_by_name(stub: Any, bookie: LocalBookie) -> None:
    message = _add(bookie, next(LEDGERS))
    message.version = PROTOCOL_VERSION + 1
    [reply] = _replies(stub, message)
    assert reply.status == pb.UNSUPPORTED_VERSION
    assert f"format version {PROTOCOL_VERSION + 1}" in reply.detail


def test_malformed_requests_are_refused_and_the_stream_goes_on(stub: Any, bookie: LocalBookie) -> None:
    ledger_id = next(LEDGERS)
    garbled = _add(bookie, ledger_id)
    garbled.body = b"garbled" + garbled.body[7:]
    headless = _add(bookie, ledger_id)
    headless.ClearField("header")
    replies = _replies(stub, garbled, headless, pb.AddRequest(), _add(bookie, ledger_id, request_id=9))
    by_id = {reply.request_id: reply.status for reply in replies}
    assert by_id[9] == pb.OK
    assert [r.status for r in replies if r.request_id != 9] == [pb.BAD_REQUEST] * 3
    [end] = stub.Read(pb.ReadRequest(version=1), timeout=DEADLINE_S)
    assert end.status == pb.BAD_REQUEST


def test_a_message_above_the_maximum_breaks_the_stream_and_not_the_bookie(stub: Any, bookie: LocalBookie) -> None:
    message = _add(bookie, next(LEDGERS))
    message.body = bytes(MAX_MESSAGE_BYTES + 1)
    with pytest.raises(grpc.RpcError) as refused:
        _replies(stub, message)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _replies(stub, _add(bookie, next(LEDGERS)))[0].status == pb.OK


def test_many_idle_streams_and_slow_readers_keep_nobody_from_an_answer(stub: Any, bookie: LocalBookie) -> None:
    """A synchronous server would have no thread left. Ref: DESIGN.md, "Threads of a bookie"."""
    ledger_id = next(LEDGERS)
    assert _replies(stub, _add(bookie, ledger_id))[0].status == pb.OK
    stop = threading.Event()

    def idle() -> Iterator[pb.AddRequest]:
        stop.wait(DEADLINE_S)
        yield from ()

    streams = [stub.Add(idle(), timeout=DEADLINE_S) for _ in range(50)]
    reads = [stub.Read(encode_read_request(ReadRequest(bookie.bookie_id, ledger_id, KEY, 0, 0, DENSE, 1))) for _ in range(50)]
    lac = LastAddConfirmedRequest(bookie.bookie_id, ledger_id, KEY)
    assert stub.ReadLastAddConfirmed(encode_last_add_confirmed_request(lac), timeout=DEADLINE_S).status == pb.OK
    for call in [*streams, *reads]:
        call.cancel()
    stop.set()


def test_adds_of_many_streams_are_each_answered_on_their_own(bookie: LocalBookie) -> None:
    def add(number: int) -> bool:
        with grpc.insecure_channel(bookie.address) as channel:
            replies = _replies(BookieStub(channel), *(_add(bookie, next(LEDGERS), request_id=i) for i in range(20)))
        return [reply.request_id for reply in replies] == list(range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(add, range(8)))
