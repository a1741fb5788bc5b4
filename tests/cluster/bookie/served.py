"""A bookie's server in this process, over a disk that can be held up, and a client of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future

import grpc

from bk_spark.bookie.server.server import BookieServer
from bk_spark.entries.digest import master_key
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.quorum import DENSE
from bk_spark.wire.codec import (
    encode_add_request,
    encode_force_request,
    encode_last_add_confirmed_request,
    encode_read_request,
    encode_store_last_add_confirmed_request,
)
from bk_spark.wire.messages import (
    MAX_WAIT_MS,
    AddRequest,
    AdministerReply,
    AdminOperation,
    ForceRequest,
    LastAddConfirmedRequest,
    ReadRequest,
    Status,
    StoreLastAddConfirmedRequest,
)

DEADLINE_S = 60.0
BOOKIE_ID = "bookie-1"
KEY = master_key(b"")


class EveryId:
    """The counter of no store: every id was given out."""

    def next_ledger_id(self) -> int:
        return 1 << 62

    def next_ledger_id_from(self, known: int) -> int:
        return 1 << 62

    def has_ledger(self, ledger_id: int) -> bool:
        return True


class Served:
    """A bookie's server and a client of it."""

    def __init__(self, harness) -> None:
        self.harness = harness
        self.disk = harness.disk
        self.look_count = 0
        self._is_stopped = False
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.server = self.run(self._make(harness.start(), harness.config))
        self.port = self.run(self.server.start())
        self._channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.stub = BookieStub(self._channel)

    async def _make(self, bookie, config) -> BookieServer:
        return BookieServer(
            bookie,
            config,
            host="127.0.0.1",
            port=0,
            looks=self.looks,
            administer=self.administer,
            ledger_ids=EveryId(),
        )

    def looks(self) -> None:
        """Each time the sync thread looks at the disks."""
        self.look_count += 1

    def administer(self, bookie_id: str, operation: AdminOperation, ledger_ids: Sequence[int] = ()) -> AdministerReply:
        return AdministerReply(Status.OK, f"{operation.name} of {bookie_id}", {"asked": 1})

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE_S)

    def close(self) -> None:
        self.disk.sync_may_end.set()
        self._channel.close()
        if not self._is_stopped:
            self.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def stop(self) -> None:
        self._is_stopped = True
        self.run(self.server.stop())

    def add(self, ledger_id: int, first: int, last: int, *, key: bytes | None = None, **flags: bool) -> Future:
        """The status of an add, on a stream of its own."""
        request = AddRequest(1, BOOKIE_ID, key or KEY, self.harness.batch(ledger_id, first, last), **flags)
        answer: Future = Future()
        threading.Thread(target=self._add, args=(encode_add_request(request), answer)).start()
        return answer

    def _add(self, message, answer: Future) -> None:
        is_answered = threading.Event()

        def messages():
            yield message
            is_answered.wait(DEADLINE_S)

        try:
            answer.set_result(next(self.stub.Add(messages(), timeout=DEADLINE_S)).status)
        except BaseException as problem:
            answer.set_exception(problem)
        finally:
            is_answered.set()

    def read(self, ledger_id: int, first: int, last: int, *, fence: bool = True) -> Future:
        """The last reply of a read."""
        request = encode_read_request(ReadRequest(BOOKIE_ID, ledger_id, KEY, first, last, DENSE, 1 << 20, fence))
        answer: Future = Future()
        replies = self.stub.Read(request, timeout=DEADLINE_S)
        threading.Thread(target=lambda: answer.set_result(list(replies)[-1])).start()
        return answer

    def confirmed(self, ledger_id: int, **more):
        request = LastAddConfirmedRequest(BOOKIE_ID, ledger_id, KEY, **more)
        return self.stub.ReadLastAddConfirmed.future(encode_last_add_confirmed_request(request), timeout=DEADLINE_S)

    def confirm(self, ledger_id: int, last_add_confirmed: int):
        request = StoreLastAddConfirmedRequest(BOOKIE_ID, ledger_id, KEY, last_add_confirmed)
        return self.stub.StoreLastAddConfirmed.future(encode_store_last_add_confirmed_request(request), timeout=DEADLINE_S)

    def force(self, ledger_id: int):
        return self.stub.Force.future(encode_force_request(ForceRequest(BOOKIE_ID, ledger_id, KEY)), timeout=DEADLINE_S)

    def poll(self, ledger_id: int, beyond: int):
        """A long poll that waits."""
        call = self.confirmed(ledger_id, beyond=beyond, wait_ms=MAX_WAIT_MS)
        self.wait_for_polls(1)
        return call

    def wait_for_queued_bytes(self) -> None:
        """Until a request waits to be durable."""

        async def wait() -> None:
            while not self.server.requests.sync_thread.queued_bytes:
                await asyncio.sleep(0)

        self.run(wait())

    def wait_for_polls(self, count: int) -> None:
        async def wait() -> None:
            while self.server.requests.polls.count != count:
                await asyncio.sleep(0)

        self.run(wait())
