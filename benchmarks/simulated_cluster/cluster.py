"""A simulated cluster: machines, ZooKeeper, an auditor, replication workers; bookies are lost, and come back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from benchmarks.simulated_cluster.copying import Copier
from benchmarks.simulated_cluster.costs import Costs
from benchmarks.simulated_cluster.ledger_table import LedgerTable
from benchmarks.simulated_cluster.limits import Limit, limit_of
from benchmarks.simulated_cluster.metadata_store import ZNODES, Session, ZooKeeper
from benchmarks.simulated_cluster.resources import Machine, Resource, SharedCores
from benchmarks.simulated_cluster.simulated_auditor import SimulatedAuditor
from benchmarks.simulated_cluster.simulated_context import SimulatedContext
from benchmarks.simulated_cluster.virtual_loop import VirtualLoop
from bk_spark.config import MIB
from bk_spark.metadata.registration import RegisteredBookie
from bk_spark.replication.settings import AutoRecoveryConfig
from bk_spark.replication.worker import ReplicationWorker

COPY_MIB = 10.0
"""What a ledger that is copied holds of a worker's memory: ``limits.COPY_REQUEST_BYTES``."""

ID_BYTES, RETRY_BYTES = 40, 300
"""Of a ledger that is due, and of one that waits for its next try: a number in a queue; two entries of dictionaries."""

BASE_MIB = 70.0
"""Of a process before it does anything: docs/deployment/sizing.md."""

PAGE_MIB = 3.0
"""Of the auditor for a page of ledgers' metadata; nothing else of it grows with the ledgers."""


@dataclass(slots=True)
class Recovery:
    """What came of a loss. Times in seconds since the bookies were lost."""

    is_whole: bool
    whole_s: float
    first_mark_s: float
    marked_s: float
    """When the audit had marked all ledgers."""
    lost_bytes: int
    workers: int
    ledgers: int
    """That named a lost bookie."""
    copied_ledgers: int
    """Above ``ledgers`` if some were copied twice."""
    copied_bytes: int
    checked_bytes: int
    limit: Limit
    requests: dict[str, int]
    requests_per_s: float
    """To ZooKeeper, while it recovered: the mean."""
    peak_requests_per_s: int
    server_busy: float
    """The share of that time in which ZooKeeper worked."""
    load_spread: float
    """Of what the bookies' disks did for it: highest over mean."""
    space_spread: float
    """Of what the running bookies hold afterwards."""
    busiest_worker: float
    """The share of that time in which the core of the busiest worker worked."""
    worker_mib: float
    auditor_mib: float

    @property
    def copying_s(self) -> float:
        """From the first mark to the last copy."""
        return self.whole_s - self.first_mark_s

    @property
    def over_limit(self) -> float:
        return self.copying_s / self.limit.seconds


@dataclass(slots=True)
class _Worker:
    context: SimulatedContext
    copier: Copier
    shipped: ReplicationWorker
    most_mib: float = BASE_MIB

    def look(self, parallel: int) -> None:
        shipped = self.shipped
        ids = len(shipped._due) * ID_BYTES + len(shipped._retries) * RETRY_BYTES
        self.most_mib = max(self.most_mib, BASE_MIB + ids / MIB + min(parallel, len(shipped._under_way)) * COPY_MIB)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """``workers``: numbers of bookies beside which a worker runs. ``slow``: bookies that do ``slowness`` of others' work."""

    costs: Costs = field(default_factory=Costs)
    config: AutoRecoveryConfig = field(default_factory=AutoRecoveryConfig)
    workers: Sequence[int]
    slow: Collection[int] = ()
    slowness: float = 0.1
    shared_cores: int = 0
    """All processes run on one machine of so many cores; 0: each has a core of its own."""
    seed: int = 1


class SimulatedCluster:
    """``bookies`` are all that there are, by their numbers in ``table``."""

    def __init__(self, bookies: Sequence[RegisteredBookie], table: LedgerTable, setting: Setting) -> None:
        self.loop = VirtualLoop()
        self.costs = setting.costs
        self.table = table
        self.registered = list(bookies)
        """Replaced as a whole when a bookie comes or goes."""
        self._free_s = [0.0] * setting.shared_cores
        self.zookeeper = ZooKeeper(self.loop, setting.costs, table, self.new_core())
        self.machines = {one.bookie_id: self._machine(number, setting) for number, one in enumerate(bookies)}
        self._all = {one.bookie_id: one for one in bookies}
        self._setting = setting
        self._store = Session(self.zookeeper)
        for one in bookies:
            for path in (ZNODES.registration(one.bookie_id), ZNODES.cookie(one.bookie_id)):
                self._store.create(path, make_parents=True)
        for number, _ in enumerate(setting.workers):
            self._store.create(f"{ZNODES.auditor_vote_prefix}{number:010d}", make_parents=True)
        self._store.ensure_path(ZNODES.read_only)
        self.auditor = SimulatedAuditor(SimulatedContext(self, setting.seed), setting.costs, setting.config, table)
        self.workers = [self._worker(number, place) for number, place in enumerate(setting.workers)]
        self._machines_off: dict[str, Machine] = {}

    def _machine(self, number: int, setting: Setting) -> Machine:
        share = setting.slowness if number in setting.slow else 1.0
        network = setting.costs.network * share
        return Machine(Resource(setting.costs.disk * share), Resource(network), Resource(network), self.new_core())

    def new_core(self) -> Resource:
        """Of one process."""
        return SharedCores(free_s=self._free_s) if self._free_s else Resource()

    def _worker(self, number: int, place: int) -> _Worker:
        setting = self._setting
        context = SimulatedContext(self, setting.seed * 1_000_003 + number + 1)
        here = self.machines[self.registered[place].bookie_id]
        copier = Copier(context, setting.costs, setting.config, here, self.machines)
        worker = ReplicationWorker(context.as_shipped, setting.config, owner=f"worker {number}", perform=copier.perform)
        return _Worker(context, copier, worker)

    # --- what befalls it

    async def start(self) -> None:
        """All processes run, and have seen the cluster as it is."""
        self.loop.create_task(self.auditor.run())
        for worker in self.workers:
            worker.shipped.start()
        self.loop.create_task(self._look())
        await asyncio.sleep(1.0)

    def kill(self, bookies: Collection[str], *, is_clean: bool = False) -> None:
        """They are gone at once. Their registrations are, after a clean end, too; otherwise when their sessions end."""
        for one in bookies:
            self._machines_off[one] = self.machines.pop(one)
        self.loop.call_later(0.0 if is_clean else self.costs.session_s, self._unregister, tuple(bookies))

    def bring_back(self, bookies: Collection[str]) -> None:
        """Those that were killed, with all that they held."""
        for one in bookies:
            self.machines[one] = self._machines_off.pop(one)
            self._store.ensure_path(ZNODES.registration(one))
        self._registered_changed()

    def _unregister(self, bookies: Collection[str]) -> None:
        for one in bookies:
            if one not in self.machines:
                self._store.delete(ZNODES.registration(one), 0)
        self._registered_changed()

    def _registered_changed(self) -> None:
        here = ZNODES.available
        self.registered = [self._all[name] for name in self._all if ZNODES.registration(name) in self.zookeeper.nodes]
        assert here in self.zookeeper.nodes
        self.loop.call_later(self.costs.watch_s, self.auditor.wake.set)

    async def _look(self) -> None:
        while True:
            for worker in self.workers:
                worker.look(self._setting.config.parallel_ledgers)
            await asyncio.sleep(1.0)

    def marks(self) -> int:
        """Ledgers that are marked now."""
        return sum("/urL" in path and path.startswith(ZNODES.under_replicated_ledgers) for path in self.zookeeper.nodes)

    # --- how it recovers

    async def recover_from(self, lost: Collection[str], deadline_s: float = 30 * 86_400.0) -> Recovery:
        """Lose bookies for good, and wait until no ledger names one of them, or for ``deadline_s``."""
        gone, table = frozenset(lost), self.table
        numbers = [table.number[one] for one in gone]
        held = table.held_bytes()
        table.count_lacking(gone)
        ledgers, lost_bytes = table.lacking, int(held[numbers].sum())
        is_whole = asyncio.Event()
        table.on_whole = is_whole.set
        requests, began_s = self.zookeeper.requests.copy(), self.loop.time()
        self.kill(gone)
        served = self.zookeeper.queue.done
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(is_whole.wait(), deadline_s)
        whole_s = self.loop.time() - began_s
        first_s = (self.auditor.first_mark_s or began_s) - began_s
        asked = self.zookeeper.requests - requests
        running = [self.machines[one] for one in sorted(self.machines)]
        done = [machine.disk.done for machine in running]
        helping = len(self.workers) * self._setting.config.replicate_bytes_per_s
        return Recovery(
            is_whole=is_whole.is_set(),
            whole_s=whole_s,
            first_mark_s=first_s,
            marked_s=max(0.0, self.auditor.last_mark_s - began_s),
            lost_bytes=lost_bytes,
            workers=len(self.workers),
            ledgers=ledgers,
            copied_ledgers=sum(one.copier.copied_ledgers for one in self.workers),
            copied_bytes=sum(one.copier.copied_bytes for one in self.workers),
            checked_bytes=sum(one.copier.checked_bytes for one in self.workers),
            limit=limit_of(lost_bytes, running, helping),
            requests=dict(asked),
            requests_per_s=sum(asked.values()) / whole_s,
            peak_requests_per_s=max(self.zookeeper.per_second.values(), default=0),
            server_busy=(self.zookeeper.queue.done - served) / whole_s,
            load_spread=_spread(done),
            space_spread=_spread(
                [one for name, one in zip(table.bookies, table.held_bytes(), strict=True) if name in self.machines]
            ),
            busiest_worker=max(one.context.core.done for one in self.workers) / whole_s,
            worker_mib=max(one.most_mib for one in self.workers),
            auditor_mib=BASE_MIB + PAGE_MIB,
        )


def _spread(amounts: Sequence[float]) -> float:
    """Highest over mean."""
    mean = sum(amounts) / len(amounts)
    return max(amounts) / mean if mean else 1.0
