"""What shipped code of replication runs on in the simulation: the parts of ClientContext that it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast

from benchmarks.simulated_cluster.metadata_store import ZNODES, Asked, Session
from bk_spark.client.driver.client_context import ClientContext, EnsembleChoice
from bk_spark.client.protocol.placement.wider_slot import RackMap
from bk_spark.config import ClientConfig
from bk_spark.metadata.registration import RegisteredBookie

if TYPE_CHECKING:
    from benchmarks.simulated_cluster.cluster import SimulatedCluster

T = TypeVar("T")


class SimulatedContext:
    """Of one process: a session, one core, a random source."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self.loop = cluster.loop
        self.store = Session(cluster.zookeeper)
        self.znodes = ZNODES
        self.config = ClientConfig()
        self.core = cluster.new_core()
        self.choose = Random(seed).randrange
        self.ensembles = EnsembleChoice(self.config, self.choose)
        self._cluster = cluster
        self._threads = asyncio.Semaphore(cluster.costs.metadata_threads)

    @property
    def as_shipped(self) -> ClientContext:
        return cast(ClientContext, self)

    async def registered(self) -> list[RegisteredBookie]:
        """Known by a watch, without a request."""
        return self._cluster.registered

    async def rack_map(self) -> RackMap:
        return self.ensembles.rack_map(self._cluster.registered, self.loop.now_ms)

    def avoided(self) -> frozenset[str]:
        return frozenset()

    def submit(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self.loop.create_task(work)

    async def blocking(self, call: Callable[[], T]) -> T:
        """Make a call to the store, and wait for as long as it takes. An error comes after that time, too."""
        async with self._threads:
            self.store.asked = Asked()
            try:
                return call()
            finally:
                await self._took(self.store.asked)

    async def compute(self, cpu_s: float) -> None:
        await self.until(self.core.take(cpu_s, self.loop.time()))

    async def until(self, due_s: float) -> None:
        await asyncio.sleep(max(0.0, due_s - self.loop.time()))

    async def _took(self, asked: Asked) -> None:
        now_s = self.loop.time()
        answered_s = now_s + self.store.taken() + asked.cpu_s
        await self.until(max(answered_s, self.core.take(asked.cpu_s, now_s)))
