"""The session's real cluster as the data source's own code sees it, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.datasource.read.stream_reader import StreamReader
from bk_spark.local.cluster import LocalCluster
from tests.cluster.datasource.direct import Direct


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
