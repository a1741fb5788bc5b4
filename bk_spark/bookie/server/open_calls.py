"""The calls that are open at a bookie, and which of them end when they take too much.

gRPC gathers a message until it is whole, and holds a reply until it is taken: up to 17 MiB for each call, which no handler
sees. Clients that stop in the middle of either could so take all memory, with a few bytes a minute. What is looked at here:

- **calls** open, of all connections: above MAX_CALLS a new one takes the place of one that waits for its client, or is refused;
- **replies** of reads that were not taken yet: above ``REPLY_BYTES`` the next ones wait, above twice that also those of clients
  that have taken all of theirs; and the connections are closed that stand still, longest first: on a line that is full all
  replies take long, and none of them stands still;
- **adds in hand**: whole, and without a place in the sync queue. Above ``waiting_add_bytes`` large ones are refused;
- **resident memory**: above ``memory_limit_bytes`` the calls that have waited longest for their clients end, some at a time.
  This is what catches messages that never become whole.

A call waits for its client while its request has not come, or its reply was not taken; never while it waits for a disk, for its
turn or for news of a ledger, nor, as an add stream, while it owes a reply. Time in which this process itself stood still is
nobody's fault. So a client that keeps on is not among those that end, as long as one is there that does not. What ends is an
idle stream at worst: nothing is under way on it, and its client opens another.

Lives on the event loop. ``grpc`` is here beside server.py: calls are seen whole only by an interceptor.

Ref: docs/guide/limits.md; docs/rules.md, protocol rules 34 and 41.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from bk_spark.bookie.server.disconnect import acknowledged_bytes, disconnect
from bk_spark.config import KIB, MIB, BookieConfig
from bk_spark.errors import CorruptionError
from bk_spark.process_memory import give_back, resident_bytes
from bk_spark.wire.codec import unpack_add_request

MAX_CALLS = 16_384
"""Each takes some tens of KiB of gRPC and Python."""

REPLY_BYTES = 64 * MIB
"""Replies that were made and not taken: what 10 Gbit/s have under way in 50 ms. Each stands in memory up to three times."""

USUAL_ADD_BYTES = MIB + 64 * KIB
"""Adds up to this size, which is that of a client's batches, are never refused for want of memory: they wait."""

STALLED_S = 1.0
"""A client that has taken or sent nothing for so long may lose its call to others. A live one moves every few milliseconds."""

LEAST_BYTES = 16 * 1024
"""A connection whose client acknowledges fewer in half of STALLED_S stands still. A full line of 10 Gbit/s gives as many to
each of 38,000 clients, one of 100 Mbit/s to 380."""

REQUEST_TIMEOUT_S = 30.0
"""For a request that is a single message to come whole, and for a reply to be taken; on a slow line 17 MiB take 20 s."""

LOOK_S = 0.1
"""Between two looks at the memory; on one core clients send some 100 MB in that time."""

ENDED_SHARE = 0.25
"""Of the calls that wait for their clients, or of the replies: what goes at once, where there are too many."""

WOKEN = 8
"""Reads that look for room when a reply was taken, and at each look."""

TELL_S = 10.0
"""Between two lines in the log: clients must not fill it either."""

logger = logging.getLogger(__name__)

_Handle = Callable[[Any, Any], Any]
_Encode = Callable[[Any], bytes]


@dataclass(slots=True, eq=False)
class _Call:
    task: asyncio.Task[Any]
    is_stream: bool
    """An add stream, which may be idle for days."""
    waits_since: float | None
    """When it began to wait for its client; None while its client waits for the bookie."""
    request_bytes: int = 0
    """Of its last request. To ask a message for its size would encode it once more."""
    owed: int = 0
    """Replies to adds that its client waits for."""
    reply_bytes: int = 0
    """Of the reply that its client has not taken."""
    added_bytes: int = 0
    """Of the add that is in hand."""
    peer: str = ""
    """Its connection, as gRPC names it."""
    is_ended: bool = False


class OpenCalls(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Watches all calls of one server. Made on its event loop; ``watch`` runs beside."""

    def __init__(self, config: BookieConfig) -> None:
        self._memory_limit = config.memory_limit_bytes
        self._waiting_add_bytes = config.waiting_add_bytes
        self._loop = asyncio.get_running_loop()
        self._calls: dict[asyncio.Task[Any], _Call] = {}
        self._reply_bytes = 0
        self._untaken: Counter[str] = Counter()
        self._added_bytes = 0
        self._waiting_to_reply: deque[asyncio.Future[None]] = deque()
        self._stood_s = 0.0
        self._acknowledged: dict[str, int] = {}
        self._measured_s = 0.0
        self._told_s = -TELL_S
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_of_note)

    @property
    def count(self) -> int:
        return len(self._calls)

    @property
    def reply_bytes(self) -> int:
        """Bytes of replies that were not taken yet."""
        return self._reply_bytes

    def is_crowded(self, nbytes: int) -> bool:
        """Whether an add of this size, which is in hand already, is one too many."""
        return nbytes > USUAL_ADD_BYTES and self._added_bytes > self._waiting_add_bytes

    def may_reply(self, peer: str) -> bool:
        """Whether a read of this connection may make its next reply. One that has taken all so far need not wait for others."""
        bound = REPLY_BYTES if self._untaken[peer] else 2 * REPLY_BYTES
        return self._reply_bytes <= bound

    async def wait_to_reply(self, peer: str) -> None:
        while not self.may_reply(peer):
            waiting = self._loop.create_future()
            self._waiting_to_reply.append(waiting)
            await waiting

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Each call passes here before anything of its request is read."""
        handler = await continuation(details)
        task = asyncio.current_task()
        if handler is None or task is None:
            return handler
        if len(self._calls) >= MAX_CALLS:
            stalled = self._stalled(STALLED_S)[:1]
            if not stalled:
                return grpc.stream_stream_rpc_method_handler(_refuse)
            await self._end(stalled)
        call = self._calls[task] = _Call(task, handler.request_streaming, self.now_s())
        task.add_done_callback(self._forget)
        return self._watched(handler, call)

    async def watch(self) -> None:
        """Look after memory, and after calls that stand still, until cancelled."""
        while True:
            began_s = self._loop.time()
            await asyncio.sleep(LOOK_S)
            self._stood_s += max(0.0, self._loop.time() - began_s - 2 * LOOK_S)
            try:
                await self._look()
            except OSError as problem:  # such as no file left to look with
                self._tell(f"the calls that are open could not be looked after: {problem}")

    async def _look(self) -> None:
        self._wake()
        await self._end_late()
        await self._end_untaken()
        if resident_bytes() > self._memory_limit:
            await self._relieve()

    def now_s(self) -> float:
        """The loop's time without that in which it took no turns."""
        return self._loop.time() - self._stood_s

    # --- one call

    def _watched(self, handler: Any, call: _Call) -> Any:
        """The same handler, which says what it waits for.

        To the wire each kind of call is a stream both ways. So is it here, for only what is read by hand can be given up.
        """

        def decode(request: bytes) -> Any:
            call.request_bytes = len(request)
            return deserialize(request)

        deserialize = unpack_add_request if handler.request_streaming else handler.request_deserializer
        encode = handler.response_serializer
        if handler.request_streaming:
            serve = self._adds(handler.stream_stream, call, encode)
        elif handler.response_streaming:
            serve = self._read(handler.unary_stream, call)
        else:
            serve = _question(handler.unary_unary, call, encode)
        return grpc.stream_stream_rpc_method_handler(_until_ended(serve, call), decode, None)

    def _adds(self, handle: _Handle, call: _Call, encode: _Encode) -> _Handle:
        async def messages(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
            async for message in requests:
                call.owed += 1
                if not replies.is_writing:
                    call.waits_since = None
                self._hold_add(call, call.request_bytes)
                yield message
                self._hold_add(call, 0)

        async def serve(requests: AsyncIterator[Any], context: Any) -> None:
            replies.context = context
            await handle(messages(requests), replies)

        replies = _AddReplies(self, call, encode)
        return serve

    def _read(self, handle: _Handle, call: _Call) -> _Handle:
        async def serve(requests: AsyncIterator[Any], context: Any) -> None:
            request = await anext(requests)
            call.waits_since = None
            async for encoded in handle(request, context):
                self._hold_reply(call, len(encoded))
                call.waits_since = self.now_s()
                await context.write(encoded)  # until its client has taken what came before, and gRPC this one
                call.waits_since = None
                self._hold_reply(call, 0)

        return serve

    def _hold_add(self, call: _Call, nbytes: int) -> None:
        self._added_bytes += nbytes - call.added_bytes
        call.added_bytes = nbytes

    def _hold_reply(self, call: _Call, nbytes: int) -> None:
        self._reply_bytes += nbytes - call.reply_bytes
        self._untaken[call.peer] += nbytes - call.reply_bytes
        if not self._untaken[call.peer]:
            del self._untaken[call.peer]
        if nbytes < call.reply_bytes:
            self._wake()
        call.reply_bytes = nbytes

    def _wake(self) -> None:
        """Have a few look again whether they may reply: all of them at once would take the event loop for themselves."""
        for _ in range(min(WOKEN, len(self._waiting_to_reply))):
            waiting = self._waiting_to_reply.popleft()
            if not waiting.done():
                waiting.set_result(None)

    # --- who ends

    def _stalled(self, least_s: float) -> list[_Call]:
        """The calls that have waited for their clients for ``least_s``, who has waited longest first."""
        latest = self.now_s() - least_s
        return sorted(
            (call for call in self._calls.values() if call.waits_since is not None and call.waits_since <= latest),
            key=lambda call: call.waits_since or 0.0,
        )

    async def _end(self, calls: Sequence[_Call]) -> None:
        """A reply that was not taken goes only with its whole connection; a request that is not whole goes with its call."""
        for call in calls:
            if not call.reply_bytes and not call.is_ended:
                call.is_ended = True
                call.task.cancel()
        peers = {call.peer for call in calls if call.reply_bytes}
        if peers:
            await self._loop.run_in_executor(None, disconnect, peers)

    async def _end_late(self) -> None:
        await self._end([call for call in self._stalled(REQUEST_TIMEOUT_S) if not call.is_stream])

    async def _end_untaken(self) -> None:
        """Make room for the replies of reads whose clients take them."""
        if self._reply_bytes <= REPLY_BYTES or self.now_s() < self._measured_s + STALLED_S / 2:
            return
        suspects = {call.peer for call in self._stalled(STALLED_S / 2) if call.reply_bytes}
        standing = await self._standing_still(suspects)
        wanted = self._reply_bytes - REPLY_BYTES * (1 - ENDED_SHARE)
        calls = []
        for call in self._stalled(STALLED_S):
            if call.reply_bytes and call.peer in standing and wanted > 0:
                calls.append(call)
                wanted -= call.reply_bytes
        if calls:
            self._tell(f"{self._reply_bytes} bytes of replies were not taken: {len(calls)} reads end, with their connections")
            await self._end(calls)

    async def _standing_still(self, peers: set[str]) -> set[str]:
        """Those that have acknowledged next to nothing since they were last measured; one that was not is not among them."""
        before = self._acknowledged
        self._measured_s = self.now_s()
        self._acknowledged = await self._loop.run_in_executor(None, acknowledged_bytes, peers)
        return {peer for peer, count in self._acknowledged.items() if count < before.get(peer, -LEAST_BYTES) + LEAST_BYTES}

    async def _relieve(self) -> None:
        """Memory is short: the calls that have waited longest go, whatever they hold, and it is given back."""
        waiting = self._stalled(LOOK_S)
        ended = waiting[: int(len(waiting) * ENDED_SHARE) + 1]
        await self._end(ended)
        await self._loop.run_in_executor(None, give_back)
        if ended:
            self._tell(f"memory is above memory_limit_bytes ({self._memory_limit}): {len(ended)} calls were ended")

    def _tell(self, problem: str) -> None:
        if self._loop.time() >= self._told_s + TELL_S:
            self._told_s = self._loop.time()
            logger.warning(problem)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        call = self._calls.pop(task, None)
        if call is not None:
            self._hold_add(call, 0)
            self._hold_reply(call, 0)


class _AddReplies:
    """Writes the replies of an add stream, one after the other. While one is not taken, the call waits for its client."""

    def __init__(self, calls: OpenCalls, call: _Call, encode: _Encode) -> None:
        self.context: Any = None
        self.is_writing = False
        self._calls = calls
        self._call = call
        self._encode = encode

    def is_crowded(self) -> bool:
        """Whether the add in hand is one too many."""
        return self._calls.is_crowded(self._call.added_bytes)

    async def write(self, reply: Any) -> None:
        call = self._call
        self.is_writing, call.waits_since = True, self._calls.now_s()
        await self.context.write(self._encode(reply))
        call.owed -= 1
        self.is_writing, call.waits_since = False, None if call.owed else self._calls.now_s()


def _is_of_note(record: logging.LogRecord) -> bool:
    """Not that a client went away in the middle of a reply: gRPC tells it with a traceback for each call."""
    return not (record.exc_info and record.exc_info[0] is not None and record.exc_info[0].__name__ == "ExecuteBatchError")


def _question(handle: _Handle, call: _Call, encode: _Encode) -> _Handle:
    async def serve(requests: AsyncIterator[Any], context: Any) -> None:
        request = await anext(requests)
        call.waits_since = None
        await context.write(encode(await handle(request, context)))

    return serve


def _until_ended(serve: _Handle, call: _Call) -> _Handle:
    """Which tells its client if the call is ended here."""

    async def watched(requests: AsyncIterator[Any], context: Any) -> None:
        call.peer = context.peer()
        try:
            await serve(requests, context)
        except asyncio.CancelledError:
            if not call.is_ended:
                raise
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "this bookie is busy: it ended a call that stood still")
        except StopAsyncIteration:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a request")
        except (DecodeError, CorruptionError) as problem:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"what came is no request: {problem}")

    return watched


async def _refuse(_: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"this bookie is busy: {MAX_CALLS} calls are open")
