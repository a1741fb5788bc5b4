"""What does the storage engine of a bookie cost, beside the disk alone?

Three replicas each store the same workload, E = Qw = 3, in payloads that do not compress:

* raw: three processes write the encoded batches to one file each, with one writev a batch and an fdatasync after as many of
  them as the engine syncs together;
* engine: three processes with a bookie's storage each, without any network (``Bookie.stage``, ``Bookie.sync``); what is sent
  was made before the clock started;
* bookies: three bookie processes, ZooKeeper and a client on this machine, Qa = 2.

All three take turns, so that whatever else runs on the machine falls on all of them alike; printed are medians of the
runs. MB/s and entries/s count what the writer wrote once, though three replicas keep it. Latency is that of one add,
with those that wait for the same sync. Written is what the kernel sent to the disk (``write_bytes`` of /proc/<pid>/io) for each
byte of payload and replica, of the engine with the checkpoint of its close; files is what their sizes say.

    python benchmarks/storage.py [--small] [--runs 5] [--directory D] [--only TEXT] [--without-bookies]
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import numpy as np
import pyarrow as pa

from bk_spark import BookKeeper, LocalCluster
from bk_spark.bookie.bookie import Bookie
from bk_spark.config import BookieConfig, ClientConfig, DigestType
from bk_spark.entries.batch import EncodedBatch, encode, seal
from bk_spark.entries.digest import Digester, master_key
from bk_spark.wire.messages import AddRequest, Status

REPLICAS = 3
POOL_BATCHES = 16
"""Different bodies of a workload. Nothing below keeps what is equal only once."""

BOOKIE_ID = "benchmark"
KEY = master_key(b"")
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Workload:
    """``batches`` adds of ``entries`` entries each, ``group`` of them in one sync."""

    name: str
    entry_bytes: int
    entries: int
    batches: int
    group: int

    @property
    def batch_bytes(self) -> int:
        return self.entry_bytes * self.entries

    @property
    def user_bytes(self) -> int:
        return self.batch_bytes * self.batches


WORKLOADS = [
    Workload("1,000 B in batches of 1 MB", 1000, 1000, 256, 8),
    Workload("100 B in batches of 1 MB", 100, 10_000, 256, 8),
    Workload("1,000 B in batches of 100 kB", 1000, 100, 1024, 16),
    Workload("100 B in batches of 100 kB", 100, 1000, 1024, 16),
    Workload("1,000 B single, pipelined", 1000, 1, 16_384, 256),
    Workload("100 B single, pipelined", 100, 1, 16_384, 256),
    Workload("1,000 B single, each its own sync", 1000, 1, 1024, 1),
    Workload("100 B single, each its own sync", 100, 1, 1024, 1),
]


@dataclass(frozen=True)
class Run:
    """What one replica, or one client, measured."""

    seconds: float
    latencies_s: list[float]
    written_bytes: int
    file_bytes: int


class Progress:
    """Times groups of adds: ``begin`` before the first is handed over, ``end`` when all of them are durable."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self._written = written_bytes("self")
        self._started = time.perf_counter()

    @contextmanager
    def group(self) -> Iterator[list[float]]:
        """Collects the times at which the adds of a group begin."""
        begins: list[float] = []
        yield begins
        end = time.perf_counter()
        self.latencies_s += [end - begin for begin in begins]

    def stop(self) -> float:
        return time.perf_counter() - self._started

    def written(self) -> int:
        return written_bytes("self") - self._written


def written_bytes(pid: int | str) -> int:
    """What a process has sent to disks, whole pages."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def random_payloads(workload: Workload) -> pa.BinaryArray:
    offsets = pa.py_buffer(np.arange(0, workload.batch_bytes + 1, workload.entry_bytes, dtype=np.int32))
    data = pa.py_buffer(os.urandom(workload.batch_bytes))
    return pa.BinaryArray.from_buffers(pa.binary(), workload.entries, [None, offsets, data])


def encoded_batches(workload: Workload) -> list[EncodedBatch]:
    """Consecutive batches of one ledger. Bodies repeat, so that all are made soon: their digests are those of the first."""
    digester = Digester(DigestType.CRC32C, b"")
    pool: list[EncodedBatch] = []
    for _ in range(min(POOL_BATCHES, workload.batches)):
        sealed = seal(digester, 1, 0, random_payloads(workload), length_before=0, last_add_confirmed=-1)
        encoded = encode(sealed, DigestType.CRC32C)
        assert encoded is not None
        pool.append(encoded)
    return [_moved(pool[number % len(pool)], number, workload) for number in range(workload.batches)]


def _moved(batch: EncodedBatch, number: int, workload: Workload) -> EncodedBatch:
    first = number * workload.entries
    header = dataclasses.replace(
        batch.header,
        first_entry_id=first,
        last_entry_id=first + workload.entries - 1,
        last_add_confirmed=first - 1,
        length_before=number * workload.batch_bytes,
    )
    return dataclasses.replace(batch, header=header)


def groups(count: int, size: int) -> Iterator[range]:
    return (range(start, min(start + size, count)) for start in range(0, count, size))


# --- in a process of its own


def raw_run(directory: Path, workload: Workload, started: Callable[[], None]) -> Run:
    batches = encoded_batches(workload)
    descriptor = os.open(directory / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    started()
    progress = Progress()
    for numbers in groups(workload.batches, workload.group):
        with progress.group() as begins:
            for number in numbers:
                begins.append(time.perf_counter())
                os.writev(descriptor, [batches[number].body])
            os.fdatasync(descriptor)
    seconds = progress.stop()
    os.close(descriptor)
    return Run(seconds, progress.latencies_s, progress.written(), size_of(directory))


def engine_run(directory: Path, workload: Workload, started: Callable[[], None]) -> Run:
    requests = [AddRequest(number, BOOKIE_ID, KEY, batch) for number, batch in enumerate(encoded_batches(workload))]
    bookie = Bookie.open(directory, BOOKIE_ID, BookieConfig())
    started()
    progress = Progress()
    for numbers in groups(workload.batches, workload.group):
        with progress.group() as begins:
            for number in numbers:
                begins.append(time.perf_counter())
                bookie.stage(requests[number], None)
            replies = bookie.sync()
        assert [reply.status for _, reply in replies] == [Status.OK] * len(numbers)
    seconds = progress.stop()
    bookie.close()
    return Run(seconds, progress.latencies_s, progress.written(), size_of(directory))


def worker(pipe: Connection) -> None:
    """Does one run for each (kind, directory, workload) that comes, in a new directory; None ends it."""
    while (job := pipe.recv()) is not None:
        kind, directory, workload = job
        directory.mkdir()

        def started() -> None:
            pipe.send("ready")
            pipe.recv()

        pipe.send((raw_run if kind == "raw" else engine_run)(directory, workload, started))
        shutil.rmtree(directory)


class Workers:
    """Three processes that begin together."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pipes: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        for _ in range(REPLICAS):
            ours, theirs = SPAWN.Pipe()
            self._processes.append(SPAWN.Process(target=worker, args=(theirs,), daemon=True))
            self._processes[-1].start()
            theirs.close()
            self._pipes.append(ours)

    def run(self, kind: str, workload: Workload) -> list[Run]:
        for number, pipe in enumerate(self._pipes):
            pipe.send((kind, self._directory / f"{kind}-{number}", workload))
        for pipe in self._pipes:
            pipe.recv()
        for pipe in self._pipes:
            pipe.send("go")
        return [pipe.recv() for pipe in self._pipes]

    def close(self) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join()


# --- with bookies and a client


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.local = LocalCluster(bookies=REPLICAS, data_dir=directory)

    def run(self, workload: Workload) -> list[Run]:
        pids = [bookie.pid for bookie in self.local.bookies if bookie.pid is not None]
        payloads = [random_payloads(workload) for _ in range(min(POOL_BATCHES, workload.batches))]
        # One batch with what the client adds for each entry, and not two, travels in a request.
        config = ClientConfig(add_batch_bytes=max(workload.batch_bytes * 3 // 2, 100_000))
        adds = Adds(workload.group if workload.entries == 1 else workload.batches)
        written, files = sum(map(written_bytes, pids)), self._files_bytes()
        with BookKeeper(self.local.metadata_uri, config=config) as client, client.create_ledger() as writer:
            started = time.perf_counter()
            for number in range(workload.batches):
                adds.add(writer.append_batch_async, payloads[number % len(payloads)])
            adds.wait()
            seconds = time.perf_counter() - started
        sent, grown = sum(map(written_bytes, pids)) - written, self._files_bytes() - files
        return [Run(seconds, adds.latencies_s, sent // REPLICAS, grown // REPLICAS)]

    def _files_bytes(self) -> int:
        return sum(map(size_of, self.local.data_dir.glob("bookie-*/data")))

    def close(self) -> None:
        self.local.close()


class Adds:
    """At most ``window`` adds of this many under way; the writer has a bound of its own in bytes."""

    def __init__(self, window: int) -> None:
        self.latencies_s: list[float] = []
        self._room = threading.Semaphore(window)
        self._futures: list[Future[tuple[int, int]]] = []

    def add(self, append: Callable[[pa.BinaryArray], Future[tuple[int, int]]], payloads: pa.BinaryArray) -> None:
        self._room.acquire()
        begin = time.perf_counter()
        future = append(payloads)
        future.add_done_callback(lambda _: self._done(begin))
        self._futures.append(future)

    def wait(self) -> None:
        for future in self._futures:
            future.result()

    def _done(self, begin: float) -> None:
        self.latencies_s.append(time.perf_counter() - begin)
        self._room.release()


# --- the report


@dataclass(frozen=True)
class Figures:
    """Medians of the runs of one kind."""

    mb_s: float
    entries_s: float
    p50_ms: float
    p99_ms: float
    written: float
    """Bytes to disk for each user byte and replica."""
    files: float

    def line(self, kind: str) -> str:
        rates = f"{self.mb_s:8.1f} MB/s {self.entries_s:12,.0f} entries/s"
        latency = f"p50 {self.p50_ms:7.2f} ms  p99 {self.p99_ms:7.2f} ms"
        return f"  {kind:8}{rates}  {latency}  written {self.written:5.2f}  files {self.files:5.2f}"


def figures(workload: Workload, runs: Sequence[list[Run]]) -> Figures:
    def median(value: Callable[[list[Run]], float]) -> float:
        return statistics.median(map(value, runs))

    def quantile(share: float) -> Callable[[list[Run]], float]:
        return lambda run: float(np.quantile(np.concatenate([one.latencies_s for one in run]), share)) * 1e3

    seconds = median(lambda run: max(one.seconds for one in run))
    return Figures(
        workload.user_bytes / seconds / 1e6,
        workload.batches * workload.entries / seconds,
        median(quantile(0.5)),
        median(quantile(0.99)),
        median(lambda run: statistics.mean(one.written_bytes for one in run) / workload.user_bytes),
        median(lambda run: statistics.mean(one.file_bytes for one in run) / workload.user_bytes),
    )


def small(workload: Workload) -> Workload:
    return dataclasses.replace(workload, batches=max(4, workload.batches // 64))


def measure(workload: Workload, runs: int, workers: Workers, cluster: Cluster | None) -> None:
    kinds: dict[str, Callable[[], list[Run]]] = {
        "raw": lambda: workers.run("raw", workload),
        "engine": lambda: workers.run("engine", workload),
    }
    if cluster is not None:
        kinds["bookies"] = lambda: cluster.run(workload)
    found: dict[str, list[list[Run]]] = {kind: [] for kind in kinds}
    for _ in range(runs):
        for kind, run in kinds.items():
            found[kind].append(run())
    print(f"{workload.name}: {workload.user_bytes / 1e6:.0f} MB, {workload.group} adds to a sync")
    result = {kind: figures(workload, of_kind) for kind, of_kind in found.items()}
    for kind, one in result.items():
        share = "" if kind == "raw" else f"   {one.mb_s / result['raw'].mb_s:4.0%} of raw"
        print(one.line(kind) + share, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one run of a few adds")
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind (default %(default)s)")
    parser.add_argument("--directory", help="where to store (default: a temporary directory)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only workloads whose names hold it")
    parser.add_argument("--without-bookies", action="store_true", help="the disk and the engine alone")
    args = parser.parse_args()
    print(f"python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.directory)))
        workers = Workers(directory)
        stack.callback(workers.close)
        cluster = None if args.without_bookies else Cluster(directory / "cluster")
        if cluster is not None:
            stack.callback(cluster.close)
        for workload in (one for one in WORKLOADS if args.only in one.name):
            measure(small(workload) if args.small else workload, 1 if args.small else args.runs, workers, cluster)
    return 0


if __name__ == "__main__":
    sys.exit(main())
