"""Makes an archive of Spark's classes as a JVM maps them: the tests start tens of JVMs, each then in half of the time.

``python -m tests.spark.class_archive FILE``; ``JDK_JAVA_OPTIONS=-XX:SharedArchiveFile=FILE`` uses it. A JVM that the archive
does not fit loads its classes as ever.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from bk_spark.local.cluster import LocalCluster

EXIT_S = 120.0
"""How long the JVM may take to write the archive, some 150 MB, at its end: five seconds where nothing disturbs."""


def make(archive: Path) -> None:
    """Runs what most tests do, a batch written and read and a stream, in a JVM that keeps the classes which that took.

    Raises FileNotFoundError where the JVM made none. What stands at ``archive`` is whole.
    """
    part = archive.with_suffix(".part")
    os.environ["JDK_JAVA_OPTIONS"] = f"-XX:ArchiveClassesAtExit={part} -Xlog:disable"
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    with LocalCluster(bookies=3) as cluster, tempfile.TemporaryDirectory() as checkpoint:
        _use(spark, cluster.metadata_uri, checkpoint)
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(EXIT_S)
    part.rename(archive)


def _use(spark: SparkSession, metadata_uri: str, checkpoint: str) -> None:
    options = {"metadata": metadata_uri}
    rows = spark.range(100).selectExpr(
        "id", "cast(id as string) as name", "named_struct('half', id / 2, 'all', array(id)) as nested"
    )
    rows.write.format("bookkeeper").options(**options).mode("append").save("from")
    stream = spark.readStream.format("bookkeeper").options(**options, startingOffsets="earliest").load("from")
    copy = stream.writeStream.format("bookkeeper").options(**options, path="to").option("checkpointLocation", checkpoint)
    copy.trigger(availableNow=True).start().awaitTermination()
    copied = spark.read.format("bookkeeper").options(**options).load("to")
    copied.join(rows, "id").groupBy(copied["name"]).count().orderBy("name").show(1)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
