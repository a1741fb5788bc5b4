"""Which disks take new bytes: two watermarks, a reserve, and a gap so that a bookie does not change its state at every entry.

A directory is *full* when its disk has less free space than ``(1 - disk_usage_high)`` of its size or than the reserve,
whichever is more; it is no longer full when it has the part between the two watermarks more than that. A full entry log
directory takes no new files and appends while another one is not full. When all of them are, or one that nothing can
take the place of (journals, index), the bookie is read-only: then it refuses normal adds, and fences, the adds of recoveries,
deletions, checkpoints and compactions go on. They live on the reserve.

**What is needed**, on every disk because one may hold all of the directories, for what was taken already::

    sync_queue_bytes + MAX_BATCH_BYTES    requests that wait, of which one may exceed the queue
    + 2 * write_cache_bytes               copies of the cache that is filling and of the one that is being written
    + 4 * write_cache_bytes               the index's rollback journal: of each KiB in the cache, at most a row or a ledger,
                                          it keeps one page of 4 KiB

The reserve is twice as much: half of it is for recoveries and for compaction. When that half is used up the bookie is
*exhausted* and refuses the adds of recoveries, too, so that its own writes never find a disk without space, and garbage
collection finds the little that it takes to give space back. Where other files take it, a write fails: availability.py.

The sync thread looks before groups of requests (sync_thread.py, LOOK_S).

Ref: docs/rules.md, protocol rule 47, storage rule 6; situation 68.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk, Space
from bk_spark.config import MAX_BATCH_BYTES, BookieConfig
from bk_spark.errors import StorageError

INDEX_JOURNAL_FACTOR = 4
"""Pages of 4 KiB in the index's rollback journal for each KiB of the write cache."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_SQLITE_FULL = 13

logger = logging.getLogger(__name__)


class TakesAdds(Protocol):
    """What is told of full disks: the bookie, on its sync thread."""

    def set_read_only(self, is_read_only: bool, *, is_exhausted: bool) -> None: ...
    def set_writable_directories(self, ordinals: Sequence[int]) -> None: ...


@dataclass(frozen=True, slots=True)
class Watermarks:
    usage_high: float
    usage_low: float
    needed_bytes: int
    """For what was taken already; the reserve is twice as much."""

    @classmethod
    def of(cls, config: BookieConfig) -> Watermarks:
        caches = (2 + INDEX_JOURNAL_FACTOR) * config.write_cache_bytes
        return cls(config.disk_usage_high, config.disk_usage_low, config.sync_queue_bytes + MAX_BATCH_BYTES + caches)

    @property
    def reserve_bytes(self) -> int:
        return 2 * self.needed_bytes

    def is_exhausted(self, space: Space) -> bool:
        return space.free_bytes < self.needed_bytes

    def is_full(self, space: Space, *, was_full: bool) -> bool:
        gap = (self.usage_high - self.usage_low) * space.total_bytes if was_full else 0
        return space.free_bytes < max((1 - self.usage_high) * space.total_bytes, self.reserve_bytes) + gap


@dataclass(frozen=True, slots=True)
class DiskState:
    """What follows from one look at all directories."""

    full: frozenset[Path] = frozenset()
    writable: tuple[int, ...] = ()
    """Ordinals of the entry log directories that are not full."""
    problem: str = ""
    """Why the bookie takes no adds; empty: it does."""
    is_exhausted: bool = False
    """It takes not even the adds of recoveries."""


def decide(
    directories: Directories, spaces: Mapping[Path, Space | None], before: frozenset[Path], watermarks: Watermarks
) -> DiskState:
    """The state after a look, from the directories that were full ``before``. One that could not be measured, None, is full."""
    full, exhausted = set(), set()
    for path, space in spaces.items():
        if space is None or watermarks.is_full(space, was_full=path in before):
            full.add(path)
        if space is None or watermarks.is_exhausted(space):
            exhausted.add(path)
    writable = tuple(ordinal for ordinal, path in enumerate(directories.entry_logs) if path not in full)
    named = ", ".join(sorted(str(path) for path in full))
    problem = f"too little free space in {named}" if _are_too_many(directories, full) else ""
    return DiskState(frozenset(full), writable, problem, _are_too_many(directories, exhausted))


def _are_too_many(directories: Directories, lost: set[Path]) -> bool:
    """Whether an add needs one of the directories ``lost``."""
    return lost.issuperset(directories.entry_logs) or not lost.isdisjoint((directories.data_dir, *directories.journals))


class DiskWatch:
    """Looks at the disks of one bookie and remembers which were full."""

    def __init__(self, directories: Directories, config: BookieConfig, disk: Disk) -> None:
        self._directories = directories
        self._watermarks = Watermarks.of(config)
        self._disk = disk
        self._written = tuple(range(len(directories.entry_logs)))
        self.state = DiskState(writable=self._written)
        """After the last look. Any thread may read it."""

    def look(self, bookie: TakesAdds) -> None:
        """Look at all directories, and tell the bookie what changed. The sync thread's alone."""
        spaces = self.spaces()
        before, self.state = self.state, decide(self._directories, spaces, self.state.full, self._watermarks)
        if self.state.writable and self.state.writable != self._written:
            self._written = self.state.writable
            bookie.set_writable_directories(self._written)
        mode, mode_before = (_mode(state) for state in (self.state, before))
        if mode != mode_before:
            is_read_only, is_exhausted = mode
            bookie.set_read_only(is_read_only, is_exhausted=is_exhausted)
            logger.warning("%s", self._explain(self.state))

    def spaces(self) -> dict[Path, Space | None]:
        """Each directory's disk as it is now; None where it cannot be measured. Any thread."""
        return {path: self._space(path) for path in self._watched()}

    def spare_bytes(self) -> int:
        """What compaction may take on each disk with entry logs that are written: it gives back more. Any thread."""
        spaces = [self._space(self._directories.entry_logs[ordinal]) for ordinal in self._written]
        free = min(space.free_bytes if space is not None else 0 for space in spaces)
        return max(0, free - self._watermarks.needed_bytes)

    def probe(self) -> bool:
        """Whether every directory takes as much as a batch has at most, durably. Waits for the disks; any thread."""
        try:
            for root in self._directories.roots:
                self._disk.probe(root, MAX_BATCH_BYTES)
        except StorageError as problem:
            logger.info("the disks do not take writes yet: %s", problem)
            return False
        return True

    def _watched(self) -> tuple[Path, ...]:
        return (self._directories.data_dir, *self._directories.journals, *self._directories.entry_logs)

    def _space(self, path: Path) -> Space | None:
        try:
            return self._disk.space(path)
        except StorageError:
            return None

    def _explain(self, state: DiskState) -> str:
        if not state.problem:
            return "there is space again: the bookie takes adds"
        needed = f"{self._watermarks.usage_high:.0%} full at most, {self._watermarks.reserve_bytes >> 20} MiB free at least"
        ways = "delete ledgers and run 'bk-spark bookie gc run', make the disks larger"
        remedy = f"{ways}, or lower write_cache_bytes and sync_queue_bytes"
        what = "takes not even the adds of recoveries" if state.is_exhausted else "is read-only"
        return f"the bookie {what}, {state.problem} ({needed}): {remedy}"


def _mode(state: DiskState) -> tuple[bool, bool]:
    return bool(state.problem), state.is_exhausted


def is_out_of_space(failure: BaseException | None) -> bool:
    """Whether a failure of the storage comes from a full disk, or a full quota, alone."""
    while failure is not None:
        if isinstance(failure, OSError) and failure.errno in _NO_SPACE:
            return True
        if getattr(failure, "sqlite_errorcode", None) == _SQLITE_FULL:
            return True
        failure = failure.__cause__
    return False
