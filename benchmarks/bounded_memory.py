"""Is memory bounded? Writes and reads back n rows of 100 bytes through Spark, for two sizes of n, each on a fresh cluster.

Printed for each size: whether what was read equals what was written (rows and an order-independent checksum), MB/s of each
way, the peak resident size of a bookie and of a Spark Python worker; then the ratios of the larger size to the smaller.

    python -m benchmarks.bounded_memory [--small] [--content rows|entries] [--sizes 1000000,10000000] [--apache]
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.peers.bookkeeper_cluster import bookkeeper_cluster
from bk_spark import LocalCluster
from bk_spark.cli import main as command
from bk_spark.local.process import LocalProcess

ROW_BYTES = 100
PARTITIONS = 4
SAMPLE_S = 0.1
MIB = 1024 * 1024

_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


@dataclass(frozen=True)
class Result:
    """What one size showed. Sizes in MiB."""

    rows: int
    equal: bool
    write_mb_s: float
    read_mb_s: float
    bookie_mib: float
    worker_mib: float


class WorkerPeaks:
    """Watches the Python workers of this process's Spark: they come and go, so their peaks are sampled."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerPeaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self.peak_mib = max([self.peak_mib, *map(peak_mib, python_workers())])


def python_workers() -> list[int]:
    """Processes that run pyspark's worker daemon, or were forked from it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"pyspark.daemon" in command or b"pyspark.worker" in command:
                found.append(int(entry.name))
    return found


def peak_mib(pid: int) -> float:
    """The largest resident size that a process ever had; 0 for one that is gone."""
    try:
        found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found.group(1)) / 1024 if found else 0.0


def source_rows(spark: SparkSession, rows: int, content: str) -> DataFrame:
    """Rows of 100 bytes that do not compress well and differ from each other."""
    text = f.substring(
        f.concat(f.sha2(f.col("id").cast("string"), 256), f.sha2(f.hash("id").cast("string"), 256)), 1, ROW_BYTES
    )
    column = text.cast("binary").alias("payload") if content == "entries" else text.alias("text")
    return spark.range(0, rows, 1, PARTITIONS).select(column)


def fingerprint(rows: DataFrame, column: str) -> tuple[int, int]:
    found = rows.agg(f.count("*").alias("n"), f.sum(f.xxhash64(column).cast("decimal(38,0)")).alias("sum")).first()
    assert found is not None
    return int(found["n"]), int(found["sum"])


@contextmanager
def bookies(*, of_apache: bool) -> Iterator[tuple[str, Sequence[LocalProcess]]]:
    """The metadata URI of three of our bookies, or of Apache's, and their processes."""
    with ExitStack() as stack:
        ours = stack.enter_context(LocalCluster(bookies=0 if of_apache else 3))
        if not of_apache:
            yield ours.metadata_uri, ours.bookies
            return
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "apache"
        apache = stack.enter_context(bookkeeper_cluster(ours, directory))
        uri = f"zk://{ours.zookeeper.address}/{directory.name}"
        assert command(["cluster", "init", "--metadata", uri]) == 0
        yield uri, apache.bookies


def measure(rows: int, content: str, *, of_apache: bool) -> Result:
    column = "payload" if content == "entries" else "text"
    with bookies(of_apache=of_apache) as (uri, processes), WorkerPeaks() as workers:
        spark = session()
        options = {"metadata": uri, "content": content}
        expected = fingerprint(source_rows(spark, rows, content), column)
        started = time.monotonic()
        source_rows(spark, rows, content).write.format("bookkeeper").options(**options).mode("append").save("rows")
        written = time.monotonic()
        found = fingerprint(spark.read.format("bookkeeper").options(**options).load("rows"), column)
        read = time.monotonic()
        bookie = max(peak_mib(bookie.pid) for bookie in processes if bookie.pid is not None)
        spark.stop()
        megabytes = rows * ROW_BYTES / 1e6
    return Result(
        rows, found == expected, megabytes / (written - started), megabytes / (read - written), bookie, workers.peak_mib
    )


def session() -> SparkSession:
    """Its workers run this program's Python, which has bk_spark."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR").getOrCreate()


def in_own_process(rows: int, content: str, *, of_apache: bool) -> Result:
    """Each size in a fresh process, so that neither Spark nor this program brings anything along."""
    program = [sys.executable, "-m", "benchmarks.bounded_memory", "--one", str(rows), "--content", content]
    done = subprocess.run([*program, *(["--apache"] if of_apache else [])], check=True, stdout=subprocess.PIPE, text=True)
    values = done.stdout.split()[-6:]
    return Result(int(values[0]), values[1] == "True", *map(float, values[2:]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="10,000 and 100,000 rows")
    parser.add_argument("--content", choices=["rows", "entries"], default="rows")
    parser.add_argument("--sizes", default="1000000,10000000", help="the two numbers of rows (default %(default)s)")
    parser.add_argument("--apache", action="store_true", help="on three bookies of Apache's, which Maven fetches")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        result = measure(args.one, args.content, of_apache=args.apache)
        print(result.rows, result.equal, result.write_mb_s, result.read_mb_s, result.bookie_mib, result.worker_mib)
        return 0
    print(f"python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, content={args.content}")
    sizes = [10_000, 100_000] if args.small else [int(size) for size in args.sizes.split(",")]
    results = [in_own_process(size, args.content, of_apache=args.apache) for size in sizes]
    for r in results:
        print(
            f"{r.rows:>11,} rows: equal {r.equal}, write {r.write_mb_s:.1f} MB/s, read {r.read_mb_s:.1f} MB/s, "
            f"peak bookie {r.bookie_mib:.0f} MiB, peak worker {r.worker_mib:.0f} MiB"
        )
    small, large = results[0], results[-1]
    print(f"ratio: bookie {large.bookie_mib / small.bookie_mib:.2f}, worker {large.worker_mib / small.worker_mib:.2f}")
    return 0 if all(r.equal for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
