"""How fast is the newest row of each key found, and in how much memory?

A log of changes: 10 million rows (5 columns, 60 bytes a row) of a million keys, drawn evenly, one of a hundred a tombstone, in
20 commits and 8 lanes on a local cluster of three bookies; and the same rows in one Parquet file on the same disk. In turns,
each in a process of its own on the same two cores, the newest rows are found, and their columns added up, by

- *read_rows*: ``log.read_rows(view="latest", deleted_by="gone")``;
- *Spark, view*: ``spark.read.format("bookkeeper")`` with ``view=latest`` and ``deletedBy=gone``;
- *Spark, window*: the same log without a view, and Spark's ``row_number`` over each key;
- *DuckDB, window* and *DuckDB, arg_max*: over the Parquet file.

All but the views rest on a column that numbers the changes. Rows a second are those of the log, from the call to the result, of
the second of two runs. Memory is the peak of the process and of its children (Spark's JVM and workers), less what the process
had before.

    python benchmarks/latest.py [--small] [--rows N] [--keys N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks.rows_without_spark import peak_mib
from benchmarks.speed.processes import SPAWN
from bk_spark import BookKeeper, LocalCluster

ROWS, KEYS = 10_000_000, 1_000_000
SMALL_ROWS, SMALL_KEYS = 100_000, 10_000
COMMITS, LANES, CORES = 20, 8, 2
ADDED = "count(*), sum(n), sum(amount), max(note)"
NUMBERED = "SELECT *, row_number() OVER (PARTITION BY id ORDER BY n DESC) AS place FROM changes"
BY_WINDOW = f"SELECT {ADDED} FROM ({NUMBERED}) WHERE place = 1 AND NOT gone"
BY_ARG_MAX = f"SELECT {ADDED} FROM (SELECT unnest(arg_max(changes, n)) FROM changes GROUP BY id) WHERE NOT gone"
VIEW, SPARK_VIEW, SPARK_WINDOW = "read_rows", "Spark, view", "Spark, window"

Result = tuple[object, ...]


@dataclass(frozen=True)
class Subject:
    """The log, and the file."""

    uri: str
    path: str


def table(first: int, count: int, keys: int) -> pa.Table:
    drawn = np.random.default_rng(first)
    notes = pa.array([f"a note of this change {one:07d}" for one in drawn.integers(0, 1_000_000, 1000)])
    return pa.table(
        {
            "id": drawn.integers(0, keys, count),
            "n": np.arange(first, first + count),
            "amount": drawn.integers(0, 100_000, count),
            "note": notes.take(pa.array(drawn.integers(0, 1000, count))),
            "gone": drawn.random(count) < 0.01,
        }
    )


# --- what is timed


def with_read_rows(subject: Subject) -> Result:
    rows = numbers = amounts = 0
    note = ""
    with BookKeeper(subject.uri) as client:
        for batch in client.open_log("changes").read_rows(view="latest", deleted_by="gone"):
            rows += batch.num_rows
            numbers += pc.sum(batch.column("n")).as_py()
            amounts += pc.sum(batch.column("amount")).as_py()
            note = max(note, pc.max(batch.column("note")).as_py())
    return rows, numbers, amounts, note


def with_spark(subject: Subject, query: str, **options: str) -> Result:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false").getOrCreate()
    frame = spark.read.format("bookkeeper").options(metadata=subject.uri, **options).load("changes")
    frame.createOrReplaceTempView("changes")
    return tuple(spark.sql(query).collect()[0])


def with_duckdb(subject: Subject, query: str) -> Result:
    import duckdb

    with duckdb.connect(config={"threads": CORES}) as connection:
        connection.execute(f"CREATE VIEW changes AS FROM '{subject.path}'")
        return tuple(connection.execute(query).fetchone() or ())


WAYS: dict[str, Callable[[Subject], Result]] = {
    VIEW: with_read_rows,
    SPARK_VIEW: lambda subject: with_spark(subject, f"SELECT {ADDED} FROM changes", view="latest", deletedBy="gone"),
    SPARK_WINDOW: lambda subject: with_spark(subject, BY_WINDOW),
    "DuckDB, window": lambda subject: with_duckdb(subject, BY_WINDOW),
    "DuckDB, arg_max": lambda subject: with_duckdb(subject, BY_ARG_MAX),
}


def timed(name: str, subject: Subject) -> tuple[float, int, Result]:
    """Seconds of the second of two runs (the first one imports and warms up), MiB of memory that both took, and the result."""
    before = peak_mib()
    WAYS[name](subject)
    started = time.perf_counter()
    result = WAYS[name](subject)
    seconds = time.perf_counter() - started
    return seconds, sum(peaks_mib(os.getpid())) - before, result


def peaks_mib(process: int) -> Iterator[int]:
    """The most memory that a process has held, and each of those that it started and that still run."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    yield next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0) // 1024  # a zombie holds nothing
    for thread in Path(f"/proc/{process}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield from peaks_mib(int(child))


# --- rounds


def fill(client: BookKeeper, subject: Subject, rows: int, keys: int) -> None:
    share = rows // COMMITS
    with parquet.ParquetWriter(subject.path, table(0, 1, 1).schema) as file:
        for first in range(0, rows, share):
            part = table(first, share, keys)
            log = client.open_log("changes", create=True)
            log.append_rows(part, partition_key="id", lanes=LANES)
            file.write_table(part)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one round of few rows: shows that it runs")
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help="default %(default)s")
    parser.add_argument("--keys", type=int, default=KEYS, metavar="N", help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default %(default)s")
    args = parser.parse_args()
    rows, keys, rounds = (SMALL_ROWS, SMALL_KEYS, 1) if args.small else (args.rows, args.keys, args.rounds)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    print(f"# {platform.platform()}, {CORES} cores, Python {platform.python_version()}, pyarrow {pa.__version__}")
    print(f"# load {os.getloadavg()[0]:.2f}, {rows:,} rows of {keys:,} keys, {rounds} rounds", flush=True)
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    memory = dict.fromkeys(WAYS, 0)
    with tempfile.TemporaryDirectory() as directory, LocalCluster(bookies=3, data_dir=Path(directory) / "cluster") as cluster:
        subject = Subject(cluster.metadata_uri, f"{directory}/changes.parquet")
        with BookKeeper(subject.uri) as client:
            fill(client, subject, rows, keys)
        for number in range(rounds):
            results = {}
            for name in sorted(WAYS, reverse=number % 2 == 1):
                with ProcessPoolExecutor(1, mp_context=SPAWN) as process:
                    seconds, mib, results[name] = process.submit(timed, name, subject).result()
                rates[name].append(rows / seconds)
                memory[name] = max(memory[name], mib)
                print(f"round {number} {name}: {rows / seconds:,.0f} rows/s, {mib} MiB, {results[name]}", flush=True)
            if len({*results.values()}) > 1:
                raise AssertionError(f"not all found the same: {results}")
    tell(rates, memory)
    return 0


def tell(rates: dict[str, list[float]], memory: dict[str, int]) -> None:
    for name, found in rates.items():
        ratios = [one / window for one, window in zip(found, rates[SPARK_WINDOW], strict=True)]
        print(
            f"{name}: {statistics.median(found):,.0f} rows/s, {statistics.median(ratios):.2f} of that of {SPARK_WINDOW} "
            f"({min(ratios):.2f} to {max(ratios):.2f}), {memory[name]} MiB more than before"
        )


if __name__ == "__main__":
    sys.exit(main())
