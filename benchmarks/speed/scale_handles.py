"""Many handles at once: 10,000 ledgers that one client has open for writing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from os import getpid

from benchmarks.speed.measure import Result, Sample, Setting, alternate, workload
from benchmarks.speed.payloads import incompressible
from benchmarks.speed.processes import memory_mib
from bk_spark import BookKeeper, LocalCluster
from bk_spark.client.ledger.write_handle import WriteHandle

FEW = 10
LEDGERS, SMALL_LEDGERS = 10_000, 100
THREADS = 8
"""That create them."""
UNDER_WAY = 500
"""Appends at a time: a window is one ledger's, and what waits in the client to be sent counts as a bookie's silence."""
ENTRY_BYTES = 100


class OpenLedgers:
    """``count`` ledgers of one client, and appends that go round them. The constructor creates them."""

    def __init__(self, cluster: LocalCluster, client: BookKeeper, count: int, entries: int) -> None:
        self.name = f"{count:,} open ledgers"
        self._bookies = [bookie.pid for bookie in cluster.bookies if bookie.pid is not None]
        self._payloads = incompressible(entries, ENTRY_BYTES, seed=1).to_pylist()
        before = self._memory_mib()
        started = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            self._writers: Sequence[WriteHandle] = list(pool.map(lambda _: client.create_ledger(), range(count)))
        self._create_s = time.perf_counter() - started
        self._append()
        self._grown_mib = [after - earlier for after, earlier in zip(self._memory_mib(), before, strict=True)]

    def run(self, turn: int) -> Sample:
        """One append after the other, each to the next ledger, so many under way at a time."""
        started = time.perf_counter()
        self._append()
        seconds = time.perf_counter() - started
        client_mib, bookie_mib = self._memory_mib()
        return Sample(
            seconds,
            len(self._payloads),
            len(self._payloads) * ENTRY_BYTES,
            {"client_rss_mib": client_mib, "bookie_rss_mib": bookie_mib},
        )

    def about(self) -> str:
        """What it took to have them open, with an entry in each."""
        count = len(self._writers)
        client_kib, bookie_kib = (mib * 1024 / count for mib in self._grown_mib)
        return (
            f"{THREADS} threads created {count:,} ledgers in {self._create_s:.1f} s, {count / self._create_s:,.0f} a second. "
            f"With an entry in each one took {client_kib:.1f} KiB of the client and {bookie_kib:.1f} KiB of the largest bookie."
        )

    def _append(self) -> None:
        under_way: deque[Future[int]] = deque()
        for number, payload in enumerate(self._payloads):
            if len(under_way) == UNDER_WAY:
                under_way.popleft().result()
            under_way.append(self._writers[number % len(self._writers)].append_async(payload))
        for future in under_way:
            future.result()

    def _memory_mib(self) -> tuple[float, float]:
        return memory_mib([getpid()]), memory_mib(self._bookies)


@workload("scale_open_ledgers", "10,000 open ledgers of one client: creation, adds round them, memory")
def scale_open_ledgers(setting: Setting) -> Result:
    count = setting.choose(LEDGERS, SMALL_LEDGERS)
    with LocalCluster(bookies=3, data_dir=setting.directory / "cluster") as cluster, BookKeeper(cluster.metadata_uri) as client:
        few = OpenLedgers(cluster, client, FEW, entries=count)
        many = OpenLedgers(cluster, client, count, entries=count)
        samples = alternate([few, many], setting.runs, setting.choose(1, 0))
    notes = [
        many.about(),
        f"A turn appends as many entries as there are ledgers, with `append_async`, {UNDER_WAY} under way at a time. With few "
        "ledgers those of one ledger travel together; with many each is a request of its own to three bookies.",
    ]
    return Result("scale_open_ledgers", f"appends of {ENTRY_BYTES} bytes round open ledgers, 3/3/2", samples, notes=notes)
