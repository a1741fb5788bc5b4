from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.errors import ConfigError
from bk_spark.local.place import ClusterDirectory
from bk_spark.local.remains import set_remains_aside


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClusterDirectory]:
    place = ClusterDirectory(tmp_path)
    yield place
    place.close()


def test_what_a_removed_cluster_left_is_moved_aside(place: ClusterDirectory) -> None:
    (place.path / "bookie-1/data/journal").mkdir(parents=True)
    (place.path / "zookeeper/data/version-2").mkdir(parents=True)
    (place.path / "notebook.ipynb").touch()
    set_remains_aside(place)
    assert sorted(path.name for path in place.path.iterdir()) == ["notebook.ipynb", "remains-1"]
    assert (place.path / "remains-1/bookie-1/data/journal").is_dir()
    assert (place.path / "remains-1/zookeeper/data/version-2").is_dir()


def test_a_directory_of_another_program_is_never_moved_aside(place: ClusterDirectory) -> None:
    for name in ("bin", "conf", "data/version-2"):
        (place.path / "zookeeper" / name).mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"{place.path}': 'zookeeper' in it is another program's"):
        set_remains_aside(place)
    assert [path.name for path in place.path.iterdir()] == ["zookeeper"]


def test_what_cannot_be_read_is_named(place: ClusterDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.path / "zookeeper/data/version-2").mkdir(parents=True)
    listed = os.listdir

    def refused(path: os.PathLike[str]) -> list[str]:
        if Path(path).name == "zookeeper":
            raise PermissionError(errno.EACCES, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "listdir", refused)
    with pytest.raises(ConfigError, match=rf"{place.path}/zookeeper': it cannot be used \(Permission denied\)"):
        set_remains_aside(place)
