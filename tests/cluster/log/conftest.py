"""A cluster's metadata on a real ZooKeeper, for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from bk_spark.metadata.store import MetadataStore
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import connect
from tests.unit.log.log_world import LogWorld


@pytest.fixture
def world(metadata_uri: str, znodes: Znodes) -> Iterator[LogWorld]:
    with contextlib.ExitStack() as sessions:

        def new_session() -> MetadataStore:
            return sessions.enter_context(connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0))

        built = LogWorld(new_session, znodes)
        built.store.ensure_path(built.znodes.root)
        yield built
