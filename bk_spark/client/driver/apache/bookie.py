"""An Apache bookie as a client sees it: the requests of the state machines over Apache BookKeeper's TCP protocol.

Adds and reads use version 2. A batch goes out as one ADD for each entry, all in one write, and is answered once all are. The
entries of a read come back as a batch. A bookie that holds only some of the ids is asked for single entries, many at a time,
because a batch read ends at the first gap. Long polls, explicit LACs and disk space use version 3.

What Apache's protocol does not have: a bookie answers an ADD once it is durable, so a force is answered at once, with the same
boot as every ack; deferred sync is refused. An operator's requests are answered with BAD_REQUEST.

Ref: docs/rules.md, protocol rules 4, 30 and 61; BP-46.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from bk_spark.client.driver.answer_check import ReadAnswer
from bk_spark.client.driver.apache.framed_connection import FramedConnection
from bk_spark.client.driver.apache.version_2 import OnAdd, Version2
from bk_spark.client.driver.apache.version_3 import Version3
from bk_spark.client.driver.connections import MOST_READS, Lookup, QueuedAdd, ReadProgress, begin_read
from bk_spark.config import MAX_BATCH_ENTRIES
from bk_spark.entries.batch import NO_ENTRY, EncodedBatch, decode, encode
from bk_spark.entries.digest import APACHE_KEY_BYTES, payload_sizes
from bk_spark.errors import BookKeeperError, CorruptionError
from bk_spark.proto import apache_wire_pb2 as pb
from bk_spark.wire.apache import version_2, version_3
from bk_spark.wire.apache.entry_bytes import entries_of
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

_Connection = TypeVar("_Connection", bound=FramedConnection)


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
        """As BookieConnection's. A read that fences has its first entry read with the fence, which then holds for all."""
        waits = not request.fence and self._reads.locked()
        if waits:
            yield ReadProgress.WAITS
        if not request.fence:
            await begin_read(self._reads)
        try:
            if waits:
                yield ReadProgress.SENT
            async for part in _Reading(await self._in_version_2(), request).parts():
                yield part
        finally:
            if not request.fence:
                self._reads.release()

    async def last_add_confirmed(self, request: LastAddConfirmedRequest, timeout_s: float) -> LastAddConfirmedReply:
        """With a wait what the bookie knows by then, otherwise what the last entry that it has says is confirmed."""
        if request.wait_ms:
            return await self._awaited(request, timeout_s)
        key = request.master_key[:APACHE_KEY_BYTES] if request.fence else b""
        connection = await self._in_version_2()
        answer = await asyncio.wait_for(connection.read(request.ledger_id, version_2.LAST_ENTRY, key), timeout_s)
        if answer.status is not Status.OK:
            return LastAddConfirmedReply(answer.status, NO_ENTRY, _detail(answer), is_fenced=request.fence)
        ((begin, end),) = answer.places
        confirmed = version_2.last_add_confirmed_of(answer.data[begin:end], request.ledger_id)
        return LastAddConfirmedReply(Status.OK, confirmed, is_fenced=request.fence)

    async def _awaited(self, request: LastAddConfirmedRequest, timeout_s: float) -> LastAddConfirmedReply:
        """Asks for the last entry first. A bookie that nobody asked lately does not know how far the ledger is confirmed until
        the next add, and would let the long poll wait for that, whatever it has stored."""
        connection = await self._in_version_3()
        now = await connection.ask(pb.READ_ENTRY, version_3.read_last(request.ledger_id), timeout_s)
        if now.status or now.readResponse.maxLAC > request.beyond:
            return _confirmed(now)
        question = version_3.wait_for(request.ledger_id, request.beyond, request.wait_ms)
        return _confirmed(await connection.ask(pb.READ_ENTRY, question, timeout_s))

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
    """One read of a range from one connection."""

    def __init__(self, connection: Version2, request: ReadRequest) -> None:
        self._connection = connection
        self._request = request
        self._left_bytes = request.maximum_bytes
        self._fence_key = request.master_key[:APACHE_KEY_BYTES] if request.fence else b""

    async def parts(self) -> AsyncIterator[ReadBatch | ReadEnd]:
        """Raises CorruptionError for an answer of another form."""
        answer = ReadAnswer(self._request)
        async for part in self._parts():
            yield answer.checked(part)

    async def _parts(self) -> AsyncIterator[ReadBatch | ReadEnd]:
        position, last = self._request.first, self._request.last
        while self._left_bytes > 0 and (ids := self._next_ids(position)):
            answers = await self._answers(ids)
            good = [answer for answer in answers if answer.status is Status.OK]
            for answer in good:
                batch = self._batch(answer)
                self._left_bytes -= len(batch.body)
                position = batch.header.last_entry_id + 1
                yield ReadBatch(batch)
            if len(good) < len(answers):
                failed = answers[len(good)]
                yield ReadEnd(failed.status, failed.entry_id, _detail(failed))
                return
        yield ReadEnd(Status.OK, next(iter(self._next_ids(position)), last + 1))

    def _next_ids(self, position: int) -> list[int]:
        """The next ids to ask for; those of a batch read are its first and all that follow."""
        pattern, last = self._request.pattern, self._request.last
        if pattern.is_dense:
            return [position] if position <= last else []
        ids: list[int] = pattern.ids(position, min(last, position + MOST_SINGLE_READS)).tolist()
        return ids

    async def _answers(self, ids: list[int]) -> list[version_2.Answer]:
        """Answers for the next ids, up to the first that is no entry."""
        ledger_id, connection = self._request.ledger_id, self._connection
        if self._fence_key:
            key, self._fence_key = self._fence_key, b""
            return [await connection.read(ledger_id, ids[0], key)]
        if self._request.pattern.is_dense:
            most = min(self._request.last - ids[0] + 1, MAX_BATCH_ENTRIES)
            return [await connection.batch_read(ledger_id, ids[0], most, min(self._left_bytes, MOST_FRAME_BYTES))]
        asked = [connection.read(ledger_id, one) for one in ids]
        try:
            answers = await asyncio.gather(*asked)
        finally:
            for one in asked:
                one.cancel()
        bad = next((index for index, answer in enumerate(answers) if answer.status is not Status.OK), len(answers))
        return answers[: bad + 1]

    def _batch(self, answer: version_2.Answer) -> EncodedBatch:
        request = self._request
        entries = entries_of(request.ledger_id, request.digest_type, answer.data, answer.places)
        batch = encode(entries, request.digest_type, request.pattern)
        if batch is None or batch.header.count != len(entries):
            raise CorruptionError("an answer to a read", "it has other entries than those that were asked for")
        return batch


def _detail(answer: version_2.Answer) -> str:
    return f"code {answer.code}" if answer.status is Status.UNKNOWN else ""


def _confirmed(response: pb.Response) -> LastAddConfirmedReply:
    status = version_3.status_of(response.status)
    is_known = status is Status.OK and response.readResponse.HasField("maxLAC")
    return LastAddConfirmedReply(status, response.readResponse.maxLAC if is_known else NO_ENTRY)
