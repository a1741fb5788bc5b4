"""The fixtures of the tests with Spark, for a Spark cluster of several processes."""

from tests.spark.conftest import bookkeeper, direct, log, logs, spark

__all__ = ["bookkeeper", "direct", "log", "logs", "spark"]
