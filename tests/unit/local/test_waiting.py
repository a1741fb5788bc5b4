"""A local cluster where another program has the directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.embedded import turn
from bk_spark.embedded.turn import Turn, is_hosted_elsewhere
from bk_spark.local import cluster
from bk_spark.local.copying import WAIT_S
from bk_spark.local.place import DataDirectoryInUseError


class World:
    """The directory is in use until a moment; time passes while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.free_at_s = float("inf")
        monkeypatch.setattr(cluster, "time", self)
        monkeypatch.setattr(cluster, "Keeper", self.keeper)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s

    def keeper(self, directory: Path, _: bool) -> str:
        if self.now_s < self.free_at_s:
            raise DataDirectoryInUseError("data_dir", str(directory), "another local cluster uses it: close that one first")
        return "keeper"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turn]:
    """Of another process."""
    host = Turn(tmp_path)
    assert host.take()
    monkeypatch.setattr(turn, "_own", set())
    yield host
    host.close()


def test_a_host_that_is_about_to_end_is_waited_for(tmp_path: Path, world: World, host: Turn) -> None:
    world.free_at_s = 1010.0
    assert cluster._keeper(tmp_path, False) == "keeper"


def test_a_host_that_has_users_is_named_with_its_uri(tmp_path: Path, world: World, host: Turn) -> None:
    with pytest.raises(DataDirectoryInUseError, match=f"programs use it as embedded:{tmp_path}: end them, or give"):
        cluster._keeper(tmp_path, False)
    assert WAIT_S <= world.now_s - 1000.0 < WAIT_S + 1


def test_another_local_cluster_is_named_at_once(tmp_path: Path, world: World) -> None:
    with pytest.raises(DataDirectoryInUseError, match="another local cluster uses it"):
        cluster._keeper(tmp_path, False)
    assert world.now_s == 1000.0


def test_a_host_does_not_wait_for_itself(tmp_path: Path) -> None:
    own = Turn(tmp_path)
    assert own.take()
    assert not is_hosted_elsewhere(tmp_path)
    own.close()
    assert not is_hosted_elsewhere(tmp_path)
