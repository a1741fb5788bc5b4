"""A disk of a bookie's own, which can be full, fail, or lose at a power cut what was never synced.

It is an ext4 file system in a file. Its ioctl "shutdown" makes all that is asked of it fail from then on, and drops what had
not reached its device: data that no sync covered are gone after the next mount, as behind a real disk whose power failed. But
any sync writes out all names and sizes so far, so a directory that was not synced is hardly ever missed here.
Ref: FS_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH in Linux's fs.h and ext4.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

SHUTDOWN = 0x8004587D
WITHOUT_ITS_LOG = 2

BYTES = 1 << 30
"""Far more than a cluster's rounds write. The file is sparse."""

OPTIONS = "loop,noauto_da_alloc,commit=300"
"""Nothing is written out because a file was renamed over another one, or because five seconds have passed."""

BALLAST = "ballast"

_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 1 << 18
"""Ref: linux/sched.h, linux/mount.h."""


def problem() -> str:
    """Why bookies cannot have such disks here; "" if they can."""
    missing = [name for name in ("mkfs.ext4", "mount", "umount") if shutil.which(name) is None]
    if not Path("/dev/loop-control").exists():
        missing.append("/dev/loop-control")
    return f"without {', '.join(missing)} bookies have no disks of their own" if missing else ""


def leave_mounts() -> None:
    """From now on this thread, and what it starts, mounts for itself alone: mounts end with the last of these processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "no mount namespace of its own: it needs root")


class Disk:
    """Mounted at ``place``, an empty directory; its file lies beside it. A new one is mounted."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._image = place.with_suffix(".disk")
        place.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(BYTES)
        _run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        self._mount()
        (place / "lost+found").rmdir()

    def fill(self) -> None:
        """Until it is freed, nothing new fits on it."""
        room = os.statvfs(self._place)
        with (self._place / BALLAST).open("ab") as ballast, contextlib.suppress(OSError):
            os.posix_fallocate(ballast.fileno(), 0, room.f_bavail * room.f_frsize * 99 // 100)
            while True:  # until it does not fit
                os.write(ballast.fileno(), bytes(room.f_frsize))
                os.fsync(ballast.fileno())

    def free(self) -> None:
        (self._place / BALLAST).unlink(missing_ok=True)

    def fail(self) -> None:
        """Until it is mended, whatever is asked of it fails. What was not synced is lost."""
        place = os.open(self._place, os.O_RDONLY)
        try:
            fcntl.ioctl(place, SHUTDOWN, struct.pack("I", WITHOUT_ITS_LOG))
        finally:
            os.close(place)

    def mend(self) -> None:
        """No process may use it."""
        _run("umount", str(self._place))
        self._mount()
        self.free()

    def close(self) -> None:
        """It ends with the last process that uses it. Its file stays, as what it holds may be asked for."""
        if os.path.ismount(self._place):  # a mend may have failed
            _run("umount", "--lazy", str(self._place))

    def _mount(self) -> None:
        _run("mount", "-o", OPTIONS, str(self._image), str(self._place))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
