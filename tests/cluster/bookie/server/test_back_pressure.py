"""What waits in a bookie is bounded and counted, and nobody waits for ever.

Ref: situation 74; docs/rules.md, protocol rule 41.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bk_spark.bookie.server import server as bookie_server
from bk_spark.bookie.server import sync_thread
from bk_spark.bookie.server.sync_thread import REQUEST_BYTES, CheckpointThread
from bk_spark.config import BookieConfig
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.wire.codec import encode_add_request, encode_administer_request
from bk_spark.wire.messages import PROTOCOL_VERSION, AddRequest, AdminOperation
from tests.cluster.bookie.served import BOOKIE_ID, DEADLINE_S, KEY, Served


class Sender:
    """A client that sends adds of one ledger as fast as it may, and reads the replies only when it is told to."""

    def __init__(self, served: Served, ledger_id: int, count: int, size: int) -> None:
        self.sent = 0
        self._served = served
        self._ended = threading.Event()
        self._messages = (self._message(ledger_id, number, size) for number in range(count))
        self._count = count
        self.call = served.stub.Add(self._send(), timeout=30)

    def _message(self, ledger_id: int, number: int, size: int) -> pb.AddRequest:
        batch = self._served.harness.batch(ledger_id, number, number, size=size)
        return encode_add_request(AddRequest(number, BOOKIE_ID, KEY, batch))

    def _send(self) -> Iterator[pb.AddRequest]:
        for message in self._messages:
            self.sent += 1
            yield message
        self._ended.wait(30)

    def replies(self) -> list[int]:
        """The status of every add."""
        got = [reply.status for reply in itertools.islice(self.call, self._count)]
        self._ended.set()
        return got


@pytest.fixture
def serve(harness):
    made: list[Served] = []

    def serve(**settings: object) -> Served:
        harness.config = BookieConfig(**{"direct_add_bytes": 1 << 20, **settings})
        made.append(Served(harness))
        return made[0]

    yield serve
    for one in made:
        one.close()


def wait_until(served: Served, is_so: Callable[[], bool]) -> None:
    async def wait() -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                await asyncio.sleep(0.001)

    served.run(wait())


def test_while_the_disk_is_slow_many_clients_fill_the_queue_to_its_bound_and_are_all_answered_after(serve) -> None:
    size, maximum = 20_000, 200_000
    served = serve(sync_queue_bytes=maximum)
    served.disk.hold_syncs()
    senders = [Sender(served, ledger_id, 30, size) for ledger_id in range(8)]
    queued: list[int] = []
    wait_until(served, lambda: served.server.requests.sync_thread.queued_bytes > maximum)
    wait_until(served, lambda: len(queued) > 50 or queued.append(served.server.requests.sync_thread.queued_bytes))
    assert max(queued) <= maximum + REQUEST_BYTES + 2 * size
    served.disk.sync_may_end.set()
    assert [sender.replies() for sender in senders] == [[pb.OK] * 30] * 8


def test_a_client_that_reads_no_replies_is_owed_a_bounded_number_and_holds_up_nobody_else(serve, monkeypatch) -> None:
    monkeypatch.setattr(bookie_server, "MAX_OWED", 40)
    streams: list[bookie_server._AddStream] = []
    make = bookie_server._AddStream

    def made(*arguments: object) -> bookie_server._AddStream:
        streams.append(make(*arguments))
        return streams[-1]

    monkeypatch.setattr(bookie_server, "_AddStream", made)
    served = serve()
    # gRPC's own buffers are full when a write does not return; no test can fill them with replies of a few bytes
    reads_again = threading.Event()
    original = make.write_replies

    async def write_replies(self, context) -> None:
        while not reads_again.is_set():
            await asyncio.sleep(0.001)
        await original(self, context)

    monkeypatch.setattr(make, "write_replies", write_replies)
    sender = Sender(served, 1, 500, 10)
    wait_until(served, lambda: bool(streams) and streams[0].owed == 40 and served.server.requests.sync_thread.queued_bytes == 0)
    monkeypatch.setattr(make, "write_replies", original)
    assert served.add(2, 0, 4).result(DEADLINE_S) == pb.OK
    assert streams[0].owed == 40
    reads_again.set()
    assert sender.replies() == [pb.OK] * 500


def test_adds_wait_while_both_write_caches_are_full_and_go_on_when_the_checkpoint_ends(serve, harness, monkeypatch) -> None:
    """Memory is bounded by sync_queue_bytes and twice write_cache_bytes, each cache with one group of requests on top."""
    size, cache_bytes, queue_bytes, group_bytes = 2_000, 50_000, 40_000, 10_000
    monkeypatch.setattr(sync_thread, "MAX_GROUP_BYTES", group_bytes)
    may_end = hold_copies(harness.disk, monkeypatch)
    with CheckpointThread() as harness.background:
        served = serve(write_cache_bytes=cache_bytes, sync_queue_bytes=queue_bytes)
        layers = harness.bookie.storage._layers
        senders = [Sender(served, ledger_id, 60, size) for ledger_id in range(4)]
        wait_until(served, lambda: served.server.requests.sync_thread.queued_bytes > queue_bytes)
        wait_until(served, lambda: layers.frozen is not None and layers.active.size_bytes > cache_bytes)
        for cache in (layers.active, layers.frozen):
            assert cache_bytes <= cache.size_bytes <= cache_bytes + 2 * group_bytes
        assert served.server.requests.sync_thread.queued_bytes <= queue_bytes + REQUEST_BYTES + 2 * size
        may_end.set()
        assert [sender.replies() for sender in senders] == [[pb.OK] * 60] * 4


def hold_copies(disk, monkeypatch) -> threading.Event:
    """Let no sync of a checkpoint's copies end before the event; journals are synced as ever."""
    may_end = threading.Event()
    check = disk.check

    def checked(verb: str, path: Path) -> None:
        if verb == "sync" and "entry_log" in str(path):
            assert may_end.wait(DEADLINE_S)
        check(verb, path)

    monkeypatch.setattr(disk, "check", checked)
    return may_end


def test_without_the_journal_a_lone_add_is_answered_with_nothing_behind_it_and_no_sync(serve) -> None:
    """Protocol rule 41."""
    served = serve(journal_write_data=False)
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    served.disk.hold_syncs()
    assert served.add(1, 5, 9).result(DEADLINE_S) == pb.OK
    served.disk.sync_may_end.set()


def test_an_operation_is_answered_while_all_readers_are_busy_and_adds_wait_for_the_disk(serve) -> None:
    served = serve()
    release = threading.Event()
    for _ in range(served.harness.config.read_threads):
        served.server.requests.readers.submit(release.wait, DEADLINE_S)
    served.disk.hold_syncs()
    add = served.add(1, 0, 4)
    message = encode_administer_request(BOOKIE_ID, AdminOperation.GC_RUN)
    reply = served.stub.Administer(message, timeout=DEADLINE_S)
    assert (reply.status, reply.detail, dict(reply.figures)) == (pb.OK, f"GC_RUN of {BOOKIE_ID}", {"asked": 1})
    assert not add.done()
    release.set()
    served.disk.sync_may_end.set()
    assert add.result(DEADLINE_S) == pb.OK


@pytest.mark.parametrize(
    ("field", "value", "status"), [("operation", 99, pb.BAD_REQUEST), ("version", PROTOCOL_VERSION + 1, pb.UNSUPPORTED_VERSION)]
)
def test_an_operation_that_this_bookie_does_not_know_is_refused(serve, field: str, value: int, status: int) -> None:
    message = encode_administer_request(BOOKIE_ID, AdminOperation.SCRUB)
    setattr(message, field, value)
    assert serve().stub.Administer(message, timeout=DEADLINE_S).status == status
