"""The directory of a local cluster: an open inode, which a path only led to.

A path may be renamed, removed, or given to another directory while its cluster runs. So the cluster opens the directory once,
locks it, and reaches every file through the open descriptor; its processes have it as their working directory and get paths
below it. What is written then goes into this directory wherever it is, or fails if it was removed; never into another one.

Linux follows a descriptor as ``/proc/self/fd/N``, and the working directory as ``/proc/self/cwd``. Other systems have neither:
there the paths are used, and a directory must not be moved while its cluster runs.

Whether a directory is still the one that ``cluster.json`` was written in shows its **mark**: the numbers of its inode and of
its file ``lock``, and when that file's inode changed last. A copy, and what was brought back from one, has another mark: it
is another cluster (renewal.py). ``chmod`` and ``ln`` on the file change the mark, too, which makes a cluster its own copy.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bk_spark.embedded.owners import MADE
from bk_spark.errors import ConfigError, State, StorageError

LOCK_FILE = "lock"

_FOLLOWS = sys.platform == "linux"


class DataDirectoryInUseError(ConfigError):
    """Another local cluster uses the directory."""


class ClusterDirectory:
    """An open directory. ``path`` is how people know it."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError if ``path`` is no directory, or may not be read."""
        self.path = path
        with config_errors(path):
            self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self.descriptor)
        self.inode = found.st_dev, found.st_ino
        self.from_child = Path("/proc/self/cwd") if _FOLLOWS else path
        """Leads to the directory for a process that has it as its working directory."""
        self._locked: tuple[int, int] | None = None

    @property
    def inside(self) -> Path:
        """Leads to the directory for calls of this process. Raises ConfigError once it is closed."""
        if self.descriptor < 0:
            raise ConfigError(
                "the local cluster", State("closed"), "nothing can be started in it any more: make a new LocalCluster"
            )
        return Path(f"/proc/self/fd/{self.descriptor}") if _FOLLOWS else self.path

    def here(self, path: Path) -> Path:
        """``path``, which is named below ``self.path``, for calls of this process."""
        return self.inside / path.relative_to(self.path) if path.is_relative_to(self.path) else path

    def below(self, path: Path) -> Path:
        """``path`` for the arguments of a process that has the directory as its working directory."""
        return path.relative_to(self.path) if _FOLLOWS and path.is_relative_to(self.path) else path

    def lock(self) -> tuple[int, ...]:
        """Descriptors that keep every other local cluster out, until all their copies are closed.

        The inode is locked, and for file systems that cannot lock one, the file ``lock``. Raises DataDirectoryInUseError;
        ConfigError if the file cannot be opened, or ``path`` leads elsewhere meanwhile.
        """
        locks: list[int] = []
        try:
            with config_errors(self.path):
                locks.append(os.open(self.inside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                self._take(locks[0], is_needed=False)
                locks.append(os.open(self.inside / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
                self._take(locks[1], is_needed=True)
                found = os.fstat(locks[1])
                self._locked = found.st_dev, found.st_ino
            if self.is_gone or not leads_to(self.path, self.inode):
                raise ConfigError("data_dir", str(self.path), "it was moved or removed meanwhile: try again")
        except BaseException:
            for descriptor in locks:
                os.close(descriptor)
            raise
        return tuple(locks)

    def _take(self, descriptor: int, *, is_needed: bool) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            remedy = "another local cluster uses it: close that one first"
            raise DataDirectoryInUseError("data_dir", str(self.path), remedy) from problem
        except OSError:
            if is_needed:
                raise

    @property
    def is_gone(self) -> bool:
        """Whether the locked directory was removed, or emptied: its file ``lock`` is not in it any more."""
        try:
            found = os.stat(LOCK_FILE, dir_fd=self.descriptor)
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != self._locked

    @property
    def mark(self) -> str:
        """Of a locked directory."""
        lock = os.stat(LOCK_FILE, dir_fd=self.descriptor)
        return f"{self.inode[1]}.{lock.st_ino}.{lock.st_ctime_ns}"

    def check_unshared(self) -> None:
        """Raise ConfigError for a file that another directory may share: a hard link, or a link to elsewhere.

        Bookies write into files that exist. So would those of the other directory, into the same ones. Files that are not the
        cluster's, such as a virtual environment beside it, may be links.
        """
        for directory, names, files in os.walk(self.inside):
            if directory == str(self.inside):
                names[:] = [name for name in names if MADE.fullmatch(name)]
                files = [name for name in files if MADE.fullmatch(name)]
            for name in (*names, *files):
                try:
                    found = os.lstat(os.path.join(directory, name))
                except OSError:
                    continue
                is_linked = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
                if is_linked or stat.S_ISLNK(found.st_mode):
                    file = self.path / Path(directory, name).relative_to(self.inside)
                    kind = "a hard link" if is_linked else "a symbolic link"
                    remedy = f"it is {kind}, so two clusters might write into one file: use a copy without links ('cp -aL')"
                    remedy += ", or remove the other one, which 'cp -l' made" if is_linked else ""
                    raise ConfigError("a file of the local cluster", str(file), remedy)

    def close(self) -> None:
        """A second call does nothing."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def inode_of(path: Path) -> tuple[int, int]:
    """The device and inode number. Raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def leads_to(path: Path, inode: tuple[int, int]) -> bool:
    """Whether ``path`` is the directory with this device and inode number."""
    try:
        return inode_of(path) == inode
    except OSError:
        return False


@contextmanager
def config_errors(path: Path) -> Iterator[None]:
    """What the system refuses about the directory, as a ConfigError."""
    try:
        yield
    except OSError as problem:
        raise ConfigError("data_dir", str(path), f"it cannot be used ({problem.strerror})") from problem


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """What the system refuses about a file that is written, as a StorageError."""
    try:
        yield
    except OSError as problem:
        raise StorageError(f"writing {path}", str(problem.strerror)) from problem
