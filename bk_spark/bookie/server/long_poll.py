"""Long polls: reads of the last add confirmed that wait until it changes, or the ledger is fenced.

A waiting poll takes no thread. After each sync, also of a fence, the polls on its ledgers read again. Lives on the event loop.

Ref: docs/rules.md, protocol rule 59, situation 46.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from bk_spark.wire.messages import LastAddConfirmedReply, LastAddConfirmedRequest, Status

MAX_LONG_POLLS = 4096
"""Each holds a call open, some tens of KiB. Polls above this number are answered at once, as if their time were up."""

MAX_OF_CONNECTION = 128
"""The same for one connection: half of the calls that it may have open, so that its polls never shut out its adds."""

Ask = Callable[[], Awaitable[LastAddConfirmedReply]]
"""Reads the last add confirmed as it is now."""


class LongPolls:
    """The polls that wait at one bookie."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[asyncio.Event]] = {}
        self.count = 0
        self._of_connection: Counter[str] = Counter()
        self._is_ended = False

    async def answer(self, request: LastAddConfirmedRequest, ask: Ask, connection: str = "") -> LastAddConfirmedReply:
        """The reply to ``request``, after at most its ``wait_ms``. Cancelling it frees its place."""
        is_full = self.count >= MAX_LONG_POLLS or self._of_connection[connection] >= MAX_OF_CONNECTION
        if not request.wait_ms or is_full:
            return await ask()
        woken = asyncio.Event()
        self.count += 1
        self._of_connection[connection] += 1
        self._waiting.setdefault(request.ledger_id, []).append(woken)
        try:
            return await self._wait(request, ask, woken)
        finally:
            self.count -= 1
            self._of_connection[connection] -= 1
            if not self._of_connection[connection]:
                del self._of_connection[connection]
            self._waiting[request.ledger_id].remove(woken)
            if not self._waiting[request.ledger_id]:
                del self._waiting[request.ledger_id]

    def wake(self, ledgers: Sequence[int]) -> None:
        """To be called when these ledgers may have changed."""
        for ledger_id in ledgers:
            for woken in self._waiting.get(ledger_id, ()):
                woken.set()

    def end(self) -> None:
        """Answer all waiting polls, and all later ones at once."""
        self._is_ended = True
        self.wake(list(self._waiting))

    async def _wait(self, request: LastAddConfirmedRequest, ask: Ask, woken: asyncio.Event) -> LastAddConfirmedReply:
        deadline = asyncio.get_running_loop().time() + request.wait_ms / 1000
        while True:
            woken.clear()  # before it reads: a sync in between makes it read again
            reply = await ask()
            if is_news(reply, request) or self._is_ended:
                return reply
            try:
                async with asyncio.timeout_at(deadline):
                    await woken.wait()
            except TimeoutError:
                return reply


def is_news(reply: LastAddConfirmedReply, request: LastAddConfirmedRequest) -> bool:
    """Whether ``reply`` ends the wait. A ledger that has not come to this bookie yet is worth waiting for."""
    if reply.status is Status.OK:
        return reply.is_fenced or reply.last_add_confirmed > request.beyond
    return reply.status is not Status.NO_SUCH_LEDGER
