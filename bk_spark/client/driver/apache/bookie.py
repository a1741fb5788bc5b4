"""An Apache bookie as a client sees it: the requests of the state machines over Apache BookKeeper's TCP protocol.

A batch goes out as one ADD for each entry, all in one write, and is answered once all are. The entries of a read come back as
batches. Adds and batch reads use version 2. Single entries, many at a time, come over version 3, whose answers have the numbers
of their requests: from a bookie that holds only some of the ids, because a batch read ends at the first gap, and whenever a
read fences, because an answer must not be one that was made before the fence.

What Apache's protocol does not have: a bookie answers an ADD once it is durable, so a force is answered at once, with the same
boot as every ack; deferred sync is refused. An operator's requests are answered with BAD_REQUEST.

Ref: docs/rules.md, protocol rules 4, 30 and 61; BP-46.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from bk_spark.client.driver.answer_check import ReadAnswer
from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.client.driver.apache.version_2 import OnAdd, Version2
from bk_spark.client.driver.apache.version_3 import Version3
from bk_spark.client.driver.connections import MOST_READS, Lookup, QueuedAdd, ReadProgress, begin_read, drained
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch, decode, encode
from bk_spark.entries.digest import APACHE_KEY_BYTES, payload_sizes
from bk_spark.errors import BookKeeperError, CorruptionError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache import version_2, version_3
from bk_spark.wire.apache.entry_bytes import entries_of, last_add_confirmed_of
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

CONNECT_S = 5.0
"""A bookie that is there takes a connection in milliseconds."""

MOST_FRAME_BYTES = 4 << 20
"""Asked for in one batch read: below the 5 MiB that Apache's bookies and clients take by default as the largest frame."""

MOST_PAYLOAD_BYTES = (5 << 20) - 128
"""Of an entry: with what stands before it, it fills the largest frame that Apache's bookies take by default. A larger one would
end the connection, and all adds on it."""

MOST_SINGLE_READS = 128
"""Single reads under way for one read: enough to keep the bookie busy for several round trips."""

_Connection = TypeVar("_Connection", bound=FramedConnection[Any])


class ApacheBookie:
    """Stands in for ``BookieConnection``. Every method runs on the event loop."""

    def __init__(self, bookie_id: str, lookup: Lookup, *, closed: bool = False) -> None:
        self.bookie_id = bookie_id
        self._lookup = lookup
        self._closed = closed
        self._version_2: Version2 | None = None
        self._version_3: Version3 | None = None
        self._connecting = asyncio.Lock()
        self._outgoing: asyncio.Queue[QueuedAdd] = asyncio.Queue()
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
                connection = await self._in_version_2()
                await connection.room()
            except (BookKeeperError, OSError) as problem:
                self._answer_queued(str(problem))
                return
            self._send(connection, self._outgoing.get_nowait())

    def _send(self, connection: Version2, queued: QueuedAdd) -> None:
        request, queued.request = queued.request, None
        if request is None:
            queued.on_reply(AddReply(queued.request_id, Status.UNKNOWN, "it was cancelled"))
        elif request.deferred_sync:
            detail = "Apache BookKeeper's protocol names no boot, so deferred sync is not supported on its bookies"
            queued.on_reply(AddReply(queued.request_id, Status.BAD_REQUEST, detail))
        else:
            self._send_entries(connection, request, lambda *outcome: queued.on_reply(AddReply(queued.request_id, *outcome)))

    def _send_entries(self, connection: Version2, request: AddRequest, on_answer: OnAdd) -> None:
        header, batch = request.batch.header, decode(request.batch)
        largest = int(payload_sizes(batch.payloads).max())
        if largest > MOST_PAYLOAD_BYTES:
            on_answer(Status.BAD_REQUEST, f"an entry of {largest} bytes; Apache's bookies take up to {MOST_PAYLOAD_BYTES}")
            return
        flags = version_2.Flag.RECOVERY_ADD | version_2.Flag.HIGH_PRIORITY if request.recovery else version_2.Flag.NONE
        frames = version_2.pack_adds(batch, header.digest_type, request.master_key[:APACHE_KEY_BYTES], flags)
        connection.send_adds(header, frames, on_answer)

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
            async for part in _Reading(await self._in_version_2(), await self._in_version_3(), request).parts():
                yield answer.checked(part)
        finally:
            if not request.fence:
                self._reads.release()

    async def last_add_confirmed(self, request: LastAddConfirmedRequest, timeout_s: float) -> LastAddConfirmedReply:
        """Asks for the last entry; with a wait, then for more.

        A bookie that nobody asked lately does not know how far the ledger is confirmed until the next add, and would let the
        long poll wait for that, whatever it has stored.
        """
        connection = await self._in_version_3()
        key = request.master_key[:APACHE_KEY_BYTES] if request.fence else b""
        question = version_3.read(request.ledger_id, version_3.LAST_ENTRY, key)
        reply = _confirmed(request, await connection.ask(pb.READ_ENTRY, question, timeout_s))
        if not request.wait_ms or reply.status is not Status.OK or reply.last_add_confirmed > request.beyond:
            return reply
        question = version_3.wait_for(request.ledger_id, request.beyond, request.wait_ms)
        return _confirmed(request, await connection.ask(pb.READ_ENTRY, question, timeout_s))

    async def store_last_add_confirmed(self, request: StoreLastAddConfirmedRequest, timeout_s: float) -> PlainReply:
        key = request.master_key[:APACHE_KEY_BYTES]
        written = version_3.write_lac(request.ledger_id, request.last_add_confirmed, key, request.proof)
        response = await (await self._in_version_3()).ask(pb.WRITE_LAC, written, timeout_s)
        return PlainReply(version_3.status_of(response.status), f"code {response.status}" if response.status else "")

    # --- the bookie as a whole

    async def describe(self, timeout_s: float) -> BookieDescription:
        response = await (await self._in_version_3()).ask(pb.GET_BOOKIE_INFO, version_3.ask_for_space(), timeout_s)
        space = response.getBookieInfoResponse
        status = version_3.status_of(response.status)
        return BookieDescription(status, self.bookie_id, space.freeDiskSpace, space.totalDiskCapacity, "Apache BookKeeper")

    async def administer(self, operation: AdminOperation, timeout_s: float, ledger_ids: Sequence[int] = ()) -> AdministerReply:
        what = f"{self.bookie_id} is a bookie of Apache BookKeeper, which takes no {operation.name}"
        return AdministerReply(Status.BAD_REQUEST, what)

    async def close(self) -> None:
        """Wait up to CLOSE_GRACE_S for the remaining adds of closed ledgers, then disconnect."""
        await drained(lambda: self._outgoing.empty() and (self._version_2 is None or not self._version_2.owes_adds))
        self._closed = True
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        self._answer_queued("the client was closed")
        for connection in (self._version_2, self._version_3):
            if connection is not None:
                connection.close("the client was closed")

    # --- connections

    async def _in_version_2(self) -> Version2:
        async with self._connecting:
            if self._version_2 is None or self._version_2.ended is not None:
                self._version_2 = await self._connected(Version2)
            return self._version_2

    async def _in_version_3(self) -> Version3:
        async with self._connecting:
            if self._version_3 is None or self._version_3.ended is not None:
                self._version_3 = await self._connected(Version3)
            return self._version_3

    async def _connected(self, made: Callable[[], _Connection]) -> _Connection:
        """A new connection to the registered address."""
        if self._closed:
            raise ConnectionError("the client was closed")
        address = await self._lookup(self.bookie_id)
        if address is None:
            raise ConnectionError("it is not registered as available")
        connecting = asyncio.get_running_loop().create_connection(made, address.host, address.port)
        _, connection = await asyncio.wait_for(connecting, CONNECT_S)
        return connection


class _Reading:
    """One read of a range from one bookie."""

    def __init__(self, batched: Version2, single: Version3, request: ReadRequest) -> None:
        self._batched = batched
        self._single = single
        self._request = request
        self._left_bytes = request.maximum_bytes
        self._count = 1
        """How many single entries to ask for next: as many as are likely to fit into what is left."""

    async def parts(self) -> AsyncIterator[ReadBatch | ReadEnd]:
        """Raises CorruptionError for what is no entry of the ledger, or not one that was asked for."""
        request, position = self._request, self._request.first
        while self._left_bytes > 0 and (ids := self._next_ids(position)):
            if request.pattern.is_dense and not request.fence:
                batch, end = await self._read_batch(ids[0])
            else:
                batch, end = await self._read_singly(ids)
            if batch is not None:
                self._left_bytes -= len(batch.body)
                position = batch.header.last_entry_id + 1
                yield ReadBatch(batch)
            if end is not None:
                yield end
                return
        yield ReadEnd(Status.OK, next(iter(self._next_ids(position)), request.last + 1))

    def _next_ids(self, position: int) -> list[int]:
        """The next ids, at least one if there is one."""
        pattern, last = self._request.pattern, self._request.last
        ids: list[int] = pattern.ids(position, min(last, position + MOST_SINGLE_READS)).tolist()
        return ids

    async def _read_batch(self, first: int) -> tuple[EncodedBatch | None, ReadEnd | None]:
        """The next entries, or the end of the read."""
        request = self._request
        most = min(request.last - first + 1, MAX_BATCH_ENTRIES)
        answer = await self._batched.batch_read(request.ledger_id, first, most, min(self._left_bytes, MOST_FRAME_BYTES))
        if answer.status is not Status.OK:
            return None, ReadEnd(answer.status, first, _detail(answer.status, answer.code))
        return self._batch(answer.data, answer.places), None

    async def _read_singly(self, ids: list[int]) -> tuple[EncodedBatch | None, ReadEnd | None]:
        """The next entries up to one that is not there, which ends the read."""
        ids, request = ids[: self._count], self._request
        key = request.master_key[:APACHE_KEY_BYTES] if request.fence else b""
        questions = [version_3.read(request.ledger_id, entry_id, key) for entry_id in ids]
        answers = await asyncio.gather(*(self._single.ask(pb.READ_ENTRY, question) for question in questions))
        bodies: list[bytes] = []
        for entry_id, answer in zip(ids, answers, strict=True):
            status = version_3.status_of(answer.status)
            if status is not Status.OK:
                return self._joined(bodies), ReadEnd(status, entry_id, _detail(status, answer.status))
            bodies.append(answer.readResponse.body)
        sizes = [len(body) for body in bodies]
        fitting = (self._left_bytes - sum(sizes)) // (max(sizes) + 1)
        self._count = max(1, min(MOST_SINGLE_READS, 2 * self._count, fitting))
        return self._joined(bodies), None

    def _joined(self, bodies: list[bytes]) -> EncodedBatch | None:
        ends = list(accumulate(map(len, bodies)))
        return self._batch(b"".join(bodies), list(zip([0, *ends], ends, strict=False))) if bodies else None

    def _batch(self, data: bytes, places: Sequence[tuple[int, int]]) -> EncodedBatch:
        request = self._request
        if not places:
            raise CorruptionError("an answer to a read", "it has no entry")
        entries = entries_of(request.ledger_id, request.digest_type, data, places)
        batch = encode(entries, request.digest_type, request.pattern)
        if batch is None or batch.header.count != len(entries):
            raise CorruptionError("an answer to a read", "it has other entries than those that were asked for")
        return batch


def _detail(status: Status, code: int) -> str:
    return f"code {code}" if status is Status.UNKNOWN else ""


def _confirmed(request: LastAddConfirmedRequest, response: pb.Response) -> LastAddConfirmedReply:
    """What a bookie knows to be confirmed: by itself, or from the entry that it sent."""
    status, found = version_3.status_of(response.status), response.readResponse
    known = [found.maxLAC] if found.HasField("maxLAC") else []
    if status is Status.OK and found.body:
        known.append(last_add_confirmed_of(request.ledger_id, found.body))
    return LastAddConfirmedReply(status, max(known, default=NO_ENTRY), _detail(status, response.status), request.fence)
