"""The sync thread, which alone stages and syncs; the queue before it; and the thread that runs its checkpoints.

Requests are taken in groups: while one sync runs, the next group gathers. The event loop puts them and delivers the replies.

While more than ``maximum_bytes`` of requests, or as many as ``QueueLength`` says, are not durable yet, there is no room: the
server stops reading from its connections, which stops the senders. The queue exceeds that by one request at most.

If one of these threads ends by an error, the bookie ends, and its open requests get no reply.

Ref: DESIGN.md, "Threads of a bookie"; docs/rules.md, protocol rules 32, 34 and 41.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.server.received_copies import ReceivedCopies
from bk_spark.bookie.server.request_metrics import AskedRequest, count_answers
from bk_spark.errors import StorageError
from bk_spark.telemetry.metrics import BOOKIE_CHECKPOINT_S, BOOKIE_GROUP_BYTES, BOOKIE_GROUP_REQUESTS, BOOKIE_GROUP_S
from bk_spark.wire.messages import StagedReply, StagedRequest

IDLE_S = 0.2
"""After this long without a request the bookie notes in its files that all is durable, for a later restart."""

MAX_STAGED = 1024
"""Requests of one group: bounds the time to the first reply when the queue never runs empty."""

MAX_GROUP_BYTES = 16 * 1024 * 1024
"""A group of this size takes no more requests: a larger sync gains nothing, and the caches may exceed their size by a group."""

MAX_QUEUED = 4 * MAX_STAGED
"""Requests in the queue. The smallest ones take some 0.1 ms each, so that a new one waits for half a second."""

MAX_QUEUE_S = 1.0
"""So much work at most is in the queue. A fence waits behind it, and its client waits for 5 s. The first request of a ledger
takes some 1 ms while the event loop is busy, ten times as long as a later one."""

MIN_QUEUED = 256
"""As many are always taken: groups stay large on a slow disk."""

MAX_GROUP_S = 0.25
"""A group that was staged for so long takes no more requests: nothing in it is answered before its end."""

MIN_LEARNT = 64
"""A smaller group says nothing about the time of a request, unless it was as long as a group may be."""

REQUEST_BYTES = 512
"""The size of a queued request without its body."""

WAIT_SHARE = 0.25
"""A group waits for more requests for at most this part of the last sync's time. On a disk that syncs in 5 ms, 4 writers that
each wait for their add get twice as much done, at half the latency; on a disk that syncs in 0.1 ms nothing changes."""

MAX_WAIT_S = 0.01
"""A group never waits longer: a sync that took very long was a stall, and says nothing about the next one."""

WAIT_BELOW_BYTES = 64 * 1024
"""A group of this size is worth a sync of its own."""

LOOK_S = 0.01
LOOK_BYTES = 1024 * 1024
"""After this much time, or this many bytes, check the disks before the next group. A check takes as long as staging adds."""

logger = logging.getLogger(__name__)

Deliver = Callable[[StagedReply], None]
"""Takes a reply, on the event loop. Must not raise."""

Fail = Callable[[BaseException], None]
"""Called when a thread has ended by an error: nothing can be made durable any more. Must not raise."""


@dataclass(frozen=True, slots=True)
class SyncListener:
    looks: Callable[[], None]
    """Looks at the disks. Called on the sync thread, before groups (LOOK_S, LOOK_BYTES) and while there is none."""
    synced: Callable[[Sequence[int]], None]
    """Called on the event loop after a sync, with its ledgers, once its replies are delivered."""
    failed: Fail
    """Called on the event loop."""


@dataclass(frozen=True, slots=True)
class _Owed:
    """The reply that is owed to a request."""

    deliver: Deliver
    nbytes: int
    asked: AskedRequest


@dataclass(slots=True)
class GroupWait:
    """How long a group waits for more requests before it is synced.

    Writers that wait for their adds send the next ones right after a sync, within the time of a round trip, and the first one
    would start the next sync alone. So a group that is smaller than the last one waits a little. A lone writer never waits.
    """

    last_count: int = 1
    last_sync_s: float = 0.0

    def seconds(self, count: int, nbytes: int, age_s: float) -> float:
        """How much longer a group of ``count`` requests that began ``age_s`` ago may wait for the next request."""
        if count >= self.last_count or nbytes >= WAIT_BELOW_BYTES:
            return 0.0
        return max(0.0, min(WAIT_SHARE * self.last_sync_s, MAX_WAIT_S) - age_s)


@dataclass(slots=True)
class QueueLength:
    """How many requests the queue may have, by what the last groups took: MAX_QUEUE_S of them."""

    most: int = MAX_QUEUED

    def learn(self, count: int, staged_s: float) -> None:
        """A group of ``count`` requests was staged."""
        if count >= MIN_LEARNT or (count and staged_s >= MAX_GROUP_S):
            each_s = max(staged_s, 1e-6) / count
            self.most = min(MAX_QUEUED, max(MIN_QUEUED, int(MAX_QUEUE_S / each_s)))


class SyncThread:
    """Must be created on the event loop."""

    def __init__(self, bookie: Bookie, maximum_bytes: int, listener: SyncListener) -> None:
        self._bookie = bookie
        self._maximum_bytes = maximum_bytes
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[StagedRequest, _Owed] | None] = queue.SimpleQueue()
        self.queued_bytes = 0
        """Bytes of requests that were put and are not answered yet. Exact on the event loop alone."""
        self._queued = 0
        self._room = asyncio.Event()
        self._received = ReceivedCopies(self._loop.call_later)
        self._group_wait = GroupWait()
        self._queue_length = QueueLength()
        self._unseen_bytes = 0
        self._looked_s = -LOOK_S
        self._waiting: set[asyncio.Future[StagedReply]] = set()
        self._end: BaseException | None = None
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="sync")

    def start(self) -> None:
        self._thread.start()

    @property
    def has_room(self) -> bool:
        return self._is_below_limits or self._has_failed

    @property
    def _is_below_limits(self) -> bool:
        return self.queued_bytes <= self._maximum_bytes and self._queued < self._queue_length.most

    async def wait_for_room(self) -> None:
        """Call this right before each ``put``, with no ``await`` in between: then only one of many waiting callers goes on.

        Returns, too, once nothing can be made durable any more.
        """
        while not self.has_room:
            self._room.clear()
            await self._room.wait()

    def put(self, request: StagedRequest, deliver: Deliver) -> None:
        """Have a request made durable, then its reply delivered."""
        asked = AskedRequest.of(request, self._loop.time())
        nbytes = REQUEST_BYTES + asked.nbytes
        self.queued_bytes += nbytes
        self._queued += 1
        self._queue.put((request, _Owed(deliver, nbytes, asked)))

    async def answer(self, request: StagedRequest) -> StagedReply:
        """Have a request made durable, and wait for its reply. Raises StorageError if nothing can be made durable any more."""
        await self.wait_for_room()
        if self._end is not None:
            raise StorageError("making a request durable", str(self._end))
        waiting: asyncio.Future[StagedReply] = self._loop.create_future()
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        self.put(request, lambda reply: None if waiting.done() else waiting.set_result(reply))
        return await waiting

    async def stop(self) -> None:
        """Make durable what was put, then end. ``answer`` takes nothing more."""
        self._end = StorageError("taking a request", "the bookie stops")
        self._queue.put(None)
        if self._thread.ident is not None:
            await self._loop.run_in_executor(None, self._thread.join)

    def _synced(self, replies: list[tuple[object, StagedReply]], ledgers: Sequence[int]) -> None:
        self._deliver(replies)
        self._listener.synced(ledgers)

    def _deliver(self, replies: list[tuple[object, StagedReply]]) -> None:
        answers = []
        for reply_to, reply in replies:
            assert isinstance(reply_to, _Owed)
            self.queued_bytes -= reply_to.nbytes
            self._queued -= 1
            reply_to.deliver(reply)
            answers.append((reply_to.asked, reply.status))
        self._received.note(*count_answers(answers, self._loop.time()))
        if self._is_below_limits:
            self._room.set()

    def _fail(self, problem: BaseException) -> None:
        self._end = problem
        self._has_failed = True
        self._room.set()
        for waiting in list(self._waiting):
            if not waiting.done():
                waiting.set_exception(StorageError("making a request durable", str(problem)))
        self._listener.failed(problem)

    def call(self, request: StagedRequest) -> StagedReply:
        """Like ``answer``, for other threads of this process. They may outlive the bookie: then it raises StorageError."""
        if self._loop.is_closed():
            raise StorageError("making a request durable", "the bookie has stopped")
        return asyncio.run_coroutine_threadsafe(self.answer(request), self._loop).result()

    # The rest runs on the thread.

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as problem:
            logger.exception("the sync thread failed, this bookie ends: start it again and report this")
            self._loop.call_soon_threadsafe(self._fail, problem)

    def _serve(self) -> None:
        running = True
        while running:
            try:
                item = self._queue.get(timeout=IDLE_S)
            except queue.Empty:
                self._look()
                self._bookie.idle()
                continue
            if self._unseen_bytes >= LOOK_BYTES or self._loop.time() - self._looked_s >= LOOK_S:
                self._look()
            running, ledgers = self._stage_group(item)
            early = self._bookie.take_early()
            if early:
                self._loop.call_soon_threadsafe(self._deliver, early)
            self._loop.call_soon_threadsafe(self._synced, self._sync_group(), sorted(ledgers))

    def _look(self) -> None:
        self._unseen_bytes, self._looked_s = 0, self._loop.time()
        self._listener.looks()

    def _stage_group(self, item: tuple[StagedRequest, _Owed] | None) -> tuple[bool, set[int]]:
        """Stage ``item`` and what follows it in the queue. Returns whether the thread goes on, and the ledgers of the group."""
        began_s, count, nbytes = self._loop.time(), 0, 0
        ledgers: set[int] = set()
        while item is not None:
            self._bookie.stage(*item)
            ledgers.add(item[0].ledger_id)
            count, nbytes = count + 1, nbytes + item[1].nbytes
            age_s = self._loop.time() - began_s
            if count == MAX_STAGED or nbytes >= MAX_GROUP_BYTES or age_s >= MAX_GROUP_S:
                break
            try:
                item = self._queue.get(timeout=self._group_wait.seconds(count, nbytes, age_s))
            except queue.Empty:
                break
        self._group_wait.last_count = count
        self._queue_length.learn(count, self._loop.time() - began_s)
        self._unseen_bytes += nbytes
        if count:
            BOOKIE_GROUP_REQUESTS.observe(count)
            BOOKIE_GROUP_BYTES.observe(nbytes)
        return item is not None, ledgers

    def _sync_group(self) -> list[tuple[object, StagedReply]]:
        began_s = self._loop.time()
        replies = self._bookie.sync()
        self._group_wait.last_sync_s = self._loop.time() - began_s
        BOOKIE_GROUP_S.observe(self._group_wait.last_sync_s)
        return replies


class CheckpointThread:
    """Runs the slow part of checkpoints beside the sync thread, one at a time: a ``Background`` (checkpoint.py).

    The end of its ``with`` statement waits until everything that it was given is done.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        """One piece of work at most: a checkpoint begins once the one before has ended."""
        self._lock = threading.Lock()
        self._problem: BaseException | None = None
        self._failed: Fail | None = None
        self._thread = threading.Thread(target=self._run, name="checkpoint")

    def __call__(self, work: Callable[[], None]) -> None:
        self._queue.put(work)

    def on_failure(self, failed: Fail) -> None:
        """Have ``failed`` called, on any thread, with the error that ends this thread or has ended it already."""
        with self._lock:
            self._failed, problem = failed, self._problem
        if problem is not None:
            failed(problem)

    def __enter__(self) -> CheckpointThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (work := self._queue.get()) is not None:
                with BOOKIE_CHECKPOINT_S.time():
                    work()
        except BaseException as problem:
            logger.exception("the checkpoint thread failed, this bookie ends: start it again and report this")
            with self._lock:
                self._problem, failed = problem, self._failed
            if failed is not None:
                failed(problem)
