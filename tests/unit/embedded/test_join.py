"""What a client of ``embedded:DIR`` is told when its cluster does not answer. The host is the other end of a socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bk_spark.embedded import join
from bk_spark.errors import MetadataUnavailableError
from bk_spark.metadata.zookeeper import ZooKeeperStore

METADATA = "zk://127.0.0.1:36519/ledgers"


class Host:
    """Of ``directory``, until ``end``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        (directory / "cluster.json").write_text("{}")
        found = directory.stat()
        told = {"port": 1, "token": "secret", "metadata": METADATA, "pid": 3330, "refused": []}
        (directory / "embedded.json").write_text(json.dumps({**told, "directory": [found.st_dev, found.st_ino]}))
        read = join.read_host(directory)
        assert read is not None
        self._end, connection = socket.socketpair()
        self.joined = join._Joined(connection, read, directory)

    def end(self) -> None:
        self._end.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@pytest.fixture
def host(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """One that the program has joined."""
    monkeypatch.setattr(join, "_joined", {})
    host = Host(directory)
    join._joined[host.joined.host.directory] = host.joined
    yield host
    host.end()
    host.joined.connection.close()


def said() -> str:
    advice = join.advice_for(METADATA)
    assert advice is not None
    return str(ZooKeeperStore(METADATA, "127.0.0.1:36519", 10.0, advice=advice)._unavailable("no connection for 10 s"))


def test_a_client_whose_host_was_killed_is_told_to_open_the_directory_again(host: Host, directory: Path) -> None:
    host.end()
    name = f"embedded:{directory}"
    assert said().endswith(f": it belongs to {name}, whose host, process 3330, has ended: open {name} again, which starts it")


def test_a_client_whose_host_serves_is_told_that_it_starts_zookeeper_again(host: Host, directory: Path) -> None:
    assert f"embedded:{directory}, whose host, process 3330, starts it again: try again" in said()


@pytest.mark.parametrize("becomes", ["removed", "moved", "emptied", "another"])
def test_a_client_whose_directory_is_gone_is_told_so(host: Host, directory: Path, becomes: str) -> None:
    host.end()
    if becomes == "emptied":
        (directory / "cluster.json").unlink()
    else:
        directory.rename(directory.with_name("moved"))
    if becomes == "another":
        directory.mkdir()
        (directory / "cluster.json").write_text("{}")
    assert f"it belonged to embedded:{directory}, whose directory was removed or moved" in said()


def test_whoever_gave_a_uri_of_zookeeper_is_told_to_look_after_it() -> None:
    assert join.advice_for("zk://elsewhere:2181/ledgers") is None
    problem = ZooKeeperStore("zk://elsewhere:2181/ledgers", "elsewhere:2181", 10.0)._unavailable("no answer for 10 s")
    assert isinstance(problem, MetadataUnavailableError)
    assert str(problem).endswith("does not answer (no answer for 10 s): check the URI, and that ZooKeeper runs there")


def test_advice_does_not_wait_for_a_cluster_that_starts(host: Host) -> None:
    with join._lock, ThreadPoolExecutor(1) as pool:
        assert pool.submit(join.advice_for, "zk://elsewhere:2181/ledgers").result(30.0) is None


def test_a_directory_that_cannot_be_looked_at_is_not_called_removed(host: Host, directory: Path) -> None:
    directory.rename(directory.with_name("moved"))
    directory.symlink_to(directory)  # root looks at everything but this
    assert f"it belongs to embedded:{directory}, which cannot be looked at (Too many levels of symbolic links)" in said()
