"""A gateway in this process, on the shared cluster, and callers of it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow.flight as flight
import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.gateway.open_access import OpenAccess
from bk_spark.gateway.server import Gateway
from bk_spark.local.cluster import LocalCluster
from tests.cluster.gateway.flight_calls import connected


@pytest.fixture(scope="module")
def bookkeeper(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_uri) as client:
        yield client


@pytest.fixture(scope="module")
def gateway(bookkeeper: BookKeeper) -> Iterator[Gateway]:
    with Gateway(bookkeeper, OpenAccess()) as gateway:
        yield gateway


@pytest.fixture
def caller(gateway: Gateway) -> Iterator[flight.FlightClient]:
    with connected(gateway.port) as client:
        yield client


@pytest.fixture
def name() -> str:
    """Of a log that no other test has."""
    return f"gateway-{uuid.uuid4().hex}"
