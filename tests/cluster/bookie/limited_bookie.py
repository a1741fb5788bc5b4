"""A bookie process whose disk is as large, and as healthy, as a file says: ``bk-spark``, with such a disk for ``bookie start``.

The file is ``disk.json`` beside the data directory; without it the disk is the real one. It is read again at every call:

- ``limit_bytes``: all files in the data directory together, beyond which writes fail as on a full disk (ENOSPC), in the middle
  of a write too.
- ``reported_bytes``: what the disk says of its size; without it, ``limit_bytes``. Larger, it hides from the watermarks that the
  disk is full.
- ``full``: parts of paths; writes to these fail as on a full disk, though there is space.
- ``held``: a part of a path; writes to it wait for as long as it is set.
- ``fails``: pairs of ``write`` or ``sync`` and a part of a path; those calls fail as on a broken disk (EIO).

The index is not written through the disk module: it counts, and never fails.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bk_spark.bookie.disk import AppendFile, Buffer, Disk, Space
from bk_spark.bookie.process import run_bookie
from bk_spark.bookie.process.monitoring import MeasuredFile
from bk_spark.cli import main
from bk_spark.commands.bookies import bookie_start
from bk_spark.config import BookieConfig
from bk_spark.local.cluster import bookie_command

CONTROL_FILE = "disk.json"

REOPEN_PAUSE_S = 0.5
"""In place of the product's, between two tries to open the storage: each is cheap here."""


def set_disk(data_dir: Path, **settings: Any) -> None:
    """Have the disk of a bookie be so from now on."""
    control = data_dir.parent / CONTROL_FILE
    temporary = control.with_suffix(".new")
    temporary.write_text(json.dumps(settings))
    temporary.replace(control)


def used_bytes(data_dir: Path) -> int:
    """What all files in the directory take."""
    used = 0
    for parent, _, names in os.walk(data_dir):
        for name in names:
            try:
                used += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return used


class LimitedDisk(Disk):
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def space(self, directory: Path) -> Space:
        settings = self.settings()
        if "limit_bytes" not in settings:
            return super().space(directory)
        total = settings.get("reported_bytes", settings["limit_bytes"])
        return Space(max(0, total - used_bytes(self._data_dir)), total)

    def settings(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self._data_dir.parent / CONTROL_FILE).read_text())
        except FileNotFoundError:
            return {}
        return found

    def free(self) -> int:
        """What may still be written."""
        settings = self.settings()
        return settings["limit_bytes"] - used_bytes(self._data_dir) if "limit_bytes" in settings else sys.maxsize

    def check(self, verb: str, path: Path) -> None:
        while (held := self.settings().get("held")) and held in str(path):
            time.sleep(0.02)
        if verb == "write" and any(part in str(path) for part in self.settings().get("full", [])):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if any(verb == failing and part in str(path) for failing, part in self.settings().get("fails", [])):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _open_append(self, path: Path, flags: int) -> AppendFile:
        file = super()._open_append(path, flags)
        return _LimitedAppendFile(self, path, file._descriptor, file.size)


class _LimitedAppendFile(MeasuredFile):
    def __init__(self, disk: LimitedDisk, path: Path, descriptor: int, size: int) -> None:
        super().__init__(path, descriptor, size)
        self._disk = disk

    def _write(self, buffers: Sequence[Buffer]) -> None:
        self._disk.check("write", self.path)
        free = self._disk.free()
        if sum(len(buffer) for buffer in buffers) > free:
            os.write(self._descriptor, b"".join(buffers)[: max(0, free)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super()._write(buffers)

    def _fdatasync(self) -> None:
        self._disk.check("sync", self.path)
        super()._fdatasync()


def limited_bookie_command(data_dir: Path, metadata_uri: str, port: int, config: BookieConfig) -> list[str]:
    """In place of bk_spark.local.cluster.bookie_command."""
    command = bookie_command(data_dir, metadata_uri, port, config)
    at = command.index("bk_spark.cli")
    return [*command[:at], "tests.cluster.bookie.limited_bookie", *command[at + 1 :]]


if __name__ == "__main__":
    disk = LimitedDisk(Path(sys.argv[sys.argv.index("--data-dir") + 1]))
    run_bookie.REOPEN_PAUSE_S = REOPEN_PAUSE_S
    bookie_start.run_bookie = partial(run_bookie.run_bookie, disk=disk)  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))
