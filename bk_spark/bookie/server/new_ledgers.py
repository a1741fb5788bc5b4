"""Refuses requests that would begin a ledger under an id that nobody was given.

The first add, fence or last add confirmed of a ledger sets its key on this bookie. Under ids that are still to be given out, it
would shut the real ledgers out of this bookie. It would also look as if the metadata store had gone back to an older copy
(space/issued_ids.py). So a request for a ledger of which this bookie has nothing waits for a look at the store's counter. That
takes some milliseconds, and ledgers that begin at once share a look. Once an id is known to be below the counter nothing waits.
An id that is not may be one that the ledger's creator chose, as Apache's clients can: then the ledger's metadata exist.

If the store does not answer, an id counts as given out unless it is far above the counter: an outage of the store stops no
writer.

Ref: docs/rules.md, protocol rule 64.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from bk_spark.errors import BookKeeperError

LOOK_TIMEOUT_S = 0.5
"""A look takes milliseconds. A request waits no longer, because the other ledgers of its connection wait behind it."""

UNCHECKED_S = 10.0
"""So long no request waits after a look that failed or took too long."""

UNCHECKED_IDS = 100_000
"""So many ids from the known counter on count as given out meanwhile: more than a cluster uses up in an outage. An id far above
would leave no others above it once the operator has to raise the counter."""

MOST_TAKEN = 10_000
"""So many ids above the counter are known to be good; after that they are asked for again."""

logger = logging.getLogger(__name__)


class LedgerIds(Protocol):
    """The metadata store's counter. Its methods may block, and raise BookKeeperError."""

    def next_ledger_id(self) -> int:
        """All ids that were given out before the call are lower, and no others."""

    def next_ledger_id_from(self, known: int) -> int:
        """The same, quicker, from what it was ``known`` to be: some that were given out may be missing."""

    def has_ledger(self, ledger_id: int) -> bool:
        """Whether a ledger exists."""


class NewLedgers:
    """Lives on the event loop."""

    def __init__(self, ids: LedgerIds, holds: Callable[[int], bool], chosen: Callable[[int], None]) -> None:
        """``holds`` says whether this bookie has something of a ledger. It may block, and raise BookKeeperError. ``chosen`` is
        told of ids that were not given out, and yet are of ledgers. Any thread."""
        self._ids = ids
        self._holds = holds
        self._tell_chosen = chosen
        self._taken: set[int] = set()
        """Ids that are not below the counter, and are known to be good."""
        self._below = 0
        """The counter, as it is known."""
        self._highest_asked = 0
        self._unchecked_until_s = 0.0
        self._due: asyncio.Task[int] | None = None
        """A look that has not begun: it waits for the one under way."""
        self._turn = asyncio.Lock()
        self._looker = ThreadPoolExecutor(1, thread_name_prefix="ids")

    def note(self, next_id: int) -> None:
        """What somebody else asked the store. Any thread."""
        self._below = next_id

    def knows(self, ledger_id: int) -> bool:
        """Whether nothing has to be asked about this id."""
        return ledger_id < self._below or ledger_id in self._taken

    async def refusal(self, ledger_id: int) -> str:
        """Why requests for this ledger are refused; "" if they are not."""
        if self.knows(ledger_id) or (not self._is_unchecked and ledger_id < await self._look(ledger_id)):
            return ""
        if self._is_unchecked and ledger_id < self._below + UNCHECKED_IDS:
            return ""
        if await asyncio.to_thread(self._has, ledger_id):
            self._take(ledger_id)
            return ""
        if not self._is_unchecked and await asyncio.to_thread(self._is_chosen, ledger_id):
            self._take(ledger_id)
            return ""
        return f"ledger id {ledger_id} was not given out yet: create the ledger first"

    def stop(self) -> None:
        """No look begins any more."""
        self._looker.shutdown(wait=False, cancel_futures=True)

    @property
    def _is_unchecked(self) -> bool:
        return asyncio.get_running_loop().time() < self._unchecked_until_s

    def _has(self, ledger_id: int) -> bool:
        try:
            return self._holds(ledger_id)
        except BookKeeperError:
            return True  # the request itself meets the error, and is answered with it

    def _is_chosen(self, ledger_id: int) -> bool:
        """Apache's clients may create a ledger under an id of their choice: its metadata exist then."""
        try:
            exists = self._ids.has_ledger(ledger_id)
        except BookKeeperError:
            return False
        if exists:
            self._tell_chosen(ledger_id)
        return exists

    def _take(self, ledger_id: int) -> None:
        if len(self._taken) >= MOST_TAKEN:
            self._taken.clear()
        self._taken.add(ledger_id)

    async def _look(self, ledger_id: int) -> int:
        """The counter, from a look that begins after this call; 0 if there was no answer.

        The caller goes by it, and not by ``_below``, which somebody else's earlier answer may have replaced since.
        """
        self._highest_asked = max(self._highest_asked, ledger_id)
        if self._due is None:
            self._due = asyncio.create_task(self._next_look())
        try:
            return await asyncio.wait_for(asyncio.shield(self._due), LOOK_TIMEOUT_S)
        except TimeoutError:
            self._pause_checks(f"no answer in {LOOK_TIMEOUT_S:g} s")
            return 0

    async def _next_look(self) -> int:
        async with self._turn:
            highest, self._due, self._highest_asked = self._highest_asked, None, 0
            try:
                self._below = await asyncio.get_running_loop().run_in_executor(self._looker, self._ask, highest)
            except Exception as problem:
                self._pause_checks(str(problem) or type(problem).__name__)
                return 0
            return self._below

    def _ask(self, highest: int) -> int:
        seen = self._ids.next_ledger_id_from(self._below)
        return seen if highest < seen else self._ids.next_ledger_id()

    def _pause_checks(self, problem: str) -> None:
        """For UNCHECKED_S no request waits for a look: an id near the known counter counts as given out."""
        if self._is_unchecked:
            return  # one of many that waited for the same answer
        self._unchecked_until_s = asyncio.get_running_loop().time() + UNCHECKED_S
        logger.warning("for %g s new ledgers are taken though their ids may not have been given out: %s", UNCHECKED_S, problem)
