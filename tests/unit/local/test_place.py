from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bk_spark.errors import ConfigError
from bk_spark.local.place import ClusterDirectory, DataDirectoryInUseError


@contextmanager
def locked(path: Path) -> Iterator[ClusterDirectory]:
    path.mkdir(exist_ok=True)
    place = ClusterDirectory(path)
    locks = place.lock()
    try:
        yield place
    finally:
        for lock in locks:
            os.close(lock)
        place.close()


def test_a_directory_is_locked_once_whatever_leads_to_it(tmp_path: Path) -> None:
    with locked(tmp_path / "data"):
        (tmp_path / "data").rename(tmp_path / "moved")
        (tmp_path / "link").symlink_to(tmp_path / "moved")
        for name in ("link", "moved"):
            with pytest.raises(DataDirectoryInUseError):
                ClusterDirectory(tmp_path / name).lock()


def test_a_directory_that_was_emptied_and_filled_again_stays_locked(tmp_path: Path) -> None:
    with locked(tmp_path / "data") as place:
        (tmp_path / "data/lock").unlink()
        assert place.is_gone
        with pytest.raises(DataDirectoryInUseError):
            ClusterDirectory(tmp_path / "data").lock()


def test_what_is_written_inside_follows_the_directory(tmp_path: Path) -> None:
    with locked(tmp_path / "data") as place:
        (tmp_path / "data").rename(tmp_path / "moved")
        (tmp_path / "data").mkdir()
        assert not place.is_gone
        (place.here(tmp_path / "data/file")).write_text("mine")
        assert (tmp_path / "moved/file").read_text() == "mine"
        assert not list((tmp_path / "data").iterdir())


def test_nothing_is_written_inside_of_a_directory_that_was_removed(tmp_path: Path) -> None:
    with locked(tmp_path / "data") as place:
        shutil.rmtree(tmp_path / "data")
        (tmp_path / "data").mkdir()
        (tmp_path / "data/lock").touch()
        assert place.is_gone
        with pytest.raises(FileNotFoundError):
            (place.here(tmp_path / "data/file")).write_text("mine")


def test_a_directory_keeps_its_mark_under_another_name_and_a_copy_has_another_one(tmp_path: Path) -> None:
    with locked(tmp_path / "data") as place:
        mark = place.mark
    shutil.copytree(tmp_path / "data", tmp_path / "copy", symlinks=True)
    (tmp_path / "data").rename(tmp_path / "moved")
    with locked(tmp_path / "moved") as place:
        assert place.mark == mark
    with locked(tmp_path / "copy") as place:
        assert place.mark != mark


def test_a_directory_brought_back_into_its_own_inode_has_another_mark(tmp_path: Path) -> None:
    with locked(tmp_path / "data") as place:
        mark = place.mark
    (tmp_path / "data/lock").unlink()
    with locked(tmp_path / "data") as place:
        assert place.mark != mark


@pytest.mark.parametrize("kind", ["hard", "symbolic"])
def test_a_file_that_another_directory_may_share_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    with locked(tmp_path / "data") as place:
        (tmp_path / "data/bookie-1").mkdir()
        place.check_unshared()
        shared = tmp_path / "data/bookie-1/file"
        shared.hardlink_to(tmp_path / "file") if kind == "hard" else shared.symlink_to(tmp_path / "file")
        way_out = "or remove the other one" if kind == "hard" else "use a copy without links"
        with pytest.raises(ConfigError, match=rf"{shared}.* it is a {kind} link.*{way_out}"):
            place.check_unshared()


@pytest.mark.parametrize("name", ["lock", "cluster.json", "zookeeper", "bookie-1"])
def test_a_link_in_place_of_what_the_cluster_makes_is_named_and_others_are_no_matter(tmp_path: Path, name: str) -> None:
    with locked(tmp_path / "data") as place:
        (tmp_path / "data/.venv/bin").mkdir(parents=True)
        (tmp_path / "data/.venv/bin/python").symlink_to("/usr/bin/python3")
        (tmp_path / "data/notebook").symlink_to(tmp_path)
        place.check_unshared()
        (tmp_path / "data" / name).unlink(missing_ok=True)
        (tmp_path / "data" / name).symlink_to(tmp_path)
        with pytest.raises(ConfigError, match=f"{name}.*it is a symbolic link"):
            place.check_unshared()


def test_no_directory_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="it cannot be used"):
        ClusterDirectory(tmp_path / "file")
