"""The only file-system calls of a bookie.

Everything a bookie promises rests on six habits that are kept here:

- A file gets its name only when its first bytes and the directory are synced. So a short header is damage, never the trace
  of a crash.
- A failed write or sync poisons the file: nobody knows what the disk holds, so nothing is retried or appended any more. A
  second fdatasync may return success without having written anything.
- What an operation needs open is opened before it writes anything. A process without a free descriptor gets NotOpenedError, and
  everything is as it was: the same operation can succeed later.
- Files only grow or are replaced as a whole. One small file is overwritten in place, by sectors, which a disk writes as a whole
  or not at all.
- What is made here is for its owner alone: a bookie stores what applications wrote, in the clear. What is there already keeps
  its permissions.
- Names of unfinished files end in ``TEMPORARY_SUFFIX``. After a crash these files mean nothing.

Files that became dirty together are synced in parallel, by a few threads that live as long as the process. Such files lie on
different disks, and an add then waits for the slowest of them, not for one after the other. Even on one disk two such syncs
took 0.09 instead of 0.12 ms, four of 100 kB 0.44 instead of 0.63 ms. The caller syncs a single file itself.

Ref: docs/formats.md, "Files of a bookie"; docs/rules.md, "Order of syncs" and storage rule 6.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bk_spark.errors import ConfigError, NotOpenedError, StorageError

TEMPORARY_SUFFIX = ".creating"
SECTOR_BYTES = 512
"""What a disk writes in one piece at least.

NB: nothing checks that. On a disk that tears sectors a power cut can damage the witness, which the CRC of each of its sectors
shows: the bookie then starts in limbo."""

KERNEL_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Linux's name of this boot of the kernel."""

MAX_BUFFERS = 1024
"""Linux's IOV_MAX: the most buffers that one writev takes."""

MAX_SMALL_FILE_BYTES = 64 * 1024
"""What ``read_small`` reads at most. Such files hold a few numbers."""

REWRITTEN_BYTES = 1024 * 1024
"""What ``rewrite`` reads and writes at a time."""

MAX_PARALLEL_SYNCS = 4
"""Beside the caller's own. At least as many disks work at the same time; further files take turns."""

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

_OTHERS = 0o077
"""The permission bits of everybody but the owner."""

_NOT_OPENED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of an open that say nothing about the disk."""

_SYNCERS = ThreadPoolExecutor(MAX_PARALLEL_SYNCS, thread_name_prefix="bookie-sync")

Buffer = bytes | bytearray | memoryview


class WrittenFile:
    """A file to write. After a failed write or sync every further one raises StorageError."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._poison: str | None = None

    def close(self) -> None:
        os.close(self._descriptor)

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


class SlotFile(WrittenFile):
    """A file whose sectors are overwritten in place. Any thread may write; it keeps its size."""

    def write(self, sector: int, data: bytes) -> None:
        """Overwrite the beginning of a sector. Durable after the next ``sync``, perhaps before; whole or not at all."""
        self._attempt("writing", self._overwrite, sector * SECTOR_BYTES, data)

    def sync(self) -> None:
        """Make all that was written durable."""
        self._attempt("syncing", self._fdatasync)

    def _overwrite(self, offset: int, data: bytes) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        if written < len(data):
            raise OSError(errno.EIO, f"{written} of {len(data)} bytes were written")


class AppendFile(WrittenFile):
    """A file that only grows. ``size`` counts the bytes written, ``synced`` those known to be durable."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        super().__init__(path, descriptor)
        self.size = size
        self.synced = 0

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all of ``buffers`` at the end. If that fails, this and every later call raise StorageError."""
        for start in range(0, len(buffers), MAX_BUFFERS):
            self._attempt("writing", self._write, buffers[start : start + MAX_BUFFERS])

    @property
    def is_dirty(self) -> bool:
        """``sync`` has something to write, or an earlier failure to report."""
        return self.synced < self.size or self._poison is not None

    def sync(self) -> None:
        """Make all that was appended durable. If this or a write failed, this and every later call raise StorageError.

        NB: a disk is believed when it says so. One that only has the bytes in a volatile cache loses acked entries.
        A sync has no time limit: those who wait for it have one.
        """
        if self.is_dirty:
            self._attempt("syncing", self._fdatasync)
            self.synced = self.size

    def _write(self, buffers: Sequence[Buffer]) -> None:
        total = sum(len(buffer) for buffer in buffers)
        written = os.writev(self._descriptor, buffers)
        while written < total:
            written += os.write(self._descriptor, b"".join(buffers)[written:])
        self.size += total


class ReadFile:
    """A file that any thread can read at any offset."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset``, fewer only where the file ends."""
        try:
            data = os.pread(self._descriptor, size, offset)
            while len(data) < size and (more := os.pread(self._descriptor, size - len(data), offset + len(data))):
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
    """A data directory that only this process may use, until ``release`` or its end."""

    descriptor: int

    def release(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class Space:
    free_bytes: int
    total_bytes: int


class Disk:
    """The file system. It holds no state; tests replace it by one that fails."""

    append_file: type[AppendFile] = AppendFile

    def create(self, path: Path, header: bytes) -> AppendFile:
        """A new file that begins with ``header``, ready for appends. Content and name are durable.

        Raises NotOpenedError only before anything was written.
        """
        with self.creating(path) as create:
            return create(header)

    @contextmanager
    def creating(self, path: Path) -> Iterator[Callable[[bytes], AppendFile]]:
        """Open what ``create`` needs; the function that it gives creates the file. Call that at most once.

        A caller that must not fail for lack of descriptors after a step of its own takes that step inside.
        """
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        with self._held(path.parent) as sync_names:
            file = self._open_append(temporary, os.O_CREAT | os.O_TRUNC)
            is_created = False

            def create(header: bytes) -> AppendFile:
                nonlocal is_created
                file.append([header])
                file.sync()
                self._move(temporary, path)
                sync_names()
                file.path, is_created = path, True
                return file

            try:
                yield create
            finally:
                if not is_created:
                    file.close()

    def open_append(self, path: Path) -> AppendFile:
        """An existing file, to append at its end. None of its bytes count as synced."""
        return self._open_append(path, 0)

    def open_slots(self, path: Path) -> SlotFile:
        """An existing file, to overwrite its sectors."""
        return SlotFile(path, self._open(path, os.O_WRONLY))

    def open_read(self, path: Path) -> ReadFile:
        return ReadFile(path, self._open(path, os.O_RDONLY))

    def sync_all(self, files: Sequence[AppendFile]) -> None:
        """Sync several files in parallel. Raises StorageError if one failed, but only after all have ended."""
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
        with _storage_errors(f"truncating {path}"), self._opened(path, os.O_WRONLY, "truncating") as descriptor:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)

    def rewrite(self, path: Path, start: int) -> None:
        """Write the bytes of a file from ``start`` on once more, in place, durably.

        After a failed sync the kernel may count pages as written that exist in its memory only. Every reader, also in the
        next process, then sees them, and another sync returns at once without writing them.
        """
        with _storage_errors(f"rewriting {path}"), self._opened(path, os.O_RDWR, "rewriting") as descriptor:
            while data := os.pread(descriptor, REWRITTEN_BYTES, start):
                start += os.pwrite(descriptor, data, start)
            os.fsync(descriptor)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace a small file by one that holds ``data``, durably. After a crash it has the old content or the new."""
        self.create(path, data).close()

    def read_small(self, path: Path) -> bytes | None:
        """The content of a small file, None if the file does not exist."""
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

    def is_directory(self, path: Path) -> bool:
        """Whether a directory is there. Raises ConfigError if it is something else, which a user named."""
        if not self.exists(path):
            return False
        if not self._is_directory(path):
            raise ConfigError("a directory of the bookie", str(path), "it is a file: name a directory")
        return True

    def _is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def is_open_to_others(self, path: Path) -> bool:
        """Whether anybody but the owner has a permission for it."""
        with _storage_errors(f"looking at {path}"):
            return bool(os.stat(path).st_mode & _OTHERS)

    def size(self, path: Path) -> int:
        with self.open_read(path) as file:
            return file.size

    def claim(self, path: Path) -> None:
        """Make an empty file for a library to fill, unless it exists: for its owner alone. Nothing is durable yet."""
        with self._opened(path, os.O_WRONLY | os.O_CREAT, "making"):
            pass

    def make_directory(self, path: Path) -> None:
        """Make a directory below an existing one, durably, unless it exists."""
        with _storage_errors(f"making directory {path}"):
            os.makedirs(path, DIRECTORY_MODE, exist_ok=True)
        self.sync_directory(path.parent)

    def sync_directory(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        with self._held(directory) as sync_names:
            sync_names()

    def list(self, directory: Path) -> list[str]:
        with _storage_errors(f"listing {directory}", not_opened=_NOT_OPENED):
            return sorted(os.listdir(directory))

    def unlink(self, path: Path) -> None:
        with _storage_errors(f"deleting {path}"):
            os.unlink(path)

    def probe(self, directory: Path, size: int) -> None:
        """Write, sync and delete a file of ``size`` bytes. Raises StorageError if that fails."""
        path = directory / f"probe{TEMPORARY_SUFFIX}"
        file = self._open_append(path, os.O_CREAT | os.O_TRUNC)
        try:
            file.append([bytes(size)])
            file.sync()
        finally:
            file.close()
            self.unlink(path)

    def space(self, directory: Path) -> Space:
        """The bytes that the file system of ``directory`` leaves to ordinary users, and its size."""
        with _storage_errors(f"measuring {directory}"):
            status = os.statvfs(directory)
        return Space(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)

    def file_system(self, directory: Path) -> str:
        """A text that all processes of this machine have for the file system of ``directory``, until it boots; empty: unknown.

        Device numbers belong to one boot of one kernel, which containers share. A machine id does not serve: containers of one
        image, and copied machines, have the same.
        """
        try:
            return f"{KERNEL_BOOT.read_text().strip()}:{os.stat(directory).st_dev:x}"
        except OSError:
            return ""

    def lock(self, directory: Path) -> DirectoryLock:
        """Take a data directory for this process alone. Raises ConfigError if another process has it or it does not exist."""
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
        with self._held(new.parent) as sync_names:
            self._move(old, new)
            sync_names()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        with _storage_errors(f"removing directory {path}"):
            os.rmdir(path)

    def _open_append(self, path: Path, flags: int) -> AppendFile:
        descriptor = self._open(path, os.O_WRONLY | os.O_APPEND | flags)
        with _storage_errors(f"opening {path}"):
            return self.append_file(path, descriptor, os.fstat(descriptor).st_size)

    @contextmanager
    def _held(self, directory: Path) -> Iterator[Callable[[], None]]:
        """Open a directory; the function that it gives makes the directory's names durable."""
        with self._opened(directory, os.O_RDONLY | os.O_DIRECTORY, "opening directory") as descriptor:

            def sync_names() -> None:
                with _storage_errors(f"syncing directory {directory}"):
                    os.fsync(descriptor)

            yield sync_names

    def _move(self, old: Path, new: Path) -> None:
        with _storage_errors(f"renaming {old} to {new.name}"):
            os.rename(old, new)

    @contextmanager
    def _opened(self, path: Path, flags: int, verb: str) -> Iterator[int]:
        """A descriptor, closed at the end."""
        descriptor = self._open(path, flags, verb)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, path: Path, flags: int, verb: str = "opening") -> int:
        with _storage_errors(f"{verb} {path}", not_opened=_NOT_OPENED):
            return self._descriptor(path, flags)

    def _descriptor(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


@contextmanager
def _storage_errors(action: str, *, not_opened: frozenset[int] = frozenset()) -> Iterator[None]:
    """Raise StorageError in place of an OSError, NotOpenedError in place of those in ``not_opened``."""
    try:
        yield
    except OSError as problem:
        kind = NotOpenedError if problem.errno in not_opened else StorageError
        raise kind(action, str(problem)) from problem


REAL_DISK = Disk()
