"""``python -m benchmarks.simulated_cluster.cross_check``: the simulated cluster beside real processes on this machine.

First a real cluster of four bookies loses one, with ledgers of two sizes: this says what CPU copies take here (``costs_here``).
Then clusters of three and of five bookies lose one that 2,000 ledgers of a third size name, for real and in the simulation,
whose processes share as many cores as this machine has. Time and requests to ZooKeeper are to agree within 30 %. Some minutes;
run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.simulated_cluster.costs import Costs
from benchmarks.simulated_cluster.real_recovery import CONFIG, SESSION_S, Plan, RealRecovery
from benchmarks.simulated_cluster.real_recovery import recovered as really_recovered
from benchmarks.simulated_cluster.recoveries import GB, Loss, made
from bk_spark.config import MIB

CALIBRATION = tuple(Plan(bookies=4, copies=2, ledgers=600, entries=entries) for entries in (1, 64))
"""Small ledgers cost what a ledger costs, large ones what their bytes cost."""

CHECKED = tuple(Plan(bookies=bookies, copies=2, ledgers=2_000, entries=16) for bookies in (3, 5))
WANTED = 0.3


@dataclass(frozen=True, slots=True)
class Simulated:
    copying_s: float
    requests: int
    workers_cpu_s: float
    bookies_cpu_s: float
    zookeeper_cpu_s: float


def simulated(plan: Plan, all_ledgers: int, costs: Costs, cores: int) -> Simulated:
    """The same loss in the simulation: of a bookie that holds its share of all ledgers."""
    loss = Loss(
        name="cross-check",
        bookies=plan.bookies,
        racks=1,
        ledgers=all_ledgers,
        copies=plan.copies,
        gb_each=plan.ledger_bytes * all_ledgers * plan.copies / plan.bookies / GB,
        workers=plan.workers,
        config=CONFIG,
        costs=costs,
        shared_cores=cores,
    )
    cluster, lost = made(loss, seed=1)

    async def play() -> Simulated:
        await cluster.start()
        found = await cluster.recover_from([cluster.table.bookies[number] for number in lost])
        bookies_s = sum(machine.core.done for machine in cluster.machines.values())
        recoveries = [cluster.auditor.context, *(worker.context for worker in cluster.workers)]
        workers_s = sum(context.core.done for context in recoveries)
        requests = sum(found.requests.values())
        return Simulated(found.copying_s, requests, workers_s, bookies_s, cluster.zookeeper.queue.done)

    return cluster.loop.run(play())


def costs_here(real: list[RealRecovery], cores: int) -> Costs:
    """What copies cost on this machine: what is left of the CPU that real ones took when the simulation's own is taken away."""
    free = Costs(
        session_s=SESSION_S,
        used_by_clients=0.0,
        copy_cpu_s=0.0,
        copied_mib_cpu_s=0.0,
        bookie_copy_cpu_s=0.0,
        bookie_mib_cpu_s=0.0,
    )
    played = [simulated(plan, one.all_ledgers, free, cores) for plan, one in zip(CALIBRATION, real, strict=True)]
    factor = sum(one.zookeeper_cpu_s for one in real) / sum(one.zookeeper_cpu_s for one in played)
    workers = [one.workers_cpu_s - free_of.workers_cpu_s for one, free_of in zip(real, played, strict=True)]
    copy_s, mib_s = _fixed_and_by_mib(workers)
    bookie_copy_s, bookie_mib_s = _fixed_and_by_mib([one.bookies_cpu_s / 2 for one in real])
    return replace(
        free,
        zookeeper_read_s=factor * free.zookeeper_read_s,
        zookeeper_write_s=factor * free.zookeeper_write_s,
        zookeeper_part_s=factor * free.zookeeper_part_s,
        zookeeper_name_s=factor * free.zookeeper_name_s,
        copy_cpu_s=copy_s,
        copied_mib_cpu_s=mib_s,
        bookie_copy_cpu_s=bookie_copy_s,
        bookie_mib_cpu_s=bookie_mib_s,
    )


def _fixed_and_by_mib(cpu_s: list[float]) -> tuple[float, float]:
    """The two numbers by which both runs of ``CALIBRATION`` took so much CPU; neither is below 0."""
    (small, large), (first, second) = CALIBRATION, (one / plan.ledgers for one, plan in zip(cpu_s, CALIBRATION, strict=True))
    by_mib_s = max(0.0, (second - first) / (large.ledger_bytes - small.ledger_bytes) * MIB)
    return max(0.0, first - by_mib_s * small.ledger_bytes / MIB), by_mib_s


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulated_cluster.cross_check", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all figures are written")
    args = parser.parse_args()
    cores = os.cpu_count() or 1
    measured = [really_recovered(plan) for plan in CALIBRATION]
    costs = costs_here(measured, cores)
    print(json.dumps({"calibration": [asdict(one) for one in measured], "costs": asdict(costs)}, indent=1), flush=True)
    print("| bookies | copied | | real | simulated | simulated over real |\n|---|---|---|---|---|---|", flush=True)
    figures, is_near = [], True
    for plan in CHECKED:
        real = really_recovered(plan)
        played = simulated(plan, real.all_ledgers, costs, cores)
        for name, unit in (("copying_s", "time, s"), ("requests", "requests to ZooKeeper")):
            of_real, of_played = getattr(real, name), getattr(played, name)
            is_near &= abs(of_played / of_real - 1) <= WANTED
            row = f"{plan.bookies} | {plan.ledgers:,} | {unit} | {of_real:,.4g} | {of_played:,.4g} | {of_played / of_real:.2f}"
            print(f"| {row} |", flush=True)
        figures.append({"plan": asdict(plan), "real": asdict(real), "simulated": asdict(played)})
    if args.json is not None:
        args.json.write_text(json.dumps({"costs": asdict(costs), "checked": figures}, indent=1) + "\n")
    return 0 if is_near else 1


if __name__ == "__main__":
    sys.exit(main())
