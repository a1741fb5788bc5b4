"""Watches the free space on the disks, and makes the bookie read-only in time.

A directory is *full* when its disk has less free space than ``(1 - disk_usage_high)`` of its size, or than the reserve,
whichever is more. It stays full until its free space exceeds that by the part between the two watermarks, so that the state
does not change with every entry. A full entry log directory takes no new files and appends while another one is not full. When
all of them are full, or a directory that nothing can replace (journals, index), the bookie is read-only: it refuses normal
adds; fences, the adds of recoveries, deletions, checkpoints and compactions go on. These use the reserve.

**Needed space**, on every disk because one disk may hold all directories, for what the bookie took already::

    sync_queue_bytes + MAX_BATCH_BYTES    requests that wait; one of them may exceed the queue
    + 2 * write_cache_bytes               copies of the cache that is filling and of the one that is being written
    + 4 * write_cache_bytes               the index's rollback journal: each KiB in the cache has at most one batch or ledger,
                                          for which the journal keeps one page of 4 KiB

The reserve is twice as much; one half of it is for recoveries and compaction. When that half is used up, the bookie is
*exhausted* and refuses the adds of recoveries, too. So its own writes always find space, and garbage collection finds the
little it needs to free more. If other files take that space, a write fails: registration.py.

The sync thread looks before groups of requests (sync_thread.py, LOOK_S).

Ref: docs/rules.md, protocol rule 47, storage rule 6; situation 68.
"""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bk_spark.bookie.bookie import Bookie
from bk_spark.bookie.directories import Directories
from bk_spark.bookie.disk import Disk, Space
from bk_spark.config import MAX_BATCH_BYTES, BookieConfig
from bk_spark.errors import NotOpenedError, StorageError

INDEX_JOURNAL_FACTOR = 4
"""Pages of 4 KiB in the index's rollback journal for each KiB of the write cache."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_SQLITE_FULL = 13

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watermarks:
    usage_high: float
    usage_low: float
    needed_bytes: int
    """For what the bookie took already; the reserve is twice as much."""

    @classmethod
    def of(cls, config: BookieConfig) -> Watermarks:
        caches = (2 + INDEX_JOURNAL_FACTOR) * config.write_cache_bytes
        return cls(config.disk_usage_high, config.disk_usage_low, config.sync_queue_bytes + MAX_BATCH_BYTES + caches)

    @property
    def reserve_bytes(self) -> int:
        return 2 * self.needed_bytes

    def is_full(self, space: Space, *, was_full: bool) -> bool:
        return space.free_bytes < self.wanted_bytes(space, was_full=was_full)

    def wanted_bytes(self, space: Space, *, was_full: bool) -> float:
        """So much has to be free that a directory on the disk is not full."""
        gap = (self.usage_high - self.usage_low) * space.total_bytes if was_full else 0
        return max((1 - self.usage_high) * space.total_bytes, self.reserve_bytes) + gap


@dataclass(frozen=True, slots=True)
class DiskState:
    """The result of one look at all directories."""

    full: frozenset[Path] = frozenset()
    writable: tuple[int, ...] = ()
    """Ordinals of the entry log directories that are not full."""
    problem: str = ""
    """Why the bookie takes no adds; empty if it does."""
    is_exhausted: bool = False
    """Whether it refuses even the adds of recoveries."""


def decide(
    directories: Directories, spaces: Mapping[Path, Space | None], before: frozenset[Path], watermarks: Watermarks
) -> DiskState:
    """The state after a look; ``before`` are the directories that were full. Directories not measured (None) count as full."""
    full, exhausted = set(), set()
    for path, space in spaces.items():
        if space is None or watermarks.is_full(space, was_full=path in before):
            full.add(path)
        if space is None or space.free_bytes < watermarks.needed_bytes:
            exhausted.add(path)
    writable = tuple(ordinal for ordinal, path in enumerate(directories.entry_logs) if path not in full)
    problem = _problem(full, spaces, watermarks) if _are_too_many(directories, full) else ""
    return DiskState(frozenset(full), writable, problem, _are_too_many(directories, exhausted))


def _problem(full: set[Path], spaces: Mapping[Path, Space | None], watermarks: Watermarks) -> str:
    """Which directories are full, and what has to be free until they are not."""
    named = ", ".join(sorted(str(path) for path in full))
    wanted = [watermarks.wanted_bytes(space, was_full=True) for path in full if (space := spaces[path]) is not None]
    amount = f": {math.ceil(round(max(wanted)) / 2**20)} MiB have to be free" if wanted else ""
    return f"too little free space in {named}{amount}"


def _are_too_many(directories: Directories, lost: set[Path]) -> bool:
    """Whether adds are impossible without the directories ``lost``."""
    return lost.issuperset(directories.entry_logs) or not lost.isdisjoint((directories.data_dir, *directories.journals))


class DiskWatch:
    """Looks at the disks of one bookie and remembers which were full."""

    def __init__(self, directories: Directories, config: BookieConfig, disk: Disk) -> None:
        self._directories = directories
        self._watermarks = Watermarks.of(config)
        self._disk = disk
        self._writable = tuple(range(len(directories.entry_logs)))
        """Ordinals of the entry log directories that the bookie may write to."""
        self.state = DiskState(writable=self._writable)
        """After the last look. Any thread may read it."""

    def look(self, bookie: Bookie) -> None:
        """Look at all directories, and tell the bookie what changed. For the sync thread alone."""
        spaces = self.spaces()
        before, self.state = self.state, decide(self._directories, spaces, self.state.full, self._watermarks)
        if self.state.writable and self.state.writable != self._writable:
            self._writable = self.state.writable
            bookie.set_writable_directories(self._writable)
        if (bool(self.state.problem), self.state.is_exhausted) != (bool(before.problem), before.is_exhausted):
            bookie.set_read_only(bool(self.state.problem), is_exhausted=self.state.is_exhausted)
            logger.warning("%s", self._explain(self.state))

    def spaces(self) -> dict[Path, Space | None]:
        """The space on each directory's disk now; None if it cannot be measured. Any thread."""
        directories = self._directories
        watched = (directories.data_dir, *directories.journals, *directories.entry_logs)
        return {path: self._space(path) for path in watched}

    def spare_bytes(self) -> int:
        """What compaction, which frees more in the end, may take on each disk with writable entry logs. Any thread."""
        spaces = [self._space(self._directories.entry_logs[ordinal]) for ordinal in self._writable]
        free = min(space.free_bytes if space is not None else 0 for space in spaces)
        return max(0, free - self._watermarks.needed_bytes)

    def probe(self) -> bool:
        """Whether every directory takes a batch of maximum size, durably. Waits for the disks; any thread."""
        try:
            for root in self._directories.roots:
                self._disk.probe(root, MAX_BATCH_BYTES)
        except (StorageError, NotOpenedError) as problem:
            logger.info("the disks do not take writes yet: %s", problem)
            return False
        return True

    def _space(self, path: Path) -> Space | None:
        try:
            return self._disk.space(path)
        except StorageError:
            return None

    def _explain(self, state: DiskState) -> str:
        if not state.problem:
            return "there is space again: the bookie takes adds"
        needed = f"{self._watermarks.usage_high:.0%} full at most, {self._watermarks.reserve_bytes >> 20} MiB free at least"
        ways = "delete ledgers and run 'bk-spark bookie gc run BOOKIE_ID', make the disks larger"
        remedy = f"{ways}, or lower write_cache_bytes and sync_queue_bytes"
        what = "takes not even the adds of recoveries" if state.is_exhausted else "is read-only"
        return f"the bookie {what}, {state.problem} ({needed}): {remedy}"


def is_out_of_space(failure: BaseException | None) -> bool:
    """Whether the storage failed only because a disk, or a quota, is full."""
    while failure is not None:
        if isinstance(failure, OSError) and failure.errno in _NO_SPACE:
            return True
        if getattr(failure, "sqlite_errorcode", None) == _SQLITE_FULL:
            return True
        failure = failure.__cause__
    return False
