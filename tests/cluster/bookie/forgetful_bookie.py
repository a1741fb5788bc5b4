"""A bookie process whose disk keeps in its own memory what was not synced, so that SIGKILL does to it what a power cut does.

It is ``bk-spark`` with such a disk for ``bookie start``. Two things take parts of the protection out:

- A file beside the data directory (``forgets_fences``): for as long as it is there, syncs of journals do nothing, as if fences
  were not journalled; they too are lost at SIGKILL.
- The flag ``--without-limbo``: what the boot and the witness say of a possible loss is ignored, so no ledger is in limbo.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

from bk_spark.bookie.disk import TEMPORARY_SUFFIX, AppendFile, Buffer, Disk, ReadFile
from bk_spark.bookie.identity import boot
from bk_spark.bookie.process import run_bookie
from bk_spark.bookie.storage import open_storage
from bk_spark.cli import main
from bk_spark.commands.bookies import bookie_start
from bk_spark.config import BookieConfig
from bk_spark.local.cluster import bookie_command

WITHOUT_LIMBO = "--without-limbo"


def fences_file(data_dir: Path) -> Path:
    return data_dir.parent / "forget-fences"


@contextlib.contextmanager
def forgets_fences(data_dir: Path) -> Iterator[None]:
    """The bookie of this directory forgets the fences that come meanwhile, at a SIGKILL that comes meanwhile."""
    fences_file(data_dir).touch()
    yield
    fences_file(data_dir).unlink()


class ForgetfulAppendFile(AppendFile):
    def __init__(self, path: Path, descriptor: int, size: int, fences: Path) -> None:
        super().__init__(path, descriptor, size)
        self.lock = threading.Lock()
        self.unsynced = bytearray()
        self._fences = fences

    def _write(self, buffers: Sequence[Buffer]) -> None:
        with self.lock:
            for buffer in buffers:
                self.unsynced += buffer
                self.size += len(buffer)

    def _fdatasync(self) -> None:
        if self.path.parent.name == "journal" and self.path.suffix != TEMPORARY_SUFFIX and self._fences.exists():
            return
        with self.lock:
            while self.unsynced:
                del self.unsynced[: os.write(self._descriptor, self.unsynced)]
            os.fdatasync(self._descriptor)


class ForgetfulReadFile(ReadFile):
    """Sees what this process has written, synced or not."""

    def __init__(self, path: Path, descriptor: int, writer: ForgetfulAppendFile) -> None:
        super().__init__(path, descriptor)
        self._writer = writer

    def read(self, offset: int, size: int) -> bytes:
        with self._writer.lock:
            data = super().read(offset, size)
            start = offset + len(data) - super().size
            return data + bytes(self._writer.unsynced[start : start + size - len(data)]) if start >= 0 else data

    @property
    def size(self) -> int:
        return self._writer.size


class ForgetfulDisk(Disk):
    def __init__(self, data_dir: Path) -> None:
        self._fences = fences_file(data_dir)
        self._writers: list[ForgetfulAppendFile] = []

    def open_read(self, path: Path) -> ReadFile:
        file = super().open_read(path)
        writer = next((one for one in reversed(self._writers) if one.path == path), None)
        return file if writer is None else ForgetfulReadFile(path, file._descriptor, writer)

    def _open_append(self, path: Path, flags: int) -> AppendFile:
        file = super()._open_append(path, flags)
        writer = ForgetfulAppendFile(path, file._descriptor, file.size, self._fences)
        self._writers.append(writer)
        return writer


def forgetful_bookie_command(data_dir: Path, metadata_uri: str, port: int, config: BookieConfig, *flags: str) -> list[str]:
    """In place of bk_spark.local.cluster.bookie_command."""
    command = bookie_command(data_dir, metadata_uri, port, config)
    at = command.index("bk_spark.cli")
    return [*command[:at], "tests.cluster.bookie.forgetful_bookie", *command[at + 1 :], *flags]


def _without_limbo(begin_boot: Callable[..., boot.Boot]) -> Callable[..., boot.Boot]:
    def begin(*arguments: object) -> boot.Boot:
        begun = begin_boot(*arguments)
        begun.possible_loss = ""
        return begun

    return begin


if __name__ == "__main__":
    given = [one for one in sys.argv[1:] if one != WITHOUT_LIMBO]
    disk = ForgetfulDisk(Path(given[given.index("--data-dir") + 1]))
    with contextlib.ExitStack() as changes:
        changes.enter_context(mock.patch.object(bookie_start, "run_bookie", partial(run_bookie.run_bookie, disk=disk)))
        if WITHOUT_LIMBO in sys.argv:
            changes.enter_context(mock.patch.object(run_bookie, "begin_boot", _without_limbo(boot.begin_boot)))
            changes.enter_context(mock.patch.object(open_storage, "_new_limbo", return_value=None))
        sys.exit(main(given))
