"""A real file system that is filled, fails and is mended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.partitions.disk import Disk, leave_mounts
from tests.soak.partitions.fabric import problem

pytestmark = pytest.mark.skipif(bool(problem()), reason=problem())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    leave_mounts()
    return tmp_path / "data"


@pytest.fixture
def disk(place: Path) -> Iterator[Disk]:
    disk = Disk(place)
    yield disk
    disk.close()


def test_what_was_not_synced_is_gone_once_a_disk_that_failed_is_mended(disk: Disk, place: Path) -> None:
    with (place / "file").open("wb", buffering=0) as file:
        file.write(b"synced")
        os.fsync(file.fileno())
        file.write(b" not synced")
        disk.fail()
        with pytest.raises(OSError, match="Input/output error"):
            os.fsync(file.fileno())
    disk.mend()
    assert (place / "file").read_bytes() == b"synced"


def test_nothing_new_fits_on_a_full_disk_until_it_is_freed(disk: Disk, place: Path) -> None:
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        _write_8_kib(place / "file")
    disk.free()
    _write_8_kib(place / "file")


def _write_8_kib(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        file.write(bytes(8192))
