"""A Spark driver of the stream test: ``python -m tests.soak.streams.driver SETTINGS``, SETTINGS being JSON.

Runs its queries until the file ``stop`` appears. Then each of them is ended and goes on with Trigger.AvailableNow, which ends
the batch that was under way and takes what is left, so that checkpoint and log agree; what the logs hold then is read with
Spark and left as ``<log>.arrow``. A query that fails ends the driver.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.feather
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.soak.streams.checker import Source
from tests.soak.streams.progress import last_batch

PRODUCE, COPY = "produce", "copy"
LOGS = {PRODUCE: "A", COPY: "B"}
"""The log that each query writes."""

JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Quick to start: that is what a driver under fire does most."""

POLL_S = 0.1
FIRST_BATCH_S = 120.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a driver is told. All of its files are below ``directory``."""

    name: str
    master: str
    metadata_uri: str
    directory: str
    queries: tuple[str, ...]
    source: Source
    trigger_ms: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        given: dict[str, Any] = json.loads(text)
        return Settings(**{**given, "queries": tuple(given["queries"]), "source": Source(**given["source"])})

    @property
    def stop_file(self) -> Path:
        return Path(self.directory, f"{self.name}.stop")

    @property
    def events(self) -> Path:
        """Where Spark writes the event log of each application."""
        return Path(self.directory, "events")

    def checkpoint(self, query: str) -> Path:
        return Path(self.directory, "checkpoints", query)

    def contents(self, query: str) -> Path:
        return Path(self.directory, f"{LOGS[query]}.arrow")


def main(settings: Settings) -> None:
    spark = _session(settings)
    frames: dict[str, Callable[[], DataFrame]] = {
        PRODUCE: lambda: _produced(spark, settings),
        COPY: lambda: _followed(spark, settings),
    }
    running: list[StreamingQuery] = []
    for query in settings.queries:
        if query == COPY:
            _await_first_batch(settings)
        running.append(_start(settings, query, frames[query](), processingTime=f"{settings.trigger_ms} milliseconds"))
    _await_stop(settings, running)
    for one, query in zip(running, settings.queries, strict=True):
        one.stop()
        _start(settings, query, frames[query](), availableNow=True).awaitTermination()
        rows = spark.read.format("bookkeeper").option("metadata", settings.metadata_uri).load(LOGS[query])
        pyarrow.feather.write_feather(rows.toArrow(), str(settings.contents(query)))
    spark.stop()


def _session(settings: Settings) -> SparkSession:
    settings.events.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master(settings.master).appName(f"bk_spark stream test: {settings.name}")
    options = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.cores.max": "2",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": settings.events.as_uri(),
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _produced(spark: SparkSession, settings: Settings) -> DataFrame:
    source = settings.source
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", source.rows_per_batch)
    stream = stream.option("numPartitions", source.partitions).option("startTimestamp", source.start_ms)
    return stream.option("advanceMillisPerBatch", source.advance_ms).load()


def _followed(spark: SparkSession, settings: Settings) -> DataFrame:
    """Some batches of A at once, but not a whole number of them: batches of B end in the middle of ledgers."""
    limit = settings.source.rows_per_batch * 25 // 2
    stream = spark.readStream.format("bookkeeper").option("metadata", settings.metadata_uri)
    return stream.option("startingOffsets", "earliest").option("maxRowsPerTrigger", limit).load(LOGS[PRODUCE])


def _start(settings: Settings, query: str, frame: DataFrame, **trigger: Any) -> StreamingQuery:
    writing = frame.writeStream.format("bookkeeper").option("metadata", settings.metadata_uri).option("path", LOGS[query])
    writing = writing.option("maxRowsPerEntry", max(1, settings.source.rows_per_batch // 8)).queryName(query)
    return writing.option("checkpointLocation", str(settings.checkpoint(query))).trigger(**trigger).start()


def _await_first_batch(settings: Settings) -> None:
    """Until log A is there: a stream takes its schema from the log."""
    deadline = time.monotonic() + FIRST_BATCH_S
    while last_batch(settings.checkpoint(PRODUCE) / "commits") < 0:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no batch in log {LOGS[PRODUCE]} after {FIRST_BATCH_S:g} s")
        time.sleep(POLL_S)


def _await_stop(settings: Settings, running: list[StreamingQuery]) -> None:
    tick = threading.Event()
    while not settings.stop_file.exists():
        for query in running:
            if not query.isActive:
                query.awaitTermination()  # raises what ended it
                raise RuntimeError(f"query {query.name} ended, and nobody stopped it")
        tick.wait(POLL_S)


if __name__ == "__main__":
    main(Settings.from_json(sys.argv[1]))
