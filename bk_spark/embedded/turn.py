"""Whose turn it is to be the host of a directory: ``<DIR>/embedded.lock``, which one process at a time has locked.

A host takes its turn before it opens the cluster, and has it until its process has ended, whatever ends it. So while a host has
its turn and finds the cluster locked, no other host is there: another program runs the cluster.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

TURN_FILE = "embedded.lock"

_own: set[tuple[int, int]] = set()
"""The device and inode numbers of the files that turns of this process have locked."""


def is_hosted_elsewhere(directory: Path) -> bool:
    """Whether another process has its turn there, or looks at this moment whether it is its turn."""
    try:
        descriptor = os.open(directory / TURN_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _numbers(descriptor) not in _own
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def takes_part(pid: int, directory: Path) -> bool:
    """Whether a process has the file of turns open, as the host has. Its number is no sign: another process may have it by now.

    False where the system does not tell.
    """
    try:
        turn = os.stat(directory / TURN_FILE)
        return any(os.path.samestat(turn, found) for found in map(_stat, Path(f"/proc/{pid}/fd").iterdir()) if found)
    except OSError:
        return False


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:  # closed meanwhile
        return None


def _numbers(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


class Turn:
    """Of this process. It lasts until the process ends."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / TURN_FILE
        self._descriptor = -1

    def take(self) -> bool:
        """Whether this process has its turn, in the directory that the path leads to by now. Raises OSError."""
        if self._descriptor >= 0 and self._is_there():
            return True
        self.close()
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            return False
        _own.add(_numbers(self._descriptor))
        return self._is_there()

    def close(self) -> None:
        """Give it up."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _own.discard(_numbers(descriptor))
            os.close(descriptor)

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False
