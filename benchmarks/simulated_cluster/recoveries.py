"""The loss of a bookie, a rack or a zone, and rolling restarts: each a plan, and what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np

from benchmarks.simulated_cluster.cluster import Recovery, Setting, SimulatedCluster
from benchmarks.simulated_cluster.costs import Costs
from benchmarks.simulated_cluster.layout import drawn_ensembles, laid_out
from benchmarks.simulated_cluster.ledger_table import LedgerTable
from bk_spark.replication.settings import AutoRecoveryConfig

GB = 10**9


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """``lost``: ``bookie``, ``rack`` or ``zone``. ``workers``: machines with one; 0: all that are left."""

    name: str
    bookies: int
    racks: int
    zones: int = 1
    ledgers: int
    copies: int = 3
    gb_each: float = 4_000.0
    """Bytes that a bookie holds."""
    lost: str = "bookie"
    workers: int = 0
    slow: int = 0
    """Bookies with a tenth of the disks and the network of the others."""
    config: AutoRecoveryConfig = field(default_factory=AutoRecoveryConfig)
    costs: Costs = field(default_factory=Costs)
    shared_cores: int = 0
    """As of ``Setting``."""


def made(plan: Loss, seed: int) -> tuple[SimulatedCluster, list[int]]:
    """The cluster before the loss, and the numbers of the bookies that will be lost."""
    bookies = laid_out(plan.bookies, plan.racks, plan.zones)
    ensembles = drawn_ensembles(bookies, plan.copies, plan.ledgers, seed)
    nbytes = np.full(plan.ledgers, int(plan.gb_each * GB * plan.bookies / plan.copies / plan.ledgers), dtype=np.int64)
    table = LedgerTable([one.bookie_id for one in bookies], ensembles, nbytes)
    lost = [number for number in range(plan.bookies) if _is_lost(plan, number)]
    left = [number for number in range(plan.bookies) if number not in lost]
    workers = left[: plan.workers] if plan.workers else left
    setting = Setting(
        costs=plan.costs,
        config=plan.config,
        workers=workers,
        slow=left[: plan.slow],
        shared_cores=plan.shared_cores,
        seed=seed,
    )
    return SimulatedCluster(bookies, table, setting), lost


def _is_lost(plan: Loss, number: int) -> bool:
    if plan.lost == "bookie":
        return number == 0
    rack = number % plan.racks
    return rack == 0 if plan.lost == "rack" else rack % plan.zones == 0


def recovered(plan: Loss, seed: int = 1) -> Recovery:
    cluster, lost = made(plan, seed)

    async def play() -> Recovery:
        await cluster.start()
        return await cluster.recover_from([cluster.table.bookies[number] for number in lost])

    return cluster.loop.run(play())


@dataclass(frozen=True, kw_only=True, slots=True)
class Restarts:
    """Every bookie is restarted, ``at_once`` of them at a time."""

    name: str
    bookies: int
    racks: int
    ledgers: int
    gb_each: float = 4_000.0
    at_once: int = 1
    down_s: float = 30.0
    pause_s: float = 10.0
    """Between the end of a restart and the next one."""
    config: AutoRecoveryConfig = field(default_factory=AutoRecoveryConfig)
    costs: Costs = field(default_factory=Costs)


@dataclass(slots=True)
class Restarted:
    """What restarts caused: nothing at best."""

    seconds: float
    """Until the last bookie was back."""
    whole_s: float
    """Until the last mark was gone; at most MOST_S after the last bookie was back."""
    marked: int
    copied_bytes: int
    """Copied, although nothing was lost."""
    checked_bytes: int
    """Read, to find that nothing was lost."""
    held_bytes: int
    requests_per_s: float


MOST_S = 7 * 86_400.0
"""How long marks are waited for after restarts."""

_LOOK_S = 60.0


def restarted(plan: Restarts, seed: int = 1) -> Restarted:
    cluster, _ = made(
        Loss(
            name=plan.name,
            bookies=plan.bookies,
            racks=plan.racks,
            ledgers=plan.ledgers,
            gb_each=plan.gb_each,
            config=plan.config,
            costs=plan.costs,
        ),
        seed,
    )
    return cluster.loop.run(_restart_all(plan, cluster))


async def _restart_all(plan: Restarts, cluster: SimulatedCluster) -> Restarted:
    table = cluster.table
    held = int(table.held_bytes().sum())
    await cluster.start()
    for first in range(0, plan.bookies, plan.at_once):
        names = table.bookies[first : first + plan.at_once]
        cluster.kill(names, is_clean=True)
        await asyncio.sleep(plan.down_s)
        cluster.bring_back(names)
        await asyncio.sleep(plan.pause_s)
    seconds = cluster.loop.time()
    while cluster.marks() and cluster.loop.time() < seconds + MOST_S:
        await asyncio.sleep(_LOOK_S)
    copiers = [worker.copier for worker in cluster.workers]
    return Restarted(
        seconds,
        cluster.loop.time(),
        cluster.auditor.marked,
        sum(one.copied_bytes for one in copiers),
        sum(one.checked_bytes for one in copiers),
        held,
        sum(cluster.zookeeper.requests.values()) / cluster.loop.time(),
    )
