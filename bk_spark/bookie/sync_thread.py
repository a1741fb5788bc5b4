"""The thread that alone stages, syncs and checkpoints, and the queue before it.

Requests are taken in groups: while one sync runs, those of the next one gather. Everything but the thread itself lives on the
event loop: putting in, and giving out the replies.

Above ``maximum_bytes`` of requests that are not durable yet there is no room: the server then stops reading from its
connections, which stops the senders.

Ref: DESIGN.md, "Threads of a bookie"; docs/rules.md, protocol rules 32 and 34.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bk_spark.bookie.bookie import Bookie
from bk_spark.wire import AddRequest, StagedReply, StagedRequest

IDLE_S = 0.2
"""Without a request for this long the bookie marks its files as quiet, so that a later restart knows what was durable."""

MAX_STAGED = 1024
"""Requests of one group commit: bounds the time to the first reply when the queue never runs empty."""

REQUEST_BYTES = 512
"""What a queued request takes beside its body: bounds how many wait, also of those that have none."""

log = logging.getLogger(__name__)

Deliver = Callable[[StagedReply], None]
"""Takes a reply, on the event loop. Must not raise."""


@dataclass(frozen=True, slots=True)
class SyncListener:
    """Called on the event loop."""

    synced: Callable[[Sequence[int]], None]
    """A sync is over that these ledgers had a part in; its replies were delivered."""
    failed: Callable[[BaseException], None]
    """The thread has ended by an error: nothing can be made durable any more."""


@dataclass(frozen=True, slots=True)
class _Owed:
    deliver: Deliver
    nbytes: int


class SyncThread:
    """Must be made on the event loop."""

    def __init__(self, bookie: Bookie, maximum_bytes: int, listener: SyncListener) -> None:
        self._bookie = bookie
        self._maximum_bytes = maximum_bytes
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[StagedRequest, _Owed] | None] = queue.SimpleQueue()
        self._queued_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._thread = threading.Thread(target=self._run, name="sync")

    def start(self) -> None:
        self._thread.start()

    async def wait_for_room(self) -> None:
        await self._room.wait()

    def put(self, request: StagedRequest, deliver: Deliver) -> None:
        """Have a request made durable; its reply is delivered then."""
        nbytes = REQUEST_BYTES + (len(request.batch.body) if isinstance(request, AddRequest) else 0)
        self._queued_bytes += nbytes
        if self._queued_bytes > self._maximum_bytes:
            self._room.clear()
        self._queue.put((request, _Owed(deliver, nbytes)))

    def stop(self) -> None:
        """Sync what was queued, then end. Blocks; not to be called on the event loop."""
        self._queue.put(None)
        self._thread.join()

    # --- on the event loop

    def _deliver(self, replies: list[tuple[object, StagedReply]]) -> None:
        for reply_to, reply in replies:
            assert isinstance(reply_to, _Owed)
            self._queued_bytes -= reply_to.nbytes
            reply_to.deliver(reply)
        if self._queued_bytes <= self._maximum_bytes:
            self._room.set()

    # --- on the thread

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as problem:
            log.exception("the sync thread failed")
            self._loop.call_soon_threadsafe(self._listener.failed, problem)

    def _serve(self) -> None:
        running = True
        while running:
            try:
                item = self._queue.get(timeout=IDLE_S)
            except queue.Empty:
                self._bookie.idle()
                continue
            running, ledgers = self._stage_group(item)
            early = self._bookie.take_early()
            if early:
                self._loop.call_soon_threadsafe(self._deliver, early)
            self._loop.call_soon_threadsafe(self._deliver, self._bookie.sync())
            self._loop.call_soon_threadsafe(self._listener.synced, sorted(ledgers))

    def _stage_group(self, item: tuple[StagedRequest, _Owed] | None) -> tuple[bool, set[int]]:
        """Stage ``item`` and what waits behind it. False if the end came up; and whose ledgers they were."""
        ledgers: set[int] = set()
        for left in range(MAX_STAGED, 0, -1):
            if item is None:
                return False, ledgers
            request = item[0]
            self._bookie.stage(*item)
            ledgers.add(request.batch.header.ledger_id if isinstance(request, AddRequest) else request.ledger_id)
            try:
                item = self._queue.get_nowait() if left > 1 else item
            except queue.Empty:
                break
        return True, ledgers
