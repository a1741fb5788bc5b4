"""A bookie's server in this process, for tests of its port for Apache's clients, and files with which it speaks TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.local.security import Authority
from tests.cluster.bookie.apache_client import ApacheServed, Version2, Version3


@pytest.fixture
def apache(harness) -> Iterator[ApacheServed]:
    made = ApacheServed(harness)
    yield made
    made.close()


@pytest.fixture
def v2(apache: ApacheServed) -> Version2:
    return apache.version_2()


@pytest.fixture
def v3(apache: ApacheServed) -> Version3:
    return apache.version_3()


@pytest.fixture(params=[2, 3])
def either(apache: ApacheServed, request: pytest.FixtureRequest) -> Version2 | Version3:
    """A connection of either version of the protocol."""
    return apache.of_version(request.param)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Files of a bookie and of a client, in ``tmp_path``."""
    made = Authority("ours")
    made.save(tmp_path / "ca.pem")
    made.issue(tmp_path / "bookie", hosts=["127.0.0.1"])
    made.issue(tmp_path / "client")
    return made
