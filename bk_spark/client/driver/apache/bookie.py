"""An Apache bookie as a client sees it: the requests of the state machines over Apache BookKeeper's TCP protocol.

A batch goes out as one ADD for each entry, many in one write, and is answered once all are. The entries of a read come back as
batches. Adds and batch reads use version 2, all else version 3, whose answers have the numbers of their requests.

What Apache's protocol does not have: a bookie answers an ADD once it is durable, so a force is answered at once, with the same
boot as every ack; deferred sync is refused. An operator's requests are answered with BAD_REQUEST.

Ref: docs/rules.md, protocol rules 4, 30 and 61; BP-46.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence

from bk_spark.client.driver.answer_check import ReadAnswer
from bk_spark.client.driver.apache.connections import ApacheConnections
from bk_spark.client.driver.apache.framing import Framing
from bk_spark.client.driver.apache.login_access import LoginAccess
from bk_spark.client.driver.apache.reading import RangeRead, detail
from bk_spark.client.driver.apache.version_2 import OnAdd, Version2
from bk_spark.client.driver.connections import MOST_READS, Lookup, ReadProgress, begin_read, drained
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.entries.digest import APACHE_KEY_BYTES, is_keyed
from bk_spark.entries.entry_bytes import last_add_confirmed_of
from bk_spark.errors import BookKeeperError, EntryTooLargeError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache import version_3
from bk_spark.wire.messages import (
    AddReply,
    AddRequest,
    AdministerReply,
    AdminOperation,
    BookieDescription,
    ForceRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    PlainReply,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    Status,
    StoreLastAddConfirmedRequest,
)

NOT_KEYED = "a bookie of Apache BookKeeper cannot keep others from reading a secured log"

_LETS_GO = (1 << 63) - 1
"""Told to long polls in place of an entry id when a bookie lets a ledger's state go."""


class ApacheBookie:
    """Stands in for ``BookieConnection``. Every method runs on the event loop."""

    def __init__(self, bookie_id: str, lookup: Lookup, access: LoginAccess, framing: Framing) -> None:
        """``access`` and ``framing`` are shared by all bookies of a client."""
        self.bookie_id = bookie_id
        self._framing = framing
        self._connections = ApacheConnections(bookie_id, lookup, access)
        self._outgoing: asyncio.Queue[QueuedAdd] = asyncio.Queue()
        """As that of ``BookieConnection``: the writers' windows bound it."""
        self._sender: asyncio.Task[None] | None = None
        self._reads = asyncio.Semaphore(MOST_READS)

    # --- adds

    def enqueue(self, queued: QueuedAdd) -> None:
        """Send an add; its ``on_reply`` is called exactly once, later."""
        self._outgoing.put_nowait(queued)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send_queued())

    async def _send_queued(self) -> None:
        while not self._outgoing.empty():
            try:
                connection = await self._connections.adds()
            except (BookKeeperError, OSError) as problem:
                self._answer_queued(str(problem))
                return
            await self._send(connection, self._outgoing.get_nowait())

    async def _send(self, connection: Version2, queued: QueuedAdd) -> None:
        request, queued.request = queued.request, None
        if request is None:
            queued.on_reply(AddReply(queued.request_id, Status.UNKNOWN, "it was cancelled"))
        elif request.deferred_sync:
            detail = "Apache BookKeeper's protocol names no boot, so deferred sync is not supported on its bookies"
            queued.on_reply(AddReply(queued.request_id, Status.BAD_REQUEST, detail))
        else:
            answered = functools.partial(AddReply, queued.request_id)
            await self._send_entries(connection, request, lambda *outcome: queued.on_reply(answered(*outcome)))

    async def _send_entries(self, connection: Version2, request: AddRequest, on_answer: OnAdd) -> None:
        if is_keyed(request.master_key):
            on_answer(Status.UNSUPPORTED_VERSION, NOT_KEYED)
            return
        try:
            frames = self._framing.frames(request)
        except EntryTooLargeError as problem:
            on_answer(Status.BAD_REQUEST, str(problem))
            return
        await connection.send_adds(request.batch.header, frames, on_answer)

    def _answer_queued(self, problem: str) -> None:
        while not self._outgoing.empty():
            queued = self._outgoing.get_nowait()
            queued.on_reply(AddReply(queued.request_id, Status.UNKNOWN, problem))

    async def force(self, request: ForceRequest, timeout_s: float) -> PlainReply:
        """Everything that was acked is durable."""
        return PlainReply(Status.OK)

    # --- reads

    async def read(self, request: ReadRequest) -> AsyncIterator[ReadProgress | ReadBatch | ReadEnd]:
        """As BookieConnection's."""
        waits = not request.fence and self._reads.locked()
        if waits:
            yield ReadProgress.WAITS
        if not request.fence:
            await begin_read(self._reads)
        try:
            if waits:
                yield ReadProgress.SENT
            answer = ReadAnswer(request)
            async for part in RangeRead(self._connections, request).parts():
                yield answer.checked(part)
        finally:
            if not request.fence:
                self._reads.release()

    async def last_add_confirmed(self, request: LastAddConfirmedRequest, timeout_s: float) -> LastAddConfirmedReply:
        """Asks for the last entry; with a wait, then for more.

        A bookie that nobody asked lately does not know how far the ledger is confirmed until the next add, and would let the
        long poll wait for that, whatever it has stored.
        """
        connection = await self._connections.numbered()
        key = request.master_key[:APACHE_KEY_BYTES] if request.fence else b""
        question = version_3.read(request.ledger_id, version_3.LAST_ENTRY, key)
        reply = confirmed_reply(request, await connection.ask(pb.READ_ENTRY, question, timeout_s))
        if not request.wait_ms or reply.status is not Status.OK or reply.last_add_confirmed > request.beyond:
            return reply
        question = version_3.wait_for(request.ledger_id, request.beyond, request.wait_ms)
        return confirmed_reply(request, await connection.ask(pb.READ_ENTRY, question, timeout_s))

    async def store_last_add_confirmed(self, request: StoreLastAddConfirmedRequest, timeout_s: float) -> PlainReply:
        key = request.master_key[:APACHE_KEY_BYTES]
        written = version_3.write_lac(request.ledger_id, request.last_add_confirmed, key, request.proof or b"")
        response = await (await self._connections.numbered()).ask(pb.WRITE_LAC, written, timeout_s)
        return PlainReply(version_3.status_of(response.status), f"code {response.status}" if response.status else "")

    # --- the bookie as a whole

    async def describe(self, timeout_s: float) -> BookieDescription:
        response = await (await self._connections.numbered()).ask(pb.GET_BOOKIE_INFO, version_3.ask_for_space(), timeout_s)
        space = response.getBookieInfoResponse
        status = version_3.status_of(response.status)
        return BookieDescription(status, self.bookie_id, space.freeDiskSpace, space.totalDiskCapacity, "Apache BookKeeper")

    async def administer(self, operation: AdminOperation, timeout_s: float, ledger_ids: Sequence[int] = ()) -> AdministerReply:
        what = f"{self.bookie_id} is a bookie of Apache BookKeeper, which takes no {operation.name}"
        return AdministerReply(Status.BAD_REQUEST, what)

    async def close(self) -> None:
        """Wait up to CLOSE_GRACE_S for the remaining adds of closed ledgers, then disconnect."""
        await drained(lambda: self._outgoing.empty() and not self._connections.owes_adds)
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        self._answer_queued("the client was closed")
        self._connections.close()


def confirmed_reply(request: LastAddConfirmedRequest, response: pb.Response) -> LastAddConfirmedReply:
    """What a bookie knows to be confirmed: by itself, or from the entry that it sent, unless that is damaged."""
    status, found = version_3.status_of(response.status), response.readResponse
    known = [found.maxLAC] if found.HasField("maxLAC") and found.maxLAC != _LETS_GO else []
    if status is Status.OK and found.body:
        assert request.digester is not None, "without it nothing could be said of the entry"
        known.append(last_add_confirmed_of(request.ledger_id, request.digester, found.body))
    return LastAddConfirmedReply(status, max(known, default=NO_ENTRY), detail(status, response.status), request.fence)
