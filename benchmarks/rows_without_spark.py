"""How fast are the rows of a log read without Spark?

A log of 10 million rows (5 columns, 60 bytes a row) in 20 commits, on a local cluster of three bookies. In turns, each in a
process of its own, they are aggregated by

- *DuckDB*, *Polars*: over ``log.read_rows()``;
- *Arrow*: ``log.read_rows()`` alone, all columns, nothing kept;
- *Spark*: over ``spark.read.format("bookkeeper")``, on two cores, its session warm;
- *Parquet*: DuckDB over the same rows in one Parquet file on the same disk.

Rows a second count from the call to the result. Memory is the process's peak, less what it had before the read.

    python benchmarks/rows_without_spark.py [--small] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.speed.processes import SPAWN
from bk_spark import BookKeeper, LocalCluster

ROWS, SMALL_ROWS = 10_000_000, 100_000
COMMITS = 20
QUERY = "SELECT count(*), sum(amount), max(name), sum(price) FROM rows WHERE day >= 100"


def table(first: int, count: int) -> pa.Table:
    drawn = np.random.default_rng(first)
    ids = np.arange(first, first + count)
    names = pa.array([f"customer {one:07d}" for one in drawn.integers(0, 1_000_000, 1000)])
    return pa.table(
        {
            "id": ids,
            "day": (ids // 1000 % 365).astype(np.int32),
            "amount": drawn.integers(0, 100_000, count),
            "price": drawn.random(count),
            "name": names.take(pa.array(drawn.integers(0, 1000, count))),
        }
    )


def with_duckdb(uri: str, _: str) -> tuple[object, ...]:
    import duckdb

    with BookKeeper(uri) as bookkeeper, duckdb.connect() as connection:
        connection.register("rows", bookkeeper.open_log("rows").read_rows())
        return tuple(connection.execute(QUERY).fetchone() or ())


def with_polars(uri: str, _: str) -> tuple[object, ...]:
    import polars

    amount, price, name = polars.col("amount"), polars.col("price"), polars.col("name")
    with BookKeeper(uri) as bookkeeper:
        parts = []
        for batch in bookkeeper.open_log("rows").read_rows():
            frame: Any = polars.from_arrow(batch)
            parts.append(frame.filter(polars.col("day") >= 100).select(polars.len(), amount.sum(), name.max(), price.sum()))
        found = polars.concat(parts).select(polars.col("len").sum(), amount.sum(), name.max(), price.sum())
        return tuple(found.row(0))


def with_arrow(uri: str, _: str) -> tuple[object, ...]:
    with BookKeeper(uri) as bookkeeper:
        return (sum(batch.num_rows for batch in bookkeeper.open_log("rows").read_rows()),)


def with_parquet(_: str, path: str) -> tuple[object, ...]:
    import duckdb

    with duckdb.connect() as connection:
        return tuple(connection.execute(QUERY.replace("FROM rows", f"FROM '{path}'")).fetchone() or ())


def with_spark(uri: str, _: str) -> tuple[object, ...]:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.read.format("bookkeeper").option("metadata", uri).load("rows").createOrReplaceTempView("rows")
    return tuple(spark.sql(QUERY).collect()[0])


READERS: dict[str, Callable[[str, str], tuple[object, ...]]] = {
    "DuckDB": with_duckdb,
    "Polars": with_polars,
    "Arrow": with_arrow,
    "Spark": with_spark,
    "Parquet": with_parquet,
}


def timed(name: str, uri: str, path: str) -> tuple[float, int, tuple[object, ...]]:
    """Seconds of the second of two runs (the first one imports and warms up), MiB of memory that both took, and the result."""
    before = peak_mib()
    READERS[name](uri, path)
    started = time.perf_counter()
    result = READERS[name](uri, path)
    seconds = time.perf_counter() - started
    return seconds, peak_mib() - before, result


def peak_mib() -> int:
    """The most memory that this program has held. What ``getrusage`` tells begins with its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="one round of few rows: shows that it runs")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default %(default)s")
    args = parser.parse_args()
    rows, rounds = (SMALL_ROWS, 1) if args.small else (ROWS, args.rounds)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as directory, LocalCluster(bookies=3, data_dir=Path(directory) / "cluster") as cluster:
        path, share = f"{directory}/rows.parquet", rows // COMMITS
        with BookKeeper(cluster.metadata_uri) as bookkeeper, parquet.ParquetWriter(path, table(0, 1).schema) as file:
            log = bookkeeper.open_log("rows", create=True)
            for first in range(0, rows, share):
                part = table(first, share)
                log.append_rows(part)
                file.write_table(part)
        rates: dict[str, list[float]] = {name: [] for name in READERS}
        memory: dict[str, int] = dict.fromkeys(READERS, 0)
        results: dict[str, tuple[object, ...]] = {}
        for number in range(rounds):
            for name in sorted(READERS, reverse=number % 2 == 1):
                with ProcessPoolExecutor(1, mp_context=SPAWN) as process:
                    seconds, mib, results[name] = process.submit(timed, name, cluster.metadata_uri, path).result()
                rates[name].append(rows / seconds)
                memory[name] = max(memory[name], mib)
                print(f"round {number} {name}: {rows / seconds:,.0f} rows/s, {mib} MiB, {results[name]}", flush=True)
    for name, found in rates.items():
        ratios = [one / spark for one, spark in zip(found, rates["Spark"], strict=True)]
        print(
            f"{name}: {statistics.median(found):,.0f} rows/s, {statistics.median(ratios):.2f} of Spark's "
            f"({min(ratios):.2f} to {max(ratios):.2f}), {memory[name]} MiB more than before"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
