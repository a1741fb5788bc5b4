"""Refuses requests that would begin a ledger under an id that nobody was given.

The first add, fence or last add confirmed of a ledger sets its key on this bookie. Under ids that are still to be given out, it
would shut the real ledgers out of this bookie. It would also look as if the metadata store had gone back to an older copy
(space/issued_ids.py). So a request for a ledger of which this bookie has nothing waits for a look at the store's counter. That
takes some milliseconds, and ledgers that begin at once share a look. Once an id is known to be below the counter nothing waits.

If the store does not answer, every id counts as given out: an outage of the store stops no writer.

Ref: docs/rules.md, protocol rule 64.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bk_spark.errors import BookKeeperError

LOOK_TIMEOUT_S = 2.0
"""A request waits no longer for a look: well below the ten seconds for which a client waits for its answer."""

BLIND_S = 10.0
"""So long no look is tried after one that failed or took too long, and all ids count as given out."""

logger = logging.getLogger(__name__)


class NewLedgers:
    """Lives on the event loop."""

    def __init__(self, next_id: Callable[[], int], holds: Callable[[int], bool]) -> None:
        """``next_id`` asks the store: all ids that were given out before the call are lower. ``holds`` says whether this bookie
        has something of a ledger. Both may block, and raise BookKeeperError."""
        self._next_id = next_id
        self._holds = holds
        self._below = 0
        """The highest answer of ``next_id`` so far."""
        self._blind_until_s = 0.0
        self._due: asyncio.Task[None] | None = None
        """A look that has not begun: it waits for the one under way."""
        self._turn = asyncio.Lock()

    async def refusal(self, ledger_id: int) -> str:
        """Why requests for this ledger are refused; "" if they are not."""
        if self._may_begin(ledger_id) or await asyncio.to_thread(self._has, ledger_id):
            return ""
        await self._look()
        return "" if self._may_begin(ledger_id) else f"ledger id {ledger_id} was not given out yet: create the ledger first"

    def _may_begin(self, ledger_id: int) -> bool:
        return ledger_id < self._below or asyncio.get_running_loop().time() < self._blind_until_s

    def _has(self, ledger_id: int) -> bool:
        try:
            return self._holds(ledger_id)
        except BookKeeperError:
            return True  # the request itself meets the error, and is answered with it

    async def _look(self) -> None:
        """Wait for the end of a look that begins after this call."""
        if self._due is None:
            self._due = asyncio.create_task(self._next_look())
        try:
            await asyncio.wait_for(asyncio.shield(self._due), LOOK_TIMEOUT_S)
        except TimeoutError:
            self._go_blind(f"no answer in {LOOK_TIMEOUT_S:g} s")

    async def _next_look(self) -> None:
        async with self._turn:
            self._due = None
            try:
                self._below = max(self._below, await asyncio.to_thread(self._next_id))
            except BookKeeperError as problem:
                self._go_blind(str(problem))

    def _go_blind(self, problem: str) -> None:
        self._blind_until_s = asyncio.get_running_loop().time() + BLIND_S
        logger.warning("for %g s new ledgers are taken whether or not their ids were given out: %s", BLIND_S, problem)
