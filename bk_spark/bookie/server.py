"""A bookie's server: gRPC in front, the sync thread behind, the registration beside.

Threads: one event loop for all connections, whose number therefore costs nothing; **one** sync thread, which alone
stages, syncs and checkpoints; a few read threads; one for the reads of recoveries and one for what is short (reads of the
last add confirmed, descriptions), neither of which may wait behind other reads. benchmarks/server_threading.py is the
measurement behind this choice: a synchronous server gives every open stream two threads for life, and with all of them taken
answers nothing.

An add travels: loop (check the message) → sync thread (stage; one sync for all that waits) → loop (reply). A read that fences
travels the same way first, as a fence, and is read once that is durable.

Ref: docs/rules.md, protocol rules 34 and 35.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.long_poll import LongPolls
from bk_spark.bookie.sync_thread import SyncListener, SyncThread
from bk_spark.config import BookieConfig
from bk_spark.entry import NO_ENTRY
from bk_spark.errors import BookKeeperError, FormatVersionError
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieServicer, add_BookieServicer_to_server
from bk_spark.wire import (
    KEEPALIVE_MS,
    MAX_MESSAGE_BYTES,
    AddReply,
    FenceRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    PlainReply,
    ReadBatch,
    ReadEnd,
    ReadRequest,
    StagedReply,
    StagedRequest,
    Status,
)
from bk_spark.wire_codec import (
    decode_add_request,
    decode_describe_request,
    decode_force_request,
    decode_last_add_confirmed_request,
    decode_read_request,
    decode_store_last_add_confirmed_request,
    encode_add_reply,
    encode_description,
    encode_force_reply,
    encode_last_add_confirmed_reply,
    encode_read_reply,
    encode_store_last_add_confirmed_reply,
)

MAX_OWED = 4096
"""Replies that one stream may owe; clients of this package have a few hundred adds under way at most."""

STOP_GRACE_S = 1.0
"""How long calls under way may take to end when the bookie stops."""


class _AddStream:
    """The replies that are owed to one client's add stream. Lives on the event loop."""

    def __init__(self) -> None:
        self._replies: asyncio.Queue[StagedReply] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def put(self, reply: StagedReply) -> None:
        self._replies.put_nowait(reply)
        if self._replies.qsize() >= MAX_OWED:
            self._has_room.clear()

    async def get(self) -> AddReply:
        reply = await self._replies.get()
        assert isinstance(reply, AddReply)
        if self._replies.qsize() < MAX_OWED:
            self._has_room.set()
        return reply

    async def wait_for_room(self) -> None:
        """A client that does not read its replies is not listened to."""
        await self._has_room.wait()


class BookieServer(BookieServicer):  # type: ignore[misc]
    """Serves one bookie on one port."""

    def __init__(self, bookie: Bookie, config: BookieConfig, *, host: str, port: int) -> None:
        """``port`` 0 takes a free one. Must be made on the event loop that it runs on."""
        self._bookie = bookie
        self._address = f"{host}:{port}"
        self._loop = asyncio.get_running_loop()
        self._polls = LongPolls()
        self._sync = SyncThread(bookie, config.sync_queue_bytes, SyncListener(self._polls.wake, self._fail))
        self._readers = ThreadPoolExecutor(config.read_threads, thread_name_prefix="read")
        self._recoveries = ThreadPoolExecutor(1, thread_name_prefix="recovery")
        self._reserved = ThreadPoolExecutor(1, thread_name_prefix="reserved")
        self._server: Any = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when the bookie is to stop: asked to, or, with an exception, because nothing can be made durable any more."""

    async def start(self) -> int:
        """Serve; gives back the port."""
        self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
            )
        )
        add_BookieServicer_to_server(self, self._server)
        port: int = self._server.add_insecure_port(self._address)
        await self._server.start()
        self._sync.start()
        return port

    async def stop(self) -> None:
        """Stop serving, then make durable what was received."""
        self._polls.end()
        await self._server.stop(STOP_GRACE_S)
        await self._loop.run_in_executor(self._reserved, self._sync.stop)
        for pool in (self._readers, self._recoveries, self._reserved):
            pool.shutdown()

    def request_stop(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    # --- the service

    async def Add(self, requests: AsyncIterator[pb.AddRequest], context: Any) -> None:
        stream = _AddStream()
        writer = self._loop.create_task(_write_replies(stream, context))
        try:
            async for message in requests:
                await self._sync.wait_for_room()
                await stream.wait_for_room()
                self._receive(message, stream)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def Read(self, message: pb.ReadRequest, context: Any) -> AsyncIterator[pb.ReadReply]:
        try:
            request = decode_read_request(message)
        except BookKeeperError as problem:
            yield encode_read_reply(ReadEnd(_refusal(problem), message.first_entry_id, str(problem)))
            return
        refused = await self._fence(request)
        if refused is not None:
            yield encode_read_reply(ReadEnd(refused.status, request.first, refused.detail))
            return
        replies = self._bookie.read(request)
        pool = self._recoveries if request.fence else self._readers
        while True:
            encoded = await self._loop.run_in_executor(pool, _next_encoded, replies)
            if encoded is None:
                return
            yield encoded

    async def ReadLastAddConfirmed(self, message: pb.ReadLastAddConfirmedRequest, context: Any) -> Any:
        try:
            request = decode_last_add_confirmed_request(message)
        except BookKeeperError as problem:
            return encode_last_add_confirmed_reply(LastAddConfirmedReply(_refusal(problem), NO_ENTRY, str(problem)))
        refused = await self._fence(request)
        if refused is not None:
            return encode_last_add_confirmed_reply(LastAddConfirmedReply(refused.status, NO_ENTRY, refused.detail))
        return encode_last_add_confirmed_reply(await self._polls.answer(request, lambda: self._last_add_confirmed(request)))

    async def StoreLastAddConfirmed(self, message: pb.StoreLastAddConfirmedRequest, context: Any) -> Any:
        try:
            request = decode_store_last_add_confirmed_request(message)
        except BookKeeperError as problem:
            return encode_store_last_add_confirmed_reply(PlainReply(_refusal(problem), str(problem)))
        return encode_store_last_add_confirmed_reply(await self._make_durable(request))

    async def Force(self, message: pb.ForceRequest, context: Any) -> Any:
        try:
            request = decode_force_request(message)
        except BookKeeperError as problem:
            return encode_force_reply(PlainReply(_refusal(problem), str(problem)))
        return encode_force_reply(await self._make_durable(request))

    async def Describe(self, message: pb.DescribeRequest, context: Any) -> pb.DescribeReply:
        try:
            wanted = decode_describe_request(message)
        except BookKeeperError as problem:
            return pb.DescribeReply(status=_refusal(problem).value)
        description = await self._loop.run_in_executor(self._reserved, self._bookie.describe)
        if wanted not in ("", description.bookie_id):
            return pb.DescribeReply(status=pb.WRONG_BOOKIE, bookie_id=description.bookie_id)
        return encode_description(description)

    def _receive(self, message: pb.AddRequest, stream: _AddStream) -> None:
        try:
            request = decode_add_request(message)
        except BookKeeperError as problem:
            stream.put(AddReply(message.request_id, _refusal(problem), str(problem)))
            return
        self._sync.put(request, stream.put)

    async def _fence(self, request: ReadRequest | LastAddConfirmedRequest) -> PlainReply | None:
        """Fence the ledger of a read that asks for it, durably. Gives back the reply to a fence that was not taken."""
        if not request.fence:
            return None
        reply = await self._make_durable(FenceRequest(request.bookie_id, request.ledger_id, request.master_key))
        return None if reply.status is Status.OK else reply

    async def _make_durable(self, request: StagedRequest) -> PlainReply:
        await self._sync.wait_for_room()
        answer: asyncio.Future[StagedReply] = self._loop.create_future()
        self._sync.put(request, lambda reply: None if answer.done() else answer.set_result(reply))
        reply = await answer
        assert isinstance(reply, PlainReply)
        return reply

    async def _last_add_confirmed(self, request: LastAddConfirmedRequest) -> LastAddConfirmedReply:
        return await self._loop.run_in_executor(self._reserved, self._bookie.read_last_add_confirmed, request)

    def _fail(self, problem: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(problem)


async def _write_replies(stream: _AddStream, context: Any) -> None:
    """Send a stream's replies until it ends."""
    while True:
        await context.write(encode_add_reply(await stream.get()))


def _next_encoded(replies: Iterator[ReadBatch | ReadEnd]) -> pb.ReadReply | None:
    reply = next(replies, None)
    return None if reply is None else encode_read_reply(reply)


def _refusal(problem: BookKeeperError) -> Status:
    return Status.UNSUPPORTED_VERSION if isinstance(problem, FormatVersionError) else Status.BAD_REQUEST
