"""What clients can make the port for Apache's clients hold, and for how long, is bounded as at the other port.

Ref: docs/guide/limits.md; docs/rules.md, protocol rules 34 and 41.
"""

from __future__ import annotations

import asyncio
import dataclasses
import resource
import select
import socket
import struct
import threading
import time

import pytest

from bk_spark.bookie.server.apache import listener, reads
from bk_spark.config import MIB
from bk_spark.proto import apache_wire_pb2 as pb
from tests.cluster.bookie.apache_client import (
    LAST,
    PROOF,
    STATUSES_2,
    ApacheServed,
    Version2,
    Version3,
    add_2,
    batch_read_2,
    entry,
    read_2,
    unpack_2,
)
from tests.cluster.bookie.served import DEADLINE_S


def large(ledger_id: int, entry_id: int, size: int) -> bytes:
    """Without a digest: it is not looked at."""
    return struct.pack(">4q", ledger_id, entry_id, entry_id - 1, size) + bytes(size)


def await_count(apache: ApacheServed, count: int) -> None:
    """Until just so many connections are open."""
    listening = apache.served.server.apache
    assert listening is not None
    deadline = time.monotonic() + DEADLINE_S
    while listening.connections != count:
        assert time.monotonic() < deadline, listening.connections
        apache.served.run(asyncio.sleep(0.01))


def is_served(client: Version2) -> bool:
    try:
        return client.read(1, 0)[0] == "NOLEDGER"
    except (EOFError, ConnectionError):
        return False


def test_a_connection_above_the_number_that_may_be_open_is_closed(harness) -> None:
    harness.config = dataclasses.replace(harness.config, max_connections=20)
    apache = ApacheServed(harness)
    try:
        served = [is_served(apache.version_2()) for _ in range(25)]
        assert served == [True] * 20 + [False] * 5
    finally:
        apache.close()


def test_connections_leave_files_for_the_logs(harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """All connections together, of both ports: 512 files are left."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (600, 600))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    apache = ApacheServed(harness)
    try:
        assert sum(is_served(apache.version_2()) for _ in range(100)) <= 600 - 512
    finally:
        apache.close()


@pytest.mark.parametrize("begun", [b"", b"\0", b"\0\0\x10\0\2\1\0\0", struct.pack(">I", 17 * MIB) + bytes(100_000)])
def test_a_request_that_does_not_become_complete_ends_its_connection(
    apache: ApacheServed, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(listener, "REQUEST_TIMEOUT_S", 0.3)
    client = apache.version_2()
    client.socket.sendall(begun)
    assert client.is_closed()


def test_a_slow_sender_is_cut_off_though_it_never_stops(apache: ApacheServed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_TIMEOUT_S", 0.5)
    client = apache.version_2()
    client.socket.sendall(struct.pack(">I", 1 << 20))
    client.socket.settimeout(0.02)
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            client.socket.sendall(b"x")
            assert client.socket.recv(1) == b""
        except TimeoutError:
            continue
        except ConnectionError:
            pass
        return
    raise AssertionError("it may go on for ever")


def test_a_client_that_takes_no_answers_loses_its_connection(apache: ApacheServed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_TIMEOUT_S", 0.5)
    writer = apache.version_2()
    for entry_id in range(4):
        assert writer.add(large(1, entry_id, MIB)) == "OK"
    lazy = apache.version_2()
    lazy.send(*(batch_read_2(1, 0, number) for number in range(50)))
    await_count(apache, 1)
    assert writer.read(1, 0)[0] == "OK"


def test_a_connection_that_was_idle_for_ten_minutes_makes_room_for_another_one(harness, monkeypatch) -> None:
    """The one that was idle for longest; otherwise idle connections stay."""
    harness.config = dataclasses.replace(harness.config, max_connections=16)
    apache = ApacheServed(harness)
    try:
        clients = [apache.version_2() for _ in range(16)]
        assert all(is_served(client) for client in clients)
        assert not is_served(apache.version_2())
        time_of = apache.served.loop.time
        monkeypatch.setattr(apache.served.loop, "time", lambda: time_of() + 700)
        assert is_served(clients[0])
        assert is_served(apache.version_2())
        assert clients[1].is_closed()
        assert all(is_served(client) for client in [clients[0], *clients[2:]])
        assert not is_served(apache.version_2())
    finally:
        apache.close()


def test_large_adds_that_wait_for_a_slow_disk_are_refused_as_busy_where_too_many_do(harness) -> None:
    """What is received and waits is bounded by waiting_add_bytes: not by the number of connections."""
    harness.config = dataclasses.replace(harness.config, sync_queue_bytes=MIB, waiting_add_bytes=20 * MIB)
    apache = ApacheServed(harness)
    try:
        assert apache.version_2().add(entry(1, 0)) == "OK"
        apache.served.disk.hold_syncs()
        clients = [apache.version_2() for _ in range(12)]
        for number, client in enumerate(clients):
            client.send(add_2(large(1, number + 1, 4 * MIB)))
        told = select.select([client.socket for client in clients], [], [], DEADLINE_S)[0]
        assert told, "48 MiB of adds wait in memory"
        refused = next(client for client in clients if client.socket in told)
        assert STATUSES_2[unpack_2(refused.receive(), 1)[0]] == "UNKNOWN"
    finally:
        apache.close()


def test_requests_of_one_connection_that_wait_are_bounded_and_all_answered(apache: ApacheServed, v3: Version3) -> None:
    """Those with small answers too: 256 calls of a connection."""
    assert v3.add(entry(1, 0)) == "OK"
    release, begun = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        release.wait(DEADLINE_S)

    reserved = apache.served.server.requests.reserved
    for _ in range(reserved._max_workers):
        reserved.submit(block)
    assert begun.wait(DEADLINE_S)
    try:
        count = 5_000
        v3.send(*(_read_lac(v3).SerializeToString() for _ in range(count)))
        assert apache.version_2().read(1, 0)[0] == "OK"  # by now the bookie has looked at the other connection, too
        tasks = apache.served.run(_tasks())
    finally:
        release.set()
    assert len({pb.Response.FromString(v3.receive()).header.txnId for _ in range(count)}) == count
    assert tasks < 1_000


def _read_lac(client: Version3) -> pb.Request:
    return client.request(pb.READ_LAC, readLacRequest=pb.LedgerRequest(ledgerId=1))


async def _tasks() -> int:
    return len(asyncio.all_tasks())


def await_untaken(apache: ApacheServed, nbytes: int) -> None:
    """Until clients have more than so many bytes of answers to take."""
    listening = apache.served.server.apache
    assert listening is not None
    deadline = time.monotonic() + DEADLINE_S
    while listening._readers.untaken_bytes <= nbytes:
        assert time.monotonic() < deadline, listening._readers.untaken_bytes
        apache.served.run(asyncio.sleep(0.01))


def test_clients_that_take_their_answers_slowly_hold_up_no_others(
    apache: ApacheServed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replies that clients have not taken: 64 MiB, 128 MiB for those that have taken all of theirs."""
    for module in (listener, reads):
        monkeypatch.setattr(module, "REPLY_BYTES", 4 * MIB)
    writer = apache.version_2()
    for entry_id in range(4):
        assert writer.add(large(1, entry_id, MIB)) == "OK"
    slow = []
    for _ in range(6):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        client.connect(("127.0.0.1", apache.port))
        client.sendall(b"".join(struct.pack(">I", len(one)) + one for one in [read_2(1, n % 4) for n in range(100)]))
        slow.append(client)
    ended = threading.Event()

    def take() -> None:
        while not ended.wait(0.1):
            for client in slow:
                client.recv(16_384)

    taking = threading.Thread(target=take, daemon=True)
    taking.start()
    try:
        await_untaken(apache, 4 * MIB)
        writer.socket.settimeout(DEADLINE_S / 4)
        for _ in range(3):
            assert writer.read(1, 0)[0] == "OK"
    finally:
        ended.set()
        taking.join()
        for client in slow:
            client.close()


def test_fences_of_many_connections_share_syncs_and_others_go_on(apache: ApacheServed) -> None:
    writer = apache.version_2()
    assert writer.add(entry(1, 0)) == "OK"
    clients = [apache.version_2() for _ in range(20)]
    for number, client in enumerate(clients):
        client.send(*(read_2(1000 + 100 * number + one, LAST, fence=PROOF) for one in range(100)))
    for entry_id in range(1, 6):
        assert writer.add(entry(1, entry_id)) == "OK"
    for client in clients:
        assert {unpack_2(client.receive(), 2)[0] for _ in range(100)} <= {1, 2}


def test_two_thousand_silent_connections_hinder_nobody(apache: ApacheServed) -> None:
    silent = [socket.create_connection(("127.0.0.1", apache.port), DEADLINE_S) for _ in range(2_000)]
    try:
        client = apache.version_2()
        for entry_id in range(20):
            assert client.add(entry(1, entry_id)) == "OK"
    finally:
        for one in silent:
            one.close()
    await_count(apache, 1)
