"""What a run does about re-replication: its workers, and that what was lost for good is made whole in the end."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.engines.invariants import Invariants
from tests.simulation.engines.schedule import Schedule
from tests.simulation.engines.virtual_time import VirtualTimeWorld
from tests.simulation.world.bookie_actor import BookieActor
from tests.simulation.world.metadata_store import SimulatedMetadataStore
from tests.simulation.world.replication_actors import Collector, LockingClient, Replicator
from tests.simulation.world.replication_plans import CollectorPlan, ReplicatorPlan

MENDING = 8
"""Rounds in which the last worker must have made the ledger whole, with nothing that fails any more."""


class Replication:
    """Nothing at all in a schedule without replicators."""

    def __init__(
        self, world: VirtualTimeWorld, schedule: Schedule, bookies: dict[str, BookieActor], store: SimulatedMetadataStore
    ) -> None:
        self._world = world
        self._schedule = schedule
        self._bookies = bookies
        self._store = store
        self._mended: frozenset[str] = frozenset()
        plans = enumerate(schedule.replicators)
        self.clients: list[LockingClient] = [
            Replicator(f"replicator{number + 1}", world, schedule, plan, store.lock) for number, plan in plans
        ]
        if schedule.collectors is not None:
            self.clients += self._collectors(schedule.collectors)

    def _collectors(self, plan: CollectorPlan) -> list[LockingClient]:
        return [Collector(one, self._world, self._schedule, plan, self._store.lock) for one in self._bookies.values()]

    def end_dead_sessions(self) -> None:
        """Of those that stand still or were killed."""
        for client in self.clients:
            if client.is_stopped or not client.is_alive:
                self._store.lock.expire(client.name)

    def mend(self, settle: Callable[[], None]) -> None:
        """The ledger is closed and nothing fails: whoever is gone must get a successor."""
        gone = frozenset(name for name, one in self._bookies.items() if one.is_gone or one.is_refused)
        if not self.clients or not gone:
            return
        self._world.note("-", "what is lost for good is replaced")
        mender = Replicator("mender", self._world, self._schedule, ReplicatorPlan(0, gone, rounds=MENDING), self._store.lock)
        mender.begin()
        settle()
        problem = f"{', '.join(sorted(gone))} cannot be replaced: {mender.done.problem if mender.done else 'no lock'}"
        self._invariants.require(mender.is_whole, "I14", problem)
        self._mended = gone

    def collect(self, settle: Callable[[], None]) -> None:
        """Every bookie drops what it holds in vain; then as many more are lost as the ack quorum allows for."""
        if not self.clients:
            return
        if self._schedule.collectors is not None:
            for one in self._bookies.values():
                Collector(one, self._world, self._schedule, CollectorPlan(0, rounds=1), self._store.lock).begin()
            settle()
        left = self._mended & self._named
        self._invariants.require(not left, "I15", f"{', '.join(sorted(left))} had been replaced and is named again")
        self._lose_more()

    def _lose_more(self) -> None:
        named, lossy = self._named, self._invariants.history.lossy
        foreign = self._invariants.history.foreign
        spare = self._schedule.shape[2] - 1 - len(named & (lossy | foreign))
        for _ in range(max(0, spare)):
            name = self._world.choices.pick(sorted(named - lossy), "who is lost after the mending")
            self._bookies[name].crash(is_machine=True)
            self._bookies[name].is_gone = True
            lossy.add(name)
            self._world.note(name, "is lost as well")

    @property
    def _named(self) -> frozenset[str]:
        return frozenset(name for one in self._invariants.history.current.fragments for name in one.ensemble)

    @property
    def _invariants(self) -> Invariants:
        return self._world.invariants
