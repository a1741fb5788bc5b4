"""Fixtures for all tests: real servers, started once, and a root of its own for each test."""

from __future__ import annotations

import gc
import logging
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hypothesis
import pytest

from bk_spark.local.cluster import DEFAULT_BOOKIE_CONFIG, LocalCluster
from bk_spark.local.zookeeper_server import LocalZooKeeper
from bk_spark.metadata.znodes import Znodes
from bk_spark.metadata.zookeeper import ZooKeeperStore, connect, parse_uri
from tests.budget import IS_SOAK, PROFILE, SAMPLES
from tests.durations.recorded import recorded_s, scope_of

pytest_plugins = ["tests.durations.recorder"]

# All that is collected stays until the end of the run: the garbage collector, which would look at it again and again, took two
# fifths of the CPU of the unit tests. It does not run while tests are collected, and leaves them alone afterwards.
gc.disable()

hypothesis.settings.register_profile("bk_spark", PROFILE)
hypothesis.settings.load_profile("bk_spark")


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[LocalZooKeeper]:
    """One real ZooKeeper for the whole run. Tests that stop or suspend a server start one of their own."""
    with LocalCluster(bookies=0) as cluster:
        yield cluster.zookeeper


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Three real bookies for the whole run. Who stops one starts it again."""
    with LocalCluster(bookies=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def wide_cluster() -> Iterator[LocalCluster]:
    """Four real bookies, so that one can replace another. Who stops one starts it again."""
    with LocalCluster(bookies=4) as cluster:
        yield cluster


ZOOKEEPER_AUTH = "digest:keeper:z00-s3cret"
"""What the secured cluster protects everything in ZooKeeper with."""


@pytest.fixture(scope="session")
def secured_cluster() -> Iterator[LocalCluster]:
    """Three real bookies with mutual TLS and a protected root, for the whole run. Who changes its files puts them back."""
    config = replace(DEFAULT_BOOKIE_CONFIG, zookeeper_auth=ZOOKEEPER_AUTH)
    with LocalCluster(bookies=3, tls=True, bookie_config=config) as cluster:
        yield cluster


@pytest.fixture
def metadata_uri(zookeeper_server: LocalZooKeeper) -> str:
    """A root that no other test has; there is nothing at it yet."""
    return f"zk://{zookeeper_server.address}/test-{uuid.uuid4().hex}"


@pytest.fixture
def znodes(metadata_uri: str) -> Znodes:
    """The paths below ``metadata_uri``."""
    return Znodes(parse_uri(metadata_uri)[1])


@pytest.fixture
def store(metadata_uri: str) -> Iterator[ZooKeeperStore]:
    """A session for ``metadata_uri``."""
    with connect(metadata_uri, connect_timeout_s=10.0, session_timeout_s=10.0) as store:
        yield store


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, so that files which run side by side end together. What is marked as nightly runs in a soak
    alone."""
    nightly = [] if IS_SOAK else [item for item in items if item.get_closest_marker("nightly")]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    items.sort(key=lambda item: -recorded_s(scope_of(item.nodeid)))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """After its fixtures: a test that silences the log would silence it for the next ones, some of which look for a line."""
    logger = logging.getLogger("bk_spark")
    left = logging.root.manager.disable, logger.level
    logging.disable(logging.NOTSET)
    logger.setLevel(logging.NOTSET)
    assert left == (logging.NOTSET, logging.NOTSET), f"this test leaves logging disabled below, and a level: {left}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As ``--dist loadfile``, by ``scope_of``."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--samples``: how many flipped bits are tried of each large file."""
    text = "flipped bits tried of each large file (default %(default)s); with many more, raise --timeout too"
    parser.addoption("--samples", type=int, default=SAMPLES, help=text)


@pytest.fixture
def samples(request: pytest.FixtureRequest) -> int:
    """How many of many faults of one kind to try."""
    number: int = request.config.getoption("--samples")
    return number
