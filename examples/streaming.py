"""A log as sink and as source of Structured Streaming, on a local cluster: each row exactly once, from end to end.

    python examples/streaming.py

The query "orders" writes made-up orders from Spark's own source to the log "orders". The query "large" follows that log and
writes orders above 50 to the log "large". Each query has a checkpoint. A query that is started again with its checkpoint,
however it ended, goes on where it was: no row is lost and none comes twice. Here "large" is stopped, started again, and reads
the rest.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bk_spark import LocalCluster, register

BATCHES = 3
ROWS_PER_BATCH = 20


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "FATAL")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    register(spark)
    return spark


def orders(spark: SparkSession) -> DataFrame:
    """Twenty orders in each micro-batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH).load()
    return source.select(f.col("value").alias("id"), (f.col("value") * 7 % 100).alias("amount"), "timestamp")


def into(rows: DataFrame, metadata: str, log: str, checkpoint: Path) -> DataStreamWriter:
    """Every micro-batch becomes one commit of the log."""
    stream = rows.writeStream.format("bookkeeper").option("metadata", metadata).option("path", log)
    return stream.option("checkpointLocation", str(checkpoint)).queryName(log)


def follow(spark: SparkSession, metadata: str, log: str) -> DataFrame:
    """All rows of the log, then new ones; without ``startingOffsets`` only new ones."""
    stream = spark.readStream.format("bookkeeper").option("metadata", metadata)
    return stream.option("startingOffsets", "earliest").load(log)


def await_batches(query: StreamingQuery, count: int) -> None:
    while query.lastProgress is None or query.lastProgress.batchId < count:
        query.awaitTermination(1)  # raises what ended it


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, LocalCluster(bookies=3) as cluster:
        spark = session()
        metadata, checkpoints = cluster.metadata_uri, Path(directory)

        first = into(orders(spark), metadata, "orders", checkpoints / "orders").start()
        await_batches(first, 1)
        large = into(follow(spark, metadata, "orders").where("amount > 50"), metadata, "large", checkpoints / "large")
        second = large.start()
        await_batches(first, BATCHES)
        await_batches(second, 1)
        for query in (second, first):
            query.stop()
        large.trigger(availableNow=True).start().awaitTermination()

        for log in ("orders", "large"):
            rows = spark.read.format("bookkeeper").option("metadata", metadata).load(log)
            print(f'log "{log}": {rows.count()} rows, {rows.select("id").distinct().count()} different ones')
        spark.stop()


if __name__ == "__main__":
    main()
