"""Topics on the session's cluster, and the data source over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bk_spark.datasource.topics import tail
from bk_spark.datasource.topics.stream import TopicsStream
from tests.cluster.datasource.direct import Direct
from tests.cluster.topic.conftest import bookkeeper, namespace, topic

__all__ = ["bookkeeper", "namespace", "often", "stream", "topic"]

OpenTopics = Callable[..., TopicsStream]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics are looked at so often that a test need not wait for it."""
    monkeypatch.setattr(tail, "NAMES_S", 0.05)
    monkeypatch.setattr(tail, "LOOK_S", 0.02)


@pytest.fixture
def stream(direct: Direct) -> Iterator[OpenTopics]:
    """Opens streams over topics, whose threads end with the test."""
    started: list[TopicsStream] = []

    def open_stream(**options: Any) -> TopicsStream:
        source = direct.source(None, **options)
        reader = source.streamReader(source.schema())
        assert isinstance(reader, TopicsStream), reader
        started.append(reader)
        return reader

    yield open_stream
    for one in started:
        one.stop()
