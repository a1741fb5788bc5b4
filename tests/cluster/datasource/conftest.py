"""The session's real cluster as the data source's own code sees it, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

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
def direct(cluster: LocalCluster) -> Iterator[Direct]:
    """The same cluster without Spark. The threads of its streams end with the test."""
    made = Direct(cluster.metadata_uri)
    yield made
    for one in made.streams:
        one.stop()


@pytest.fixture
def log(request: pytest.FixtureRequest) -> str:
    """A name of a log that no other test uses."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return f"{name[:90]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def leading(cluster: LocalCluster) -> Iterator[BookKeeper]:
    """A client whose writers tell at once how far they are confirmed."""
    with BookKeeper(cluster.metadata_uri, ClientConfig(explicit_lac_s=0.02)) as client:
        yield client


@pytest.fixture
def stream(direct: Direct) -> Callable[..., StreamReader]:
    """Opens streams: a log, then options."""
    return direct.stream
