"""The Spark application of test_standalone.py: ``standalone_app.py MASTER METADATA_URI DIRECTORY``.

Reads commands from its input, a JSON list a line: the name of a function below, and its arguments. Tasks and tests meet in
files of DIRECTORY. What stands here is pickled by value, so that the executors need not find this file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from bk_spark.datasource.source import BookKeeperDataSource
from bk_spark.datasource.write.writer import BatchWriter, LedgerMessage, StreamWriter

MASTER, URI, DIRECTORY = sys.argv[1], sys.argv[2], Path(sys.argv[3])
ROWS = "id bigint, text string"
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.sql.shuffle.partitions": "2",
    # Rows are on their way from process to process before a task has got all of them.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.quantile": "0.5",
    # A losing attempt goes on for as long after it was told to end, where Spark's 2 s may be over before the commit.
    "spark.python.task.killTimeout": "30s",
}

_Steps = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def appears(name: str) -> None:
    """Wait for a file of DIRECTORY."""
    deadline = time.monotonic() + 120
    while not (DIRECTORY / name).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} does not appear")
        time.sleep(0.02)


def put(name: str, text: str = "") -> None:
    """Write a file of DIRECTORY, which nobody sees half written."""
    (DIRECTORY / f".{name}").write_text(text)
    (DIRECTORY / f".{name}").rename(DIRECTORY / name)


def first_attempt(partition: int) -> bool:
    context = TaskContext.get()
    return context is not None and context.partitionId() == partition and context.attemptNumber() == 0


class WatchedWriter(BatchWriter):
    """Puts ``ended-<attempt>`` when an attempt at partition 0 is over."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LedgerMessage:
        context = TaskContext.get()
        outcome = "failed"
        try:
            message = super().write(iterator)
            outcome = "returned"
            return message
        finally:
            if context is not None and context.partitionId() == 0:
                put(f"ended-{context.attemptNumber()}", outcome)


class StuckWriter(StreamWriter):
    """Never returns from the commit of batch 1, once it took effect."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        super().commit(messages, batchId)
        if batchId == 1:
            put("committed")
            appears("never")


class Watched(BookKeeperDataSource):
    @classmethod
    def name(cls) -> str:
        return "watched"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        plain = super().writer(schema, overwrite)
        return WatchedWriter(plain._attempt, plain._kind)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        plain = super().streamWriter(schema, overwrite)
        return StuckWriter(plain._attempt, plain._kind)


def write(frame: DataFrame, log: str, form: str = "bookkeeper") -> None:
    frame.write.format(form).option("metadata", URI).mode("append").save(log)


def stream(frame: DataFrame, log: str, form: str = "bookkeeper") -> None:
    """All files of ``<log>-in``, one a batch, on from the checkpoint ``<log>-checkpoint``."""
    sink = frame.writeStream.format(form).option("metadata", URI).option("checkpointLocation", f"{DIRECTORY}/{log}-checkpoint")
    query = sink.trigger(availableNow=True).start(log)
    if not query.awaitTermination(200):
        raise TimeoutError(f"the query is still active: {query.status}")


def files(spark: SparkSession, log: str) -> DataFrame:
    return spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1).json(f"{DIRECTORY}/{log}-in")


def rows(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("id", "repeat('x', 500) AS text")


def write_and_read(spark: SparkSession, log: str) -> dict[str, Any]:
    write(rows(spark, 20_000, 4), log)
    infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    loaded = spark.read.format("bookkeeper").options(metadata=URI, maxBytesPerPartition="20k").load(log)
    partitions = loaded.rdd.getNumPartitions()
    return {"hosts": sorted({one.host() for one in infos}), "ids": [r.id for r in loaded.collect()], "partitions": partitions}


def retry(spark: SparkSession, log: str) -> None:
    """In a batch write and in a stream one attempt fails after its rows were written."""

    def fails_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if first_attempt(1):
            raise RuntimeError("this attempt fails after its rows were written")

    write(rows(spark, 6000, 3).mapInArrow(fails_at_first, ROWS), log)
    stream(files(spark, log).repartition(2).mapInArrow(fails_at_first, ROWS), log)


def speculate(spark: SparkSession, log: str) -> None:
    """One attempt waits with half of its rows written, until the job of which another attempt is a part is committed."""

    def slow_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 4 and first_attempt(0):
                appears("saved")
            yield batch

    write(rows(spark, 8000, 2).mapInArrow(slow_at_first, ROWS), log, "watched")
    if (DIRECTORY / "ended-0").exists():
        raise AssertionError("the first attempt ended before the commit")
    put("saved")
    appears("ended-0")


def lose_an_executor(spark: SparkSession, log: str) -> None:
    """An attempt of the second batch waits with half of its rows written, until its executor is killed."""

    def waits_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            value = batch.column("id")[0].as_py()
            if number == 2 and 3000 <= value < 6000 and not (DIRECTORY / "victim").exists():
                daemon = os.getppid()
                put("victim", json.dumps([int(Path(f"/proc/{daemon}/stat").read_text().split()[3]), daemon, os.getpid()]))
                appears("never")
            yield batch

    stream(files(spark, log).repartition(2).mapInArrow(waits_at_first, ROWS), log)


def stop_after_the_commit(spark: SparkSession, log: str) -> None:
    """The driver hangs between the sink's commit of batch 1 and Spark's own."""
    stream(files(spark, log), log, "watched")


COMMANDS = {one.__name__: one for one in (write_and_read, retry, speculate, lose_an_executor, stop_after_the_commit)}


def main() -> None:
    builder = SparkSession.builder.master(MASTER)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Watched)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print("RESULT", json.dumps(COMMANDS[name](spark, *arguments)), flush=True)


main()
