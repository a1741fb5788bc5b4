"""``imported_once/sitecustomize.py``: what the workers of this Spark need not import. Without it they are slower, not wrong."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def test_a_worker_has_the_client_and_arrow_from_the_daemon_that_it_forked_from(spark: SparkSession) -> None:
    names = ("bk_spark.bookkeeper", "grpc", "pyarrow")
    assert spark.sparkContext.range(1).map(lambda _: [name in sys.modules for name in names]).collect() == [[True] * 3]
