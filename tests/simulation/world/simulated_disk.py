"""A disk in memory that forgets what was not synced, tears, fills up and fails.

It takes the place of ``bk_spark.bookie.disk.Disk``; all of the bookie's own code above it runs as shipped, its poisoning of
files after a failed write included.

Fault model. What was synced stays. A *killed process* loses nothing that it wrote, but what it wrote is no more synced than
before. A *crashed machine* keeps, of what was not synced, for each file: nothing, all, a prefix, or zeros in its place; where
data may be lost also a mixture, which looks like damage to the bookie; of each slot that was overwritten in place: the old
content or the new; of names made, renamed or deleted since the directory was synced: a prefix in their order. A crash may come
before or after any single call. A full disk takes a part of a write; a failing sync leaves open what of it is durable. ``rot``
flips a byte of what is durable, ``lose_file`` takes a whole file or its end. Out of scope: a disk that says synced and has not,
among them a kernel that reports a failed sync once and then counts the bytes as clean.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bk_spark.bookie.disk import AppendFile, Buffer, DirectoryLock, Disk, ReadFile, SlotFile, Space
from bk_spark.errors import StorageError
from tests.simulation.engines.choices import Choices

LOST_END_BYTES = 200
"""Most of the body of a small add, the last record of a journal."""


class MachineStops(BaseException):
    """The process or its machine ends here, in the middle of what it does."""


@dataclass(slots=True)
class Content:
    """A file's bytes, of which the first ``synced`` are durable."""

    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    overwritten: dict[int, bytes] = field(default_factory=dict)
    """By offset, what stood durably where a slot was overwritten since."""

    def durable(self) -> bytes:
        data = bytearray(self.data[: self.synced])
        for offset, before in self.overwritten.items():
            data[offset : offset + len(before)] = before
        return bytes(data)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of all that was durable."""

    files: dict[str, bytes]
    databases: dict[str, bytes]


class SimulatedDisk(Disk):
    """The disk of one bookie. ``databases`` are what the simulated index keeps here (simulated_index.py)."""

    def __init__(self, seed: int) -> None:
        self.databases: dict[str, Any] = {}
        self.at_step: Callable[[], None] = lambda: None
        """Called at every point at which the machine may stop."""
        self.is_copied = False
        """Whether ``copy`` is called in the midst of transactions of the databases."""
        self.fails_on: str | None = None
        """``write`` for a full disk, ``sync`` for one whose syncs fail, None for a healthy one."""
        self._names: dict[str, Content] = {}
        self._renamed: list[tuple[str, list[tuple[str, Content | None]]]] = []
        self._calls_left: int | None = None
        self._random = random.Random(seed)

    # --- faults

    def stop_after(self, calls: int) -> None:
        """Raise MachineStops at the so many-th call from now on."""
        self._calls_left = calls

    def stop_never(self) -> None:
        self._calls_left = None

    @property
    def unsynced(self) -> list[str]:
        """The files with bytes that a crash may take."""
        return [path for path, content in self._names.items() if content.synced < len(content.data)]

    def kill_process(self) -> None:
        """The process ends; what it wrote is still with the machine, as much synced as before."""
        self._calls_left = None
        for database in self.databases.values():
            if database.in_transaction:
                database.rollback()

    def crash_machine(self, choices: Choices, *, may_garble: bool) -> bool:
        """The machine ends. True if a tail came out garbled, which the bookie cannot tell from damage."""
        self.kill_process()
        kept = len(self._renamed) - choices.choose(len(self._renamed) + 1, "names lost")
        for _, changes in reversed(self._renamed[kept:]):
            for path, previous in changes:
                self._restore_name(path, previous)
        self._renamed.clear()
        garbled = False
        for _, content in sorted(self._names.items()):
            _lose_slots(content, choices)
            if content.synced < len(content.data):
                garbled |= _lose_tail(content, choices, may_garble)
        return garbled

    def rot(self, suffix: str, choices: Choices) -> str | None:
        """Flip a durable byte behind the header of a file whose name ends in ``suffix``; gives back its name."""
        paths = [path for path, one in sorted(self._names.items()) if path.endswith(suffix) and one.synced > 4096]
        if not paths:
            return None
        path = choices.pick(paths, "rotten file")
        content = self._names[path]
        content.data[4096 + choices.choose(content.synced - 4096, "rotten byte")] ^= 0x40
        return path

    def lose_file(self, choices: Choices) -> str | None:
        """A file is gone, or its end is, or that has become zeros; gives back its name."""
        paths = [path for path, one in sorted(self._names.items()) if one.synced]
        if not paths:
            return None
        path = choices.pick(paths, "lost file")
        content = self._names[path]
        how = choices.choose(3, "how it is lost")
        start = choices.choose(len(content.data), "lost from") if how else 0
        if how == 0:
            self._names.pop(path)
        elif how == 1:
            del content.data[start:]
        else:
            content.data[start:] = bytes(len(content.data) - start)
        content.synced = len(content.data)
        return path

    def lose_newest(self, suffix: str, *, end_only: bool) -> None:
        """The newest file whose name ends in ``suffix`` is gone, or its last LOST_END_BYTES have become zeros."""
        path = max(path for path in self._names if path.endswith(suffix))
        if end_only:
            self._names[path].data[-LOST_END_BYTES:] = bytes(LOST_END_BYTES)
        else:
            self._names.pop(path)

    def wipe(self) -> None:
        """All is gone."""
        self.databases.clear()
        self._names.clear()
        self._renamed.clear()

    def snapshot(self) -> Snapshot:
        files = {path: one.durable() for path, one in self._names.items()}
        return Snapshot(files, {path: one.serialize() for path, one in self.databases.items()})

    @property
    def state(self) -> object:
        """Differs from one moment to another if what a crash leaves may."""
        slots = [bytes(one.data) for one in self._names.values() if one.overwritten]
        files = [(path, len(one.data), one.synced) for path, one in self._names.items()]
        return files, slots, len(self._renamed), [one.commits for one in self.databases.values()]

    def copy(self, seed: int) -> SimulatedDisk:
        """Another disk in the very state of this one, what is not synced included; a transaction under way is not there."""
        other = SimulatedDisk(seed)
        other._names, other._renamed = deepcopy((self._names, self._renamed))
        other.databases = {path: _loaded(one.durable()) for path, one in self.databases.items()}
        return other

    def restore(self, snapshot: Snapshot) -> None:
        """Put an older state in the place of the present one."""
        self.wipe()
        self._names = {path: Content(bytearray(data), len(data)) for path, data in snapshot.files.items()}
        self.databases = {path: _loaded(data) for path, data in snapshot.databases.items()}

    # --- what a bookie calls

    def open_read(self, path: Path) -> ReadFile:
        content = self._names.get(str(path))
        if content is None:
            raise StorageError(f"opening {path}", os.strerror(errno.ENOENT))
        return _SimulatedReadFile(path, content)

    def open_slots(self, path: Path) -> SlotFile:
        self.step()
        return _SimulatedSlotFile(path, self._names[str(path)], self)

    def sync_all(self, files: Sequence[AppendFile]) -> None:
        """One after the other, as always in the same order."""
        for file in files:
            file.sync()

    def truncate(self, path: Path, size: int) -> None:
        self.step()
        content = self._names[str(path)]
        del content.data[size:]
        content.synced = len(content.data)
        self.step()

    def rewrite(self, path: Path, start: int) -> None:
        self.step()
        content = self._names[str(path)]
        content.synced = len(content.data)
        self.step()

    def exists(self, path: Path) -> bool:
        is_root = path.parent == path.parent.parent  # directories of bookies are there from the start
        return is_root or str(path) in self._names or str(path) in self.databases

    def _is_directory(self, path: Path) -> bool:
        return str(path) not in self._names and str(path) not in self.databases

    def claim(self, path: Path) -> None:
        """The index, for which this is, is not made of files here."""

    def make_directory(self, path: Path) -> None:
        """Directories are there from the start."""

    def sync_directory(self, directory: Path) -> None:
        self.step()
        self._renamed = [one for one in self._renamed if one[0] != str(directory)]
        self.step()

    def list(self, directory: Path) -> list[str]:
        prefix = f"{directory}/"
        return sorted(path[len(prefix) :] for path in self._names if path.startswith(prefix))

    def unlink(self, path: Path) -> None:
        self.step()
        self._change_names(path.parent, [(str(path), None)])

    def space(self, directory: Path) -> Space:
        return Space(1 << 40, 1 << 41)

    def lock(self, directory: Path) -> DirectoryLock:
        return _SimulatedLock(-1)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    # --- inside

    def step(self) -> None:
        """A point at which the machine may stop."""
        self.at_step()
        if self._calls_left is None:
            return
        self._calls_left -= 1
        if self._calls_left <= 0:
            self._calls_left = None
            raise MachineStops

    def _open_append(self, path: Path, flags: int) -> AppendFile:
        self.step()
        if flags & os.O_CREAT:
            self._change_names(path.parent, [(str(path), Content())])
        content = self._names.get(str(path))
        if content is None:
            raise StorageError(f"opening {path}", os.strerror(errno.ENOENT))
        return _SimulatedAppendFile(path, content, self)

    @contextmanager
    def _held(self, directory: Path) -> Iterator[Callable[[], None]]:
        yield lambda: self.sync_directory(directory)

    def _move(self, old: Path, new: Path) -> None:
        self.step()
        self._change_names(new.parent, [(str(new), self._names[str(old)]), (str(old), None)])

    def _change_names(self, directory: Path, changes: Sequence[tuple[str, Content | None]]) -> None:
        self._renamed.append((str(directory), [(path, self._names.get(path)) for path, _ in changes]))
        for path, content in changes:
            self._restore_name(path, content)

    def _restore_name(self, path: str, content: Content | None) -> None:
        if content is None:
            self._names.pop(path, None)
        else:
            self._names[path] = content


class _SimulatedAppendFile(AppendFile):
    def __init__(self, path: Path, content: Content, disk: SimulatedDisk) -> None:
        super().__init__(path, -1, len(content.data))
        self._content = content
        self._disk = disk

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, buffers: Sequence[Buffer]) -> None:
        self._disk.step()
        data = b"".join(buffers)
        if self._disk.fails_on == "write":
            self._content.data += data[: len(data) // 2]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._content.data += data
        self.size += len(data)

    def _fdatasync(self) -> None:
        self._disk.step()
        if self._disk.fails_on == "sync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._content.synced = len(self._content.data)
        self._disk.step()


class _SimulatedSlotFile(SlotFile):
    def __init__(self, path: Path, content: Content, disk: SimulatedDisk) -> None:
        super().__init__(path, -1)
        self._content = content
        self._disk = disk

    def close(self) -> None:
        """Nothing is held."""

    def _overwrite(self, offset: int, data: bytes) -> None:
        self._disk.step()
        if self._disk.fails_on == "write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        end = offset + len(data)
        self._content.overwritten.setdefault(offset, bytes(self._content.data[offset:end]))
        self._content.data[offset:end] = data
        self._disk.step()

    def _fdatasync(self) -> None:
        self._disk.step()
        if self._disk.fails_on == "sync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._content.overwritten.clear()
        self._disk.step()


class _SimulatedReadFile(ReadFile):
    def __init__(self, path: Path, content: Content) -> None:
        super().__init__(path, -1)
        self._content = content

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._content.data[offset : offset + size])

    @property
    def size(self) -> int:
        return len(self._content.data)

    def close(self) -> None:
        """Nothing is held."""


class _SimulatedLock(DirectoryLock):
    def release(self) -> None:
        """Nothing is held: a simulated bookie has one process at a time."""


def _lose_tail(content: Content, choices: Choices, may_garble: bool) -> bool:
    """Decide what a crash leaves of the bytes that were not synced; True if they are garbled."""
    start, end = content.synced, len(content.data)
    how = choices.choose(6 if may_garble else 4, "tail after a crash")
    cut = start if how in (0, 3) else end if how == 1 else start + choices.choose(end - start, "torn at")
    if how <= 2:  # lost, kept, torn
        del content.data[cut:]
    elif how <= 4:  # zeros from the first byte on, or from within
        content.data[cut:] = bytes(end - cut)
    else:  # the first part was not written, what follows was
        content.data[start:cut] = bytes(cut - start)
    content.synced = len(content.data)
    return how >= 4


def _lose_slots(content: Content, choices: Choices) -> None:
    """Decide for each slot that was overwritten and not synced whether it is the old one or the new one."""
    for offset, before in sorted(content.overwritten.items()):
        if choices.choose(2, "slot after a crash"):
            content.data[offset : offset + len(before)] = before
    content.overwritten.clear()


def _loaded(data: bytes) -> Any:
    from tests.simulation.world.simulated_index import new_database

    database = new_database()
    if data:
        database.deserialize(data)
    return database
