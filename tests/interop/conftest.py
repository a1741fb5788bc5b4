"""One Apache cluster and its Java clients for all tests. Where Maven does not fetch them the tests are skipped, and say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.peers.bookkeeper_cluster import POM, BookKeeperCluster, JavaPrograms, java_command
from benchmarks.speed.measure import SkippedError
from bk_spark.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster
from tests.interop.apache import APACHE, JAVA, JavaClient, apache_cluster, java_client, uri
from tests.interop.lake import Lake, lake_of, spark_or_skip
from tests.interop.stock_spark import StockSpark

ROOT = "apache"


@pytest.fixture(scope="session", autouse=True)
def keys() -> Iterator[None]:
    """Of object stores, for Arrow and for Pulsar's offloader. Spark's workers have the environment that Spark began with."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET"):
            patch.setenv(name, "test")
        yield


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=0) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def apache(zookeeper: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookKeeperCluster]:
    directory = tmp_path_factory.mktemp("interop") / ROOT
    try:
        with apache_cluster(zookeeper, directory) as cluster:
            yield cluster
    except SkippedError as reason:
        pytest.skip(f"Apache BookKeeper's bookies are not to be had: {reason}")


@dataclass(frozen=True)
class Side:
    """Bookies of one kind, and how Java's programs and our clients reach them."""

    programs: JavaPrograms
    metadata_uri: str


@pytest.fixture(scope="session")
def side(request: pytest.FixtureRequest, zookeeper: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """Apache's bookies; ``ours`` where a test is parametrized so."""
    if getattr(request, "param", APACHE) == APACHE:
        cluster: BookKeeperCluster = request.getfixturevalue("apache")
        yield Side(cluster.programs, uri(zookeeper, Path(ROOT)))
        return
    try:
        java = java_command(JAVA, POM)
    except SkippedError as reason:
        pytest.skip(f"Apache BookKeeper's client is not to be had: {reason}")
    with LocalCluster(bookies=3) as ours:
        uri_of_java = f"zk+hierarchical://{ours.zookeeper.address}/ledgers"
        yield Side(JavaPrograms(uri_of_java, java, tmp_path_factory.mktemp("ours")), ours.metadata_uri)


@pytest.fixture(scope="session")
def java(side: Side) -> Iterator[JavaClient]:
    """Speaks version 2."""
    with java_client(side.programs, v2=True) as client:
        yield client


@pytest.fixture(scope="session")
def java_3(side: Side) -> Iterator[JavaClient]:
    """Speaks version 3."""
    with java_client(side.programs, v2=False) as client:
        yield client


@pytest.fixture
def java_explicit(side: Side) -> Iterator[JavaClient]:
    """Tells bookies how far its ledgers are confirmed while they are idle, which is off by default."""
    with java_client(side.programs, v2=False, explicit_ms=100) as client:
        yield client


@pytest.fixture(scope="session")
def metadata_uri(side: Side) -> str:
    return side.metadata_uri


@pytest.fixture
def client(metadata_uri: str) -> Iterator[BookKeeper]:
    with BookKeeper(metadata_uri) as made:
        yield made


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockSpark]:
    """A Spark with Iceberg's runtime, without anything of ours."""
    with spark_or_skip(tmp_path_factory.mktemp("stock-spark")) as spark:
        yield spark


@pytest.fixture
def lake(cluster: LocalCluster, tmp_path: Path) -> Iterator[Lake]:
    """An empty log of ours, whose tier the test sets. It goes with the test, as others tier all logs of the cluster."""
    with BookKeeper(cluster.metadata_uri) as client:
        made = lake_of(client, tmp_path)
        yield made
        made.log.delete()
