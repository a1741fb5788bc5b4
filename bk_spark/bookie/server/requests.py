"""What a bookie does with a request, whichever of its two ports it came to: the threads behind both.

Threads: **one** sync thread, which alone stages and syncs, and one for its checkpoints; a few read threads; one thread for the
reads of recoveries, and one for short requests (reads of the last add confirmed, descriptions, administration): these two must
not wait behind other reads. Connections of both ports take turns.

Ref: DESIGN.md, "Threads of a bookie"; docs/rules.md, protocol rules 34 and 35.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.server.audit import Audit, Caller
from bk_spark.bookie.server.fair_turns import FairTurns
from bk_spark.bookie.server.long_poll import LongPolls
from bk_spark.bookie.server.members import BookieMembers
from bk_spark.bookie.server.new_ledgers import LedgerIds, NewLedgers
from bk_spark.bookie.server.sync_thread import Fail, SyncListener, SyncThread
from bk_spark.config import BookieConfig
from bk_spark.entries.batch import NO_ENTRY
from bk_spark.errors import StorageError
from bk_spark.telemetry.audit_lines import Who
from bk_spark.wire.messages import (
    BookieDescription,
    FenceRequest,
    LastAddConfirmedReply,
    LastAddConfirmedRequest,
    PlainReply,
    StagedRequest,
    Status,
)

SHORT_AHEAD = 2
"""Short requests that are handed to their thread: one is under way, and the next one waits for no turn of the event loop."""

_Answer = TypeVar("_Answer")


class Requests:
    """Created on the event loop, where its methods run."""

    def __init__(
        self, bookie: Bookie, config: BookieConfig, ledger_ids: LedgerIds, looks: Callable[[], None], failed: Fail
    ) -> None:
        """``ledger_ids`` asks the metadata store; ``looks`` and ``failed`` as in SyncListener.

        Raises ConfigError if the file of members cannot be used.
        """
        self.bookie = bookie
        self.polls = LongPolls()
        self.sync_thread = SyncThread(bookie, config.sync_queue_bytes, SyncListener(looks, self.polls.wake, failed))
        storage = bookie.storage
        self.new_ledgers = NewLedgers(
            ledger_ids, lambda ledger_id: storage.facts(ledger_id) is not None, storage.note_chosen_id
        )
        self.read_turns, self.recovery_turns = FairTurns(config.read_threads), FairTurns(1)
        self.readers = ThreadPoolExecutor(config.read_threads, thread_name_prefix="read")
        self.recoveries = ThreadPoolExecutor(1, thread_name_prefix="recovery")
        self.reserved = ThreadPoolExecutor(1, thread_name_prefix="reserved")
        self.short_turns = FairTurns(SHORT_AHEAD)
        self._loop = asyncio.get_running_loop()
        self.members = BookieMembers(config.members, self._loop.time)
        self.audit = Audit(self._loop.call_later, self.members.have)
        self._unabandoned: set[asyncio.Task[Any]] = set()

    async def stop(self) -> None:
        """Make durable what was received, and end the threads."""
        await self.sync_thread.stop()
        self.new_ledgers.stop()
        for pool in (self.readers, self.recoveries, self.reserved):
            pool.shutdown()
        self.audit.close()

    async def store(self, request: StagedRequest) -> PlainReply:
        """Have a request other than an add made durable."""
        refusal = await self.new_ledgers.refusal(request.ledger_id)
        if refusal:
            return PlainReply(Status.UNKNOWN, refusal)
        try:
            reply = await self.sync_thread.answer(request)
        except StorageError as problem:
            return PlainReply(Status.IO_ERROR, str(problem))
        assert isinstance(reply, PlainReply)
        return reply

    async def fence(self, ledger_id: int, master_key: bytes, caller: Caller) -> PlainReply | None:
        """Fence a ledger, durably. Returns the reply if it was refused."""
        request = FenceRequest(self.bookie.bookie_id, ledger_id, master_key)
        reply = await self.to_the_end(self._fence(request, caller.who()))
        return None if reply.status is Status.OK else reply

    async def _fence(self, request: FenceRequest, who: Who) -> PlainReply:
        reply = await self.store(request)
        if reply.status is Status.OK:
            self.audit.fenced(request.ledger_id, who)
        return reply

    async def to_the_end(self, step: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run a step that goes into the audit log: also to its end if its client goes away."""
        task = self._loop.create_task(step)
        self._unabandoned.add(task)
        task.add_done_callback(self._unabandoned.discard)
        return await asyncio.shield(task)

    async def last_add_confirmed(self, request: LastAddConfirmedRequest, caller: Caller) -> LastAddConfirmedReply:
        """At once, or as a long poll."""
        peer = caller.peer
        refused = await self.fence(request.ledger_id, request.master_key, caller) if request.fence else None
        if refused is not None:
            return LastAddConfirmedReply(refused.status, NO_ENTRY, refused.detail)

        async def ask() -> LastAddConfirmedReply:
            return await self.short(peer, partial(self.bookie.read_last_add_confirmed, request))

        return await self.polls.answer(request, ask, peer)

    async def describe(self, peer: str) -> BookieDescription:
        return await self.short(peer, self.bookie.describe)

    async def short(self, peer: str, work: Callable[[], _Answer]) -> _Answer:
        """Run ``work`` on the thread for short requests. Connections take turns."""
        async with self.short_turns.turn(peer):
            return await self._loop.run_in_executor(self.reserved, work)
