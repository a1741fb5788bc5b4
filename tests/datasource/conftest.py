"""One Spark session for the tests of the data source, on the session's real cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.datasource.read.stream_reader import StreamReader
from bk_spark.local.cluster import LocalCluster
from tests.datasource.direct import Direct

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on two cores. It finds the format by ``pyspark_bookkeeper.py`` at the top of the checkout."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
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


@pytest.fixture(scope="session")
def bookkeeper(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client


@pytest.fixture
def direct(cluster: LocalCluster) -> Direct:
    """The same cluster without Spark."""
    return Direct(cluster.metadata_uri)


@pytest.fixture
def log(request: pytest.FixtureRequest) -> str:
    """A name of a log that no other test uses."""
    name: Callable[..., object] | str = request.node.name
    return "".join(letter if letter.isalnum() else "-" for letter in str(name))[:100]


@pytest.fixture(scope="session")
def leading(cluster: LocalCluster) -> Iterator[BookKeeper]:
    """A client whose writers tell at once how far they are confirmed."""
    with BookKeeper(cluster.metadata_uri, ClientConfig(explicit_lac_s=0.02)) as client:
        yield client


@pytest.fixture
def stream(direct: Direct) -> Iterator[Callable[..., StreamReader]]:
    """Opens streams, whose threads end with the test: a log, then options."""
    started: list[StreamReader] = []

    def open_stream(log: str, **options: Any) -> StreamReader:
        started.append(direct.stream(log, **options))
        return started[-1]

    yield open_stream
    for one in started:
        one.stop()
