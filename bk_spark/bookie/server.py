"""A bookie's server: gRPC in front, the sync thread behind, the registration beside.

Threads: one event loop for all connections, whose number therefore costs nothing; **one** sync thread, which alone
stages, syncs and checkpoints; a few read threads; one thread for what must never wait behind reads (reads of the last
add confirmed, descriptions). benchmarks/server_threading.py is the measurement behind this choice: a synchronous server
gives every open stream two threads for life, and with all of them taken answers nothing.

An add travels: loop (check the message) → sync thread (stage; one sync for all that waits) → loop (reply). Above
``sync_queue_bytes`` of adds that are not durable yet the loop stops reading from its connections, which stops the senders.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from bk_spark.bookie.bookie import Bookie
from bk_spark.config import BookieConfig
from bk_spark.errors import BookKeeperError, FormatVersionError
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieServicer, add_BookieServicer_to_server
from bk_spark.wire import (
    KEEPALIVE_MS,
    MAX_MESSAGE_BYTES,
    AddReply,
    AddRequest,
    LastAddConfirmedReply,
    ReadBatch,
    ReadEnd,
    Status,
    decode_add_request,
    decode_describe_request,
    decode_last_add_confirmed_request,
    decode_read_request,
    encode_add_reply,
    encode_description,
    encode_last_add_confirmed_reply,
    encode_read_reply,
)

IDLE_S = 0.2
"""Without an add for this long the bookie marks its files as quiet, so that a later restart knows what was durable."""

MAX_STAGED = 1024
"""Adds of one group commit: bounds the time to the first reply when the queue never runs empty."""

MAX_OWED = 4096
"""Replies that one stream may owe; clients of this package have a few hundred adds under way at most."""

STOP_GRACE_S = 1.0
"""How long calls under way may take to end when the bookie stops."""

log = logging.getLogger(__name__)


class _AddStream:
    """The replies that are owed to one client's add stream. Lives on the event loop."""

    def __init__(self) -> None:
        self._replies: asyncio.Queue[AddReply] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def put(self, reply: AddReply) -> None:
        self._replies.put_nowait(reply)
        if self._replies.qsize() >= MAX_OWED:
            self._has_room.clear()

    async def get(self) -> AddReply:
        reply = await self._replies.get()
        if self._replies.qsize() < MAX_OWED:
            self._has_room.set()
        return reply

    async def wait_for_room(self) -> None:
        """A client that does not read its replies is not listened to."""
        await self._has_room.wait()


@dataclass(frozen=True, slots=True)
class _ReplyTo:
    stream: _AddStream
    nbytes: int


class _SyncThread:
    """Stages and syncs, in groups: while one sync runs, the adds of the next one gather."""

    def __init__(self, bookie: Bookie, loop: asyncio.AbstractEventLoop, server: BookieServer) -> None:
        self._bookie = bookie
        self._loop = loop
        self._server = server
        self._queue: queue.SimpleQueue[tuple[AddRequest, _ReplyTo] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sync")

    def start(self) -> None:
        self._thread.start()

    def put(self, request: AddRequest, reply_to: _ReplyTo) -> None:
        self._queue.put((request, reply_to))

    def stop(self) -> None:
        """Sync what was queued, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as problem:
            log.exception("the sync thread failed")
            self._loop.call_soon_threadsafe(self._server.fail, problem)

    def _serve(self) -> None:
        running = True
        while running:
            try:
                item = self._queue.get(timeout=IDLE_S)
            except queue.Empty:
                self._bookie.idle()
                continue
            running = self._stage_group(item)
            replies = self._bookie.sync()
            self._loop.call_soon_threadsafe(self._server.reply_all, replies)

    def _stage_group(self, item: tuple[AddRequest, _ReplyTo] | None) -> bool:
        """Stage ``item`` and all that waits behind it; False if the end came up."""
        for _ in range(MAX_STAGED):
            if item is None:
                return False
            self._bookie.stage(*item)
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return True
        if item is not None:
            self._bookie.stage(*item)
        return item is not None


class BookieServer(BookieServicer):  # type: ignore[misc]
    """Serves one bookie on one port."""

    def __init__(self, bookie: Bookie, config: BookieConfig, *, host: str, port: int) -> None:
        """``port`` 0 takes a free one. Must be made on the event loop that it runs on."""
        self._bookie = bookie
        self._config = config
        self._address = f"{host}:{port}"
        self._loop = asyncio.get_running_loop()
        self._sync = _SyncThread(bookie, self._loop, self)
        self._readers = ThreadPoolExecutor(config.read_threads, thread_name_prefix="read")
        self._reserved = ThreadPoolExecutor(1, thread_name_prefix="reserved")
        self._queued_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
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
        await self._server.stop(STOP_GRACE_S)
        await self._loop.run_in_executor(self._reserved, self._sync.stop)
        self._readers.shutdown()
        self._reserved.shutdown()

    def fail(self, problem: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(problem)

    def request_stop(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def reply_all(self, replies: list[tuple[object, AddReply]]) -> None:
        """Give the replies of one sync to their streams."""
        for reply_to, reply in replies:
            assert isinstance(reply_to, _ReplyTo)
            self._queued_bytes -= reply_to.nbytes
            reply_to.stream.put(reply)
        if self._queued_bytes <= self._config.sync_queue_bytes:
            self._room.set()

    # --- the service

    async def Add(self, requests: AsyncIterator[pb.AddRequest], context: Any) -> None:
        stream = _AddStream()
        writer = self._loop.create_task(_write_replies(stream, context))
        try:
            async for message in requests:
                await self._room.wait()
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
        replies = self._bookie.read(request)
        while True:
            encoded = await self._loop.run_in_executor(self._readers, _next_encoded, replies)
            if encoded is None:
                return
            yield encoded

    async def ReadLastAddConfirmed(self, message: pb.ReadLastAddConfirmedRequest, context: Any) -> Any:
        try:
            request = decode_last_add_confirmed_request(message)
        except BookKeeperError as problem:
            return encode_last_add_confirmed_reply(LastAddConfirmedReply(_refusal(problem), -1, str(problem)))
        reply = await self._loop.run_in_executor(self._reserved, self._bookie.read_last_add_confirmed, request)
        return encode_last_add_confirmed_reply(reply)

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
        nbytes = len(request.batch.body)
        self._queued_bytes += nbytes
        if self._queued_bytes > self._config.sync_queue_bytes:
            self._room.clear()
        self._sync.put(request, _ReplyTo(stream, nbytes))


async def _write_replies(stream: _AddStream, context: Any) -> None:
    """Send a stream's replies until it ends."""
    while True:
        await context.write(encode_add_reply(await stream.get()))


def _next_encoded(replies: Iterator[ReadBatch | ReadEnd]) -> pb.ReadReply | None:
    reply = next(replies, None)
    return None if reply is None else encode_read_reply(reply)


def _refusal(problem: BookKeeperError) -> Status:
    return Status.UNSUPPORTED_VERSION if isinstance(problem, FormatVersionError) else Status.BAD_REQUEST
