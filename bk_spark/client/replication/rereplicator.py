"""Making ledgers whole again: every fragment that names a bookie which is leaving gets others in its place.

``RereplicateFragment`` copies one fragment; this goes through a ledger's fragments, under the ledger's lock, and through
many ledgers at once on the client's event loop, all of them within one rate of bytes.

The tail of a ledger that is not closed is never copied: it still grows. Its writer, if it lives, replaces a lost bookie
itself. ``RereplicatedLedger.open_fragment`` names the tail; whoever calls gives the writer its grace and then calls again
with it: if the fragment is still the open one and still names the bookie, the ledger is recovered, which fences it, and
is then like any closed one (protocol rule 53). The last fragment but one counts as open while bookies know less to be
confirmed (rule 55).

Ref: docs/rules.md, protocol rules 53 to 56; situations 40 and 76.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_state_machine
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.protocol.limits import CopyLimits, RecoverLimits
from bk_spark.client.replication.ledger_check import CheckScope, LedgerCheck
from bk_spark.client.replication.ledger_rereplication import (
    Leaving,
    LedgerRereplication,
    RereplicatedLedger,
    RereplicationMeans,
)
from bk_spark.client.replication.lock import ReplicationLock, TakenLedger
from bk_spark.client.replication.settings import AutoRecoveryConfig
from bk_spark.config import ClientConfig
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookKeeperError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import Fragment
from bk_spark.metadata.under_replication import Mark, UnderReplication
from bk_spark.telemetry.metrics import BYTES_REPLICATED, ENTRIES_REPLICATED, LEDGERS_REPLICATED, REPLICATION_FAILURES

__all__ = ["ReplicationLimits", "RereplicatedLedger", "Rereplicator"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ReplicationLimits:
    """How fast, how much at once, how patient."""

    copies: CopyLimits
    recovery: AutoRecoveryConfig
    """``replicate_bytes_per_s`` holds for all ledgers together."""

    @staticmethod
    def of(client: ClientConfig, recovery: AutoRecoveryConfig) -> ReplicationLimits:
        """From the settings."""
        return ReplicationLimits(CopyLimits.of(client), recovery)


class Rereplicator:
    """Threads may share it. It needs a session of its own with the metadata store, or one that others only read with."""

    def __init__(
        self,
        context: ClientContext,
        ledgers: LedgerStore,
        limits: ReplicationLimits,
        marks: UnderReplication | None = None,
        owner: str = "replicator",
    ) -> None:
        """``marks``: the process's one UnderReplication, where it has one. ``owner`` is written into the locks, for people."""
        self._context = context
        self._ledgers = ledgers
        self._limits = limits
        marks = marks or UnderReplication(context.store, context.znodes)
        self._lock = ReplicationLock(context.store, context.znodes, ledgers, marks, owner)
        self._means = RereplicationMeans(
            partial(run_state_machine, context),
            limits.copies,
            ByteRate(limits.recovery.replicate_bytes_per_s),
            RecoverLimits.of(context.config),
            context.avoided,
        )
        self._check = LedgerCheck(context, limits.recovery)

    def rereplicate(self, ledger_id: int, leaving: Collection[str], *, fence: Fragment | None = None) -> RereplicatedLedger:
        """Copy every fragment of the ledger that names a bookie of ``leaving`` and has an end; waits. Raises nothing but
        ConfigError (a closed client, a call on the event loop): what failed is said in the result.

        ``fence``: an ``open_fragment`` of an earlier result, after its grace. A mark of the ledger that named nobody else goes,
        if nothing was reported since (protocol rule 56).
        """
        self._may_wait()
        return self._wait(self.replicated(ledger_id, leaving, fence=fence))

    def rereplicate_many(
        self,
        ledger_ids: Sequence[int],
        leaving: Collection[str],
        on_done: Callable[[RereplicatedLedger], None] = lambda one: None,
        *,
        fence: bool = True,
    ) -> list[RereplicatedLedger]:
        """As ``rereplicate``, ``parallel_ledgers`` at once; with ``fence`` ledgers with an open fragment are taken up again,
        and fenced if need be, after ``open_fragment_grace_s``. Gives back those that are not whole.

        ``on_done`` is called on the event loop, briefly, once for each ledger.
        """
        self._may_wait()
        return self._wait(self._many(ledger_ids, frozenset(leaving), on_done, fence))

    async def replicated(
        self, ledger_id: int, leaving: Collection[str], *, fence: Fragment | None = None
    ) -> RereplicatedLedger:
        """``rereplicate``, on the event loop."""
        done = await self._locked(ledger_id, frozenset(leaving), fence)
        assert done is not None, "only for the sake of a mark a ledger is left alone"
        return done

    async def marked(self, ledger_id: int, *, fence: Fragment | None = None) -> RereplicatedLedger | None:
        """As ``replicated``, for what the ledger's mark says: once the ledger is whole the mark is removed, if nothing was
        reported since. None if it has no mark (any more).

        A bookie that the mark names and that is there is asked: if it has all that it should, it stays. If it lacks entries it
        is replaced; where there is no other bookie it gets them back.
        """
        return await self._locked(ledger_id, None, fence)

    # --- one ledger

    async def _locked(
        self, ledger_id: int, leaving: frozenset[str] | None, fence: Fragment | None
    ) -> RereplicatedLedger | None:
        try:
            taken = await self._take(ledger_id)
            if taken is None:
                return RereplicatedLedger(
                    ledger_id, False, problem=f"ledger {ledger_id} is locked by another worker", is_locked=True
                )
            give_back = self._lock.give_back
            try:
                if leaving is None and taken.mark is None:
                    return None
                done = await self._taken(ledger_id, taken, leaving, fence)
            except asyncio.CancelledError:
                give_back = partial(self._lock.cut_off, guard=taken.guard)
                raise
            finally:
                await self._context.blocking(lambda: give_back(ledger_id))
        except BookKeeperError as problem:
            done = RereplicatedLedger(ledger_id, False, problem=str(problem))
        return _counted(done)

    async def _take(self, ledger_id: int) -> TakenLedger | None:
        """The thread that takes the lock goes on if this is cancelled: then the lock is given back once it is there."""
        taking = asyncio.ensure_future(self._context.blocking(lambda: self._lock.take(ledger_id)))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with contextlib.suppress(BookKeeperError):
                if await taking is not None:
                    await self._context.blocking(lambda: self._lock.give_back(ledger_id))
            raise

    async def _taken(
        self, ledger_id: int, taken: TakenLedger, leaving: frozenset[str] | None, fence: Fragment | None
    ) -> RereplicatedLedger:
        done = RereplicatedLedger(ledger_id, True)
        if taken.metadata is not None:
            try:
                whom, metadata, version = Leaving(leaving or frozenset()), taken.metadata, taken.version
                if leaving is None:
                    whom = await self._missing(ledger_id, taken)
                    # What counts as its open tail must not be older than what was checked.
                    metadata, version = await self._context.blocking(lambda: self._ledgers.versioned(ledger_id))
                done = await LedgerRereplication(self._means, taken.guard, whom).run(metadata, version, fence)
                if whom.registered and not done.is_whole:
                    done = replace(done, is_in_vain=True)  # their replicas were read
            except NoSuchLedgerError:
                done = RereplicatedLedger(ledger_id, True)  # deleted meanwhile: nothing is left to be copied
        if not done.is_whole or not _is_reason_gone(taken.mark, leaving):
            return done
        if await self._context.blocking(lambda: self._lock.finish(taken)) or leaving is not None:
            return done
        return replace(done, is_whole=False, problem=f"ledger {ledger_id} was reported again meanwhile")

    async def _missing(self, ledger_id: int, taken: TakenLedger) -> Leaving:
        """Whom of those that the mark names the ledger really lacks."""
        assert taken.mark is not None
        missing = frozenset(taken.mark.missing)
        alive = missing.intersection(one.bookie_id for one in await self._context.registered())
        if not alive:
            return Leaving(missing)
        report = await self._check.checked(ledger_id, CheckScope(bookies=alive))
        whole = alive - report.lacking.keys() - report.unknown.keys()
        return Leaving(missing - whole, alive.intersection(report.lacking), alive)

    # --- many

    async def _many(
        self, ledger_ids: Sequence[int], leaving: frozenset[str], on_done: Callable[[RereplicatedLedger], None], fence: bool
    ) -> list[RereplicatedLedger]:
        def first_done(one: RereplicatedLedger) -> None:
            if one.open_fragment is None or not fence:
                on_done(one)

        first = await self._round([(ledger_id, None) for ledger_id in ledger_ids], leaving, first_done)
        waiting = [(one.ledger_id, one.open_fragment) for one in first if fence and one.open_fragment is not None]
        if not waiting:
            return first
        await asyncio.sleep(self._limits.recovery.open_fragment_grace_s)
        second = await self._round(waiting, leaving, on_done)
        return [one for one in first if one.open_fragment is None] + second

    async def _round(
        self,
        work: Sequence[tuple[int, Fragment | None]],
        leaving: frozenset[str],
        on_done: Callable[[RereplicatedLedger], None],
    ) -> list[RereplicatedLedger]:
        """Those that are not whole."""
        left = iter(work)
        unfinished: list[RereplicatedLedger] = []

        async def go_on() -> None:
            for ledger_id, fence in left:
                done = await self.replicated(ledger_id, leaving, fence=fence)
                if not done.is_whole:
                    unfinished.append(done)
                on_done(done)

        await asyncio.gather(*(go_on() for _ in range(min(self._limits.recovery.parallel_ledgers, len(work)))))
        return unfinished

    def _may_wait(self) -> None:
        self._context.check_open()
        self._context.check_may_wait()

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._context.submit(work).result()


def _is_reason_gone(mark: Mark | None, leaving: frozenset[str] | None) -> bool:
    """Whether a ledger's mark says nothing any more once no fragment names a bookie of ``leaving`` (None: of the mark)."""
    return leaving is None or (mark is not None and leaving.issuperset(mark.missing))


def _counted(done: RereplicatedLedger) -> RereplicatedLedger:
    if done.is_whole:
        LEDGERS_REPLICATED.inc()
    elif not done.is_locked and done.open_fragment is None:
        REPLICATION_FAILURES.inc()
    ENTRIES_REPLICATED.inc(done.entries)
    BYTES_REPLICATED.inc(done.nbytes)
    return done
