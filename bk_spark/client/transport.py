"""The driver of the client's state machines: the event loop, the clock, the connections, the metadata calls.

One background thread per process runs one event loop for all clients; every state machine of every client runs on it,
so its events come one after the other. Application threads hand work over and wait; nothing of theirs runs on the loop
but the callbacks of their futures.

A driver has no opinion on the protocol: it carries out commands and reports what happened.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import grpc.aio

from bk_spark.client.connections import Connections, QueuedAdd, describe_failure
from bk_spark.client.operation import (
    AddAnswered,
    CancelAdd,
    CancelRead,
    Command,
    Event,
    Finish,
    LastAddConfirmedAnswered,
    MetadataGone,
    MetadataRead,
    MetadataUnknown,
    MetadataWritten,
    Operation,
    ReadArrived,
    ReadEnded,
    ReadMetadata,
    SendAdd,
    SendRead,
    SendReadLastAddConfirmed,
    Tick,
    WriteMetadata,
)
from bk_spark.client.patient_clock import BEAT_MS, PatientClock
from bk_spark.config import ClientConfig
from bk_spark.entry import NO_ENTRY
from bk_spark.errors import BookKeeperError, ConfigError, InternalError, MetadataUnavailableError
from bk_spark.ledger_metadata import LedgerMetadata
from bk_spark.metadata_store import BadVersionError, MetadataStore, NoNodeError
from bk_spark.registration import BookieAddress, lookup
from bk_spark.wire import AddReply, AddRequest, BookieDescription, LastAddConfirmedRequest, ReadBatch, ReadRequest, Status
from bk_spark.znodes import Znodes

METADATA_THREADS = 2
"""Threads for blocking calls to the metadata store: one may wait for a slow answer while another one goes on."""

AVOID_S = 30.0
"""How long a bookie that did not answer a read is asked last: as long as an operator's restart takes."""

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class EventLoop:
    """The process's event loop, started when first needed. A forked child gets one of its own."""

    _lock = threading.Lock()
    _loop: asyncio.AbstractEventLoop | None = None
    _pid = 0

    @classmethod
    def get(cls) -> asyncio.AbstractEventLoop:
        with cls._lock:
            if cls._loop is None or cls._pid != os.getpid():
                cls._loop, cls._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=cls._loop.run_forever, name="bk_spark", daemon=True).start()
            return cls._loop


class Transport:
    """What a client's operations run on."""

    def __init__(self, store: MetadataStore, znodes: Znodes, config: ClientConfig) -> None:
        self.store = store
        self.znodes = znodes
        self.config = config
        self.loop = EventLoop.get()
        self._executor = ThreadPoolExecutor(METADATA_THREADS, thread_name_prefix="bk_spark-metadata")
        self.connections = Connections(self._lookup)
        self._closed = False
        self._random = random.Random()
        self._clock = PatientClock(_monotonic_ms())
        self.loop.call_soon_threadsafe(self._beat)
        self._silent: dict[str, float] = {}

    def now_ms(self) -> int:
        """A clock for deadlines, on the event loop alone: it never goes back, and does not count stalls of this process."""
        return self._clock.look(_monotonic_ms())

    def _beat(self) -> None:
        """Look at the clock, so that idleness is told from a stall; until the client is closed."""
        if not self._closed:
            self.now_ms()
            self.loop.call_later(BEAT_MS / 1000, self._beat)

    def wall_clock_ms(self) -> int:
        """Milliseconds since 1970: for people, never for decisions."""
        return int(time.time() * 1000)

    def choose(self, count: int) -> int:
        """A random number from 0 to ``count`` - 1."""
        return self._random.randrange(count)

    def avoided(self) -> frozenset[str]:
        """Bookies that lately did not answer reads."""
        now = time.monotonic()
        return frozenset(bookie for bookie, until in list(self._silent.items()) if until > now)

    def avoid(self, bookie_id: str) -> None:
        self._silent[bookie_id] = time.monotonic() + AVOID_S

    def submit(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Run a coroutine on the event loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def blocking(self, call: Callable[[], _Result]) -> _Result:
        """Run a blocking call, such as one to the metadata store, beside the event loop."""
        if self._closed:
            raise MetadataUnavailableError(self.store.uri, "the client was closed")
        return await self.loop.run_in_executor(self._executor, call)

    def describe(self, bookie_id: str) -> BookieDescription | None:
        """What a bookie says of itself; None if it does not answer."""
        bookie = self.connections.bookie(bookie_id)
        try:
            return self.submit(bookie.describe(self.config.read_timeout_s)).result()
        except (grpc.aio.AioRpcError, BookKeeperError, OSError):
            return None

    def check_open(self) -> None:
        """Raise ConfigError after ``close``."""
        if self._closed:
            raise ConfigError("this client", "closed", "its handles are of no use any more: open a new BookKeeper")

    def check_may_wait(self) -> None:
        """Raise ConfigError on the event loop's own thread, where waiting for the event loop would never end."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self.loop:
            what = "a call that waits, made in a future's callback"
            raise ConfigError(
                what, "not possible", "callbacks run on the client's event loop: hand the call to a thread of yours"
            )

    def close(self) -> None:
        self.check_may_wait()
        self._closed = True
        self.submit(self.connections.close()).result()
        self._executor.shutdown()

    async def _lookup(self, bookie_id: str) -> BookieAddress | None:
        return await self.blocking(lambda: lookup(self.store, self.znodes, bookie_id))


def _monotonic_ms() -> int:
    return int(time.monotonic() * 1000)


class Runner:
    """Runs one operation: its commands are carried out, what comes of them is reported, deadlines are kept.

    ``on_command`` is given the commands that are for the application (Confirm, Reject, Release, Deliver, Finish).
    All methods run on the event loop.
    """

    def __init__(
        self,
        transport: Transport,
        metadata: LedgerMetadata,
        master_key: bytes,
        operation: Operation,
        on_command: Callable[[Command], None],
    ) -> None:
        self._transport = transport
        self._metadata = metadata
        self._master_key = master_key
        self._operation = operation
        self._on_command = on_command
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._adds: dict[int, QueuedAdd] = {}
        self._reads: dict[int, tuple[str, asyncio.Task[None]]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._stopped = False

    def post(self, event: Event) -> None:
        """Report an event, carry out what the operation wants in return.

        A failure of the operation itself ends it with an InternalError, for somebody waits for its result.
        """
        if self._stopped:
            return
        try:
            self._operation.handle(event, self._transport.now_ms())
            commands = self._operation.take_commands()
        except Exception as problem:
            log.exception("an operation on ledger %d failed", self._metadata.ledger_id)
            commands = [Finish(error=InternalError(self._metadata.ledger_id, repr(problem)))]
        for command in commands:
            self._carry_out(command)
        if not self._stopped:
            self._keep_deadline()

    def stop(self) -> None:
        """The operation is over, or nobody waits for it any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._background):
            task.cancel()
        for queued in self._adds.values():
            queued.cancel()
        self._adds.clear()

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, SendAdd):
            self._send_add(command)
        elif isinstance(command, CancelAdd):
            self._cancel_add(command)
        elif isinstance(command, SendRead):
            self._reads[command.request_id] = (command.bookie_id, self._start(self._read(command)))
        elif isinstance(command, CancelRead):
            self._cancel_read(command)
        elif isinstance(command, SendReadLastAddConfirmed):
            self._start(self._read_last_add_confirmed(command))
        elif isinstance(command, WriteMetadata):
            self._start(self._write_metadata(command))
        elif isinstance(command, ReadMetadata):
            self._start(self._read_metadata())
        else:
            self._on_command(command)
            if isinstance(command, Finish):
                self.stop()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._transport.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A command that could not be carried out for a reason that nobody thought of is a bug; somebody waits for it."""
        self._background.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not self._stopped:
            log.error("an operation on ledger %d failed", self._metadata.ledger_id, exc_info=problem)
            self._carry_out(Finish(error=InternalError(self._metadata.ledger_id, repr(problem))))

    def _keep_deadline(self) -> None:
        deadline = self._operation.deadline_ms()
        if deadline == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, deadline
        if deadline is not None:
            delay_s = max(0, deadline - self._transport.now_ms()) / 1000
            self._timer = self._transport.loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_ms = None, None
        self.post(Tick())

    # --- what the commands want of bookies

    def _send_add(self, command: SendAdd) -> None:
        request = AddRequest(command.request_id, command.bookie_id, self._master_key, command.batch)
        bookie = self._transport.connections.bookie(command.bookie_id)
        self._adds[command.request_id] = bookie.send_add(request, self._add_answered)

    def _add_answered(self, reply: AddReply) -> None:
        self._adds.pop(reply.request_id, None)
        self.post(AddAnswered(reply.request_id, reply.status, reply.detail))

    def _cancel_add(self, command: CancelAdd) -> None:
        queued = self._adds.pop(command.request_id, None)
        if queued is not None:
            queued.cancel()

    def _cancel_read(self, command: CancelRead) -> None:
        bookie_id, task = self._reads.pop(command.request_id, ("", None))
        if task is not None:
            task.cancel()
            self._transport.avoid(bookie_id)

    async def _read(self, command: SendRead) -> None:
        request = ReadRequest(
            command.bookie_id,
            self._metadata.ledger_id,
            self._master_key,
            command.first,
            command.last,
            command.pattern,
            command.maximum_bytes,
        )
        end = ReadEnded(command.request_id, Status.UNKNOWN, "the answer broke off")
        try:
            async for reply in self._transport.connections.bookie(command.bookie_id).read(request):
                if isinstance(reply, ReadBatch):
                    self.post(ReadArrived(command.request_id, reply.batch))
                else:
                    end = ReadEnded(command.request_id, reply.status, reply.detail, reply.next_entry_id)
        except asyncio.CancelledError:
            if self._stopped or command.request_id not in self._reads:
                raise
            end = ReadEnded(command.request_id, Status.UNKNOWN, "its connection was closed")
        except (grpc.aio.AioRpcError, BookKeeperError, OSError) as failure:
            self._transport.avoid(command.bookie_id)
            end = ReadEnded(command.request_id, Status.UNKNOWN, describe_failure(failure))
        self._reads.pop(command.request_id, None)
        self.post(end)

    async def _read_last_add_confirmed(self, command: SendReadLastAddConfirmed) -> None:
        request = LastAddConfirmedRequest(command.bookie_id, self._metadata.ledger_id, self._master_key)
        bookie = self._transport.connections.bookie(command.bookie_id)
        try:
            reply = await bookie.last_add_confirmed(request, self._transport.config.read_timeout_s)
            event = LastAddConfirmedAnswered(command.request_id, reply.status, reply.last_add_confirmed, reply.detail)
        except (grpc.aio.AioRpcError, BookKeeperError, OSError) as failure:
            event = LastAddConfirmedAnswered(command.request_id, Status.UNKNOWN, NO_ENTRY, describe_failure(failure))
        self.post(event)

    # --- what the commands want of the metadata store

    async def _write_metadata(self, command: WriteMetadata) -> None:
        path = self._transport.znodes.ledger(self._metadata.ledger_id)
        value = command.metadata.encode()
        try:
            version = await self._transport.blocking(lambda: self._transport.store.set(path, value, command.expected_version))
        except BadVersionError:
            await self._read_metadata()
        except NoNodeError:
            self.post(MetadataGone())
        except MetadataUnavailableError as failure:
            self.post(MetadataUnknown(failure))
        else:
            self.post(MetadataWritten(version))

    async def _read_metadata(self) -> None:
        path = self._transport.znodes.ledger(self._metadata.ledger_id)
        try:
            found = await self._transport.blocking(lambda: self._transport.store.get(path))
            self.post(MetadataRead(LedgerMetadata.decode(self._metadata.ledger_id, found.value), found.version))
        except NoNodeError:
            self.post(MetadataGone())
        except BookKeeperError as failure:
            self.post(MetadataUnknown(failure))
