"""Makes archives of the classes of ZooKeeper and of Spark as a JVM maps them. The tests start a hundred JVMs, each then in half
of the time.

``python -m tests.class_archives DIRECTORY`` makes ``zookeeper.jsa`` and ``spark.jsa``. ``-XX:SharedArchiveFile=FILE`` uses one:
in JDK_JAVA_OPTIONS for each JVM, and in SPARK_SUBMIT_OPTS for those of Spark, where it goes before the other. A JVM that an
archive does not fit loads its classes as ever, and slower than without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from bk_spark.local.cluster import LocalCluster

EXIT_S = 120.0
"""How long a JVM may take to write its archive, up to 180 MB, at its end: five seconds where nothing disturbs."""


def make(directory: Path) -> None:
    """Runs what most tests do, a batch written and read and a stream, in JVMs that keep the classes which that took.

    Raises FileNotFoundError where a JVM made none, TimeoutError. What stands at ``spark.jsa`` is whole, and made last.
    """
    zookeeper, spark = directory / "zookeeper.part", directory / "spark.part"
    os.environ["JDK_JAVA_OPTIONS"] = _keeps(zookeeper)
    with LocalCluster(bookies=3) as cluster, tempfile.TemporaryDirectory() as checkpoint:
        del os.environ["JDK_JAVA_OPTIONS"]
        os.environ["SPARK_SUBMIT_OPTS"] = _keeps(spark)
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        _use(session, cluster.metadata_uri, checkpoint)
        _end(session)
        for bookie in cluster.bookies:
            bookie.stop()
        if not cluster.zookeeper.end(time.monotonic() + EXIT_S):  # a cluster that closes would wait for less long
            raise TimeoutError(f"ZooKeeper did not write {zookeeper} in {EXIT_S:g} s")
    for part in (zookeeper, spark):
        part.rename(part.with_suffix(".jsa"))


def _keeps(archive: Path) -> str:
    return f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={archive} -Xlog:disable"


def _end(session: SparkSession) -> None:
    """With its JVM."""
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(EXIT_S)


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
