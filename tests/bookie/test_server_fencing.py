"""A server in this process over a disk that can be held up: what is answered before a sync, and what is not.

Ref: docs/rules.md, protocol rules 30, 34, 35 and 59.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import grpc
import pytest

from bk_spark.bookie.server import BookieServer
from bk_spark.digest import master_key
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieStub
from bk_spark.quorum import DENSE
from bk_spark.wire import (
    MAX_WAIT_MS,
    AddRequest,
    ForceRequest,
    LastAddConfirmedRequest,
    ReadRequest,
    StoreLastAddConfirmedRequest,
)
from bk_spark.wire_codec import (
    encode_add_request,
    encode_force_request,
    encode_last_add_confirmed_request,
    encode_read_request,
    encode_store_last_add_confirmed_request,
)

DEADLINE_S = 10
BOOKIE_ID = "bookie-1"
KEY = master_key(b"")


class Served:
    """A bookie's server and a client of it."""

    def __init__(self, harness) -> None:
        self.harness = harness
        self.disk = harness.disk
        self._is_stopped = False
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.server = self.run(self._make(harness.start(), harness.config))
        self._channel = grpc.insecure_channel(f"127.0.0.1:{self.run(self.server.start())}")
        self.stub = BookieStub(self._channel)

    async def _make(self, bookie, config) -> BookieServer:
        return BookieServer(bookie, config, host="127.0.0.1", port=0)

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

    def add(self, ledger_id: int, first: int, last: int, **flags: bool) -> Future:
        """The status of an add, on a stream of its own."""
        request = AddRequest(1, BOOKIE_ID, KEY, self.harness.batch(ledger_id, first, last), **flags)
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

    def wait_for_polls(self, count: int) -> None:
        async def wait() -> None:
            while self.server._polls.count != count:
                await asyncio.sleep(0)

        self.run(wait())


@pytest.fixture
def served(harness):
    made = Served(harness)
    yield made
    made.close()


def test_a_fencing_read_is_answered_when_its_fence_is_durable_and_not_before(served):
    """Protocol rule 35: also if there is nothing to read."""
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    served.disk.hold_syncs()
    answers = [served.read(1, 0, 9), served.read(2, 0, 9), served.confirmed(3, fence=True)]
    assert served.disk.sync_begins.wait(DEADLINE_S)
    plain = served.confirmed(1).result(DEADLINE_S)
    assert (plain.status, plain.fenced) == (pb.OK, False)
    assert not any(one.done() for one in answers)
    served.disk.sync_may_end.set()
    ends = [one.result(DEADLINE_S) for one in answers]
    assert [end.status for end in ends] == [pb.NO_SUCH_ENTRY, pb.NO_SUCH_ENTRY, pb.OK]
    assert ends[2].fenced
    for ledger_id in (1, 2, 3):
        assert served.add(ledger_id, 5, 9).result(DEADLINE_S) == pb.FENCED
        assert served.add(ledger_id, 5, 9, recovery=True).result(DEADLINE_S) == pb.OK


def test_a_fencing_read_whose_sync_fails_is_answered_with_that_error(served):
    """Situation 75."""
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    served.disk.fail("sync", "journal")
    assert served.read(1, 0, 4).result(DEADLINE_S).status == pb.IO_ERROR
    reply = served.confirmed(1, fence=True).result(DEADLINE_S)
    assert (reply.status, reply.fenced) == (pb.IO_ERROR, False)
    assert served.read(1, 0, 4, fence=False).result(DEADLINE_S).status == pb.OK


def test_fencing_reads_do_not_wait_behind_other_reads(served):
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    release = threading.Event()
    for _ in range(served.harness.config.read_threads):
        served.server._readers.submit(release.wait, DEADLINE_S)
    try:
        assert served.read(1, 0, 4).result(DEADLINE_S / 2).status == pb.OK
        assert served.confirmed(1, fence=True).result(DEADLINE_S / 2).fenced
    finally:
        release.set()


def test_an_add_with_deferred_sync_is_answered_while_the_sync_runs_and_a_force_is_not(served):
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    served.disk.hold_syncs()
    assert served.add(1, 5, 9, deferred_sync=True).result(DEADLINE_S) == pb.OK
    assert served.disk.sync_begins.wait(DEADLINE_S)
    waiting = [served.force(1), served.add(1, 10, 14), served.confirm(1, 14)]
    assert served.confirmed(1).result(DEADLINE_S).status == pb.OK
    assert not any(one.done() for one in waiting)
    served.disk.sync_may_end.set()
    force, add, confirm = (one.result(DEADLINE_S) for one in waiting)
    assert (force.status, add, confirm.status) == (pb.OK, pb.OK, pb.OK)
    assert served.confirmed(1).result(DEADLINE_S).last_add_confirmed == 14


def test_a_long_poll_wakes_when_the_last_add_confirmed_moves(served):
    """Situation 46."""
    poll = served.poll(1, -1)
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    assert served.add(1, 5, 9).result(DEADLINE_S) == pb.OK
    assert poll.result(DEADLINE_S).last_add_confirmed == 4
    poll = served.poll(1, 4)
    assert served.confirm(1, 9).result(DEADLINE_S).status == pb.OK
    assert poll.result(DEADLINE_S).last_add_confirmed == 9


def test_a_long_poll_wakes_when_the_ledger_is_fenced(served):
    """Protocol rule 59."""
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    poll = served.poll(1, 4)
    assert served.read(1, 5, 5).result(DEADLINE_S).status == pb.NO_SUCH_ENTRY
    reply = poll.result(DEADLINE_S)
    assert (reply.status, reply.last_add_confirmed, reply.fenced) == (pb.OK, -1, True)


def test_a_long_poll_ends_when_its_client_goes_away(served):
    poll = served.poll(1, -1)
    poll.cancel()
    served.wait_for_polls(0)


def test_a_long_poll_is_answered_when_the_bookie_stops(served):
    assert served.add(1, 0, 4).result(DEADLINE_S) == pb.OK
    poll = served.poll(1, 4)
    served.stop()
    reply = poll.result(DEADLINE_S)
    assert (reply.status, reply.last_add_confirmed, reply.fenced) == (pb.OK, -1, False)


def test_malformed_and_newer_requests_of_one_ledger_are_refused(served):
    assert served.confirm(1, -2).result(DEADLINE_S).status == pb.BAD_REQUEST
    assert served.force(-1).result(DEADLINE_S).status == pb.BAD_REQUEST
    assert served.stub.Force(pb.ForceRequest(version=2), timeout=DEADLINE_S).status == pb.UNSUPPORTED_VERSION
    newer = pb.StoreLastAddConfirmedRequest(version=2)
    assert served.stub.StoreLastAddConfirmed(newer, timeout=DEADLINE_S).status == pb.UNSUPPORTED_VERSION
