"""How fast does a log move into its tier, and how fast is it read there?

A log of flat rows and one of nested rows (both about 100 bytes a row), in order of time over a year, on a local cluster of
three bookies. All that is timed has the same two cores. The rows are appended in as many parts as there are rounds. In each
round one part is

- *tiered* by ``client.tier_log``, in a process of its own whose peak of memory is printed: its rows are read from bookies,
  written, read back, proved, and their ledgers leave the bookies;
- *copied* by Spark, its session warm: it reads the same rows from Parquet, and writes them as Parquet with zstd.

Then, in each round, the whole log is read from its tier, all columns, nothing kept, by

- *Spark, log*: ``spark.read.format("bookkeeper")``; *Spark, files*: ``spark.read.parquet`` of the tier's files;
- *read_rows*: ``log.read_rows()``; *DuckDB*: its reader of the tier's files, with two threads.

Last, one day of the year is read with ``where``: the bytes that the reading process takes from files, beside what the day's
rows would take if they had bytes of their own there.

    python benchmarks/tiers.py [--small] [--rows N] [--rounds N]
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession

from benchmarks.rows_without_spark import peak_mib
from benchmarks.speed.processes import SPAWN
from benchmarks.speed.spark_session import session
from bk_spark import BookKeeper, LocalCluster, Tier, register
from bk_spark.config import MIB

ROWS, SMALL_ROWS = 10_000_000, 20_000
APPENDED_ROWS = 250_000
"""Of one commit, and of one file that Spark copies."""
CORES, BATCH_ROWS = 2, 100_000
YEAR_US = 365 * 86_400_000_000
FIRST_DAY = datetime(2025, 1, 1)
DAY = FIRST_DAY + timedelta(days=200)

SPARK_LOG, SPARK_FILES, READ_ROWS, DUCKDB = "Spark, log", "Spark, files", "read_rows", "DuckDB"
RATIOS = ((SPARK_LOG, SPARK_FILES), (SPARK_LOG, DUCKDB), (READ_ROWS, SPARK_FILES), (READ_ROWS, DUCKDB))

Columns = dict[str, pa.Array]


def texts(draw: np.random.Generator, count: int, length: int) -> pa.Array:
    """Of hexadecimal digits, so that half of them is left by compression."""
    data = np.frombuffer(draw.bytes(count * length // 2).hex().encode(), np.uint8)
    return pa.array(data.view(f"S{length}")).cast(pa.string())


def flat(draw: np.random.Generator, count: int) -> Columns:
    return {
        "amount": pa.array(draw.integers(0, 100_000, count)),
        "price": pa.array(draw.random(count)),
        "name": texts(draw, count, 12),
        "note": texts(draw, count, 48),
    }


def nested(draw: np.random.Generator, count: int) -> Columns:
    tags = pa.ListArray.from_arrays(
        pa.array(np.arange(count + 1, dtype=np.int32) * 3), pa.array(draw.integers(0, 99, 3 * count))
    )
    keys = pa.array(["key"]).take(pa.array(np.zeros(count, np.int64)))
    ones = pa.array(np.arange(count + 1, dtype=np.int32))
    return {
        "visit": pa.StructArray.from_arrays([texts(draw, count, 16), tags], ["name", "tags"]),
        "counts": pa.MapArray.from_arrays(ones, keys, pa.array(draw.integers(0, 100_000, count))),
        "price": pa.array(draw.random(count)),
    }


SUBJECTS: dict[str, Callable[[np.random.Generator, int], Columns]] = {"flat": flat, "nested": nested}


def table(kind: str, first: int, count: int, rows: int) -> pa.Table:
    """Rows ``first`` and on of ``rows``."""
    ids = np.arange(first, first + count)
    at = np.datetime64(FIRST_DAY, "us") + ids * (YEAR_US // rows)
    return pa.table({"id": ids, "at": at, **SUBJECTS[kind](np.random.default_rng(first), count)})


@dataclass(frozen=True)
class Scale:
    rows: int
    rounds: int

    @property
    def parts(self) -> Iterator[tuple[int, int]]:
        """The first row of each round's part, and the first one behind it."""
        bounds = [self.rows * number // self.rounds for number in range(self.rounds + 1)]
        return itertools.pairwise(bounds)


@dataclass(frozen=True)
class Subject:
    """One log, and where its tier and Spark's files lie."""

    kind: str
    uri: str
    directory: Path

    @property
    def lake(self) -> Path:
        return self.directory / "lake"

    def append(self, client: BookKeeper, number: int, first: int, beyond: int, rows: int) -> None:
        """To the log, and to Parquet files beside it."""
        plain = self.plain(number)
        plain.mkdir(parents=True)
        for at in range(first, beyond, APPENDED_ROWS):
            part = table(self.kind, at, min(APPENDED_ROWS, beyond - at), rows)
            client.append_rows(self.kind, part, create=True)
            parquet.write_table(part, plain / f"{at}.parquet", compression="zstd")

    def plain(self, number: int) -> Path:
        return self.directory / f"plain-{number}"

    def files(self) -> list[str]:
        return sorted(str(path) for path in self.lake.rglob("*.parquet"))

    def file_bytes(self) -> int:
        return sum(os.path.getsize(path) for path in self.files())


# --- what is timed


def tiered(uri: str, log: str) -> tuple[float, int, int]:
    """Seconds, and MiB of memory before and at the peak."""
    import bk_spark.lake.iceberg  # noqa: F401  what is imported once does not count

    with BookKeeper(uri) as client:
        before = peak_mib()
        started = time.perf_counter()
        client.tier_log(log)
        return time.perf_counter() - started, before, peak_mib()


def copied(spark: SparkSession, source: Path, target: Path) -> float:
    started = time.perf_counter()
    spark.read.parquet(str(source)).write.option("compression", "zstd").parquet(str(target))
    return time.perf_counter() - started


def readers(spark: SparkSession, subject: Subject, client: BookKeeper) -> dict[str, Callable[[], object]]:
    log, files = client.open_log(subject.kind), subject.files()
    columns = log.schema.names
    quoted = ", ".join(f'"{name}"' for name in columns)

    def with_log() -> None:
        frame = spark.read.format("bookkeeper").option("metadata", subject.uri).load(subject.kind)
        frame.write.format("noop").mode("overwrite").save()

    def with_files() -> None:
        spark.read.parquet(*files).select(*columns).write.format("noop").mode("overwrite").save()

    def with_duckdb() -> int:
        with duckdb.connect(config={"threads": CORES}) as connection:
            found = connection.sql(f"SELECT {quoted} FROM read_parquet(?)", params=[files])
            return sum(batch.num_rows for batch in found.to_arrow_reader(BATCH_ROWS))

    return {
        SPARK_LOG: with_log,
        SPARK_FILES: with_files,
        READ_ROWS: lambda: sum(batch.num_rows for batch in log.read_rows()),
        DUCKDB: with_duckdb,
    }


def bytes_of_a_day(uri: str, log: str) -> tuple[int, int]:
    """Bytes that this process reads for one day, and its rows. The first of two reads imports."""
    where = f"at >= '{DAY}' AND at < '{DAY + timedelta(days=1)}'"
    with BookKeeper(uri) as client:
        client.open_log(log).read_rows(where=where).read_all()
        before = read_bytes()
        found = client.open_log(log).read_rows(where=where).read_all()
        return read_bytes() - before, found.num_rows


def read_bytes() -> int:
    """What this process has read by now, also of what the kernel had in memory."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


# --- rounds


def move(spark: SparkSession, subject: Subject, client: BookKeeper, scale: Scale) -> None:
    """Round by round: a part comes into the log, is tiered, and is copied by Spark."""
    ratios, rates, peak, before = [], [], 0, 0
    for number, (first, beyond) in enumerate(scale.parts):
        subject.append(client, number, first, beyond, scale.rows)
        if not number:
            tier = Tier(f"file://{subject.lake}", f"bench.{subject.kind}", keep_on_bookies_s=0)
            client.open_log(subject.kind).set_tier(tier)
            copied(spark, subject.plain(0), subject.directory / "warm")
        copy = partial(copied, spark, subject.plain(number), subject.directory / f"copy-{number}")
        copy_s = copy() if number % 2 else 0.0
        with ProcessPoolExecutor(1, mp_context=SPAWN) as process:
            tier_s, before, found = process.submit(tiered, subject.uri, subject.kind).result()
        copy_s = copy_s or copy()
        ratios.append(copy_s / tier_s)
        rates.append((beyond - first) / tier_s)
        peak = max(peak, found)
        print(f"{subject.kind}, round {number}: tiered in {tier_s:.2f} s, copied by Spark in {copy_s:.2f} s", flush=True)
    copies = sum(path.stat().st_size for path in subject.directory.glob("copy-*/*.parquet"))
    print(f"{subject.kind}: tiering, {statistics.median(rates):,.0f} rows/s, {of(ratios)} of the rate of Spark's copy")
    print(f"{subject.kind}: the tier's files have {subject.file_bytes() / copies:.2f} of the bytes of Spark's copy")
    print(f"{subject.kind}: the process that tiers took {peak} MiB at its peak, of which it had {before} before")


def read(spark: SparkSession, subject: Subject, client: BookKeeper, scale: Scale) -> None:
    every = readers(spark, subject, client)
    seconds: dict[str, list[float]] = {name: [] for name in every}
    for number in range(scale.rounds):
        for name in sorted(every, reverse=number % 2 == 1):
            started = time.perf_counter()
            every[name]()
            seconds[name].append(time.perf_counter() - started)
    for name, found in seconds.items():
        print(f"{subject.kind}: read by {name}, {scale.rows / statistics.median(found):,.0f} rows/s")
    for name, other in RATIOS:
        found = [theirs / ours for ours, theirs in zip(seconds[name], seconds[other], strict=True)]
        print(f"{subject.kind}: {name} has {of(found)} of the rate of {other}", flush=True)


def read_a_day(subject: Subject, scale: Scale) -> None:
    with ProcessPoolExecutor(1, mp_context=SPAWN) as process:
        nbytes, rows = process.submit(bytes_of_a_day, subject.uri, subject.kind).result()
    share = subject.file_bytes() * rows / scale.rows
    told = f"{subject.kind}: one day has {rows:,} rows and {share / MIB:.2f} MiB of the tier's {subject.file_bytes() / MIB:.1f}"
    print(f"{told}; with `where` {nbytes / MIB:.2f} MiB were read, {nbytes / share:.1f} of its share", flush=True)


def of(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one round of few rows: shows that it runs")
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default %(default)s")
    args = parser.parse_args()
    scale = Scale(SMALL_ROWS, 1) if args.small else Scale(args.rows, args.rounds)
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)
    print(f"# {platform.platform()}, {len(cores)} cores, Python {platform.python_version()}, pyarrow {pa.__version__}")
    print(f"# load {os.getloadavg()[0]:.2f}, {scale.rows:,} rows of each kind, {scale.rounds} rounds", flush=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(bookies=3, data_dir=Path(directory) / "cluster") as cluster,
        BookKeeper(cluster.metadata_uri) as client,
        session() as spark,
    ):
        register(spark)
        for kind in SUBJECTS:
            subject = Subject(kind, cluster.metadata_uri, Path(directory) / kind)
            move(spark, subject, client, scale)
            read(spark, subject, client, scale)
            read_a_day(subject, scale)
    return 0


if __name__ == "__main__":
    sys.exit(main())
