"""Watches the open calls of a bookie, and ends some of them when clients make it hold too much.

gRPC buffers a request until it is complete, and a reply until the client has taken it: up to 17 MiB for each call, which no
handler sees. Clients that stop in the middle of either could take all memory with a few bytes a minute. So these are limited:

- **Open calls** of all connections: above MAX_CALLS a new call replaces one that waits for its client, or is refused.
- **Untaken replies** of reads: above REPLY_BYTES the next replies wait, above twice that also those of clients that have taken
  all of theirs. Connections that stand still are closed, longest first. (On a full line all are slow, and none stands still.)
- **Adds in hand**, complete but without a place in the sync queue: above ``waiting_add_bytes`` large adds are refused.
- **Resident memory**: above ``memory_limit_bytes`` the calls that have waited longest for their clients end, some at a time.
  This catches requests that never become complete.

A call waits for its client while its request is incomplete or its reply is untaken. It never counts as waiting while it waits
for a disk, for its turn or for news of a ledger, nor, as an add stream, while it owes a reply. Time in which this process
itself stood still does not count. So no active client loses a call as long as there is an inactive one. At worst an idle
stream ends: nothing is under way on it, and its client opens another.

Lives on the event loop. It is a gRPC interceptor, because only an interceptor sees calls as a whole.

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

from bk_spark.bookie.server.audit import CALLS, Audit, GrpcCaller
from bk_spark.bookie.server.disconnect import acknowledged_bytes, disconnect
from bk_spark.bookie.server.waiting_adds import WaitingAdds
from bk_spark.config import MIB, BookieConfig
from bk_spark.errors import CorruptionError
from bk_spark.process.memory import give_back, resident_bytes
from bk_spark.wire.codec import unpack_add_request

MAX_CALLS = 16_384
"""Each takes some tens of KiB of gRPC and Python."""

REPLY_BYTES = 64 * MIB
"""Untaken replies: as much as 10 Gbit/s transmit in 50 ms. Each is in memory up to three times."""

STALLED_S = 1.0
"""A client that has taken or sent nothing for this long may lose its call to others. A live one does every few milliseconds."""

LEAST_BYTES = 16 * 1024
"""A connection stands still if its client acknowledges fewer bytes in half of STALLED_S. A full line of 10 Gbit/s carries that
many for each of 38,000 clients, one of 100 Mbit/s for each of 380."""

REQUEST_TIMEOUT_S = 30.0
"""How long a single-message request may take to arrive, and a reply to be taken. On a slow line 17 MiB take 20 s."""

LOOK_S = 0.1
"""Between two checks of the memory; clients can send about 100 MB to one core in that time."""

ENDED_SHARE = 0.25
"""The part of the calls that wait for their clients, or of the replies, that ends at once if there are too many."""

WOKEN = 8
"""Waiting reads that look for room again when a reply was taken, and at each check."""

TELL_S = 10.0
"""Between two lines in the program's log, which clients must not fill either."""

logger = logging.getLogger(__name__)

_Handle = Callable[[Any, Any], Any]
_Encode = Callable[[Any], bytes]


@dataclass(slots=True, eq=False)
class _Call:
    task: asyncio.Task[Any]
    is_stream: bool
    """An add stream, which may be idle for days."""
    waits_since: float | None
    """When it began to wait for its client; None while the client waits for the bookie."""
    request_bytes: int = 0
    """Of its last request, kept because asking a message for its size encodes it once more."""
    owed: int = 0
    """Replies to adds that the client waits for."""
    reply_bytes: int = 0
    """Of the untaken reply."""
    added_bytes: int = 0
    """Of the add in hand."""
    peer: str = ""
    """The connection, as gRPC names it."""
    is_ended: bool = False


class OpenCalls(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Watches all calls of one server. Created on its event loop, where ``watch`` runs as a task."""

    def __init__(self, config: BookieConfig, waiting_adds: WaitingAdds, audit: Audit) -> None:
        self._audit = audit
        self._memory_limit = config.memory_limit_bytes
        self._waiting_adds = waiting_adds
        self._loop = asyncio.get_running_loop()
        self._calls: dict[asyncio.Task[Any], _Call] = {}
        self._opened = asyncio.Event()
        """Set when a call opens."""
        self._turned_s = 0.0
        """When the event loop was last seen to take turns."""
        self.reply_bytes = 0
        """Bytes of untaken replies."""
        self._untaken: Counter[str] = Counter()
        """The same for each connection that has any."""
        self._waiting_to_reply: deque[asyncio.Future[None]] = deque()
        self._stood_s = 0.0
        """How long the event loop has taken no turns, in total."""
        self._acknowledged: dict[str, int] = {}
        self._measured_s = 0.0
        self._told_s = -TELL_S
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_of_note)

    def is_crowded(self, nbytes: int) -> bool:
        """Whether to refuse an add of this size, which is in hand already."""
        return self._waiting_adds.is_crowded(nbytes)

    def may_reply(self, peer: str) -> bool:
        """Whether a read of this connection may make its next reply. Clients that took all so far may go on for longer."""
        return self.reply_bytes <= (REPLY_BYTES if self._untaken[peer] else 2 * REPLY_BYTES)

    async def wait_to_reply(self, peer: str) -> None:
        while not self.may_reply(peer):
            waiting = self._loop.create_future()
            self._waiting_to_reply.append(waiting)
            await waiting

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Every call comes through here before any of its request is read."""
        handler = await continuation(details)
        task = asyncio.current_task()
        if handler is None or task is None:
            return handler
        if len(self._calls) >= MAX_CALLS:
            stalled = self._stalled(STALLED_S)[:1]
            if not stalled:
                return grpc.stream_stream_rpc_method_handler(self._refuse)
            await self._end(stalled)
        call = self._calls[task] = _Call(task, handler.request_streaming, self.now_s())
        if not self._opened.is_set():
            self._turned_s = self._loop.time()
            self._opened.set()
        task.add_done_callback(self._forget)
        return self._watched(handler, call)

    async def watch(self) -> None:
        """Check memory, and end calls that stand still, until cancelled. Without open calls there is nothing to end."""
        while True:
            await self._opened.wait()
            await asyncio.sleep(LOOK_S)
            self._stood_s += max(0.0, self._loop.time() - self._turned_s - 2 * LOOK_S)
            try:
                await self._look()
            except OSError as problem:  # for example if no more files can be opened
                self._tell(f"the calls that are open could not be looked after: {problem}")
            self._turned_s = self._loop.time()

    async def _look(self) -> None:
        if not self._calls:
            self._opened.clear()
        self._wake()
        await self._end([call for call in self._stalled(REQUEST_TIMEOUT_S) if not call.is_stream])
        await self._end_untaken()
        if resident_bytes() > self._memory_limit:
            await self._relieve()

    def now_s(self) -> float:
        """The loop's time without the time in which it took no turns."""
        return self._loop.time() - self._stood_s

    # What happens in one call.

    def _watched(self, handler: Any, call: _Call) -> Any:
        """The same handler, noting in ``call`` what it waits for.

        On the wire every call is a stream in both directions. Treated as one here, it can be ended before its request comes.
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
        async def serve(requests: AsyncIterator[Any], context: Any) -> None:
            stream = _WatchedAdds(self, call, context, encode)
            await handle(stream.messages(requests), stream)

        return serve

    def _read(self, handle: _Handle, call: _Call) -> _Handle:
        async def serve(requests: AsyncIterator[Any], context: Any) -> None:
            request = await anext(requests)
            call.waits_since = None
            async for encoded in handle(request, context):
                self._hold_reply(call, len(encoded))
                call.waits_since = self.now_s()
                await context.write(encoded)  # waits until the client has taken the replies before, and gRPC this one
                call.waits_since = None
                self._hold_reply(call, 0)

        return serve

    def hold_add(self, call: _Call, nbytes: int) -> None:
        """Note how much of an add is in hand."""
        self._waiting_adds.change(nbytes - call.added_bytes)
        call.added_bytes = nbytes

    def _hold_reply(self, call: _Call, nbytes: int) -> None:
        self.reply_bytes += nbytes - call.reply_bytes
        self._untaken[call.peer] += nbytes - call.reply_bytes
        if not self._untaken[call.peer]:
            del self._untaken[call.peer]
        if nbytes < call.reply_bytes:
            self._wake()
        call.reply_bytes = nbytes

    def _wake(self) -> None:
        """Have a few reads check again whether they may reply. All at once would take up the event loop."""
        for _ in range(min(WOKEN, len(self._waiting_to_reply))):
            waiting = self._waiting_to_reply.popleft()
            if not waiting.done():
                waiting.set_result(None)

    # Which calls end.

    def _stalled(self, least_s: float) -> list[_Call]:
        """The calls that have waited for their clients for ``least_s`` or more, longest first."""
        latest = self.now_s() - least_s
        return sorted(
            (call for call in self._calls.values() if call.waits_since is not None and call.waits_since <= latest),
            key=lambda call: call.waits_since or 0.0,
        )

    async def _end(self, calls: Sequence[_Call]) -> None:
        """End calls. An untaken reply is freed only with its whole connection, an incomplete request with its call."""
        for call in calls:
            if not call.reply_bytes and not call.is_ended:
                call.is_ended = True
                call.task.cancel()
        peers = {call.peer for call in calls if call.reply_bytes}
        if peers:
            await self._loop.run_in_executor(None, disconnect, peers)

    async def _end_untaken(self) -> None:
        """Close connections that stand still, to make room for replies to clients that take them."""
        if self.reply_bytes <= REPLY_BYTES or self.now_s() < self._measured_s + STALLED_S / 2:
            return
        suspects = {call.peer for call in self._stalled(STALLED_S / 2) if call.reply_bytes}
        standing = await self._standing_still(suspects)
        wanted = self.reply_bytes - REPLY_BYTES * (1 - ENDED_SHARE)
        calls = []
        for call in self._stalled(STALLED_S):
            if call.reply_bytes and call.peer in standing and wanted > 0:
                calls.append(call)
                wanted -= call.reply_bytes
        if calls:
            self._tell(f"{self.reply_bytes} bytes of replies were not taken: {len(calls)} reads end, with their connections")
            await self._end(calls)

    async def _standing_still(self, peers: set[str]) -> set[str]:
        """The peers that have acknowledged next to nothing since the last measurement. New ones are left out."""
        before = self._acknowledged
        self._measured_s = self.now_s()
        self._acknowledged = await self._loop.run_in_executor(None, acknowledged_bytes, peers)
        return {peer for peer, count in self._acknowledged.items() if count < before.get(peer, -LEAST_BYTES) + LEAST_BYTES}

    async def _relieve(self) -> None:
        """End the calls that have waited longest, whatever they hold, and give memory back to the system."""
        waiting = self._stalled(LOOK_S)
        ended = waiting[: int(len(waiting) * ENDED_SHARE) + 1]
        await self._end(ended)
        await self._loop.run_in_executor(None, give_back)
        if ended:
            self._tell(f"memory is above memory_limit_bytes ({self._memory_limit}): {len(ended)} calls were ended")

    async def _refuse(self, _: Any, context: Any) -> None:
        self._audit.refused(CALLS, GrpcCaller(context).who())
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"this bookie is busy: {MAX_CALLS} calls are open")

    def _tell(self, problem: str) -> None:
        if self._loop.time() >= self._told_s + TELL_S:
            self._told_s = self._loop.time()
            logger.warning(problem)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        call = self._calls.pop(task, None)
        if call is not None:
            self.hold_add(call, 0)
            self._hold_reply(call, 0)


@dataclass(slots=True)
class _WatchedAdds:
    """The context of an add stream for its handler. While a reply is untaken, the call waits for its client."""

    calls: OpenCalls
    call: _Call
    context: Any
    encode: _Encode
    is_writing: bool = False

    async def messages(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for message in requests:
            self.call.owed += 1
            if not self.is_writing:
                self.call.waits_since = None
            self.calls.hold_add(self.call, self.call.request_bytes)
            yield message
            self.calls.hold_add(self.call, 0)

    def is_crowded(self) -> bool:
        """Whether to refuse the add in hand."""
        return self.calls.is_crowded(self.call.added_bytes)

    async def write(self, reply: Any) -> None:
        call = self.call
        self.is_writing, call.waits_since = True, self.calls.now_s()
        await self.context.write(self.encode(reply))
        call.owed -= 1
        self.is_writing, call.waits_since = False, None if call.owed else self.calls.now_s()


def _is_of_note(record: logging.LogRecord) -> bool:
    """Drops gRPC's tracebacks, one for each call, about clients that went away in the middle of a reply."""
    return not (record.exc_info and record.exc_info[0] is not None and record.exc_info[0].__name__ == "ExecuteBatchError")


def _question(handle: _Handle, call: _Call, encode: _Encode) -> _Handle:
    async def serve(requests: AsyncIterator[Any], context: Any) -> None:
        request = await anext(requests)
        call.waits_since = None
        await context.write(encode(await handle(request, context)))

    return serve


def _until_ended(serve: _Handle, call: _Call) -> _Handle:
    """``serve``, with the client told if the bookie ends the call."""

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
