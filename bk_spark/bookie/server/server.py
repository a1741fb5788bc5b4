"""A bookie's server: gRPC in front, the threads of requests.py behind.

One event loop serves all connections, so more connections need no more threads. The alternative, a synchronous server, gives
every open stream two threads for life, and answers nothing once all of them are taken. Ref: DESIGN.md, "Threads of a bookie".

What waits is bounded: requests that are not durable by ``sync_queue_bytes`` and one request more; the replies that a stream is
owed by MAX_OWED; adds that wait for their place by ``waiting_add_bytes``; and all else that clients can make a bookie hold by
open_calls.py. Behind these are two write caches, each of ``write_cache_bytes`` and at most one group of requests more, of which
one is being written out. While both are full the sync thread waits, and so does everything before it, up to the senders.

The way of an add: event loop (check the message, and that a new ledger's id was given out) → sync thread (stage; one sync for
everything that waits) → event loop (reply). A read that fences first takes the same way as a fence; the read itself begins once
the fence is durable.

Ref: docs/rules.md, protocol rules 34 and 35.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any

import grpc
import grpc.aio

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.server.apache.listener import ApacheListener, Bounds, Security
from bk_spark.bookie.server.apache.users import ApacheUsers
from bk_spark.bookie.server.audit import Audit, Caller, GrpcCaller
from bk_spark.bookie.server.members import NO_MEMBER
from bk_spark.bookie.server.new_ledgers import LedgerIds
from bk_spark.bookie.server.open_calls import OpenCalls
from bk_spark.bookie.server.options import server_options
from bk_spark.bookie.server.request_metrics import ServedReadMeter, count_confirmed_read, count_refused_add
from bk_spark.bookie.server.requests import Requests
from bk_spark.bookie.server.waiting_adds import BUSY, WaitingAdds
from bk_spark.config import BookieConfig
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import BookKeeperError, ConfigError, FormatVersionError
from bk_spark.host_port import HostPort, why_not_bound
from bk_spark.metadata.registration import ApachePort
from bk_spark.process.open_files import most_connections
from bk_spark.proto import bookie_pb2 as pb
from bk_spark.proto.bookie_pb2_grpc import BookieServicer, add_BookieServicer_to_server
from bk_spark.telemetry.audit_lines import Who
from bk_spark.tls.files import LOOK_S, TlsContent, TlsFiles, TlsSource
from bk_spark.tls.grpc_credentials import server_credentials
from bk_spark.tls.server_contexts import ServerContexts
from bk_spark.wire import codec, messages
from bk_spark.wire.messages import (
    AddReply,
    AdminOperation,
    BookieDescription,
    LastAddConfirmedReply,
    PlainReply,
    ReadBatch,
    ReadEnd,
    StagedReply,
    StagedRequest,
    Status,
)

MAX_OWED = 4096
"""Replies that one stream may be owed; clients of this package have a few hundred adds under way at most."""

_LOOKS = frozenset({AdminOperation.GC_STATUS, AdminOperation.BOOKIE_STATUS, AdminOperation.LIMBO_STATUS})
"""Requests of operators that change nothing: a dashboard sends one every few seconds, so the audit log leaves them out."""

STOP_GRACE_S = 1.0
"""How long calls under way may take to end when the bookie stops."""

Administer = Callable[[str, AdminOperation, tuple[int, ...]], messages.AdministerReply]
"""Carries out an operator's request to the bookie of this id. Returns at once."""


class End(Enum):
    """Why a server is to stop."""

    STOP = "it was asked to"
    REOPEN = "there is space again: the storage is to be opened anew"


class _AddStream:
    """The replies that are owed to one client's add stream. Lives on the event loop."""

    def __init__(self, audit: Audit, caller: Caller) -> None:
        self._audit = audit
        self._caller = caller
        self.owed = 0
        """Replies to received requests that were not sent yet."""
        self._replies: asyncio.Queue[StagedReply] = asyncio.Queue()
        self._was_paid = asyncio.Event()

    async def wait_until_owed_below(self, count: int) -> None:
        while self.owed >= count:
            self._was_paid.clear()
            await self._was_paid.wait()

    def put(self, reply: StagedReply) -> None:
        self._audit.refused_request(reply.status, self._caller)
        self._replies.put_nowait(reply)

    async def write_replies(self, context: Any) -> None:
        """Send each reply as it comes, until the stream ends."""
        while True:
            reply = await self._replies.get()
            assert isinstance(reply, AddReply)
            await context.write(codec.encode_add_reply(reply))
            self.owed -= 1
            self._was_paid.set()


class BookieServer(BookieServicer):  # type: ignore[misc]
    """Serves one bookie on one port."""

    def __init__(
        self,
        bookie: Bookie,
        config: BookieConfig,
        *,
        host: str,
        port: int,
        looks: Callable[[], None],
        administer: Administer,
        ledger_ids: LedgerIds,
    ) -> None:
        """``port`` 0 takes a free one; ``looks`` is called on the sync thread (SyncListener); ``ledger_ids`` asks the
        metadata store.

        Must be created on the event loop that it runs on. Raises ConfigError if the TLS files or that of users cannot be
        used, or too few files may be open for connections.
        """
        self._place = HostPort(host, port)
        self._loop = asyncio.get_running_loop()
        self.requests = Requests(bookie, config, ledger_ids, looks, self._fail)
        self._administer = administer
        self._connections = most_connections(
            config.max_connections, ports=1 + (config.apache_port >= 0) + (config.clear_port >= 0)
        )
        waiting_adds = WaitingAdds(config.waiting_add_bytes)
        self._calls = OpenCalls(config, waiting_adds, self.requests.audit)
        self._watching: asyncio.Task[None] | None = None
        files = TlsFiles.of(config)
        self._tls = TlsSource(files) if files else None
        users = ApacheUsers(config.apache_users, self._loop.time) if config.apache_users else None
        security = Security(ServerContexts(self._tls) if self._tls else None, config.apache_clear_clients, users)
        bounds = Bounds(self._connections, config.memory_limit_bytes, waiting_adds, config.apache_frame_bytes)
        self.apache = ApacheListener(self.requests, bounds, security) if config.apache_port >= 0 else None
        self._apache_address = host, config.apache_port
        self._asks_sasl = users is not None
        self.apache_port: ApachePort | None = None
        """Where Apache's clients are served; None if they are not."""
        self._asked_clear_port = config.clear_port
        self.clear_port: int | None = None
        """Where clients without TLS are served, if the other port serves them not."""
        self._server: Any = None
        self.add_streams = 0
        """Add streams that are open."""
        self.ended: asyncio.Future[End] = self._loop.create_future()
        """Done when the server is to stop; with an exception if nothing can be made durable any more."""

    async def start(self) -> int:
        """Serve. Returns the port. Raises ConfigError if the server cannot listen at its address."""
        options = server_options(self._connections)
        self._server = grpc.aio.server(interceptors=(self._calls,), options=options)
        add_BookieServicer_to_server(self, self._server)
        port = self._listen(self._place, self._tls)
        if self._asked_clear_port >= 0:
            self.clear_port = self._listen(HostPort(self._place.host, self._asked_clear_port), None)
        await self._server.start()
        if self.apache is not None:
            port_number = await self.apache.start(*self._apache_address)
            self.apache_port = ApachePort(port_number, self._tls is not None, self._asks_sasl)
        self._watching = self._loop.create_task(self._calls.watch())
        self.requests.sync_thread.start()
        return port

    def _listen(self, place: HostPort, tls: TlsSource | None) -> int:
        try:
            if tls is None:
                return int(self._server.add_insecure_port(str(place)))
            return int(self._server.add_secure_port(str(place), server_credentials(tls)))
        except RuntimeError as problem:
            raise _cannot_listen(str(place), str(problem)) from problem

    async def stop(self) -> None:
        """Stop serving, then make durable what was received."""
        self.requests.polls.end()
        if self._watching is not None:
            self._watching.cancel()
        await self._server.stop(STOP_GRACE_S)
        if self.apache is not None:
            self.apache.stop()
        await self.requests.stop()

    def request_stop(self, end: End = End.STOP) -> None:
        if not self.ended.done():
            self.ended.set_result(end)

    def fail(self, problem: BaseException) -> None:
        """A thread that the bookie needs has ended by an error. Any thread may call this."""
        self._loop.call_soon_threadsafe(self._fail, problem)

    def tls_content(self) -> TlsContent | None:
        """The TLS files as they are in use; None without TLS. Any thread may ask; it may read the files."""
        return None if self._tls is None else self._tls.content(LOOK_S)

    def answers(self, timeout_s: float) -> bool:
        """Whether the event loop takes its turns. Any thread may ask."""
        turn: Future[None] = Future()
        try:
            self._loop.call_soon_threadsafe(turn.set_result, None)
            turn.result(timeout_s)
        except (TimeoutError, RuntimeError):  # RuntimeError: the loop was closed meanwhile
            return False
        return True

    # The methods of the gRPC service; OpenCalls hands in the requests and takes the replies.

    async def Add(self, requests: AsyncIterator[tuple[pb.AddRequest, memoryview | None]], context: Any) -> None:
        caller = GrpcCaller(context.context)
        stream, who = _AddStream(self.requests.audit, caller), caller.who()
        writer = self._loop.create_task(stream.write_replies(context))
        self.add_streams += 1
        try:
            async for message, body in requests:
                await stream.wait_until_owed_below(MAX_OWED)  # read no more from a client that does not read its replies
                stream.owed += 1
                if not self.requests.members.have(who):
                    _refuse_add(stream, AddReply(message.request_id, Status.UNAUTHORIZED, NO_MEMBER))
                    continue
                if context.is_crowded():
                    _refuse_add(stream, AddReply(message.request_id, Status.UNKNOWN, BUSY))
                    continue
                try:
                    request = codec.decode_add_request(message, body)
                except BookKeeperError as problem:
                    _refuse_add(stream, AddReply(message.request_id, _refusal(problem), str(problem)))
                    continue
                refusal = await self.requests.new_ledgers.refusal(request.ledger_id)
                if refusal:
                    _refuse_add(stream, AddReply(request.request_id, Status.READ_ONLY, refusal))
                    continue
                await self.requests.sync_thread.wait_for_room()
                self.requests.sync_thread.put(request, stream.put)
            await stream.wait_until_owed_below(1)  # the client sends no more, and a call must not end with a reply cut short
        finally:
            self.add_streams -= 1
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def Read(self, message: pb.ReadRequest, context: Any) -> AsyncIterator[bytes]:
        """Serialized replies."""
        caller = GrpcCaller(context)
        with ServedReadMeter(self._loop.time) as meter:
            replies, pool = await self._begin_read(message, caller)
            requests = self.requests
            turns = requests.recovery_turns if pool is requests.recoveries else requests.read_turns
            while True:
                await self._calls.wait_to_reply(context.peer())
                async with turns.turn(context.peer()):
                    if not self._calls.may_reply(context.peer()):
                        continue
                    encoded = await self._loop.run_in_executor(pool, _next_encoded, replies, meter)
                if encoded is None:
                    return
                if meter.ended is not None:
                    requests.audit.refused_request(meter.ended, caller)
                yield encoded

    async def ReadLastAddConfirmed(self, message: pb.ReadLastAddConfirmedRequest, context: Any) -> Any:
        caller = GrpcCaller(context)
        reply = await self._answer_last_add_confirmed(message, caller)
        self.requests.audit.refused_request(reply.status, caller)
        count_confirmed_read(reply.status)
        return codec.encode_last_add_confirmed_reply(reply)

    async def StoreLastAddConfirmed(self, message: pb.StoreLastAddConfirmedRequest, context: Any) -> Any:
        reply = await self._decode_and_store(codec.decode_store_last_add_confirmed_request, message, context)
        return codec.encode_store_last_add_confirmed_reply(reply)

    async def Force(self, message: pb.ForceRequest, context: Any) -> Any:
        return codec.encode_force_reply(await self._decode_and_store(codec.decode_force_request, message, context))

    async def Administer(self, message: pb.AdministerRequest, context: Any) -> pb.AdministerReply:
        try:
            asked = codec.decode_administer_request(message)
        except BookKeeperError as problem:
            return codec.encode_administer_reply(messages.AdministerReply(_refusal(problem), str(problem)))
        caller = GrpcCaller(context)
        if not self.requests.members.have(caller.who()):
            self.requests.audit.refused_request(Status.UNAUTHORIZED, caller)
            return codec.encode_administer_reply(messages.AdministerReply(Status.UNAUTHORIZED, NO_MEMBER))
        reply = await self.requests.to_the_end(self._carry_out(*asked, caller.who()))
        return codec.encode_administer_reply(reply)

    async def _carry_out(
        self, bookie_id: str, operation: AdminOperation, ledger_ids: tuple[int, ...], who: Who
    ) -> messages.AdministerReply:
        pool = self.requests.reserved
        reply = await self._loop.run_in_executor(pool, self._administer, bookie_id, operation, ledger_ids)
        if operation not in _LOOKS:
            self.requests.audit.administered(operation, ledger_ids, reply.status, who)
        return reply

    async def Describe(self, message: pb.DescribeRequest, context: Any) -> pb.DescribeReply:
        try:
            wanted = codec.decode_describe_request(message)
        except BookKeeperError as problem:
            return pb.DescribeReply(status=_refusal(problem).value)
        description = await self.requests.describe(context.peer())
        if not self.requests.members.have(GrpcCaller(context).who()):
            description = BookieDescription(description.status, description.bookie_id, 0, 0, "")
        if wanted not in ("", description.bookie_id):
            return pb.DescribeReply(status=pb.WRONG_BOOKIE, bookie_id=description.bookie_id)
        return codec.encode_description(description)

    async def _begin_read(
        self, message: pb.ReadRequest, caller: Caller
    ) -> tuple[Iterator[ReadBatch | ReadEnd], ThreadPoolExecutor]:
        """The replies, which are made one by one when asked for, and the threads that make them."""
        try:
            request = codec.decode_read_request(message)
        except BookKeeperError as problem:
            return iter([ReadEnd(_refusal(problem), message.first_entry_id, str(problem))]), self.requests.readers
        if not self.requests.members.let_read(caller.who(), request.master_key, fence=request.fence):
            return iter([ReadEnd(Status.UNAUTHORIZED, request.first, NO_MEMBER)]), self.requests.readers
        refused = await self.requests.fence(request.ledger_id, request.master_key, caller) if request.fence else None
        if refused is not None:
            return iter([ReadEnd(refused.status, request.first, refused.detail)]), self.requests.recoveries
        return self.requests.bookie.read(request), self.requests.recoveries if request.fence else self.requests.readers

    async def _answer_last_add_confirmed(
        self, message: pb.ReadLastAddConfirmedRequest, caller: Caller
    ) -> LastAddConfirmedReply:
        try:
            request = codec.decode_last_add_confirmed_request(message)
        except BookKeeperError as problem:
            return LastAddConfirmedReply(_refusal(problem), NO_ENTRY, str(problem))
        if not self.requests.members.let_read(caller.who(), request.master_key, fence=request.fence):
            return LastAddConfirmedReply(Status.UNAUTHORIZED, NO_ENTRY, NO_MEMBER)
        return await self.requests.last_add_confirmed(request, caller)

    async def _decode_and_store(self, decode: Callable[[Any], StagedRequest], message: Any, context: Any) -> PlainReply:
        try:
            request = decode(message)
        except BookKeeperError as problem:
            return PlainReply(_refusal(problem), str(problem))
        caller = GrpcCaller(context)
        is_member = self.requests.members.have(caller.who())
        reply = await self.requests.store(request) if is_member else PlainReply(Status.UNAUTHORIZED, NO_MEMBER)
        self.requests.audit.refused_request(reply.status, caller)
        return reply

    def _fail(self, problem: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(problem)


def check_address(host: str, port: int) -> None:
    """Raise ConfigError unless this process can listen there."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        socket.create_server(address[:2], family=family).close()
    except OSError as problem:
        raise _cannot_listen(str(HostPort(host, port)), why_not_bound(problem)) from problem


def _cannot_listen(address: str, problem: str) -> ConfigError:
    remedy = "stop what listens there, or choose another --host and --port"
    return ConfigError("the address to listen at", address, f"it cannot be taken ({problem}): {remedy}")


def _refuse_add(stream: _AddStream, reply: AddReply) -> None:
    stream.put(reply)
    count_refused_add(reply.status)


def _next_encoded(replies: Iterator[ReadBatch | ReadEnd], meter: ServedReadMeter) -> bytes | None:
    reply = next(replies, None)
    if reply is None:
        return None
    meter.take(reply)
    return codec.encode_read_reply(reply)


def _refusal(problem: BookKeeperError) -> Status:
    return Status.UNSUPPORTED_VERSION if isinstance(problem, FormatVersionError) else Status.BAD_REQUEST
