"""What a bookie makes is for its owner alone, and it says where something of it is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import REAL_DISK
from bk_spark.bookie.index.sqlite_index import INDEX_FILE
from bk_spark.bookie.process.open_files import warn_of_open_files


@pytest.fixture(autouse=True)
def _generous() -> Iterator[None]:
    """The usual mask would hide who takes no care."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    return {str(path.relative_to(directory)): path.stat().st_mode & 0o777 for path in sorted(directory.rglob("*"))}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_everything_that_a_bookie_makes_is_for_its_owner_alone(harness, end: str) -> None:
    harness.start()
    harness.add(1, 0, 4)
    harness.add(2, 0, 4, size=100_000)
    harness.bookie.storage.checkpoint()
    harness.add(1, 5, 9)
    getattr(harness, end)()
    found = modes(harness.data_dir)
    assert {"journal", "entry_log", f"index/{INDEX_FILE}", f"index/{INDEX_FILE}-journal", "witness"} <= set(found)
    wide = {name: oct(mode) for name, mode in found.items() if mode & 0o077}
    assert wide == {}


def test_a_directory_that_is_made_is_for_its_owner_alone_and_one_that_is_there_stays_as_it_is(
    tmp_path: Path,
) -> None:
    REAL_DISK.make_directory(tmp_path / "new")
    (tmp_path / "there").mkdir(mode=0o755)
    REAL_DISK.make_directory(tmp_path / "there")
    assert modes(tmp_path) == {"new": 0o700, "there": 0o755}


def test_a_file_that_is_replaced_is_for_its_owner_alone_whatever_it_was(tmp_path: Path) -> None:
    (tmp_path / "boot").touch(0o644)
    REAL_DISK.replace(tmp_path / "boot", b"content")
    assert modes(tmp_path) == {"boot": 0o600}


def test_what_others_may_read_is_named_in_one_line_with_the_command_that_ends_it_and_left(
    harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.start()
    harness.stop()
    directories = Directories.of(harness.data_dir, harness.config)
    warn_of_open_files(directories, REAL_DISK)
    assert caplog.messages == []
    directories.index.chmod(0o755)
    (harness.data_dir / "cookie").touch(0o640)
    warn_of_open_files(directories, REAL_DISK)
    named = f"{directories.index} {harness.data_dir / 'cookie'}"
    assert caplog.messages == [f"others on this machine may read what this bookie stores: chmod -R go= {named}"]
    assert directories.index.stat().st_mode & 0o777 == 0o755
