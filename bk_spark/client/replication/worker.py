"""The replication worker: takes ledgers that are marked as under-replicated, makes them whole, and takes the marks away.

Any number of workers may run. Each takes the marks in a random order, so that they seldom meet; where they do, the ledger's
lock decides. A ledger that could not be made whole, or that somebody else works on, is looked at again after ``retry_s``,
and less and less often where that may cost copies (``MAX_RETRY_FACTOR``); one whose open fragment names a lost bookie after
``open_fragment_grace_s``: a writer that lives replaces the bookie itself.

The worker looks for marks when the store tells of a change, and every ``retry_s`` all the same, while it has a place for one
more ledger: one that takes hours does not keep others waiting, nor those that are marked meanwhile. When the session with the
store is lost its locks are gone, and what it was copying fails at its compare-and-set (``lock.py``).

Everything runs on the client's event loop; calls to the store beside it.

Ref: Apache BookKeeper's ReplicationWorker; docs/rules.md, protocol rules 53 to 56; situations 76 and 83.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.replication.ledger_rereplication import RereplicatedLedger
from bk_spark.client.replication.rereplicator import ReplicationLimits, Rereplicator
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import Fragment
from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.metadata.znodes import Znodes

MAX_MARKS = 100_000
"""Ledgers taken up at a time; the others' marks are read when these are done. Ids alone are kept, some megabytes."""

MAX_RETRY_FACTOR = 128.0
"""How many times ``retry_s`` a ledger with an unreadable fragment waits at most: by default about an hour. Each try may copy
all that can be read of it to yet another bookie, where it lies until garbage collection finds it a day later."""

TELL_AGAIN_S = 3_600.0
"""How often the log says of a problem that it is still there: in a cluster without a spare bookie all ledgers share one."""

MAX_TOLD = 1_000
"""Problems that are known to have been told; they are all told again when there are more."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """What a worker has done since its start, and what it is doing."""

    ledgers: int = 0
    """Made whole."""
    entries: int = 0
    nbytes: int = 0
    failures: int = 0
    """Tries that left a ledger under-replicated."""
    last_problem: str = ""
    under_way: int = 0
    """Ledgers that are being copied now."""
    waiting: int = 0
    """Marked ledgers that it tries again later."""


@dataclass(frozen=True, slots=True)
class _Later:
    """A ledger that is to be tried again."""

    due_s: float
    fence: Fragment | None = None
    """Its open fragment: if it is still that one, the ledger is fenced."""


class ReplicationWorker:
    """One worker. ``start`` and ``stop`` are called from outside of the client's event loop."""

    def __init__(
        self,
        store: MetadataStore,
        znodes: Znodes,
        context: ClientContext,
        config: AutoRecoveryConfig,
        marks: UnderReplication | None = None,
        owner: str = "replication worker",
    ) -> None:
        """``context`` uses ``store``. ``marks``: the process's one UnderReplication. ``owner`` is who the locks say works."""
        self._context = context
        self._config = config
        self._marks = marks or UnderReplication(store, znodes)
        limits = ReplicationLimits.of(context.config, config)
        self._rereplicator = Rereplicator(context, LedgerStore(store, znodes), limits, self._marks, owner)
        self._later: dict[int, _Later] = {}
        self._in_vain: dict[int, int] = {}
        """Ledgers, and how often entries were copied for them in vain."""
        self._told_s: dict[str, float] = {}
        """Problems, and when the log last said so."""
        self._done = WorkerProgress()
        self._due: deque[int] = deque()
        """Marked ledgers that are not begun yet."""
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._stopping = False
        self._running: Future[None] | None = None

    def start(self) -> None:
        """Begin to work. Raises MetadataUnavailableError."""
        self._marks.watch(self._on_change)
        self._running = self._context.submit(self._run())

    def stop(self) -> None:
        """End the work; a copy under way is dropped, its lock given back. Waits for that. A second call does nothing."""
        self._stopping = True
        self._on_change()
        if self._running is not None:
            self._running.result()

    def progress(self) -> WorkerProgress:
        """As of now, from any thread."""
        return replace(self._done, under_way=len(self._under_way), waiting=len(self._later))

    def _on_change(self) -> None:
        self._context.loop.call_soon_threadsafe(self._changed.set)

    # --- which ledgers

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
        await self._drop()

    async def _step(self) -> float:
        """Begin what can be begun, or drop all while AutoRecovery is disabled. How long nothing will be due, in seconds."""
        if not await self._context.blocking(self._marks.is_enabled):
            await self._drop()
            self._later.clear()
            return self._config.retry_s
        if self._has_place:
            self._due = await self._marked()
            self._begin()
        if not self._has_place:
            return self._config.retry_s
        now_s = self._context.loop.time()
        return min([self._config.retry_s, *(max(0.0, one.due_s - now_s) for one in self._later.values())])

    @property
    def _has_place(self) -> bool:
        """Whether a ledger that is marked now would be begun at once."""
        return not self._due and len(self._under_way) < self._config.parallel_ledgers

    async def _marked(self) -> deque[int]:
        """The marked ledgers that are neither under way nor to wait, in random order."""
        before = self._waiting()
        marked = await self._context.blocking(lambda: self._read(before))
        self._later = {ledger_id: self._later[ledger_id] for ledger_id in marked if ledger_id in self._later}
        self._in_vain = {ledger_id: self._in_vain[ledger_id] for ledger_id in marked if ledger_id in self._in_vain}
        waiting = self._waiting()
        due = [one for one in marked if one not in waiting]
        for index in range(len(due) - 1, 0, -1):
            other = self._context.choose(index + 1)
            due[index], due[other] = due[other], due[index]
        return deque(due)

    def _waiting(self) -> set[int]:
        """Ledgers that are under way, or not to be tried again yet."""
        now_s = self._context.loop.time()
        return self._under_way.keys() | {ledger_id for ledger_id, one in self._later.items() if one.due_s > now_s}

    def _read(self, waiting: set[int]) -> list[int]:
        """The marked ledgers, with at most MAX_MARKS that are not ``waiting``: those keep no others from being found."""
        marked, due = list[int](), 0
        for one in self._marks.marks():
            marked.append(one.ledger_id)
            due += one.ledger_id not in waiting
            if due == MAX_MARKS:
                break
        return marked

    # --- the work

    def _begin(self) -> None:
        while self._due and not self._stopping and len(self._under_way) < self._config.parallel_ledgers:
            ledger_id = self._due.popleft()
            task = self._under_way[ledger_id] = self._context.loop.create_task(self._work(ledger_id))
            task.add_done_callback(partial(self._ended, ledger_id))

    def _ended(self, ledger_id: int, _: asyncio.Task[None]) -> None:
        del self._under_way[ledger_id]
        self._begin()
        if self._has_place:
            self._changed.set()

    async def _drop(self) -> None:
        """What is under way is dropped at once, and the locks given back."""
        self._due.clear()
        if self._under_way:
            logger.info("the replication worker drops the %d ledgers that it was copying", len(self._under_way))
            tasks = list(self._under_way.values())
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _work(self, ledger_id: int) -> None:
        try:
            self._note(await self._one(ledger_id))
        except BookKeeperError as problem:
            self._note(RereplicatedLedger(ledger_id, False, problem=str(problem)))
        except Exception as problem:
            logger.exception("the copying of ledger %d failed", ledger_id)
            self._note(RereplicatedLedger(ledger_id, False, problem=repr(problem)))

    async def _one(self, ledger_id: int) -> RereplicatedLedger | None:
        """None: another worker was faster."""
        later = self._later.pop(ledger_id, None)
        return await self._rereplicator.marked(ledger_id, fence=None if later is None else later.fence)

    def _retry_s(self, done: RereplicatedLedger) -> float:
        """Twice as long each time where copying an unreadable ledger fills disks anew, until somebody repairs it."""
        if not done.is_in_vain:
            return self._config.retry_s
        tries = self._in_vain[done.ledger_id] = self._in_vain.get(done.ledger_id, 0) + 1
        return self._config.retry_s * min(2.0 ** (tries - 1), MAX_RETRY_FACTOR)

    def _note(self, done: RereplicatedLedger | None) -> None:
        if done is None:
            return
        entries, nbytes = self._done.entries + done.entries, self._done.nbytes + done.nbytes
        self._done = replace(self._done, entries=entries, nbytes=nbytes)
        if done.is_whole:
            self._done = replace(self._done, ledgers=self._done.ledgers + 1)
            return
        is_open = done.open_fragment is not None
        pause_s = self._config.open_fragment_grace_s if is_open else self._retry_s(done)
        self._later[done.ledger_id] = _Later(self._context.loop.time() + pause_s, done.open_fragment)
        if not is_open and not done.is_locked:
            self._done = replace(self._done, failures=self._done.failures + 1, last_problem=done.problem)
            self._tell(done, pause_s)

    def _tell(self, done: RereplicatedLedger, pause_s: float) -> None:
        """One line a problem for TELL_AGAIN_S, whatever number of ledgers has it."""
        problem, now_s = done.problem.removeprefix(f"ledger {done.ledger_id}: "), self._context.loop.time()
        if problem in self._told_s and now_s < self._told_s[problem] + TELL_AGAIN_S:
            return
        if len(self._told_s) >= MAX_TOLD:
            self._told_s.clear()
        self._told_s[problem] = now_s
        what = "ledger %d is still under-replicated, and is tried again in %g s: %s ('bk-spark underreplicated list' shows all)"
        logger.warning(what, done.ledger_id, pause_s, problem)
