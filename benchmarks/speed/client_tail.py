"""From an append to a reader that follows the ledger with long polls, in a process of its own."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from functools import partial

from benchmarks.speed.ledger_runs import Bench, InFlight, Quorums
from benchmarks.speed.measure import Entrant, Result, Sample, Setting, alternate, percentile, workload
from benchmarks.speed.pacing import at_rate, latency_figures
from benchmarks.speed.processes import Workers
from bk_spark import BookKeeper

RATES_PER_S = (10, 100, 1_000)
ENTRY_BYTES = 100
POLL_S = 10.0
ABOUT = "from an append to a long-polling reader, 3/3/2, at " + ", ".join(f"{rate:,}/s" for rate in RATES_PER_S)
NOTES = (
    "Latency counts from when the append was due until the reader has the payload. An entry is readable once its writer has "
    "said that it is confirmed: with its next entry, or, where that does not come soon, after `explicit_lac_s`. "
    "`append_p50_ms` is until the writer itself knows.",
)


@workload("client_tail", ABOUT)
def tail(setting: Setting) -> Result:
    seconds = setting.choose(4.0, 0.5)
    with Bench(setting.directory) as bench, Workers(1) as reader:
        entrants = [Entrant(f"{rate:,}/s", _tail(bench, reader, rate, max(2, int(rate * seconds)))) for rate in RATES_PER_S]
        samples = alternate(entrants, setting.runs, setting.choose(1, 0))
    return Result("client_tail", ABOUT, samples, notes=NOTES)


def _tail(bench: Bench, reader: Workers, per_s: int, count: int) -> Callable[[int], Sample]:
    def run(_: int) -> Sample:
        adds = InFlight(count)
        with bench.writer(Quorums()) as writer:
            reader.begin(_following, bench.local.metadata_uri, writer.ledger_id, count)
            for intended in at_rate(count, per_s):
                payload = struct.pack("d", intended).ljust(ENTRY_BYTES)
                adds.append(partial(writer.append_async, payload), since=intended)
            adds.wait()
            (found,) = reader.results()
        figures = {**latency_figures(found), "append_p50_ms": percentile(adds.latencies_s, 50) * 1000}
        return Sample(count / per_s, count, count * ENTRY_BYTES, figures)

    return run


def _following(_: int, metadata_uri: str, ledger_id: int, count: int) -> Callable[[], list[float]]:
    """In the reader's process. ``time.perf_counter`` is one clock for all processes of a machine."""
    client = BookKeeper(metadata_uri)
    reader = client.open_ledger(ledger_id, recover=False)

    def timed() -> list[float]:
        latencies: list[float] = []
        while len(latencies) < count:
            seen = len(latencies) - 1
            end = reader.wait_for_last_add_confirmed(seen, POLL_S)
            for batch in reader.read(seen + 1, end) if end > seen else ():
                arrived = time.perf_counter()
                latencies += [arrived - struct.unpack_from("d", payload)[0] for payload in batch["payload"].to_pylist()]
        client.close()
        return latencies

    return timed
