"""Connections to bookies: one channel and one add stream for each bookie, shared by all state machines of a client.

All of this runs on the process's one background event loop (``event_loop.py``). When a stream breaks, everything that waits
on it is answered with UNKNOWN; the next send opens a new stream.

Another bookie may answer where this one was: a port was given out anew, or the registration of a dead bookie has not ended yet.
WRONG_BOOKIE says so, and nothing was done. Then the address is looked up anew, at most every LOOK_AGAIN_S. If the bookie has
moved, a read or a single request is sent once more, there; an add stream ends, and the next one goes there.

Ref: docs/rules.md, protocol rule 67.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import Enum
from typing import Any

import grpc
import grpc.aio

from bk_spark.client.driver.answer_check import ReadAnswer
from bk_spark.client.driver.apache.connecting import open_framed
from bk_spark.client.driver.channels import Channels, bookie_stub
from bk_spark.client.driver.framed_adds import AddConnection, FramedAdds
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.config import KIB
from bk_spark.entries.apache_entries import own_batches
from bk_spark.errors import BookKeeperError, MetadataUnavailableError
from bk_spark.host_port import HostPort
from bk_spark.metadata.registration import BookieAddress
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.tls.diagnosis import SPEAKS_NO_TLS, SPEAKS_TLS
from bk_spark.tls.files import TlsContent
from bk_spark.wire import codec
from bk_spark.wire.messages import (
    AddReply,
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

CLOSE_GRACE_S = 1.0
"""How long adds of a closed ledger may still take to reach the bookies that were not needed to confirm them. It bounds how much
this client holds for a bookie that stands still: the windows of the writers that closed within this time."""

MOST_READS = 16
"""Reads under way at one bookie; further ones wait here. This many keep a bookie busy. Of a thousand at once all were answered
at the same time in the end, each after its reader had given up. Reads that fence are not counted and do not wait: a recovery
has one of them under way at a bookie, and bookies reserve capacity for them."""

MOST_WAITING_S = 60.0
"""How long a read waits here: twelve times as long as a reader waits for a bookie by default. Then another bookie is better."""

LOOK_AGAIN_S = 0.5
"""While another bookie answers at its address, a bookie is looked up at most twice a second, whatever is sent to it."""

_DRAIN_LOOK_S = 0.005
"""Between two looks whether all is sent. A close takes this much longer at most."""

SMALL_BYTES = 64 * KIB
"""Adds with bodies below this size go as frames, larger ones over gRPC, which moves them with less of Python's time."""

CONNECTED = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.CONNECTING)

Lookup = Callable[[str], Awaitable[BookieAddress | None]]
"""Asks the metadata store where a bookie is."""


class ReadProgress(Enum):
    """Reported before the answer if a read has to wait for others."""

    WAITS = "waits"
    SENT = "sent"


class ReadNotSentError(ConnectionError):
    """The read waited too long for others. Its bookie was not asked, so this says nothing about the bookie."""


async def begin_read(places: asyncio.Semaphore) -> None:
    """Take one of a bookie's MOST_READS places. Does not switch tasks if one is free. Raises ReadNotSentError."""
    try:
        async with asyncio.timeout(MOST_WAITING_S):
            await places.acquire()
    except TimeoutError:
        waited = f"for {MOST_WAITING_S:g} s {MOST_READS} other reads were under way there"
        raise ReadNotSentError(waited) from None


async def drained(is_empty: Callable[[], bool]) -> None:
    """Wait until nothing is left to send or to be answered, up to CLOSE_GRACE_S."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + CLOSE_GRACE_S
    while not is_empty() and loop.time() < deadline_s:
        await asyncio.sleep(_DRAIN_LOOK_S)


class BookieConnection:
    """One bookie as a client sees it."""

    def __init__(self, bookie_id: str, lookup: Lookup, channels: Channels, address: BookieAddress) -> None:
        """``address`` is where the bookie was found."""
        self.bookie_id = bookie_id
        self._lookup = lookup
        self._channels = channels
        self._closed = False
        self._channel: grpc.aio.Channel | None = None
        self._content: TlsContent | None = None
        self._address: BookieAddress | None = None
        """The one that was registered when it was last looked up."""
        self._channel_address: BookieAddress | None = None
        self._connecting = asyncio.Lock()
        self._may_have_moved = False
        """Whether another bookie gave the last answer: this one may be registered at another address by now."""
        self._looked_s = -LOOK_AGAIN_S
        self._outgoing: asyncio.Queue[QueuedAdd] = asyncio.Queue()
        """It has no bound of its own: each writer's window bounds what it puts here, and what it gives up is taken out."""
        self._waiting: dict[int, QueuedAdd] = {}
        self._next_request = 0
        self._sender: asyncio.Task[None] | None = None
        self._reads = asyncio.Semaphore(MOST_READS)
        self._takes_frames = self._may_send_frames(address)
        self._small = FramedAdds(self._open_for_small_adds, self._expect_another_address)

    def enqueue(self, queued: QueuedAdd) -> None:
        """Send an add; its ``on_reply`` is called exactly once, later. Small ones go as frames, large ones over gRPC.

        The queues hold no more bytes than the windows of the client's writers, because they cancel what they give up.
        """
        if self._takes_frames and (queued.request is None or len(queued.request.batch.body) < SMALL_BYTES):
            self._small.enqueue(queued)
            return
        self._outgoing.put_nowait(queued)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._run_adds())

    async def read(self, request: ReadRequest) -> AsyncIterator[ReadProgress | ReadBatch | ReadEnd]:
        """The bookie's answer; if the read waits for others, WAITS and SENT come first.

        Raises BookKeeperError for a malformed answer, AioRpcError if the connection breaks, and ConnectionError, whose subclass
        ReadNotSentError means that the read waited for too long.
        """
        if request.fence:
            async for part in self._answered(request):
                yield part
            return
        waits = self._reads.locked()
        if waits:
            yield ReadProgress.WAITS
        await begin_read(self._reads)
        try:
            if waits:
                yield ReadProgress.SENT
            async for part in self._answered(request):
                yield part
        finally:
            self._reads.release()

    async def _answered(self, request: ReadRequest) -> AsyncIterator[ReadBatch | ReadEnd]:
        async with self._explained():
            channel = await self._connected()
            async for reply in _replies(channel, request):
                if isinstance(reply, ReadEnd) and await self._has_moved(channel, reply.status is Status.WRONG_BOOKIE):
                    async for again in _replies(await self._connected(), request):
                        yield again
                    return
                yield reply

    async def last_add_confirmed(self, request: LastAddConfirmedRequest, timeout_s: float) -> LastAddConfirmedReply:
        message = codec.encode_last_add_confirmed_request(request)
        return codec.decode_last_add_confirmed_reply(await self._call("ReadLastAddConfirmed", message, timeout_s))

    async def store_last_add_confirmed(self, request: StoreLastAddConfirmedRequest, timeout_s: float) -> PlainReply:
        message = codec.encode_store_last_add_confirmed_request(request)
        return codec.decode_store_last_add_confirmed_reply(await self._call("StoreLastAddConfirmed", message, timeout_s))

    async def force(self, request: ForceRequest, timeout_s: float) -> PlainReply:
        return codec.decode_force_reply(await self._call("Force", codec.encode_force_request(request), timeout_s))

    async def describe(self, timeout_s: float) -> BookieDescription:
        message = codec.encode_describe_request(self.bookie_id)
        return codec.decode_description(await self._call("Describe", message, timeout_s))

    async def administer(self, operation: AdminOperation, timeout_s: float, ledger_ids: Sequence[int] = ()) -> AdministerReply:
        message = codec.encode_administer_request(self.bookie_id, operation, ledger_ids)
        return codec.decode_administer_reply(await self._call("Administer", message, timeout_s))

    async def _call(self, method: str, message: object, timeout_s: float) -> Any:
        async with self._explained():
            channel = await self._connected()
            reply = await getattr(bookie_stub(channel), method)(message, timeout=timeout_s)
            if await self._has_moved(channel, reply.status == pb.WRONG_BOOKIE):
                reply = await getattr(bookie_stub(await self._connected()), method)(message, timeout=timeout_s)
            return reply

    async def close(self) -> None:
        """Wait up to CLOSE_GRACE_S for the remaining adds of closed ledgers, then disconnect."""
        await drained(lambda: not self._waiting and self._outgoing.empty() and not self._small)
        self._closed = True
        await self._small.close("the client was closed")
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        self._answer_all("the client was closed")
        await self._disconnect()

    async def _connected(self) -> grpc.aio.Channel:
        """A channel to the bookie's registered address, looked up again if the channel is not connected, or in doubt."""
        async with self._connecting:
            if self._closed:
                raise ConnectionError("the client was closed")
            may_look = self._may_have_moved and asyncio.get_running_loop().time() >= self._looked_s + LOOK_AGAIN_S
            if self._channel is None or self._channel.get_state() not in CONNECTED or may_look:
                await self._reconnect()
            assert self._channel is not None
            return self._channel

    async def _has_moved(self, channel: grpc.aio.Channel, is_wrong: bool) -> bool:
        """Take in whether another bookie answered over ``channel``. Whether the one that is meant has another address now."""
        self._may_have_moved = is_wrong
        return is_wrong and await self._connected() is not channel

    async def _reconnect(self) -> None:
        """Open a new channel if the bookie moved, the channel failed, or TLS files changed. An idle one connects by itself."""
        self._looked_s = asyncio.get_running_loop().time()
        address = await self._current_address()
        content = self._channels.content()
        failed = self._channel is not None and self._channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
        if self._channel is not None and (failed or address != self._channel_address or content is not self._content):
            await self._disconnect()
        if self._channel is None:
            self._channel, self._channel_address = self._channels.open(address, content), address
            self._content, self._may_have_moved = content, False
            self._use(address)

    async def _open_for_small_adds(self) -> AddConnection:
        if self._closed:
            raise ConnectionError("the client was closed")
        loop = asyncio.get_running_loop()
        if self._may_have_moved:
            await asyncio.sleep(self._looked_s + LOOK_AGAIN_S - loop.time())
        self._looked_s = loop.time()
        address = await self._current_address()
        self._use(address)
        if address.apache is None or not self._takes_frames:
            raise ConnectionError("it has no port for small adds any more")
        access = self._channels.access
        if address.apache.has_tls != (access.contexts is not None):
            problem = SPEAKS_TLS if access.contexts is None else SPEAKS_NO_TLS
            raise ConnectionError(f"the bookie at {HostPort(address.host, address.apache.port)} {problem}")
        access = access if address.apache.asks_sasl else access.without_login()
        connection = await open_framed(replace(address, port=address.apache.port), access, AddConnection())
        self._may_have_moved = False
        return connection

    def _expect_another_address(self) -> None:
        """Another bookie answered a small add: before the next connection the address is looked up, after a pause."""
        self._may_have_moved = True

    def _use(self, address: BookieAddress) -> None:
        self._address, self._takes_frames = address, self._may_send_frames(address)

    def _may_send_frames(self, address: BookieAddress) -> bool:
        """Whether there is a port for small adds that serves this client. Otherwise all go over gRPC."""
        can_log_in = self._channels.access.credential is not None
        is_clear = self._channels.access.contexts is None and address.clear_port is not None
        return address.apache is not None and not is_clear and (can_log_in or not address.apache.asks_sasl)

    async def _current_address(self) -> BookieAddress:
        """The registered address; while the metadata store does not answer the last one, as requests name their bookie."""
        try:
            address = await self._lookup(self.bookie_id)
        except MetadataUnavailableError:
            if self._address is None:
                raise
            return self._address
        if address is None:
            raise ConnectionError("it is not registered as available")
        return address

    @asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """If TLS made the call fail, raise a ConnectionError that says what is wrong with it."""
        try:
            yield
        except grpc.aio.AioRpcError as failure:
            reason = await self._channels.explain(_details(failure), self._address)
            if reason is None:
                raise
            raise ConnectionError(reason) from failure

    async def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    # --- the add stream

    async def _run_adds(self) -> None:
        while not self._outgoing.empty():
            self._answer_all(await self._run_stream())

    async def _run_stream(self) -> str:
        """Send the queue over one stream until it breaks; returns the reason."""
        failure: BaseException | None
        try:
            failure = await self._pump(bookie_stub(await self._connected()).Add())
        except (grpc.aio.AioRpcError, BookKeeperError, OSError) as problem:
            failure = problem
        return await self._channels.explain(_details(failure), self._address) or describe_failure(failure)

    async def _pump(self, call: Any) -> BaseException | None:
        """Send and receive side by side until one of them ends."""
        loop = asyncio.get_running_loop()
        tasks = (loop.create_task(self._receive(call)), loop.create_task(self._send(call)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return next((task.exception() for task in done if not task.cancelled()), ConnectionError("the stream ended"))

    async def _send(self, call: Any) -> None:
        while True:
            queued = await self._outgoing.get()
            self._next_request += 1
            self._waiting[self._next_request] = queued
            if queued.request is None:
                self._waiting.pop(self._next_request).on_reply(AddReply(queued.request_id, Status.UNKNOWN, "it was cancelled"))
                continue
            data = codec.pack_add_request(queued.request, self._next_request)
            queued.request = None
            await call.write(data)

    async def _receive(self, call: Any) -> None:
        while True:
            message = await call.read()
            if message is grpc.aio.EOF:
                raise ConnectionError(f"the bookie ended the stream: {await call.details()}")
            reply = codec.decode_add_reply(message)
            queued = self._waiting.pop(reply.request_id, None)
            if queued is not None:
                queued.on_reply(AddReply(queued.request_id, reply.status, reply.detail, reply.boot))
            self._may_have_moved = reply.status is Status.WRONG_BOOKIE
            if self._may_have_moved:
                raise ConnectionError("another bookie answers at its address")

    def _answer_all(self, problem: str) -> None:
        waiting, self._waiting = list(self._waiting.values()), {}
        while not self._outgoing.empty():
            waiting.append(self._outgoing.get_nowait())
        for queued in waiting:
            queued.on_reply(AddReply(queued.request_id, Status.UNKNOWN, problem))


async def _replies(channel: grpc.aio.Channel, request: ReadRequest) -> AsyncIterator[ReadBatch | ReadEnd]:
    answer = ReadAnswer(request)
    async for data in _messages(bookie_stub(channel).Read(codec.encode_read_request(request))):
        reply = answer.checked(codec.decode_read_reply(data))
        if isinstance(reply, ReadEnd):
            yield reply
        else:
            for batch in own_batches(reply.batch, request.digest_type):
                yield ReadBatch(batch)


async def _messages(call: Any) -> AsyncIterator[Any]:
    """The messages that a call streams. The call ends with this iterator, wherever its consumer stops.

    A read of gRPC's is never cancelled, only its call: gRPC does not free a message that comes for a cancelled read. Nor does
    it free, while the channel lives, what has come for a call that was let go without being cancelled.
    """
    try:
        while (message := await asyncio.shield(asyncio.ensure_future(call.read()))) is not grpc.aio.EOF:
            yield message
    finally:
        call.cancel()


def _details(failure: BaseException | None) -> str:
    """Everything that a failed call says."""
    return failure.details() or "" if isinstance(failure, grpc.aio.AioRpcError) else str(failure)


def describe_failure(failure: BaseException | None) -> str:
    """A failed call in a few words."""
    if isinstance(failure, grpc.aio.AioRpcError):
        code = failure.code().name.lower().replace("_", " ")
        details = (failure.details() or "").split(";")[0][:200]
        return code if details.lower() in ("", code) else f"{code}: {details}"
    return str(failure)
