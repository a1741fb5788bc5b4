"""The same topics through Spark: every row comes out of ``spark.read.format("bookkeeper")``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from bk_spark.pulsar.columns import MESSAGE_SCHEMA
from tests.soak.topics.reads import ENCRYPTED

MOST_RESULT = "4g"


class SparkReads:
    def __init__(self, spark: SparkSession, metadata_uri: str, pulsar_uri: str) -> None:
        self.spark = spark
        self._options = {"metadata": metadata_uri, "pulsarMetadata": pulsar_uri}

    def read(self, topic: str) -> pa.Table:
        """All messages of a topic in MESSAGE_SCHEMA, each partition in its order."""
        unreadable = "skip" if topic == ENCRYPTED else "fail"
        reader = self.spark.read.format("bookkeeper").options(**self._options, topic=topic, unreadable=unreadable)
        rows: pa.Table = reader.load().toArrow()
        return rows.cast(MESSAGE_SCHEMA)


@contextlib.contextmanager
def spark_reads(metadata_uri: str, pulsar_uri: str) -> Iterator[SparkReads]:
    """With a session of its own, on two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.memory", MOST_RESULT).config("spark.driver.maxResultSize", MOST_RESULT)
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        yield SparkReads(spark, metadata_uri, pulsar_uri)
    finally:
        spark.stop()
