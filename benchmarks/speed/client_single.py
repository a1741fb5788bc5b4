"""Single adds: pipelined, one after the other, and the highest rate at which they come as they are due."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.speed.ledger_runs import Bench, InFlight, Quorums, append_at_rate
from benchmarks.speed.measure import Entrant, Result, Sample, Setting, alternate, workload
from benchmarks.speed.pacing import latency_figures

ALL, STRIPED = Quorums(3, 3, 2), Quorums(3, 2, 2)
PAYLOAD = bytes(100)
IN_FLIGHT = 4_096
"""Adds under way: as many as are confirmed in some tens of milliseconds."""

LOWEST_PER_S = 4_000
STEP = 1.25
HIGHEST_P99_MS = 100.0
"""A rate is kept up if 99 % of the adds took no longer than this from when they were due."""

ABOUT = "entries of 100 B appended singly: pipelined, one after the other, and the highest rate"
NOTES = (
    f"`append_async` has at most {IN_FLIGHT:,} under way; `append` waits for each. The highest rate is that of the last step "
    f"with p99 below {HIGHEST_P99_MS:g} ms, in steps of a quarter up from {LOWEST_PER_S:,}/s; adds begin when they are due, "
    "and their latency counts from then.",
)


@workload("client_single", ABOUT)
def single(setting: Setting) -> Result:
    count, for_s = setting.choose(100_000, 1_000), setting.choose(2.0, 0.1)
    with Bench(setting.directory) as bench:
        entrants = [Entrant(f"append_async, {quorums}", _pipelined(bench, quorums, count)) for quorums in (ALL, STRIPED)]
        entrants += [Entrant(f"append, {quorums}", _one_by_one(bench, quorums, for_s)) for quorums in (ALL, STRIPED)]
        entrants.append(Entrant(f"highest rate, {ALL}", _highest_rate(bench, for_s, setting.choose(64, 2))))
        return Result("client_single", ABOUT, alternate(entrants, setting.runs, setting.choose(1, 0)), notes=NOTES)


def _pipelined(bench: Bench, quorums: Quorums, count: int) -> Callable[[int], Sample]:
    def run(_: int) -> Sample:
        adds, before, client_before = InFlight(IN_FLIGHT), bench.bookies_usage(), time.process_time()
        with bench.writer(quorums) as writer:
            start = time.perf_counter()
            for _number in range(count):
                adds.append(lambda: writer.append_async(PAYLOAD))
            adds.wait()
            seconds = time.perf_counter() - start
        used, client_cpu_s = bench.bookies_usage().since(before), time.process_time() - client_before
        cpu = {"client_cpu_s": client_cpu_s, "bookies_cpu_s": used.cpu_s}
        return Sample(seconds, count, count * len(PAYLOAD), {**latency_figures(adds.latencies_s), **cpu})

    return run


def _one_by_one(bench: Bench, quorums: Quorums, for_s: float) -> Callable[[int], Sample]:
    def run(_: int) -> Sample:
        latencies = []
        with bench.writer(quorums) as writer:
            end = time.perf_counter() + for_s
            while (start := time.perf_counter()) < end:
                writer.append(PAYLOAD)
                latencies.append(time.perf_counter() - start)
        return Sample(sum(latencies), len(latencies), len(latencies) * len(PAYLOAD), latency_figures(latencies))

    return run


def _highest_rate(bench: Bench, for_s: float, steps: int) -> Callable[[int], Sample]:
    def run(_: int) -> Sample:
        """What the highest rate gave that was kept up; the lowest one, if none was."""
        kept = None
        for step in range(steps):
            with bench.writer(ALL) as writer:
                sample = append_at_rate(writer, PAYLOAD, LOWEST_PER_S * STEP**step, for_s)
            if sample.figures["p99_ms"] > HIGHEST_P99_MS:
                return kept or sample
            kept = sample
        return kept or sample

    return run
