"""Spark for a workload, and tables in its memory: what is written costs Spark next to nothing to produce."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from benchmarks.speed.measure import Sample, Setting
from benchmarks.speed.payloads import incompressible, nested_table, numeric_table
from bk_spark.config import KIB

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
"""Of every table: as many tasks, on two cores."""

DRIVER_MEMORY = "3g"


@dataclass(frozen=True, slots=True)
class Subject:
    """Rows of one kind."""

    name: str
    title: str
    content: str
    """The data source's option: ``entries`` (a column ``payload``) or ``rows``."""
    rows: int
    """At full size: about 80 to 200 MB."""
    make: Callable[[int, int], pa.Table]
    """Of a number of rows and a seed."""

    def table(self, setting: Setting) -> pa.Table:
        return self.make(setting.choose(self.rows, 4_000), setting.seed)


def _entries(size_bytes: int) -> Callable[[int, int], pa.Table]:
    return lambda rows, seed: pa.table({"payload": incompressible(rows, size_bytes, seed)})


SUBJECTS = {
    one.name: one
    for one in (
        Subject("100B", "entries of 100 B", "entries", 1_500_000, _entries(100)),
        Subject("1KiB", "entries of 1 KiB", "entries", 200_000, _entries(KIB)),
        Subject("numeric", "rows of 5 numeric columns", "rows", 3_000_000, numeric_table),
        Subject("nested", "nested rows", "rows", 600_000, nested_table),
    )
}


@dataclass(frozen=True, slots=True)
class SparkTable:
    """A table that Spark has, and its size in bytes of the user."""

    frame: DataFrame
    rows: int
    nbytes: int

    def timed(self, action: Callable[[], object]) -> Sample:
        """A job that moves the whole table. What earlier ones left to the kernel to write is written before it starts."""
        os.sync()
        start = time.perf_counter()
        action()
        return Sample(time.perf_counter() - start, self.rows, self.nbytes)

    def check(self, found: int) -> None:
        if found != self.rows:
            raise AssertionError(f"{found} rows were found where {self.rows} are")


@contextmanager
def session(jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """Spark's defaults on two cores. Its JVM stays for the next session of this process, with the jars of the first."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The workers import the data sources of this package.
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])))
    builder = SparkSession.builder.master("local[2]").appName("speed").config("spark.driver.memory", DRIVER_MEMORY)
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def in_memory(spark: SparkSession, table: pa.Table, directory: Path) -> SparkTable:
    """The table as PARTITIONS partitions, in order, which Spark keeps in its memory."""
    step = -(-table.num_rows // PARTITIONS)
    parts = []
    for number, path in enumerate(part_paths(directory)):
        pq.write_table(table.slice(number * step, step), path, compression="none", use_dictionary=False)
        parts.append(spark.read.parquet(str(path)).coalesce(1))
    kept = SparkTable(functools.reduce(DataFrame.union, parts).cache(), table.num_rows, user_bytes(table))
    kept.check(kept.frame.count())
    return kept


def part_paths(directory: Path) -> list[Path]:
    return [directory / f"part-{number}.parquet" for number in range(PARTITIONS)]


def user_bytes(table: pa.Table) -> int:
    """Those of payloads, or of all columns as Arrow lays them out."""
    if table.column_names == ["payload"]:
        return int(pc.sum(pc.binary_length(table.column("payload"))).as_py())
    return int(table.nbytes)


def read_through(frame: DataFrame, expected: SparkTable) -> Sample:
    """All rows and columns, into Spark's sink that keeps nothing, counted on their way."""
    counted = Observation()
    observed = frame.observe(counted, f.count(f.lit(1)).alias("rows"))
    sample = expected.timed(lambda: observed.write.format("noop").mode("overwrite").save())
    expected.check(counted.get["rows"])
    return sample
