"""Calls that stand still end when they take too much, with a clear refusal; calls that go on never do.

Ref: docs/guide/limits.md; docs/rules.md, protocol rules 34 and 41.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest

from bk_spark.bookie.server import open_calls, waiting_adds
from bk_spark.bookie.server.disconnect import acknowledged_bytes, disconnect
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.quorum import DENSE
from bk_spark.wire.codec import encode_add_request, encode_read_request
from bk_spark.wire.messages import AddRequest, ReadRequest
from tests.cluster.bookie.served import BOOKIE_ID, DEADLINE_S, KEY, Served


@pytest.fixture
def served(harness) -> Iterator[Served]:
    made = Served(harness)
    yield made
    made.close()


def _add(served: Served, ledger_id: int, size: int = 10) -> pb.AddRequest:
    return encode_add_request(AddRequest(1, BOOKIE_ID, KEY, served.harness.batch(ledger_id, 0, 0, size=size)))


def _status(served: Served, add: pb.AddRequest) -> int:
    """The one answer to a stream of one add."""
    [reply] = served.stub.Add(iter([add]), timeout=DEADLINE_S)
    return reply.status


def test_an_idle_add_stream_ends_with_a_clear_refusal_when_memory_is_short(served: Served, monkeypatch) -> None:
    ended = threading.Event()

    def messages():
        yield _add(served, 1)
        ended.wait(DEADLINE_S)

    replies = served.stub.Add(messages(), timeout=DEADLINE_S)
    assert next(replies).status == pb.OK
    monkeypatch.setattr(open_calls, "resident_bytes", lambda: 1 << 50)
    with pytest.raises(grpc.RpcError) as refused:
        next(replies)
    ended.set()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "this bookie is busy" in refused.value.details()


def test_a_call_that_waits_for_the_bookie_outlives_a_shortage_of_memory(served: Served, monkeypatch) -> None:
    served.disk.hold_syncs()
    force = served.force(1)
    monkeypatch.setattr(open_calls, "resident_bytes", lambda: 1 << 50)
    idle = served.stub.Add(iter(()), timeout=DEADLINE_S)
    assert list(idle) == []
    served.disk.sync_may_end.set()
    assert force.result(DEADLINE_S).status == pb.OK


def test_an_add_stream_that_is_owed_a_reply_outlives_a_shortage_of_memory(served: Served, monkeypatch) -> None:
    """Protocol rule 41: else adds that a slow disk is about to make durable would become failures of the bookie."""
    served.disk.hold_syncs()
    owed = served.add(1, 0, 0)
    ended = threading.Event()

    def nothing() -> Iterator[pb.AddRequest]:
        ended.wait(DEADLINE_S)
        yield from ()

    idle = served.stub.Add(nothing(), timeout=DEADLINE_S)
    served.wait_for_queued_bytes()
    monkeypatch.setattr(open_calls, "resident_bytes", lambda: 1 << 50)
    with pytest.raises(grpc.RpcError, match="this bookie is busy"):
        next(idle)
    ended.set()
    assert not owed.done()
    served.disk.sync_may_end.set()
    assert owed.result(DEADLINE_S) == pb.OK


def test_large_adds_are_refused_as_busy_where_too_many_wait_and_small_ones_are_not(served: Served, monkeypatch) -> None:
    calls = served.server._calls
    monkeypatch.setattr(waiting_adds, "USUAL_ADD_BYTES", 1000)
    calls._waiting_adds._maximum_bytes = 5000
    assert _status(served, _add(served, 1, 6000)) == pb.UNKNOWN
    assert _status(served, _add(served, 2, 10)) == pb.OK
    assert calls._waiting_adds._bytes == 0


def test_a_call_above_the_number_that_may_be_open_is_refused_unless_one_stands_still(served: Served, monkeypatch) -> None:
    monkeypatch.setattr(open_calls, "MAX_CALLS", 0)
    with pytest.raises(grpc.RpcError) as refused:
        served.stub.Describe(pb.DescribeRequest(version=1), timeout=DEADLINE_S)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_reader_that_takes_nothing_loses_its_connection_and_others_read_on(served: Served, monkeypatch) -> None:
    monkeypatch.setattr(open_calls, "REPLY_BYTES", 300_000)
    monkeypatch.setattr(open_calls, "STALLED_S", 0.2)
    for ledger_id in (1, 2, 3):
        assert _status(served, _add(served, ledger_id, 900_000)) == pb.OK
    lazy = grpc.insecure_channel(
        served._channel._channel.target().decode(), options=[("grpc.http2.lookahead_bytes", 4096), ("grpc.http2.bdp_probe", 0)]
    )
    method = lazy.unary_stream("/bk_spark.v1.Bookie/Read", pb.ReadRequest.SerializeToString, pb.ReadReply.FromString)
    request = encode_read_request(ReadRequest(BOOKIE_ID, 1, KEY, 0, 0, DENSE, 1 << 20))
    stalled = [method(request, timeout=DEADLINE_S) for _ in range(3)]
    assert [reply.status for reply in served.stub.Read(request, timeout=DEADLINE_S)] == [pb.OK, pb.OK]
    assert served.server._calls.reply_bytes <= 3 * 1_000_000
    for call in stalled:
        call.cancel()
    lazy.close()


def test_readers_on_a_line_that_is_full_keep_their_connection(served: Served, monkeypatch) -> None:
    monkeypatch.setattr(open_calls, "REPLY_BYTES", 300_000)
    monkeypatch.setattr(open_calls, "STALLED_S", 0.1)
    assert _status(served, _add(served, 1, 900_000)) == pb.OK
    request = encode_read_request(ReadRequest(BOOKIE_ID, 1, KEY, 0, 0, DENSE, 1 << 20))
    with SlowLine(served.port) as line, grpc.insecure_channel(f"127.0.0.1:{line.port}") as channel:
        stub = BookieStub(channel)
        reads = [stub.Read(request, timeout=DEADLINE_S) for _ in range(6)]
        assert [[reply.status for reply in read] for read in reads] == [[pb.OK, pb.OK]] * 6


def test_time_in_which_the_event_loop_took_no_turns_is_no_clients_fault(served: Served) -> None:
    calls = served.server._calls
    served.disk.hold_syncs()
    owed = served.add(1, 0, 0)
    served.run(_when(lambda: len(calls._calls) > 0))
    began_s, stands = served.loop.time(), threading.Event()
    served.loop.call_soon_threadsafe(stands.wait, 1.0)
    served.run(_when(lambda: calls._stood_s > 0))
    assert calls.now_s() < began_s + 0.5 <= served.loop.time()
    served.disk.sync_may_end.set()
    assert owed.result(DEADLINE_S) == pb.OK


def test_time_before_the_first_call_is_no_standing_still(served: Served, monkeypatch) -> None:
    """Else no client would stand still for as long as the bookie had none."""
    calls, looks = served.server._calls, []
    monkeypatch.setattr(open_calls, "resident_bytes", lambda: looks.append(1) or 0)
    served.disk.hold_syncs()
    owed = served.add(1, 0, 0)
    served.run(_when(lambda: len(looks) > 0))
    assert calls.now_s() > served.loop.time() - DEADLINE_S
    served.disk.sync_may_end.set()
    assert owed.result(DEADLINE_S) == pb.OK


async def _when(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


class SlowLine:
    """A line to a bookie that lets through 3 MB a second."""

    def __init__(self, port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._far = socket.socket()
        self._far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        self._far.connect(("127.0.0.1", port))
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._carry), threading.Thread(target=self._answer)]

    def __enter__(self) -> SlowLine:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._far.shutdown(socket.SHUT_RDWR)
        self._near.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._far, self._near, self._listening):
            one.close()

    def _carry(self) -> None:
        self._near = self._listening.accept()[0]
        self._threads[1].start()
        with contextlib.suppress(OSError):  # it is over
            while data := self._near.recv(65_536):
                self._far.sendall(data)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while (data := self._far.recv(65_536)) and not self._ended.wait(0.02):
                self._near.sendall(data)


def _descriptors(connection: socket.socket) -> int:
    """How many this process has of it. Other threads open and close files of theirs meanwhile."""
    mine, found = os.fstat(connection.fileno()), 0
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.path.samestat(mine, os.stat(f"/proc/self/fd/{file}"))
    return found


def test_only_the_connection_that_is_named_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        clients = [socket.create_connection(listening.getsockname()) for _ in range(3)]
        served = [listening.accept()[0] for _ in clients]
        served[2].send(b"1234567")
        assert clients[2].recv(7) == b"1234567"
        peers = [f"ipv4:127.0.0.1:{client.getsockname()[1]}" for client in clients]
        assert acknowledged_bytes(peers[1:]) == {peers[1]: 0, peers[2]: 7}
        assert disconnect({"ipv4:127.0.0.1:1", "unix:", "ipv6:%5B::1%5D:1"}) == 0
        assert [_descriptors(one) for one in (*clients, *served)] == [1] * 6
        assert disconnect({f"ipv4:127.0.0.1:{clients[1].getsockname()[1]}"}) == 1
        assert clients[1].recv(1) == b""
        served[0].send(b"x")
        served[2].send(b"x")
        assert (clients[0].recv(1), clients[2].recv(1)) == (b"x", b"x")
        for one in (*clients, *served):
            one.close()
