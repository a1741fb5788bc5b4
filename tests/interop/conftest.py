"""One Apache cluster and its Java clients for all tests. Where Maven does not fetch them the tests are skipped, and say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.bookkeeper_cluster import BookKeeperCluster
from benchmarks.speed.measure import SkippedError
from bk_spark.client.bookkeeper import BookKeeper
from bk_spark.local.cluster import LocalCluster
from tests.interop.apache import JavaClient, apache_cluster, java_client, uri

ROOT = "apache"


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


@pytest.fixture(scope="session")
def java(apache: BookKeeperCluster) -> Iterator[JavaClient]:
    """Speaks version 2."""
    with java_client(apache, v2=True) as client:
        yield client


@pytest.fixture(scope="session")
def java_3(apache: BookKeeperCluster) -> Iterator[JavaClient]:
    """Speaks version 3."""
    with java_client(apache, v2=False) as client:
        yield client


@pytest.fixture
def java_explicit(apache: BookKeeperCluster) -> Iterator[JavaClient]:
    """Tells bookies how far its ledgers are confirmed while they are idle, which is off by default."""
    with java_client(apache, v2=False, explicit_ms=100) as client:
        yield client


@pytest.fixture(scope="session")
def metadata_uri(zookeeper: LocalCluster, apache: BookKeeperCluster) -> str:
    return uri(zookeeper, Path(ROOT))


@pytest.fixture
def client(metadata_uri: str) -> Iterator[BookKeeper]:
    with BookKeeper(metadata_uri) as made:
        yield made
