"""The only file-system calls of a bookie.

Everything a bookie promises rests on three habits that are kept here:

- A file appears under its name only when its first bytes and the directory are synced, so a short header is damage,
  never the trace of a crash.
- A failed write or sync poisons the file: what the disk holds is unknown from then on, nothing is retried, nothing more
  is appended. A second fdatasync may return success without having written anything.
- Names of files in progress end in ``TEMPORARY_SUFFIX`` and mean nothing after a crash.

Files that became dirty together are synced at the same time, by a few threads that live as long as the process: they lie on
different disks, and an add waits for the slowest of them instead of all in turn. On one disk alone two such syncs took 0.09
instead of 0.12 ms, four of 100 kB 0.44 instead of 0.63 ms. One file is synced by the caller itself.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, "Order of syncs" and storage rule 6.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bk_spark.errors import ConfigError, StorageError

TEMPORARY_SUFFIX = ".creating"
MAX_BUFFERS = 1024
"""Linux's IOV_MAX: the most buffers that one writev takes."""

MAX_SMALL_FILE_BYTES = 64 * 1024
"""What ``read_small`` reads at most: such files hold a few numbers."""

REWRITTEN_BYTES = 1024 * 1024
"""At a time."""

MAX_PARALLEL_SYNCS = 4
"""Beyond the caller's own. As many disks at least wait at the same time; more files than that take turns."""

_SYNCERS = ThreadPoolExecutor(MAX_PARALLEL_SYNCS, thread_name_prefix="bookie-sync")

Buffer = bytes | bytearray | memoryview


class AppendFile:
    """A file that only grows. ``size`` counts what was written, ``synced`` what is known durable, in bytes."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self.synced = 0
        self._descriptor = descriptor
        self._poison: str | None = None

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all of ``buffers`` at the end. Raises StorageError, then and ever after, if any byte could not be written."""
        for start in range(0, len(buffers), MAX_BUFFERS):
            self._attempt("writing", self._write, buffers[start : start + MAX_BUFFERS])

    @property
    def is_dirty(self) -> bool:
        """A sync has something to do, or something to say: an earlier write or sync failed."""
        return self.synced < self.size or self._poison is not None

    def sync(self) -> None:
        """Make everything that was appended durable. Raises StorageError, then and ever after, if that or a write failed."""
        if self.is_dirty:
            self._attempt("syncing", self._fdatasync)
            self.synced = self.size

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, buffers: Sequence[Buffer]) -> None:
        total = sum(len(buffer) for buffer in buffers)
        written = os.writev(self._descriptor, buffers)
        while written < total:
            written += os.write(self._descriptor, b"".join(buffers)[written:])
        self.size += total

    def _fdatasync(self) -> None:
        os.fdatasync(self._descriptor)

    def _attempt(self, verb: str, call: Callable[..., None], *arguments: object) -> None:
        if self._poison is not None:
            raise StorageError(f"{verb} {self.path}", f"an earlier write or sync failed: {self._poison}")
        try:
            call(*arguments)
        except OSError as problem:
            self._poison = str(problem)
            raise StorageError(f"{verb} {self.path}", self._poison) from problem


class ReadFile:
    """A file open for reads at any offset, by any thread."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset``, fewer only where the file ends."""
        try:
            data = os.pread(self._descriptor, size, offset)
            while len(data) < size:
                more = os.pread(self._descriptor, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as problem:
            raise StorageError(f"reading {self.path}", str(problem)) from problem
        return data

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> ReadFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class DirectoryLock:
    """The sole use of a data directory by one process; it ends with ``release`` or with the process."""

    descriptor: int

    def release(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class Space:
    free_bytes: int
    total_bytes: int


class Disk:
    """The file system. It holds no state: tests of faults put another one in its place."""

    append_file: type[AppendFile] = AppendFile

    def create(self, path: Path, header: bytes) -> AppendFile:
        """A new file that begins with ``header``, durable with its name, ready for appends."""
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        file = self._open_append(temporary, os.O_CREAT | os.O_TRUNC)
        try:
            file.append([header])
            file.sync()
            self._rename(temporary, path)
        except BaseException:
            file.close()
            raise
        file.path = path
        return file

    def open_append(self, path: Path) -> AppendFile:
        """An existing file, to append at its end; nothing of it counts as synced."""
        return self._open_append(path, 0)

    def open_read(self, path: Path) -> ReadFile:
        try:
            return ReadFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as problem:
            raise StorageError(f"opening {path}", str(problem)) from problem

    def sync_all(self, files: Sequence[AppendFile]) -> None:
        """Sync several files at the same time. Raises StorageError if one failed, after all have ended."""
        waiting = [_SYNCERS.submit(file.sync) for file in files[1:]]
        try:
            if files:
                files[0].sync()
        finally:
            failures = [one.exception() for one in waiting]
        for failure in failures:
            if failure is not None:
                raise failure

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to ``size`` bytes, durably."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise StorageError(f"truncating {path}", str(problem)) from problem

    def rewrite(self, path: Path, start: int) -> None:
        """Write what a file holds from ``start`` on once more, in its place, durably.

        After a failed sync the kernel may count pages as written that are in its memory alone: it gives them to whoever
        reads, also to the next process, and another sync returns at once.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                while data := os.pread(descriptor, REWRITTEN_BYTES, start):
                    start += os.pwrite(descriptor, data, start)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise StorageError(f"rewriting {path}", str(problem)) from problem

    def replace(self, path: Path, data: bytes) -> None:
        """Put ``data`` in the place of a small file, durably: after a crash it is the old content or the new."""
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        file = self._open_append(temporary, os.O_CREAT | os.O_TRUNC)
        try:
            file.append([data])
            file.sync()
        finally:
            file.close()
        self._rename(temporary, path)

    def read_small(self, path: Path) -> bytes | None:
        """The content of a small file, None if there is none."""
        if not self.exists(path):
            return None
        with self.open_read(path) as file:
            return file.read(0, MAX_SMALL_FILE_BYTES)

    def exists(self, path: Path) -> bool:
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        except OSError as problem:
            raise StorageError(f"looking for {path}", str(problem)) from problem
        return True

    def size(self, path: Path) -> int:
        with self.open_read(path) as file:
            return file.size

    def make_directory(self, path: Path) -> None:
        """Make a directory below an existing one, durably, unless it is there."""
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as problem:
            raise StorageError(f"making directory {path}", str(problem)) from problem
        self.sync_directory(path.parent)

    def sync_directory(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise StorageError(f"syncing directory {directory}", str(problem)) from problem

    def list(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except OSError as problem:
            raise StorageError(f"listing {directory}", str(problem)) from problem

    def unlink(self, path: Path) -> None:
        try:
            os.unlink(path)
        except OSError as problem:
            raise StorageError(f"deleting {path}", str(problem)) from problem

    def probe(self, directory: Path, size: int) -> None:
        """Write, sync and delete a file of ``size`` bytes. Raises StorageError if the disk does not take it."""
        path = directory / f"probe{TEMPORARY_SUFFIX}"
        file = self._open_append(path, os.O_CREAT | os.O_TRUNC)
        try:
            file.append([bytes(size)])
            file.sync()
        finally:
            file.close()
            self.unlink(path)

    def space(self, directory: Path) -> Space:
        """What the file system of ``directory`` leaves to ordinary users, and its size."""
        try:
            status = os.statvfs(directory)
        except OSError as problem:
            raise StorageError(f"measuring {directory}", str(problem)) from problem
        return Space(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)

    def lock(self, directory: Path) -> DirectoryLock:
        """Take a data directory for this process alone. Raises ConfigError if another one has it or it is not there."""
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as problem:
            raise ConfigError("the data directory", str(directory), f"it cannot be opened ({problem.strerror})") from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            os.close(descriptor)
            raise ConfigError("the data directory", str(directory), "another process uses it: stop that one first") from problem
        return DirectoryLock(descriptor)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or a directory another name in the same directory, durably. ``new`` must not be a directory in use."""
        self._rename(old, new)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        try:
            os.rmdir(path)
        except OSError as problem:
            raise StorageError(f"removing directory {path}", str(problem)) from problem

    def _open_append(self, path: Path, flags: int) -> AppendFile:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o644)
            return self.append_file(path, descriptor, os.fstat(descriptor).st_size)
        except OSError as problem:
            raise StorageError(f"opening {path}", str(problem)) from problem

    def _rename(self, old: Path, new: Path) -> None:
        try:
            os.rename(old, new)
        except OSError as problem:
            raise StorageError(f"renaming {old} to {new.name}", str(problem)) from problem
        self.sync_directory(new.parent)


REAL_DISK = Disk()
