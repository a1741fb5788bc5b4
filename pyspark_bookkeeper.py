"""Lets Spark find the format: it imports every top-level module whose name starts with ``pyspark_``.

It stays light, since Spark's look-up pays for it: gRPC, pyarrow and the client are imported where they are first used.
"""

from bk_spark.datasource.source import BookKeeperDataSource as DefaultSource

__all__ = ["DefaultSource"]
