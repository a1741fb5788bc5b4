"""Two kinds of disks that fill up: a small file system of its own, and a limit on a directory (limited_bookie.py)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Protocol

import pytest

from bk_spark.config import MIB
from tests.cluster.bookie.limited_bookie import set_disk, used_bytes

SIZE = 96 * MIB
BALLAST = 16 * MIB


class SmallDisk(Protocol):
    """Something else has BALLAST bytes of it at first."""

    def take(self) -> None:
        """Something else takes all that is left."""

    def free(self) -> None:
        """Something else gives back all that it has."""


class LimitedDirectory:
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def limit(self, more_bytes: int = SIZE - BALLAST, **settings: int) -> None:
        """So much may be written beyond what is there."""
        set_disk(self._data_dir, limit_bytes=used_bytes(self._data_dir) + more_bytes, **settings)

    def take(self) -> None:
        set_disk(self._data_dir, limit_bytes=1)

    def free(self) -> None:
        self.limit(SIZE)


class LoopMount:
    """A file system in a file; the ballast is another file in it."""

    def __init__(self, mount: Path) -> None:
        self._ballast = mount / "ballast"
        self._ballast.write_bytes(bytes(BALLAST))

    def take(self) -> None:
        with self._ballast.open("ab", buffering=0) as ballast:
            for piece in (bytes(MIB), bytes(4096)):
                with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                    _fill(ballast, piece)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


def _fill(file: FileIO, piece: bytes) -> None:
    while file.write(piece):
        os.fsync(file)


@contextmanager
def small_disk(kind: str, bookie_directory: Path) -> Iterator[SmallDisk]:
    """The disk below ``bookie_directory``, where a bookie's data will be. Skips the test where there can be none."""
    bookie_directory.mkdir(parents=True)
    if kind == "limited directory":
        limited = LimitedDirectory(bookie_directory / "data")
        limited.limit()
        yield limited
        return
    image = bookie_directory.parent.with_suffix(".img")
    _mount(image, bookie_directory)
    try:
        yield LoopMount(bookie_directory)
    finally:
        subprocess.run(["umount", bookie_directory], check=True)
        image.unlink()


def _mount(image: Path, directory: Path) -> None:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a small file system needs root and mkfs.ext4")
    with image.open("wb") as file:
        file.truncate(SIZE)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, directory], capture_output=True, text=True, check=False)
    if mounted.returncode:
        image.unlink()
        pytest.skip(f"a file cannot be mounted here: {mounted.stderr.strip()}")
