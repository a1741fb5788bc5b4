"""How long one add takes at a fixed rate, beside one fdatasync and one round trip over TCP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.speed.disk import Disk
from benchmarks.speed.ledger_runs import Bench, Quorums, append_at_rate
from benchmarks.speed.measure import Claim, Entrant, Result, Sample, Setting, alternate, claim, workload
from benchmarks.speed.pacing import latency_figures
from benchmarks.speed.tcp import Tcp

PER_S = 1_000
ENTRY_BYTES = 100
RECORD_BYTES = 300
"""About what one entry of this size is on its way, and in the journal."""

OURS, TRIP = "bk_spark", "TCP round trip"
SYNCS = {3: "fdatasync, three processes", 1: "fdatasync, one process"}
"""Contestants, by how many processes sync at this rate on the one disk."""


def _adds(bench: Bench, for_s: float) -> Sample:
    before, client_before = bench.bookies_usage(), time.process_time()
    with bench.writer(Quorums()) as writer:
        sample = append_at_rate(writer, bytes(ENTRY_BYTES), PER_S, for_s)
    cpu = {"client_cpu_s": time.process_time() - client_before, "bookies_cpu_s": bench.bookies_usage().since(before).cpu_s}
    return replace(sample, figures={**sample.figures, **cpu})


def _timed(latencies: Callable[[], Sequence[float]]) -> Callable[[int], Sample]:
    def run(_: int) -> Sample:
        found = latencies()
        return Sample(sum(found), len(found), len(found) * RECORD_BYTES, latency_figures(found))

    return run


ABOUT = f"single adds of {ENTRY_BYTES} B at {PER_S:,}/s, 3/3/2, beside an fdatasync and a round trip"
NOTES = (
    "An add is begun when it is due, whatever became of those before, and its latency counts from then. Syncs and round trips "
    "are begun at the same rate and count from when they begin: the harder measure. "
    f"Each sync follows a write of {RECORD_BYTES} B; each round trip carries as many.",
)


@workload("client_latency", ABOUT)
def latency(setting: Setting) -> Result:
    for_s = setting.choose(5.0, 0.2)
    disk_directory = setting.directory / "disk"
    with Bench(setting.directory) as bench, Disk(disk_directory, 3) as three, Disk(disk_directory, 1) as one, Tcp() as tcp:
        entrants = [
            Entrant(OURS, lambda _: _adds(bench, for_s)),
            Entrant(SYNCS[3], _timed(lambda: three.syncs(PER_S, for_s, RECORD_BYTES))),
            Entrant(SYNCS[1], _timed(lambda: one.syncs(PER_S, for_s, RECORD_BYTES))),
            Entrant(TRIP, _timed(lambda: tcp.round_trips(PER_S, for_s, RECORD_BYTES))),
        ]
        samples = alternate(entrants, setting.runs)
    claims = [_claim(samples, sync) for sync in SYNCS.values()]
    return Result("client_latency", ABOUT, samples, claims, NOTES)


def _claim(samples: dict[str, list[Sample]], sync: str) -> Claim:
    p99_ms = {name: [one.figures["p99_ms"] for one in found] for name, found in samples.items()}
    bounds = [disk + wire for disk, wire in zip(p99_ms[sync], p99_ms[TRIP], strict=True)]
    text = f"p99 of a single add at {PER_S:,}/s, against p99 of {sync} + p99 of a {TRIP}"
    return claim(text, p99_ms[OURS], bounds, 2.0, at_least=False)
