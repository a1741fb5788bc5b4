"""A client, and a fresh namespace for the topics of each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from bk_spark.bookkeeper import BookKeeper
from bk_spark.config import ClientConfig
from bk_spark.local.cluster import LocalCluster
from tests.cluster.topic.written_topics import WrittenTopic


@pytest.fixture
def bookkeeper(cluster: LocalCluster) -> Iterator[BookKeeper]:
    """Its writers do not tell bookies how far an idle ledger is confirmed, as brokers do not by default."""
    with BookKeeper(cluster.metadata_uri, ClientConfig(explicit_lac_s=3600)) as client:
        yield client


@pytest.fixture
def namespace() -> str:
    """The beginning of the name of a topic that no other test has."""
    return f"persistent://t/n{uuid.uuid4().hex}"


@pytest.fixture
def topic(bookkeeper: BookKeeper, namespace: str) -> WrittenTopic:
    """An empty topic without partitions."""
    return WrittenTopic(bookkeeper, f"{namespace}/orders")
