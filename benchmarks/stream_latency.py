"""How long until a row that was appended arrives in a stream?

On a local cluster of three bookies and Spark with two cores, three streaming queries, one after the other, each with the
default trigger (the next micro-batch as soon as there is something new):

- *floor*: Spark's own source ``rate-micro-batch`` into Spark's own sink ``noop``: what a micro-batch costs without us;
- *append*: a leader appends single entries through ``open_writer`` at random moments;
- *batch*: Spark appends DataFrames of one row.

A row of the last two has arrived when the query's ``foreachBatch`` has collected it. Its time starts before the call of
``append``, or with the time that the log gave the commit. When its micro-batch began, and what that spent its time with, is
what the query's progress says.

    python benchmarks/stream_latency.py [--small]
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bk_spark import BookKeeper, LocalCluster

SEED = 1
PAUSE_S = (0.6, 1.2)
"""Between two rows: the query is at rest again, and rows come at any moment of its cycle."""
WARM_UP, SMALL_WARM_UP = 5, 1
"""Rows that are not counted: the first micro-batches start Python and compile."""
ROWS, SMALL_ROWS = 40, 2
ARRIVAL_S = 120.0
DURATIONS = ("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
"""Of a query's progress, in milliseconds, in the order of a micro-batch; the last is all of it."""


@dataclass(slots=True)
class Arrivals:
    """What a query's foreachBatch has seen: when each row arrived, by its number."""

    at: dict[int, float] = field(default_factory=dict)
    came: threading.Condition = field(default_factory=threading.Condition)

    def take(self, numbers: Sequence[int]) -> None:
        now = time.time()
        with self.came:
            for number in numbers:
                self.at.setdefault(number, now)
            self.came.notify_all()

    def wait(self, number: int) -> float:
        with self.came:
            if not self.came.wait_for(lambda: number in self.at, ARRIVAL_S):
                raise TimeoutError(f"row {number} did not arrive within {ARRIVAL_S:g} s")
            return self.at[number]


@dataclass(frozen=True, slots=True)
class Sample:
    """One row, in seconds since 1970."""

    sent: float
    confirmed: float
    arrived: float
    trigger: float
    """When the micro-batch began that had it."""


class Bench:
    """Spark, the cluster, and a directory for checkpoints."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster, directory: Path, is_small: bool) -> None:
        self._spark = spark
        self._uri = cluster.metadata_uri
        self._directory = directory
        self._rows = SMALL_ROWS if is_small else ROWS
        self._warm_up = SMALL_WARM_UP if is_small else WARM_UP
        self._chosen = random.Random(SEED)

    def floor(self) -> list[dict[str, int]]:
        """The durations of micro-batches in which nothing is ours."""
        stream = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        query = stream.writeStream.format("noop").option("checkpointLocation", str(self._directory / "floor")).start()
        deadline = time.monotonic() + ARRIVAL_S
        while len(query.recentProgress) < self._rows + self._warm_up and time.monotonic() < deadline:
            time.sleep(0.05)
        query.stop()
        return _durations(query)[self._warm_up :]

    def append(self) -> tuple[list[Sample], list[dict[str, int]]]:
        with BookKeeper(self._uri) as client:
            log = client.open_log("entries", create=True)
            with log.open_writer() as writer:
                writer.append(b"-1")

                def send(number: int) -> tuple[float, float]:
                    sent = time.time()
                    writer.append(b"%d" % number)
                    return sent, time.time()

                return self._follow("entries", "payload", send, content="entries")

    def batch(self) -> tuple[list[Sample], list[dict[str, int]]]:
        def write(number: int) -> None:
            rows = self._spark.createDataFrame([(number,)], "number bigint").coalesce(1)
            rows.write.format("bookkeeper").option("metadata", self._uri).mode("append").save("rows")

        def send(number: int) -> tuple[float, float]:
            write(number)
            committed = client.open_log("rows").snapshot().time_ms / 1000
            return committed, committed

        with BookKeeper(self._uri) as client:
            write(-1)
            return self._follow("rows", "number", send)

    def _follow(
        self, log: str, column: str, send: Callable[[int], tuple[float, float]], **options: str
    ) -> tuple[list[Sample], list[dict[str, int]]]:
        arrivals = Arrivals()

        def collect(batch: DataFrame, batch_id: int) -> None:
            arrivals.take([int(row[column]) for row in batch.select(column).collect()])

        stream = self._spark.readStream.format("bookkeeper").option("metadata", self._uri).option("startingOffsets", "earliest")
        writing = stream.options(**options).load(log).writeStream.foreachBatch(collect)
        query = writing.option("checkpointLocation", str(self._directory / log)).start()
        try:
            arrivals.wait(-1)
            times = [self._one(number, arrivals, send) for number in range(self._rows + self._warm_up)]
            _await_progress(query, times[-1][2])
        finally:
            query.stop()
        samples = [_sample(query, *one) for one in times[self._warm_up :]]
        return samples, [one for one in _durations(query) if "addBatch" in one][self._warm_up :]

    def _one(self, number: int, arrivals: Arrivals, send: Callable[[int], tuple[float, float]]) -> tuple[float, float, float]:
        time.sleep(self._chosen.uniform(*PAUSE_S))
        sent, confirmed = send(number)
        return sent, confirmed, arrivals.wait(number)


def _durations(query: StreamingQuery) -> list[dict[str, int]]:
    return [dict(one.durationMs) for one in query.recentProgress if one.numInputRows]


def _started(progress: Any) -> float:
    return datetime.fromisoformat(progress.timestamp).timestamp()


def _await_progress(query: StreamingQuery, arrived: float) -> None:
    """Until the progress of the micro-batch that had the last row is reported: that is after its end."""
    deadline = time.monotonic() + ARRIVAL_S
    while time.monotonic() < deadline:
        ends = [_started(one) + one.durationMs["triggerExecution"] / 1000 for one in query.recentProgress if one.numInputRows]
        if ends and ends[-1] >= arrived:
            return
        time.sleep(0.05)
    raise TimeoutError("the query reported no progress")


def _sample(query: StreamingQuery, sent: float, confirmed: float, arrived: float) -> Sample:
    starts = [_started(one) for one in query.recentProgress if one.numInputRows]
    return Sample(sent, confirmed, arrived, max(start for start in starts if start <= arrived))


def _percentiles(values: Sequence[float]) -> str:
    """Median and 90th percentile of seconds, shown in milliseconds."""
    ordered = sorted(values)
    return f"p50 {statistics.median(ordered) * 1000:6.0f} ms   p90 {ordered[int(0.9 * (len(ordered) - 1))] * 1000:6.0f} ms"


def _show_durations(durations: Sequence[dict[str, int]]) -> None:
    medians = {name: statistics.median(one.get(name, 0) for one in durations) for name in DURATIONS}
    print("    a micro-batch, medians in ms: " + ", ".join(f"{name} {value:.0f}" for name, value in medians.items()))


def _show(what: str, samples: Sequence[Sample], durations: Sequence[dict[str, int]]) -> None:
    print(f"{what}: {len(samples)} rows")
    print(f"    until it arrives in foreachBatch   {_percentiles([one.arrived - one.sent for one in samples])}")
    print(f"      until it is confirmed            {_percentiles([one.confirmed - one.sent for one in samples])}")
    print(f"      until its micro-batch begins     {_percentiles([max(0.0, one.trigger - one.sent) for one in samples])}")
    print(f"      from there until it arrives      {_percentiles([one.arrived - one.trigger for one in samples])}")
    _show_durations(durations)


@contextmanager
def _session() -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "FATAL")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help=f"{SMALL_ROWS} rows each, instead of {ROWS}")
    args = parser.parse_args()
    print(f"PySpark {pyspark.__version__}, local[2], Python {platform.python_version()}, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as directory, LocalCluster(bookies=3) as cluster, _session() as spark:
        bench = Bench(spark, cluster, Path(directory), args.small)
        floor = bench.floor()
        print(f"Spark alone, rate-micro-batch to noop: {len(floor)} micro-batches")
        _show_durations(floor)
        _show("append through open_writer", *bench.append())
        _show("append of a DataFrame, from the log's commit on", *bench.batch())
    return 0


if __name__ == "__main__":
    sys.exit(main())
