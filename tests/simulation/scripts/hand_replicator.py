"""A re-replication of which every step is told: the shipped decisions for one ledger, under a guard that can be taken away."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from bk_spark.client.protocol.limits import CopyLimits
from bk_spark.client.protocol.placement.wider_slot import RackMap
from bk_spark.client.protocol.state_machine import Finish, Start, StateMachine
from bk_spark.entries.rate import ByteRate
from bk_spark.errors import BookKeeperError
from bk_spark.metadata.ledger_metadata import Fragment, LedgerMetadata
from bk_spark.replication.copy_moves import RackMoves
from bk_spark.replication.ledger_rereplication import (
    Leaving,
    LedgerRereplication,
    RereplicatedLedger,
    RereplicationMeans,
)
from tests.simulation.scripts.hand_clients import READS, RECOVERY, TIMEOUT_MS, Client
from tests.simulation.scripts.hand_driven import OnDone, Step, drive
from tests.simulation.world.ledger_lock import LedgerLock
from tests.simulation.world.runner import OperationRunner
from tests.simulation.world.world import World


class Replicator(Client):
    """Begins with the metadata as it is now, under a guard of its own. ``done`` is what became of it."""

    def __init__(self, name: str, world: World, lock: LedgerLock, leaving: frozenset[str], fence: Fragment | None) -> None:
        """Without anybody who is leaving it moves copies to more racks."""
        super().__init__(name, world)
        self.done: RereplicatedLedger | None = None
        self._problem: BookKeeperError | None = None
        limits = CopyLimits(READS, TIMEOUT_MS, 100_000)
        pace = ByteRate(1_000_000_000)
        means = RereplicationMeans(self._perform, limits, pace, RECOVERY, frozenset)
        guard = f"{name} 0"
        lock.guards[guard] = name
        current, version = world.invariants.history.current, len(world.invariants.history.metadata) - 1
        if leaving:
            drive(self._work(LedgerRereplication(means, guard, Leaving(leaving)).run(current, version, fence)))
        else:
            drive(self._work(RackMoves(means, guard, self._racks).run(current, version)))

    @property
    def error(self) -> BookKeeperError | None:
        return self._problem

    async def _racks(self) -> RackMap:
        return self.process.placement.rack_map(self.world.registered_bookies(), self.process.now_ms)

    async def _work(self, copying: Coroutine[Any, Any, RereplicatedLedger]) -> None:
        try:
            self.done = await copying
        except BookKeeperError as problem:
            self._problem = problem
        self.world.note(self.name, "ends:", str(self.done.problem if self.done else self._problem) or "all is whole")
        self.finish = Finish(self.done, self._problem)

    def _perform(self, metadata: LedgerMetadata, machine: StateMachine) -> Step:
        return Step(lambda done: self._begin(metadata, machine, done))

    def _begin(self, metadata: LedgerMetadata, machine: StateMachine, done: OnDone) -> None:
        self.process.seen_version = max(self.process.seen_version, 0)

        def on_command(command: object) -> None:
            if isinstance(command, Finish):
                done(command.error or command.result)

        OperationRunner(self.process, metadata, self.world.master_key, machine, on_command).post(Start())
