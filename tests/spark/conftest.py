"""One Spark session for the tests of the data source, on the session's real cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from bk_spark.local.cluster import LocalCluster
from tests.checkout import ROOT
from tests.cluster.datasource.conftest import bookkeeper, direct, leading, log, stream

IMPORTED_ONCE = ROOT / "tests" / "spark" / "imported_once"
"""What its ``sitecustomize.py`` says."""

__all__ = ["Logs", "bookkeeper", "direct", "leading", "log", "logs", "spark", "stream"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on two cores. It finds the format by ``pyspark_bookkeeper.py`` at the top of the checkout."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(IMPORTED_ONCE), str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true").config("spark.sql.timeType.enabled", "true")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@dataclass(frozen=True)
class Logs:
    """Spark's view of the cluster, in few words."""

    spark: SparkSession
    uri: str

    def write(self, frame: DataFrame, log: str, mode: str = "append", **options: Any) -> None:
        frame.write.format("bookkeeper").option("metadata", self.uri).options(**options).mode(mode).save(log)

    def read(self, log: str | None, schema: StructType | str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.read.format("bookkeeper").option("metadata", self.uri).options(**options)
        return (reader if schema is None else reader.schema(schema)).load(log)


@pytest.fixture
def logs(spark: SparkSession, cluster: LocalCluster) -> Logs:
    return Logs(spark, cluster.metadata_uri)
