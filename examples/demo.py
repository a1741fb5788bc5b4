"""The main job end to end, on a real cluster and real data: what ``make demo`` runs.

A local cluster (one ZooKeeper server, three bookie processes), and through Spark:

1. MovieLens ratings, which come with PySpark, parsed and typed, into the log "ratings".
2. The event log that Spark writes about this very program, nested, in several commits, into the log "events".
3. A bookie is killed with SIGKILL; both logs are read back and compared. The bookie comes back.
4. A stream copies "events" into the log "copy". Then Spark is made to forget its last batch, as if its driver had been killed
   between the log's commit and its own note of it, and repeats it: the log has each row once.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bk_spark import LocalCluster, register

RATINGS = Path(pyspark.__file__).parent / "data" / "mllib" / "als" / "sample_movielens_ratings.txt"

EVENT = """
    `Event` string,
    `Timestamp` bigint,
    `Properties` map<string, string>,
    `Stage Info` struct<
        `Stage ID`: int, `Stage Name`: string, `Number of Tasks`: int,
        `RDD Info`: array<struct<`RDD ID`: int, `Name`: string, `Number of Partitions`: int>>>,
    `Task Info` struct<`Task ID`: bigint, `Index`: int, `Launch Time`: bigint, `Finish Time`: bigint, `Host`: string,
        `Accumulables`: array<struct<`ID`: bigint, `Name`: string>>>,
    `Task Metrics` struct<`Executor Run Time`: bigint, `JVM GC Time`: bigint, `Result Size`: bigint,
        `Shuffle Write Metrics`: struct<`Shuffle Bytes Written`: bigint, `Shuffle Records Written`: bigint>>
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bk-spark-demo-") as scratch, LocalCluster(bookies=3) as cluster:
        say(f"A cluster is up: ZooKeeper at {cluster.metadata_uri}, and three bookies, each a process with its own disk:")
        for bookie in cluster.bookies:
            say(f"    {bookie.bookie_id}   (process {bookie.pid})")
        with session(Path(scratch)) as spark:
            return run(spark, cluster, Path(scratch))


def run(spark: SparkSession, cluster: LocalCluster, scratch: Path) -> int:
    logs = Logs(spark, cluster.metadata_uri)

    ratings = movie_ratings(spark)
    with step(f'{ratings.count()} MovieLens ratings go into the log "ratings"'):
        logs.append(ratings, "ratings")
    logs.read("ratings").groupBy("movie").agg(f.avg("rating").alias("average"), f.count("*").alias("ratings")).orderBy(
        f.desc("average")
    ).show(3)

    events = EventLog(spark, scratch)
    for number in (1, 2, 3):
        fresh = events.new_events()
        with step(f'commit {number} to the log "events": {fresh.count()} new lines of Spark\'s own event log, nested'):
            logs.append(fresh, "events")
    logs.read("events").groupBy("Event").count().orderBy(f.desc("count")).show(3, truncate=False)

    victim = cluster.bookies[0]
    victim.kill()
    say(f"Killed bookie {victim.bookie_id} with SIGKILL. Every entry is on two more, so nothing is lost:")
    equal = all([compare("ratings", ratings, logs.read("ratings")), compare("events", events.seen(), logs.read("events"))])

    with step("the bookie starts again and replays what it had made durable"):
        victim.start()

    streams = Stream(spark, cluster.metadata_uri, scratch / "checkpoint")
    with step('a stream copies the log "events" into the log "copy", at most 100 rows a batch'):
        streams.copy_all("events", "copy")
    with step(f"Spark forgets that batch {streams.forget_last_batch()} was committed, and the stream starts again"):
        streams.copy_all("events", "copy")
    equal &= compare("copy", events.seen(), logs.read("copy"))
    say("Equal." if equal else "NOT EQUAL: this is a bug, please report it.")
    return 0 if equal else 1


@dataclass
class Logs:
    """How Spark writes a log, and how it reads one."""

    spark: SparkSession
    metadata_uri: str

    def append(self, rows: DataFrame, log: str) -> None:
        rows.write.format("bookkeeper").option("metadata", self.metadata_uri).mode("append").save(log)

    def read(self, log: str) -> DataFrame:
        return self.spark.read.format("bookkeeper").option("metadata", self.metadata_uri).load(log)


@dataclass
class Stream:
    """A query that copies one log to another and ends when it has read all of it."""

    spark: SparkSession
    metadata_uri: str
    checkpoint: Path

    def copy_all(self, source: str, sink: str) -> None:
        stream = self.spark.readStream.format("bookkeeper").option("metadata", self.metadata_uri)
        rows = stream.option("startingOffsets", "earliest").option("maxRowsPerTrigger", 100).load(source)
        writing = rows.writeStream.format("bookkeeper").option("metadata", self.metadata_uri).option("path", sink)
        query = writing.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    def forget_last_batch(self) -> int:
        """Remove the last batch from Spark's commit log and return its number."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        return last


class EventLog:
    """Spark's event log of this program, taken in pieces as it grows."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self._spark = spark
        self._file = next((scratch / "events").iterdir())
        self._pieces = scratch / "pieces"
        self._pieces.mkdir()
        self._lines = 0
        self._taken = 0

    def new_events(self) -> DataFrame:
        """The whole lines that were written since the last call; at least one."""
        text = self._file.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
        piece = self._pieces / f"{self._taken:04d}.json"
        piece.write_text("".join(lines[self._lines :]), encoding="utf-8")
        self._lines, self._taken = len(lines), self._taken + 1
        return self._spark.read.schema(EVENT).json(str(piece))

    def seen(self) -> DataFrame:
        """All lines that ``new_events`` has given."""
        return self._spark.read.schema(EVENT).json(str(self._pieces))


def movie_ratings(spark: SparkSession) -> DataFrame:
    """The lines ``user::movie::rating::seconds``, parsed and typed."""
    fields = f.split("value", "::")
    return spark.read.text(str(RATINGS)).select(
        fields[0].cast("int").alias("user"),
        fields[1].cast("int").alias("movie"),
        fields[2].cast("float").alias("rating"),
        f.timestamp_seconds(fields[3].cast("bigint")).alias("rated_at"),
    )


def compare(log: str, written: DataFrame, read: DataFrame) -> bool:
    """Whether both have the same rows, in any order, and the same types."""
    expected, found = fingerprint(written), fingerprint(read)
    same = expected == found and written.dtypes == read.dtypes
    say(f'    log "{log}": {found[0]} rows, checksum {found[1]}: {"the same" if same else f"DIFFERS from {expected}"}')
    return same


def fingerprint(rows: DataFrame) -> tuple[int, int]:
    """The number of rows and the sum of their hashes, which is the same in any order."""
    text = f.to_json(f.struct("*"))
    row = rows.agg(f.count("*").alias("rows"), f.sum(f.xxhash64(text).cast("decimal(38,0)")).alias("sum")).first()
    assert row is not None
    return int(row["rows"]), int(row["sum"] or 0)


@contextmanager
def session(scratch: Path) -> Iterator[SparkSession]:
    (scratch / "events").mkdir()
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("bk_spark demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.log.level", "ERROR")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.rolling.enabled", "false")
        .config("spark.eventLog.dir", (scratch / "events").as_uri())
    )
    spark = builder.getOrCreate()
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def step(what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    say(f"{what}   [{time.monotonic() - started:.1f} s]")


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
