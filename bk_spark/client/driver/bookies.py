"""The bookies that one client talks to, each over the protocol that its registration names.

A bookie is looked up when it is first asked for something. What is sent before the answer waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from bk_spark.client.driver.apache.bookie import ApacheBookie
from bk_spark.client.driver.apache.framing import Framing
from bk_spark.client.driver.channels import Channels
from bk_spark.client.driver.connections import BookieConnection, Lookup, ReadProgress, drained
from bk_spark.client.driver.queued_add import QueuedAdd
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.registration import APACHE_PROTOCOL
from bk_spark.wire.messages import (
    AddReply,
    AddRequest,
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

OneProtocol = BookieConnection | ApacheBookie

NOT_REGISTERED = "it is not registered as available"
"""What a call of a bookie says that is not in the list of those that run."""


class Bookies:
    """Every method runs on the event loop."""

    def __init__(self, lookup: Lookup, channels: Channels, framing: Framing) -> None:
        self._lookup = lookup
        self._channels = channels
        self._framing = framing
        self._bookies: dict[str, BookieClient] = {}
        self._closed = False

    def bookie(self, bookie_id: str) -> BookieClient:
        if bookie_id not in self._bookies:
            self._bookies[bookie_id] = BookieClient(bookie_id, self._lookup, self._channels, self._framing, closed=self._closed)
        return self._bookies[bookie_id]

    async def are_of_apache(self, bookie_ids: Iterable[str]) -> bool:
        """Whether those of them that were found before are Apache's; if none was, whether the first one is.

        So the answer waits for no more than a read would, also while ZooKeeper is away.
        """
        bookies = [self.bookie(bookie_id) for bookie_id in bookie_ids]
        known = [bookie for bookie in bookies if bookie.is_known] or bookies[:1]
        return all([await bookie.is_of_apache() for bookie in known])

    async def close(self) -> None:
        """Answer everything that waits. Later requests fail at once."""
        self._closed = True
        await asyncio.gather(*(bookie.close() for bookie in list(self._bookies.values())))


class BookieClient:
    """One bookie as a client sees it. Its requests raise as those of BookieConnection and ApacheBookie do."""

    def __init__(self, bookie_id: str, lookup: Lookup, channels: Channels, framing: Framing, *, closed: bool = False) -> None:
        self.bookie_id = bookie_id
        self._lookup = lookup
        self._channels = channels
        self._framing = framing
        self._closed = closed
        self._known: OneProtocol | None = None
        self._finding = asyncio.Lock()
        self._early: list[QueuedAdd] = []
        """Adds from before the bookie was found, in their order."""
        self._opener: asyncio.Task[None] | None = None

    @property
    def is_known(self) -> bool:
        """Whether it was found before."""
        return self._known is not None

    async def is_of_apache(self) -> bool:
        """False also if it cannot be found."""
        try:
            return isinstance(await self._found(), ApacheBookie)
        except (BookKeeperError, OSError):
            return False

    def send_add(self, request: AddRequest, on_reply: Callable[[AddReply], None]) -> QueuedAdd:
        """``on_reply`` is called exactly once, later."""
        queued = QueuedAdd(request.request_id, request, on_reply)
        if self._known is not None:
            self._known.enqueue(queued)
        else:
            self._early.append(queued)
            if self._opener is None or self._opener.done():
                self._opener = asyncio.get_running_loop().create_task(self._send_early())
        return queued

    async def read(self, request: ReadRequest) -> AsyncIterator[ReadProgress | ReadBatch | ReadEnd]:
        async for part in (await self._found()).read(request):
            yield part

    async def last_add_confirmed(self, request: LastAddConfirmedRequest, timeout_s: float) -> LastAddConfirmedReply:
        return await (await self._found()).last_add_confirmed(request, timeout_s)

    async def store_last_add_confirmed(self, request: StoreLastAddConfirmedRequest, timeout_s: float) -> PlainReply:
        return await (await self._found()).store_last_add_confirmed(request, timeout_s)

    async def force(self, request: ForceRequest, timeout_s: float) -> PlainReply:
        return await (await self._found()).force(request, timeout_s)

    async def describe(self, timeout_s: float) -> BookieDescription:
        return await (await self._found()).describe(timeout_s)

    async def administer(self, operation: AdminOperation, timeout_s: float, ledger_ids: Sequence[int] = ()) -> AdministerReply:
        return await (await self._found()).administer(operation, timeout_s, ledger_ids)

    async def close(self) -> None:
        """Wait up to CLOSE_GRACE_S for the bookie to be found if adds wait for that, then as long for their answers."""
        await drained(lambda: not self._early)
        self._closed = True
        if self._opener is not None:
            self._opener.cancel()
            await asyncio.gather(self._opener, return_exceptions=True)
        self._refuse_early("the client was closed")
        if self._known is not None:
            await self._known.close()

    async def _send_early(self) -> None:
        try:
            known = await self._found()
        except (BookKeeperError, OSError) as problem:
            self._refuse_early(str(problem))
            return
        early, self._early = self._early, []
        for queued in early:
            known.enqueue(queued)

    def _refuse_early(self, problem: str) -> None:
        early, self._early = self._early, []
        for queued in early:
            queued.on_reply(AddReply(queued.request_id, Status.UNKNOWN, problem))

    async def _found(self) -> OneProtocol:
        """What speaks the bookie's protocol."""
        async with self._finding:
            if self._known is None:
                if self._closed:
                    raise ConnectionError("the client was closed")
                address = await self._lookup(self.bookie_id)
                if address is None:
                    raise ConnectionError(NOT_REGISTERED)
                if address.protocol == APACHE_PROTOCOL:
                    self._known = ApacheBookie(self.bookie_id, self._lookup, self._channels.access, self._framing)
                else:
                    self._known = BookieConnection(self.bookie_id, self._lookup, self._channels, address)
            return self._known
