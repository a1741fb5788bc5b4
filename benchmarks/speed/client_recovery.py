"""How long a ledger is recovered, by the number of its entries that nobody knows to be confirmed.

A writer appends them in one batch, so that they carry one last add confirmed, before the first of them, and stores no other;
then another client opens the ledger with recovery: it fences the bookies, reads every entry, writes it back, and closes.
ZooKeeper's turn is the share of the metadata: one read and two compare-and-sets, one after the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.speed.measure import Contestant, Result, Sample, Setting, alternate, workload
from benchmarks.speed.payloads import incompressible
from bk_spark import BookKeeper, LocalCluster
from bk_spark.config import MIB, ClientConfig

T = TypeVar("T")

ENTRY_BYTES = 100
RECOVERIES = {0: 40, 10: 40, 1_000: 20, 10_000: 5}
"""By the number of unconfirmed entries: recoveries of one turn."""
SMALL_RECOVERIES = {0: 2, 10: 2, 100: 1}

ONE_BATCH = ClientConfig(add_batch_bytes=4 * MIB, explicit_lac_s=3600.0)
"""The entries of one append travel in one batch, and no last add confirmed follows them."""


class Recoveries:
    """Ledgers with ``entries`` unconfirmed entries, recovered one after the other."""

    def __init__(self, writing: BookKeeper, client: BookKeeper, entries: int, count: int) -> None:
        self.name = f"{entries:,} unconfirmed entries"
        self._writing = writing
        self._client = client
        self._entries = entries
        self._count = count
        self._payloads = incompressible(entries, ENTRY_BYTES, seed=1)

    def run(self, turn: int) -> Sample:
        seconds = [self._recovered(self._written()) for _ in range(self._count)]
        return _sample(seconds, self._count * self._entries)

    def _written(self) -> int:
        writer = self._writing.create_ledger()
        if self._entries:
            writer.append_batch(self._payloads)
        return writer.ledger_id

    def _recovered(self, ledger_id: int) -> float:
        seconds, found = _timed(lambda: self._client.open_ledger(ledger_id).last_add_confirmed)
        assert found == self._entries - 1, f"ledger {ledger_id} ends at {found} and has {self._entries} entries"
        self._client.delete_ledger(ledger_id)
        return seconds


class MetadataShare:
    """What ZooKeeper alone takes for the metadata of one recovery."""

    name = "ZooKeeper alone"

    def __init__(self, client: BookKeeper, count: int) -> None:
        self._store = client.metadata_store
        self._path = f"{client.znodes.root}/bench"
        self._store.create(self._path, bytes(200))
        self._count = count

    def run(self, turn: int) -> Sample:
        return _sample([_timed(self._read_and_set_twice)[0] for _ in range(self._count)], 0)

    def _read_and_set_twice(self) -> None:
        found = self._store.get(self._path)
        for version in (found.version, found.version + 1):
            self._store.set(self._path, bytes(200), version)


def _timed(action: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    result = action()
    return time.perf_counter() - started, result


def _sample(seconds: Sequence[float], entries: int) -> Sample:
    """Of so many recoveries; ``entries`` are those that they wrote back."""
    figures = {"median_ms": statistics.median(seconds) * 1000, "max_ms": max(seconds) * 1000}
    return Sample(sum(seconds), len(seconds), entries * ENTRY_BYTES, figures)


@workload("client_recovery", "time to recover a ledger, by the number of its unconfirmed entries")
def client_recovery(setting: Setting) -> Result:
    counts = setting.choose(RECOVERIES, SMALL_RECOVERIES)
    with (
        LocalCluster(bookies=3, data_dir=setting.directory / "cluster") as cluster,
        BookKeeper(cluster.metadata_uri, ONE_BATCH) as writing,
        BookKeeper(cluster.metadata_uri) as client,
    ):
        contestants: list[Contestant] = [MetadataShare(client, max(counts.values()))]
        contestants += [Recoveries(writing, client, entries, count) for entries, count in counts.items()]
        samples = alternate(contestants, setting.runs, setting.choose(1, 0))
    notes = [
        "Rows are recoveries. Before each the bookies hold the entries and know none of them to be confirmed: recovery reads "
        "them, writes them back to all three bookies, synced, and closes the ledger behind them.",
        "ZooKeeper alone: one read and two compare-and-sets, the metadata of one recovery.",
    ]
    return Result("client_recovery", f"recovery of a ledger, entries of {ENTRY_BYTES} bytes, 3/3/2", samples, notes=notes)
