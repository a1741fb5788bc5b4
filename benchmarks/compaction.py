"""Does the space of deleted ledgers come back, and what does it cost those who write meanwhile?

Fills a bookie's storage with ledgers side by side in the same entry logs, deletes 80 % of them, collects garbage and
compacts, with the default rate of compaction. One thread stages and syncs large adds without a pause, as a bookie's sync
thread does; one reads random ledgers of the rest and compares every byte; one compacts, in every other window of time. Write
throughput with compaction is divided by that of the window before, and the median of these ratios counts.

Fails if a read was wrong, or less than 75 % of what was filled came back; in full size also if the median ratio is below 0.7.

    python benchmarks/compaction.py [--small] [--mib 1024] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.pace import RateLimiter
from bk_spark.bookie.server.sync_thread import CheckpointThread
from bk_spark.bookie.space.garbage_collection import ClusterMember, LocalLedgers
from bk_spark.bookie.space.gc_run import GcPlan, GcReport, GcRun
from bk_spark.config import MIB, BookieConfig, DigestType, LedgerOptions
from bk_spark.entries.batch import EncodedBatch, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.metadata.ledger_ids import raise_ledger_ids
from bk_spark.metadata.ledger_metadata import new_ledger
from bk_spark.metadata.registration import initialise_cluster
from bk_spark.metadata.znodes import Znodes
from bk_spark.quorum import DENSE
from bk_spark.wire.messages import AddRequest, DeleteLedgerRequest, ReadBatch, ReadRequest, Status
from tests.memory_store import MemoryStore, MemoryTree

SEED = 1
LEDGERS = 50
BATCH_BYTES = 256 * 1024
GROUP = 8
"""Adds that share a sync."""
WINDOWS = 6
"""About so many windows with compaction, and as many without."""
MAX_WINDOWS = 2 * WINDOWS
"""A loaded machine compacts less in a window; what is left then is compacted without a writer, and not measured."""
READ_PAUSE_S = 0.005
BOOKIE_ID = "bookie-1"
KEY = master_key(b"")
ZNODES = Znodes("/ledgers")
COMPACTING = GcPlan(BookieConfig().major_compaction_threshold)


@dataclass(frozen=True)
class Outcome:
    filled_bytes: int
    before_bytes: int
    after_bytes: int
    freed_bytes: int
    """As the collector says."""
    ratios: list[float]
    without_mb_s: float
    reads: int
    wrong_reads: int

    @property
    def returned(self) -> float:
        """The part of what was filled that the file system has back."""
        return (self.before_bytes - self.after_bytes) / self.filled_bytes

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


class Storage:
    """One bookie with its collector. ``write_group`` and ``delete_ledger`` are for one thread at a time, as its sync thread."""

    def __init__(self, directory: Path, config: BookieConfig, checkpoints: CheckpointThread) -> None:
        self.bookie = Bookie.open(directory, BOOKIE_ID, config, background=checkpoints)
        self.store = MemoryStore(MemoryTree(lambda: time.time_ns() // 1_000_000))
        initialise_cluster(self.store, ZNODES)
        raise_ledger_ids(self.store, ZNODES, LEDGERS)
        self.entry_logs = directory / "entry_log"
        self.compacts = threading.Event()
        self.written_bytes = 0
        self._bodies = [_batch(number) for number in range(8)]
        self._next = dict.fromkeys(range(LEDGERS + 1), 0)
        local = LocalLedgers(self.bookie.storage, self._delete, lambda: 1 << 40, lambda rows: None)
        limiter = RateLimiter(config.compaction_bytes_per_s, time.monotonic, time.sleep)
        cluster = ClusterMember.of(self.store, ZNODES, BOOKIE_ID)
        self._run = GcRun(local, cluster, limiter, self.store._tree.clock_ms, self._pause)

    def create(self, ledger_id: int) -> None:
        ensemble = (BOOKIE_ID, "bookie-2", "bookie-3")
        metadata = new_ledger(ledger_id, LedgerOptions(), ensemble, created_ms=0, creator_token=1)
        self.store.create(ZNODES.ledger(ledger_id), metadata.encode(), make_parents=True)

    def remove(self, ledger_id: int) -> None:
        self.store.delete(ZNODES.ledger(ledger_id))

    def batch(self, ledger_id: int, entry_id: int) -> EncodedBatch:
        """The batch of one entry; what is in it follows from its ids."""
        made = self._bodies[(ledger_id * 31 + entry_id) % len(self._bodies)]
        return replace(made, header=replace(made.header, ledger_id=ledger_id, first_entry_id=entry_id, last_entry_id=entry_id))

    def write_group(self, ledger_ids: list[int]) -> None:
        """Adds to ledgers, one after the other, and one sync for all."""
        for ledger_id in ledger_ids:
            entry_id = self._next[ledger_id]
            self._next[ledger_id] += 1
            self.bookie.stage(AddRequest(0, BOOKIE_ID, KEY, self.batch(ledger_id, entry_id)), None)
        assert all(reply.status is Status.OK for _, reply in self.bookie.sync())
        self.written_bytes += len(ledger_ids) * BATCH_BYTES

    def read_is_right(self, ledger_id: int, entry_id: int) -> bool:
        request = ReadRequest(BOOKIE_ID, ledger_id, KEY, entry_id, entry_id, DENSE, 1)
        found = [one.batch for one in self.bookie.read(request) if isinstance(one, ReadBatch)]
        return found == [self.batch(ledger_id, entry_id)]

    def entries(self, ledger_id: int) -> int:
        return self._next[ledger_id]

    def allocated_bytes(self) -> int:
        """What the entry logs take of the file system."""
        return sum(path.stat().st_blocks * 512 for path in self.entry_logs.iterdir())

    def collect(self, plan: GcPlan) -> GcReport:
        return self._run.run(plan, lambda: True, self.compacts.is_set)

    def _delete(self, ledger_id: int, deleted_ms: int, decided_at: int | None = None, /) -> bool:
        self.bookie.stage(DeleteLedgerRequest(ledger_id, deleted_ms, decided_at), None)
        return all(reply.status is Status.OK for _, reply in self.bookie.sync())

    def _pause(self, seconds: float) -> None:
        """If it is the main thread that waits, the storage's sync thread has nothing to do: they are the same."""
        if threading.current_thread() is threading.main_thread():
            self.bookie.idle()
        time.sleep(seconds)


class Reader(threading.Thread):
    """Reads entries of the ledgers that are kept, at random, and compares them."""

    def __init__(self, storage: Storage, ledger_ids: list[int]) -> None:
        super().__init__(daemon=True)
        self.reads = self.wrong = 0
        self._storage = storage
        self._ledger_ids = ledger_ids
        self._counts = {one: storage.entries(one) for one in ledger_ids}
        self._ended = threading.Event()

    def run(self) -> None:
        chance = random.Random(SEED)
        while not self._ended.wait(READ_PAUSE_S):
            ledger_id = chance.choice(self._ledger_ids)
            self._read(ledger_id, chance.randrange(self._counts[ledger_id]))

    def end(self) -> None:
        """Stop, then read everything once more."""
        self._ended.set()
        self.join()
        for ledger_id, count in self._counts.items():
            for entry_id in range(count):
                self._read(ledger_id, entry_id)

    def _read(self, ledger_id: int, entry_id: int) -> None:
        self.reads += 1
        self.wrong += not self._storage.read_is_right(ledger_id, entry_id)


def _batch(number: int) -> EncodedBatch:
    payload = random.Random(number).randbytes(BATCH_BYTES)
    digester = Digester(DigestType.CRC32C, b"")
    sealed = seal(digester, 0, 0, pa.array([payload], pa.binary()), length_before=0, last_add_confirmed=-1)
    encoded = encode(sealed, DigestType.CRC32C, DENSE)
    assert encoded is not None
    return encoded


@contextmanager
def opened(directory: Path, mib: int) -> Iterator[Storage]:
    config = BookieConfig(entry_log_file_bytes=max(4 * MIB, mib * MIB // 16))
    with CheckpointThread() as checkpoints:
        storage = Storage(directory, config, checkpoints)
        try:
            yield storage
        finally:
            storage.bookie.close()


def fill(storage: Storage, mib: int) -> None:
    for ledger_id in range(LEDGERS + 1):
        storage.create(ledger_id)
    for start in range(0, mib * MIB // BATCH_BYTES, GROUP):
        storage.write_group([number % LEDGERS for number in range(start, start + GROUP)])
    storage.bookie.storage.checkpoint()


def write_for(storage: Storage, seconds: float, until: threading.Event | None = None) -> float:
    """Write to one ledger for so long, or until something has happened; bytes a second."""
    begun_s, before = time.monotonic(), storage.written_bytes
    while time.monotonic() - begun_s < seconds and not (until is not None and until.is_set()):
        storage.write_group([LEDGERS] * GROUP)
    return (storage.written_bytes - before) / (time.monotonic() - begun_s)


def compact_in_windows(storage: Storage, window_s: float) -> tuple[int, list[float], list[float]]:
    """Until nothing is left to compact, or MAX_WINDOWS: bytes freed, the ratios, the throughputs without compaction."""
    freed = 0
    ratios: list[float] = []
    without: list[float] = []
    is_compacted = False
    while not is_compacted and len(ratios) < MAX_WINDOWS:
        without.append(write_for(storage, window_s))
        reports: list[GcReport] = []
        ended = threading.Event()

        def run(reports: list[GcReport] = reports, ended: threading.Event = ended) -> None:
            reports.append(storage.collect(COMPACTING))
            ended.set()

        storage.compacts.set()
        thread = threading.Thread(target=run)
        thread.start()
        throughput = write_for(storage, window_s, ended)
        storage.compacts.clear()
        while thread.is_alive():
            storage.bookie.idle()
            thread.join(0.01)
        freed += reports[0].bytes_freed
        is_compacted = reports[0].is_compacted
        ratios.append(throughput / without[-1])
    return freed, ratios, without


def collect_twice(storage: Storage, plan: GcPlan, ledgers: int) -> int:
    """Two runs, the second of which deletes; bytes freed."""
    reports = [storage.collect(plan) for _ in range(2)]
    assert reports[1].ledgers_deleted == ledgers, reports
    return sum(report.bytes_freed for report in reports)


def measure(directory: Path, mib: int) -> Outcome:
    with opened(directory, mib) as storage:
        fill(storage, mib)
        filled_bytes = storage.written_bytes
        before_bytes = storage.allocated_bytes()
        kept = [one for one in range(LEDGERS) if one % 5 == 0]
        for ledger_id in range(LEDGERS):
            if ledger_id not in kept:
                storage.remove(ledger_id)
        reader = Reader(storage, kept)
        reader.start()
        freed_bytes = collect_twice(storage, GcPlan(), LEDGERS - len(kept))
        live_bytes = filled_bytes // 5
        window_s = max(0.2, live_bytes / BookieConfig().compaction_bytes_per_s / WINDOWS)
        more_freed, ratios, without = compact_in_windows(storage, window_s)
        freed_bytes += more_freed
        storage.remove(LEDGERS)  # what was written meanwhile goes too, and leaves what was kept
        storage.compacts.set()
        collect_twice(storage, COMPACTING, 1)
        after_bytes = storage.allocated_bytes()
        reader.end()
    sizes = (filled_bytes, before_bytes, after_bytes, freed_bytes)
    return Outcome(*sizes, ratios, statistics.median(without) / 1e6, reader.reads, reader.wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="32 MiB")
    parser.add_argument("--mib", type=int, default=1024, help="what is filled (default %(default)s)")
    parser.add_argument("--directory", type=Path, help="where, instead of a temporary directory")
    arguments = parser.parse_args()
    mib = 32 if arguments.small else arguments.mib
    print(f"python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, {mib} MiB in {LEDGERS} ledgers")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        one = measure(Path(directory), mib)
    print(f"{one.filled_bytes / MIB:,.0f} MiB filled, 80 % deleted, {one.returned:.1%} of it back in the file system")
    print(f"{one.freed_bytes / MIB:,.0f} MiB freed by deletion and compaction, as the collector says")
    print(f"{one.reads:,} reads of the rest, {one.wrong_reads} wrong")
    print(f"{one.without_mb_s:.0f} MB/s written without compaction")
    print(f"{one.ratio:.2f} of that with it (median of {len(one.ratios)}: {', '.join(f'{ratio:.2f}' for ratio in one.ratios)})")
    is_good = one.wrong_reads == 0 and one.returned > 0.75 and (arguments.small or one.ratio > 0.7)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
