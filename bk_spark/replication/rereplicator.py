"""Re-replicates ledgers: every fragment that names a leaving bookie gets another bookie in its place, with all entries.

``LedgerRereplication`` handles one ledger. This module runs it under the ledger's lock, for many ledgers at once on the
client's event loop, all within one rate of bytes.

The open tail of a ledger still grows, so it is never copied. A live writer replaces a lost bookie itself. The tail is reported
as ``RereplicatedLedger.open_fragment``. The caller gives the writer a grace period, and then calls again with that fragment. If
it is still open and still names the bookie, the ledger is recovered, which fences it, and re-replicated like a closed one
(protocol rule 53). The last fragment but one counts as open while bookies do not know it to be confirmed (rule 55).

Ref: docs/rules.md, protocol rules 53 to 56; situations 40 and 76.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import replace
from functools import partial

from bk_spark.client.driver.client_context import ClientContext
from bk_spark.client.driver.run_state_machine import run_writing
from bk_spark.client.ledger.ledger_store import LedgerStore
from bk_spark.client.protocol.limits import CopyLimits, RecoverLimits
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookKeeperError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from bk_spark.metadata.under_replication import UnderReplication
from bk_spark.replication.balance_plan import BalancePlan
from bk_spark.replication.copy_moves import BalanceMoves, RackMoves
from bk_spark.replication.ledger_check import LedgerCheck
from bk_spark.replication.ledger_rereplication import (
    Leaving,
    LedgerRereplication,
    Perform,
    RereplicatedLedger,
    RereplicationMeans,
)
from bk_spark.replication.lock import ReplicationLock, TakenLedger
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.telemetry.metrics import BYTES_REPLICATED, ENTRIES_REPLICATED, LEDGERS_REPLICATED, REPLICATION_FAILURES

OnDone = Callable[[RereplicatedLedger], None]


class Rereplicator:
    """Re-replicates ledgers, all together within ``replicate_bytes_per_s``. Threads may share it.

    Its session with the metadata store must be its own, or be used by others only to read.
    """

    def __init__(
        self,
        context: ClientContext,
        recovery: AutoRecoveryConfig,
        marks: UnderReplication | None = None,
        owner: str = "replicator",
        perform: Perform | None = None,
    ) -> None:
        """``marks``: the process's UnderReplication, if it has one. ``owner`` is stored in the locks, for people.

        ``perform``: what runs a ledger's state machines; by default the client's connections do.
        """
        self._context = context
        self._recovery = recovery
        self._ledgers = LedgerStore(context.store, context.znodes)
        marks = marks or UnderReplication(context.store, context.znodes)
        self._lock = ReplicationLock(context.store, context.znodes, marks, owner)
        self._means = RereplicationMeans(
            perform or partial(run_writing, context),
            CopyLimits.of(context.config),
            ByteRate(recovery.replicate_bytes_per_s),
            RecoverLimits.of(context.config),
            context.avoided,
        )
        self._check = LedgerCheck(context, recovery, perform)

    def rereplicate_many(
        self, ledger_ids: Sequence[int], leaving: Set[str], on_done: OnDone = lambda done: None, *, fence: bool = True
    ) -> list[RereplicatedLedger]:
        """As ``rereplicate``, ``parallel_ledgers`` at once. Returns the results of the ledgers that are not whole.

        Blocks; call it from outside of the event loop. With ``fence``, ledgers with an open fragment are tried again after
        ``open_fragment_grace_s``, and fenced if need be. ``on_done`` is called on the event loop, once for each ledger; it must
        not block. Raises only ConfigError (a closed client, a call on the event loop): the results name all other problems.
        """
        self._context.check_open()
        self._context.check_may_wait()
        return self._context.run(self._rereplicate_many(ledger_ids, leaving, on_done, fence))

    def locked_by_others(self) -> set[int]:
        """The ledgers that ``rereplicate`` would find locked now. Blocks. Raises MetadataUnavailableError."""
        return self._lock.locked_by_others()

    async def rereplicate(
        self, ledger_id: int, leaving: Set[str] | None = None, *, fence: Fragment | None = None
    ) -> RereplicatedLedger:
        """Re-replicate every fragment of the ledger that names a bookie of ``leaving`` and has an end.

        ``leaving`` defaults to the bookies that the ledger's mark names. Those that are registered are checked first: one that
        has all its entries stays; one that lacks entries is replaced, or gets them back where there is no other bookie. A mark
        that names nobody asks for more racks (``RackMoves``).

        ``fence`` is the ``open_fragment`` of an earlier result, after its grace period. The mark of a whole ledger is removed
        if it names no other bookies, and was not reported again meanwhile (protocol rule 56).
        """

        async def work(taken: TakenLedger) -> RereplicatedLedger:
            if leaving is None and taken.mark is None:
                return RereplicatedLedger(ledger_id, True)  # somebody else was faster
            done = await self._rereplicate_taken(ledger_id, taken, leaving, fence)
            return await self._remove_mark(taken, leaving, done)

        return await self._locked(ledger_id, work)

    async def balance(self, ledger_id: int, plan: BalancePlan) -> RereplicatedLedger:
        """Move those copies of a closed ledger that the plan wants to be elsewhere now.

        Repair comes first: nothing moves if the ledger has a mark, or names a bookie that is not registered.
        """

        async def work(taken: TakenLedger) -> RereplicatedLedger:
            metadata, registered = taken.metadata, {one.bookie_id for one in await self._context.registered()}
            if metadata is None or not metadata.is_closed or taken.mark is not None or not metadata.bookies <= registered:
                return RereplicatedLedger(ledger_id, True)
            return await BalanceMoves(self._means, taken.guard, plan).run(metadata, taken.version)

        return await self._locked(ledger_id, work)

    async def _locked(self, ledger_id: int, work: Callable[[TakenLedger], Awaitable[RereplicatedLedger]]) -> RereplicatedLedger:
        """Do the work while holding the ledger's lock, if nobody else holds it."""
        try:
            taken = await self._take(ledger_id)
            if taken is None:
                problem = f"ledger {ledger_id} is locked by another worker"
                return RereplicatedLedger(ledger_id, False, problem=problem, is_locked=True)
            give_back = self._lock.give_back
            try:
                done = await work(taken)
            except asyncio.CancelledError:
                give_back = partial(self._lock.cut_off, guard=taken.guard)
                raise
            finally:
                await self._context.blocking(lambda: give_back(ledger_id))
        except BookKeeperError as problem:
            done = RereplicatedLedger(ledger_id, False, problem=str(problem))
        _count(done)
        return done

    async def _take(self, ledger_id: int) -> TakenLedger | None:
        """If this is cancelled, the thread that takes the lock goes on: wait for it, and give the lock back."""
        taking = asyncio.ensure_future(self._context.blocking(lambda: self._lock.take(ledger_id)))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with contextlib.suppress(BookKeeperError):
                if await taking is not None:
                    await self._context.blocking(lambda: self._lock.give_back(ledger_id))
            raise

    async def _rereplicate_taken(
        self, ledger_id: int, taken: TakenLedger, leaving: Set[str] | None, fence: Fragment | None
    ) -> RereplicatedLedger:
        if taken.metadata is None:
            return RereplicatedLedger(ledger_id, True)
        metadata, version = taken.metadata, taken.version
        try:
            bookies = Leaving(frozenset(leaving or ()))
            if leaving is None:
                bookies = await self._missing(ledger_id, taken)
                # The metadata that decides what is the open tail must not be older than the check.
                metadata, version = await self._context.blocking(lambda: self._ledgers.versioned(ledger_id))
            done = await LedgerRereplication(self._means, taken.guard, bookies).run(metadata, version, fence)
        except NoSuchLedgerError:
            return RereplicatedLedger(ledger_id, True)  # deleted meanwhile: nothing is left to be copied
        if leaving is None and done.is_whole and taken.mark is not None and not taken.mark.missing:
            return await self._move(metadata, version, taken.guard)
        if leaving is None and done.is_whole and metadata.state is LedgerState.IN_RECOVERY:
            # A writer that was displaced may have marked it for its last fragment, which is checked once it has an end.
            problem = f"ledger {ledger_id} is being recovered: what its last fragment lacks is known once it is closed"
            return replace(done, is_whole=False, is_in_vain=True, problem=problem)
        if bookies.registered and not done.is_whole:
            return replace(done, is_in_vain=True)  # the check read their replicas
        return done

    async def _move(self, metadata: LedgerMetadata, version: int, guard: str) -> RereplicatedLedger:
        """The mark names no bookie: nothing is missing, and copies are to span more racks."""
        try:
            return await RackMoves(self._means, guard, self._context.rack_map).run(metadata, version)
        except NoSuchLedgerError:
            return RereplicatedLedger(metadata.ledger_id, True)

    async def _remove_mark(self, taken: TakenLedger, leaving: Set[str] | None, done: RereplicatedLedger) -> RereplicatedLedger:
        """Remove the mark of a ledger that is whole, if the mark names no bookie outside of ``leaving``."""
        is_answered = leaving is None or (taken.mark is not None and leaving >= set(taken.mark.missing))
        if not done.is_whole or not is_answered:
            return done
        if await self._context.blocking(lambda: self._lock.finish(taken)) or leaving is not None:
            return done
        return replace(done, is_whole=False, problem=f"ledger {done.ledger_id} was reported again meanwhile")

    async def _missing(self, ledger_id: int, taken: TakenLedger) -> Leaving:
        """The bookies that the mark names, without those that are registered and have all their entries."""
        assert taken.mark is not None
        missing = frozenset(taken.mark.missing)
        registered = missing.intersection(one.bookie_id for one in await self._context.registered())
        if not registered:
            return Leaving(missing)
        checked = await self._check.check(ledger_id, bookies=registered)
        whole = registered - checked.lacking.keys() - checked.unknown.keys()
        return Leaving(missing - whole, registered.intersection(checked.lacking), registered)

    async def _rereplicate_many(
        self, ledger_ids: Sequence[int], leaving: Set[str], on_done: OnDone, fence: bool
    ) -> list[RereplicatedLedger]:
        slots = asyncio.Semaphore(self._recovery.parallel_ledgers)

        async def rereplicate_one(ledger_id: int) -> RereplicatedLedger:
            async with slots:
                done = await self.rereplicate(ledger_id, leaving)
            if fence and done.open_fragment is not None:
                await asyncio.sleep(self._recovery.open_fragment_grace_s)
                async with slots:
                    done = await self.rereplicate(ledger_id, leaving, fence=done.open_fragment)
            on_done(done)
            return done

        results = await asyncio.gather(*(rereplicate_one(ledger_id) for ledger_id in ledger_ids))
        return [done for done in results if not done.is_whole]


def _count(done: RereplicatedLedger) -> None:
    if done.is_whole:
        LEDGERS_REPLICATED.inc()
    elif not done.is_locked and done.open_fragment is None:
        REPLICATION_FAILURES.inc()
    ENTRIES_REPLICATED.inc(done.entries)
    BYTES_REPLICATED.inc(done.nbytes)
