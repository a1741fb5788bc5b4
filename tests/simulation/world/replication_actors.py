"""Who re-replicates: workers that run the shipped decisions under the ledger's lock; and bookies that drop what nothing names.

The lock is taken as the product does it: a guard first, then the lock, then a look at the ledger that shows that the guard is
still there. Whoever stood still longer than its session lasts goes on, and does not know yet.
"""

from __future__ import annotations

from bk_spark.bookie.space.garbage_collection import METADATA_EXISTS
from bk_spark.client.protocol.limits import CopyLimits, ReadLimits
from bk_spark.client.protocol.placement.wider_slot import RackMap
from bk_spark.client.protocol.state_machine import StateMachine
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookKeeperError, NoSuchLedgerError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.replication.copy_moves import RackMoves
from bk_spark.replication.ledger_rereplication import (
    Leaving,
    LedgerRereplication,
    RereplicatedLedger,
    RereplicationMeans,
)
from bk_spark.wire.messages import DeleteLedgerRequest, PlainReply
from tests.simulation.engines.schedule import Schedule
from tests.simulation.scripts.hand_driven import OnDone, Step, drive
from tests.simulation.world.bookie_actor import BookieActor
from tests.simulation.world.client_actors import METADATA_RETRY_MS, Client, recover_limits
from tests.simulation.world.ledger_lock import LedgerLock
from tests.simulation.world.messages import (
    METADATA,
    GetLocked,
    GiveLockBack,
    LockTaken,
    MakeGuard,
    MetadataMissing,
    MetadataValue,
    SetMetadata,
    TakeLock,
)
from tests.simulation.world.replication_plans import CollectorPlan, ReplicatorPlan
from tests.simulation.world.world import Wake, World

Taken = tuple[LedgerMetadata, int]

CHECKPOINTED_MS = 50
"""After so long a checkpoint that was asked for is done, if nothing goes wrong."""


class LockingClient(Client):
    """A client that works under the ledger's lock."""

    def __init__(self, name: str, world: World, schedule: Schedule, start_ms: int, lock: LedgerLock) -> None:
        super().__init__(name, world, schedule)
        self._start_ms = start_ms
        self._lock = lock
        self.before_change: Wake | None = None
        """What happens right before it next writes metadata, or deletes."""
        self._guard = ""
        self._guards = 0

    def begin(self) -> None:
        self.later(self._start_ms, lambda: drive(self._work()))

    async def _work(self) -> None:
        raise NotImplementedError

    def _asked(self, body: object) -> Step:
        return Step(lambda done: self._call(body, done))

    def _call(self, body: object, done: OnDone) -> None:
        self.call(METADATA, body, done)

    def _slept(self, delay_ms: int) -> Step:
        return Step(lambda done: self.later(delay_ms, lambda: done(None)))

    def call(self, target: str, body: object, on_answer: OnDone) -> int:
        if isinstance(body, SetMetadata):
            self._befall()
        return super().call(target, body, on_answer)

    def _befall(self) -> None:
        befalls, self.before_change = self.before_change, None
        if befalls is not None:
            befalls()

    async def _take_lock(self, *, is_guarded: bool) -> Taken | None:
        """The ledger; None if the lock could not be had, or the ledger is gone. The session is what it is at each request."""
        if is_guarded and not self._guard:
            self._guards += 1
            guard = f"{self.name}-{self._guards}"
            if not isinstance(await self._asked(MakeGuard(self._session, guard)), LockTaken):
                return None
            self._guard = guard
        answer = await self._asked(TakeLock(self._session))
        if isinstance(answer, LockTaken) and not answer.is_taken:
            return None
        if not isinstance(answer, LockTaken):
            await self._give_back()  # it may have been taken
            return None
        found = await self._asked(GetLocked(self._session, self._guard))
        if isinstance(found, MetadataValue):
            self.seen_version = max(self.seen_version, found.version)
            return LedgerMetadata.decode(self.world.ledger_id, found.value), found.version
        self._guard = ""
        self.is_done = self.is_done or isinstance(found, MetadataMissing)
        await self._give_back()
        return None

    async def _give_back(self) -> None:
        """Until it is certain: a lock that is left behind keeps everybody else out while its session lives."""
        session = self._session
        while self._session == session and not isinstance(await self._asked(GiveLockBack(session)), LockTaken):
            await self._slept(METADATA_RETRY_MS)

    @property
    def _session(self) -> int:
        return self._lock.session_of(self.name)


class Replicator(LockingClient):
    """``done`` is what its last round came to; None if it had no lock."""

    def __init__(self, name: str, world: World, schedule: Schedule, plan: ReplicatorPlan, lock: LedgerLock) -> None:
        super().__init__(name, world, schedule, plan.start_ms, lock)
        self.done: RereplicatedLedger | None = None
        self._plan = plan
        self._tail: Fragment | None = None
        self._means = RereplicationMeans(
            lambda metadata, machine: Step(lambda done: self._perform(metadata, machine, done)),
            copy_limits(schedule, plan),
            ByteRate(plan.bytes_per_s),
            recover_limits(schedule),
            frozenset,
        )

    @property
    def is_whole(self) -> bool:
        return self.done is not None and self.done.is_whole

    async def _work(self) -> None:
        for _ in range(self._plan.rounds):
            self.done = None
            taken = await self._take_lock(is_guarded=True)
            if taken is not None:
                await self._copy(*taken)
                await self._give_back()
            if self.is_done or (self.is_whole and not self._plan.moves):
                break
            await self._slept(self._plan.pause_ms)
        self.is_done = True

    async def _copy(self, metadata: LedgerMetadata, version: int) -> None:
        self.world.note(self.name, "moves" if self._plan.moves else f"replaces {', '.join(sorted(self._plan.leaving))}")
        fence = self._tail if self._plan.fences else None
        try:
            if self._plan.moves:
                self.done = await RackMoves(self._means, self._guard, self._racks).run(metadata, version)
                self.world.faults["moved copies"] += self.done.fragments
            else:
                self.done = await LedgerRereplication(self._means, self._guard, self._leaving).run(metadata, version, fence)
        except NoSuchLedgerError:
            self.is_done = True
        except BookKeeperError as problem:
            self.world.note(self.name, f"failed: {problem}")
            return
        if self.done is not None:
            self._tail = self.done.open_fragment
            self.world.faults["copied entries"] += self.done.entries
            self.world.note(self.name, self.done.problem or f"has made it whole, {self.done.entries} entries were copied")

    async def _racks(self) -> RackMap:
        return self.placement.rack_map(self.world.registered_bookies(), self.now_ms)

    @property
    def _leaving(self) -> Leaving:
        leaving = self._plan.leaving
        return Leaving(leaving, leaving.intersection(self.world.available()) if self._plan.restores else frozenset())

    def _perform(self, metadata: LedgerMetadata, machine: StateMachine, done: OnDone) -> None:
        self._start(metadata, machine, lambda finish: done(finish.error or finish.result))


class Collector(LockingClient):
    """The garbage collection of one bookie: it drops a closed ledger of which no fragment names it."""

    def __init__(self, bookie: BookieActor, world: World, schedule: Schedule, plan: CollectorPlan, lock: LedgerLock) -> None:
        super().__init__(f"gc-{bookie.name}", world, schedule, plan.start_ms, lock)
        self._bookie = bookie
        self._plan = plan

    async def _work(self) -> None:
        for _ in range(self._plan.rounds):
            if self._holds_in_vain():
                self._bookie.request_checkpoint()
                await self._slept(CHECKPOINTED_MS)
                await self._collect()
            if self.is_done:
                return
            await self._slept(self._plan.pause_ms)
        self.is_done = True

    def _holds_in_vain(self) -> bool:
        """The first look."""
        history = self.world.invariants.history
        may_know = self._bookie.is_up and not self._bookie.is_in_limbo and bool(history.acknowledged.get(self._bookie.name))
        return may_know and self._is_elsewhere(history.current)

    def _is_elsewhere(self, metadata: LedgerMetadata) -> bool:
        return metadata.is_closed and all(self._bookie.name not in one.ensemble for one in metadata.fragments)

    async def _collect(self) -> None:
        decided_at = self._bookie.next_sequence
        taken = await self._take_lock(is_guarded=False)
        if taken is None:
            return
        if self._is_elsewhere(taken[0]) and not self._bookie.is_in_limbo:
            self._befall()
            await self._slept(0)
            await Step(lambda done: self._delete(decided_at, done))
        await self._give_back()

    def _delete(self, decided_at: int, done: OnDone) -> None:
        """In the bookie's own process: no network is between the two."""

        def deleted(reply: PlainReply | None) -> None:
            self.later(0, lambda: done(reply))

        self._bookie.delete_ledger(DeleteLedgerRequest(self.world.ledger_id, METADATA_EXISTS, decided_at), deleted)


def copy_limits(schedule: Schedule, plan: ReplicatorPlan) -> CopyLimits:
    timeout_ms = schedule.request_timeout_ms
    reads = ReadLimits(timeout_ms=timeout_ms, speculative_ms=timeout_ms // 2, request_bytes=600, ahead_bytes=2_000)
    return CopyLimits(reads, schedule.limits.add_timeout_ms, plan.window_bytes, plan.batch_bytes)
