"""1,000 readers at once, of whole ledgers and of ledgers that grow, and how long a fence takes beside them."""

from __future__ import annotations

import itertools
import statistics
import threading

from benchmarks.speed.measure import Result, Sample, Setting, alternate, workload
from benchmarks.speed.payloads import incompressible
from benchmarks.speed.processes import Workers, memory_mib
from benchmarks.speed.reader_process import READERS_OF_CLIENT, ReaderTask, prepare
from bk_spark import BookKeeper, LocalCluster

READERS, SMALL_READERS = 1_000, 20
FEW = 10
SECONDS, SMALL_SECONDS = 6.0, 0.5
"""Of one turn."""
LEDGERS = 20
ENTRY_BYTES, ENTRIES, SMALL_ENTRIES = 100, 10_000, 100
"""Of each closed ledger."""
TAIL_ENTRIES, TAIL_EVERY_S = 100, 2.0
"""What each growing ledger gets, and how often."""


class Ledgers:
    """What is read: ledgers that are closed, and ledgers that grow until this is closed."""

    def __init__(self, client: BookKeeper, entries: int) -> None:
        self._client = client
        self.closed = [self._written(entries) for _ in range(LEDGERS)]
        self._growing = [client.create_ledger() for _ in range(LEDGERS)]
        self.growing = [writer.ledger_id for writer in self._growing]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._grow, daemon=True)
        self._thread.start()

    def __enter__(self) -> Ledgers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _written(self, entries: int) -> int:
        with self._client.create_ledger() as writer:
            writer.append_batch(incompressible(entries, ENTRY_BYTES, seed=1))
            return writer.ledger_id

    def _grow(self) -> None:
        """Append to one ledger after the other."""
        piece = incompressible(TAIL_ENTRIES, ENTRY_BYTES, seed=2)
        for writer in itertools.cycle(self._growing):
            if self._stop.wait(TAIL_EVERY_S / LEDGERS):
                return
            writer.append_batch(piece)


class BesideReaders:
    """A turn of so many readers, and fences beside them."""

    def __init__(self, name: str, cluster: LocalCluster, task: ReaderTask) -> None:
        self.name = name
        self._bookies = [bookie.pid for bookie in cluster.bookies if bookie.pid is not None]
        self._task = task

    def run(self, turn: int) -> Sample:
        with Workers(2) as workers:
            fences, read = workers.run(prepare, self._task)
        figures = {
            "fence_median_ms": statistics.median(fences) * 1000,
            "fence_max_ms": max(fences) * 1000,
            "readers_peak_mib": read.peak_mib,
            "bookie_rss_mib": memory_mib(self._bookies),
        }
        return Sample(read.seconds, read.entries, read.entries * ENTRY_BYTES, figures)


def contestants(setting: Setting, cluster: LocalCluster, ledgers: Ledgers) -> list[BesideReaders]:
    uri, seconds = cluster.metadata_uri, setting.choose(SECONDS, SMALL_SECONDS)
    many = setting.choose(READERS, SMALL_READERS)
    return [
        BesideReaders("no readers", cluster, ReaderTask(uri, (), 0, seconds, is_tail=False)),
        BesideReaders(f"{FEW} readers", cluster, ReaderTask(uri, ledgers.closed, FEW, seconds, is_tail=False)),
        BesideReaders(f"{many:,} readers", cluster, ReaderTask(uri, ledgers.closed, many, seconds, is_tail=False)),
        BesideReaders(f"{many:,} tails", cluster, ReaderTask(uri, ledgers.growing, many, seconds, is_tail=True)),
    ]


@workload("scale_readers", "1,000 concurrent readers, of whole ledgers and tailing, and fences beside them")
def scale_readers(setting: Setting) -> Result:
    with (
        LocalCluster(bookies=3, data_dir=setting.directory / "cluster") as cluster,
        BookKeeper(cluster.metadata_uri) as client,
        Ledgers(client, setting.choose(ENTRIES, SMALL_ENTRIES)) as ledgers,
    ):
        samples = alternate(contestants(setting, cluster, ledgers), setting.runs, warmups=setting.choose(1, 0))
    tailed = TAIL_ENTRIES / TAIL_EVERY_S * setting.choose(READERS, SMALL_READERS)
    notes = [
        f"Readers are threads of one process, {READERS_OF_CLIENT} to a client; they read {LEDGERS} ledgers again and again, "
        f"from the page cache. Tails follow {LEDGERS} ledgers that get {TAIL_ENTRIES} entries each {TAIL_EVERY_S:g} s: tails "
        f"that keep up get {tailed:,.0f} entries a second.",
        "A fence is a recovery of a ledger with one entry, by a process of its own.",
    ]
    return Result("scale_readers", f"entries of {ENTRY_BYTES} bytes read by many at once, 3/3/2", samples, notes=notes)
