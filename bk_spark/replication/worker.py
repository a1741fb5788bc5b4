"""The replication worker: takes ledgers that are marked as under-replicated, re-replicates them, and removes their marks.

Any number of workers may run. Each takes some marked ledgers by chance that nobody else has locked, so that two workers seldom
want the same one; if they do, the ledger's lock decides. No worker takes many at a time: others would be done with them when
their turn comes. A ledger that is not whole afterwards, or that is locked, is tried again after ``retry_s``; the pause grows
where each try may cost copies (``MAX_RETRY_FACTOR``). A ledger whose open fragment names a lost bookie is tried again after
``open_fragment_grace_s``: a live writer replaces the bookie itself in that time.

The worker reads the marks when the store reports a change, and at least every ``retry_s``, provided that it could begin one
more ledger at once. So a ledger that takes hours delays neither the others nor those that are marked meanwhile. When the
session with the store is lost, its locks are gone, and the ledgers under way fail at their compare-and-set (``lock.py``).

Everything runs on the client's event loop; calls to the store run beside it.

Ref: Apache BookKeeper's ReplicationWorker; docs/rules.md, protocol rules 53 to 56; situations 76 and 83.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Set
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import Fragment
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.ledger_rereplication import Perform, RereplicatedLedger
from bk_spark.replication.rereplicator import Rereplicator
from bk_spark.replication.settings import AutoRecoveryConfig

TAKEN_AT_ONCE = 4
"""So many times ``parallel_ledgers`` are taken up at a time. With more there are fewer listings, but more of them are done by
others when their turn comes: with 100 workers and 30,000 marks every tenth."""

SHARE = 2
"""A worker takes no more than so many times its share of what is left, so that the last marks are not wanted by all workers."""

LISTINGS_PER_S = 100
"""Of all workers together, once each of them was told of new marks: they begin after random pauses."""

MAX_RETRY_FACTOR = 128.0
"""How many times ``retry_s`` a ledger with an unreadable fragment waits at most: by default about an hour. Each try may copy
all that can be read of it to yet another bookie, where it lies until garbage collection finds it a day later."""

LOG_AGAIN_S = 3_600.0
"""How often the log repeats a problem that persists: in a cluster without a spare bookie all ledgers share one problem."""

MAX_LOGGED = 1_000
"""Logged problems that are remembered. When there are more, all are forgotten, and logged again."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Retry:
    """A ledger's next try."""

    due_s: float
    fence: Fragment | None = None
    """The ledger's open fragment: if it is still open then, the ledger is fenced."""


class ReplicationWorker:
    """One worker. Call ``start`` and ``stop`` from outside of the client's event loop."""

    def __init__(
        self,
        context: ClientContext,
        config: AutoRecoveryConfig,
        marks: UnderReplication | None = None,
        owner: str = "replication worker",
        perform: Perform | None = None,
    ) -> None:
        """``marks``: the process's UnderReplication, if it has one. ``owner`` is stored in the locks, for people.

        ``perform``: as of ``Rereplicator``.
        """
        self._context = context
        self._config = config
        self._marks = marks or UnderReplication(context.store, context.znodes)
        self._rereplicator = Rereplicator(context, config, self._marks, owner, perform)
        self._retries: dict[int, _Retry] = {}
        self._in_vain: dict[int, int] = {}
        """Ledger → how many tries copied entries in vain."""
        self._logged_s: dict[str, float] = {}
        """Problem → when it was last logged."""
        self._looked_s = 0.0
        """When it last saw which of those that wait for a retry are still marked."""
        self._workers = 1
        """As many as there were at the last listing."""
        self._is_told = False
        """Whether the store reported a change since the last step."""
        self._due = deque[int]()
        """Marked ledgers to begin now, as soon as there is room."""
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._stopping = False
        self._running: Future[None] | None = None

    def start(self) -> None:
        """Begin to work. Raises MetadataUnavailableError."""
        self._marks.watch(self._on_change)
        self._running = self._context.submit(self._run())

    def stop(self) -> None:
        """Cancel the ledgers under way, release their locks, and block until that is done. May be repeated."""
        self._stopping = True
        self._on_change()
        if self._running is not None:
            self._running.result()

    def _on_change(self) -> None:
        self._is_told = True
        self._context.loop.call_soon_threadsafe(self._changed.set)

    async def _run(self) -> None:
        while not self._stopping:
            self._changed.clear()
            pause_s = self._config.retry_s
            try:
                pause_s = await self._step()
            except BookKeeperError as problem:
                logger.warning("the marks of under-replicated ledgers cannot be read now: %s", problem)
            except Exception:
                logger.exception("the replication worker failed, and goes on")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause_s)
            if self._is_told:
                self._is_told = False
                await self._let_others_list()
        await self._cancel_all()

    async def _let_others_list(self) -> None:
        """All workers are told of new marks at once: each lists them after another pause."""
        due_s = self._context.loop.time() + self._workers / LISTINGS_PER_S * self._context.choose(1_000) / 1_000
        while self._has_room and not self._stopping and (left_s := due_s - self._context.loop.time()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    async def _step(self) -> float:
        """Begin due ledgers, or cancel all while AutoRecovery is disabled. Returns the seconds until the next step."""
        if not await self._context.blocking(self._marks.is_enabled):
            await self._cancel_all()
            self._retries.clear()
            return self._config.retry_s
        if self._has_room:
            self._due = await self._read_due()
            self._begin_due()
        if not self._has_room:
            return self._config.retry_s
        now_s = self._context.loop.time()
        return min([self._config.retry_s, *(max(0.0, retry.due_s - now_s) for retry in self._retries.values())])

    @property
    def _has_room(self) -> bool:
        """Whether a ledger that gets marked now would be begun at once."""
        return not self._due and len(self._under_way) < self._config.parallel_ledgers

    async def _read_due(self) -> deque[int]:
        """Ledgers whose next try is due, and some marked ones that nobody works on, nor this worker is to try again."""
        waiting = self._retries.keys() | self._in_vain.keys()
        if waiting and self._context.loop.time() >= self._looked_s + self._config.retry_s:
            marked = await self._context.blocking(lambda: waiting.intersection(self._marks.marked_ids()))
            self._forget_unmarked(waiting, marked)
        now_s, most = self._context.loop.time(), TAKEN_AT_ONCE * self._config.parallel_ledgers
        due = [ledger_id for ledger_id, retry in self._retries.items() if retry.due_s <= now_s][:most]
        known = self._under_way.keys() | self._retries.keys()
        return deque(due + await self._context.blocking(lambda: self._some_marked(most, known)))

    def _forget_unmarked(self, waiting: set[int], marked: set[int]) -> None:
        """Others made them whole: once they are marked anew they are begun at once."""
        self._looked_s = self._context.loop.time()
        for ledger_id in waiting - marked - self._under_way.keys():
            self._retries.pop(ledger_id, None)
            self._in_vain.pop(ledger_id, None)

    def _some_marked(self, most: int, known: Set[int]) -> list[int]:
        """Up to ``most`` marked ledgers, by chance, neither ``known`` nor locked; no more than its share of all. Blocks."""
        # Each AutoRecovery process stands for election. A worker that is in none of them is alone, as far as it knows.
        self._workers = max(1, self._marks.candidates())
        most = min(most, math.ceil(SHARE * self._marks.count() / self._workers))
        return self._marks.some_ids(most, self._context.choose, known | self._rereplicator.locked_by_others()) if most else []

    def _begin_due(self) -> None:
        while self._due and not self._stopping and len(self._under_way) < self._config.parallel_ledgers:
            ledger_id = self._due.popleft()
            assert ledger_id not in self._under_way, "a worker copies a ledger once at a time"
            task = self._under_way[ledger_id] = self._context.loop.create_task(self._rereplicate(ledger_id))
            task.add_done_callback(partial(self._ended, ledger_id))

    def _ended(self, ledger_id: int, _: asyncio.Task[None]) -> None:
        del self._under_way[ledger_id]
        self._begin_due()
        if self._has_room:
            self._changed.set()

    async def _cancel_all(self) -> None:
        """Cancel the ledgers under way, and wait until their locks are released."""
        self._due.clear()
        if self._under_way:
            logger.info("the replication worker drops the %d ledgers that it was copying", len(self._under_way))
            tasks = list(self._under_way.values())
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _rereplicate(self, ledger_id: int) -> None:
        retry = self._retries.pop(ledger_id, None)
        try:
            done = await self._rereplicator.rereplicate(ledger_id, fence=None if retry is None else retry.fence)
        except BookKeeperError as problem:
            done = RereplicatedLedger(ledger_id, False, problem=str(problem))
        except Exception as problem:
            logger.exception("the copying of ledger %d failed", ledger_id)
            done = RereplicatedLedger(ledger_id, False, problem=repr(problem))
        self._note(done)

    def _note(self, done: RereplicatedLedger) -> None:
        """Plan the next try of a ledger that is not whole."""
        if done.is_whole:
            self._in_vain.pop(done.ledger_id, None)
            return
        assert done.ledger_id not in self._retries, "a ledger that waits for its next try was not begun"
        is_open = done.open_fragment is not None
        pause_s = self._config.open_fragment_grace_s if is_open else self._retry_s(done)
        self._retries[done.ledger_id] = _Retry(self._context.loop.time() + pause_s, done.open_fragment)
        if not is_open and not done.is_locked:
            self._log_problem(done, pause_s)

    def _retry_s(self, done: RereplicatedLedger) -> float:
        """The pause doubles with each try that copied entries in vain: such tries fill disks until the ledger is repaired."""
        if not done.is_in_vain:
            return self._config.retry_s
        tries = self._in_vain[done.ledger_id] = self._in_vain.get(done.ledger_id, 0) + 1
        return self._config.retry_s * min(2.0 ** (tries - 1), MAX_RETRY_FACTOR)

    def _log_problem(self, done: RereplicatedLedger, pause_s: float) -> None:
        """Log a problem once in LOG_AGAIN_S, however many ledgers have it."""
        problem, now_s = done.problem.removeprefix(f"ledger {done.ledger_id}: "), self._context.loop.time()
        if problem in self._logged_s and now_s < self._logged_s[problem] + LOG_AGAIN_S:
            return
        if len(self._logged_s) >= MAX_LOGGED:
            self._logged_s.clear()
        self._logged_s[problem] = now_s
        what = "ledger %d is still under-replicated, and is tried again in %g s: %s ('bk-spark underreplicated list' shows all)"
        logger.warning(what, done.ledger_id, pause_s, problem)
